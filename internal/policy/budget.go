package policy

import (
	"encoding/json"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// tokenBudget is how many tokens a run may use, with what people have added; 0 = no limit.
func tokenBudget(d *agent.Definition, s *run.AgentState) int64 {
	if d.Limits.Tokens == 0 {
		return 0
	}
	return d.Limits.Tokens + s.Budget.Tokens
}

// usdBudget is what a run may cost, with what people have added; 0 = no limit.
func usdBudget(d *agent.Definition, s *run.AgentState) run.USD {
	if d.Limits.USD == 0 {
		return 0
	}
	return d.Limits.USD.Add(s.Budget.USD)
}

func isUsed[T int64 | run.USD](budget, used T) bool { return budget > 0 && used >= budget }

// wantsBudget reports whether the run must ask people for more budget, or waits for their answer.
func wantsBudget(d *agent.Definition, s *run.AgentState) bool {
	return isBudgetGate(d, s) && !s.Budget.Refused
}

// isBudgetGate reports whether the budget is what keeps the run from going on, and people are asked about it. A run
// that has also used up its interactions, or its context, does not ask: more budget would not let it continue.
func isBudgetGate(d *agent.Definition, s *run.AgentState) bool {
	if d.Limits.OnBudget != agent.OnBudgetAsk {
		return false
	}
	i := exhaustedLimit(d, s)
	return i >= 0 && (limits[i].code == run.CodeTokensExhausted || limits[i].code == run.CodeUSDExhausted) &&
		!s.Full.Said()
}

// askBudget is the call that asks people for as much again of what is used up.
func askBudget(d *agent.Definition, s *run.AgentState) (run.BudgetAsked, bool) {
	if !wantsBudget(d, s) {
		return run.BudgetAsked{}, false
	}
	var raise run.Raise
	if isUsed(tokenBudget(d, s), s.Usage.Total()) {
		raise.Tokens = d.Limits.Tokens
	}
	if usd := d.Limits.USD; isUsed(usdBudget(d, s), s.Cost) {
		raise.USD = &usd
	}
	input, _ := json.Marshal(raise) // numbers always marshal
	for n := s.Budget.Asked + 1; ; n++ {
		id := fmt.Sprintf("budget-%d", n)
		if _, used := s.Call(id); !used {
			return run.BudgetAsked{Call: id, Input: input}, true
		}
	}
}
