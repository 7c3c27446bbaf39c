package run

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
)

// The original names of the calls with which a run requests more budget (limits.onBudget: ask): for itself, for all
// runs of its agent, and for all runs of the tenant.
const (
	ToolBudget       = "budget.raise"
	ToolAgentBudget  = "budget.raise_agent"
	ToolTenantBudget = "budget.raise_tenant"
)

// IsBudgetTool reports whether the original name is that of a tool that raises a budget.
func IsBudgetTool(name string) bool {
	return name == ToolBudget || IsSharedBudgetTool(name)
}

// IsSharedBudgetTool reports whether the original name is that of a tool that raises a budget of many runs.
func IsSharedBudgetTool(name string) bool { return name == ToolAgentBudget || name == ToolTenantBudget }

// Budget is what people have added to the limits of a run.
type Budget struct {
	Tokens  int64 `json:",omitempty"`
	USD     USD   `json:",omitempty"`
	Asked   int   `json:",omitempty"` // how often people were asked
	Refused bool  `json:",omitempty"` // the last request added nothing: the run ends at its limit
	// the exhausted part of a shared budget to which people added nothing: the run ends because of it
	Shared ErrorCode `json:",omitempty"`
}

// Raise holds the arguments of a budget tool: the addition to each limit.
type Raise struct {
	Tokens int64 `json:"tokens,omitempty"`
	USD    *USD  `json:"usd,omitempty"` // nil = nothing
}

// UsedUp returns the error code of the limit that r raises.
func (r Raise) UsedUp() ErrorCode {
	if r.USD != nil {
		return CodeUSDExhausted
	}
	return CodeTokensExhausted
}

// Lacks returns the key of the first limit that r raises and other does not, or "". Such a limit is still used up, and
// the run would ask for it again.
func (r Raise) Lacks(other Raise) string {
	switch {
	case r.Tokens > 0 && other.Tokens <= 0:
		return "tokens"
	case r.USD != nil && (other.USD == nil || *other.USD <= 0):
		return "usd"
	}
	return ""
}

// ReadRaise parses the arguments of a budget tool.
func ReadRaise(args json.RawMessage) (r Raise, err error) {
	err = jsonx.ReadStored("raise", args, &r)
	return r, err
}

// BudgetAsked says that a run has used up its budget and asks people for more. It does so by a call that no model has
// made or is told about. This call is the only open call of the run.
type BudgetAsked struct {
	Call  string          `json:"call"`
	Tool  string          `json:"tool,omitempty"` // "" = ToolBudget
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
		return &ApplyError{Call: e.Call, Problem: "a request for budget needs an id, and no other call may be open"}
	}
	if _, err := ReadRaise(e.Input); err != nil {
		return &ApplyError{Call: e.Call, Problem: err.Error()}
	}
	tool := cmp.Or(e.Tool, ToolBudget)
	if !IsBudgetTool(tool) {
		return &ApplyError{Call: e.Call, Problem: fmt.Sprintf("%q raises no budget", tool)}
	}
	c := Call{ID: e.Call, Tool: tool, Name: strings.ReplaceAll(tool, ".", "_"), Input: e.Input,
		Inference: s.Round.Inference, Effect: EffectNonIdempotent, Budget: true}
	if err := c.transition(StatusNew); err != nil {
		return err
	}
	s.Live = append(slices.Clip(s.Live), c)
	s.Budget.Asked++
	return nil
}

// settleBudget adds what people have granted to the run's budget. A grant to many runs is counted with their shared
// budget. The conversation does not mention either.
func (s *AgentState) settleBudget(c *Call) error {
	c.Result.Shown = true
	raise, err := ReadRaise(c.Input)
	if err != nil {
		return &ApplyError{Call: c.ID, Problem: err.Error()}
	}
	refused := c.Status != StatusSucceeded
	if c.Tool != ToolBudget {
		if refused && c.Reason != WhyVoided {
			s.Budget.Shared = raise.UsedUp()
		}
		return nil
	}
	if s.Budget.Refused = refused; refused {
		return nil
	}
	s.Budget.Tokens += raise.Tokens
	if raise.USD != nil {
		s.Budget.USD = s.Budget.USD.Add(*raise.USD)
	}
	return nil
}
