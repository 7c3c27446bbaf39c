package run

import (
	"encoding/json"
	"slices"

	"github.com/countersign/countersign/internal/jsonx"
)

// ToolBudget is the original name of the call by which a run asks people for more budget (limits.onBudget: ask).
const ToolBudget = "budget.raise"

// Budget is what people have added to the limits of a run.
type Budget struct {
	Tokens  int64 `json:",omitempty"`
	USD     USD   `json:",omitempty"`
	Asked   int   `json:",omitempty"` // how often people were asked
	Refused bool  `json:",omitempty"` // they were asked last and have added nothing: the run ends at its limit
}

// Raise is the arguments of a call of ToolBudget: what is added to each limit.
type Raise struct {
	Tokens int64 `json:"tokens,omitempty"`
	USD    *USD  `json:"usd,omitempty"` // nil = nothing
}

func readRaise(args json.RawMessage) (r Raise, err error) {
	err = jsonx.ReadStored("raise", args, &r)
	return r, err
}

// BudgetAsked says that a run has used up its budget and asks people for more: by a call that no model has made and
// none is told of. It is the one open call of the run.
type BudgetAsked struct {
	Call  string          `json:"call"`
	Input json.RawMessage `json:"input"`
}

func (e BudgetAsked) apply(s *AgentState) error {
	if _, known := s.Call(e.Call); known {
		return nil
	}
	if err := s.requireAwake(); err != nil {
		return err
	}
	if open := s.OpenCall(); open != nil || e.Call == "" {
		return &ApplyError{Call: e.Call, Problem: "a run asks for budget by a call of its own, when none is open"}
	}
	if _, err := readRaise(e.Input); err != nil {
		return &ApplyError{Call: e.Call, Problem: err.Error()}
	}
	c := Call{ID: e.Call, Tool: ToolBudget, Name: "budget_raise", Input: e.Input, Inference: s.Round.Inference,
		Effect: EffectNonIdempotent, Budget: true}
	if err := c.transition(StatusNew); err != nil {
		return err
	}
	s.Live = append(slices.Clip(s.Live), c)
	s.Budget.Asked++
	return nil
}

// settleBudget adds what people have granted to the run's budget. Nothing of it is said in the conversation.
func (s *AgentState) settleBudget(c *Call) error {
	c.Result.Shown = true
	if s.Budget.Refused = c.Status != StatusSucceeded; s.Budget.Refused {
		return nil
	}
	raise, err := readRaise(c.Input)
	if err != nil {
		return &ApplyError{Call: c.ID, Problem: err.Error()}
	}
	s.Budget.Tokens += raise.Tokens
	if raise.USD != nil {
		s.Budget.USD = s.Budget.USD.Add(*raise.USD)
	}
	return nil
}
