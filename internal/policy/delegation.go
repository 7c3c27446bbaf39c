package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// The bounds of delegation where a definition says none.
const (
	DefaultDepth    = 4
	DefaultChildren = 8
)

// delegateExpiry is how long another agent has to answer if its tool has no timeout: its run may wait for people.
const delegateExpiry = 30 * 24 * time.Hour

// maxHistory is the maximum size of a child's conversation in its answer, in bytes. The oldest messages are left out.
const maxHistory = 256 << 10

func maxDepth(l agent.Limits) int { return cmp.Or(l.Depth, DefaultDepth) }

// childPosition returns the Parent of runs that s delegates, without Call.
func childPosition(s *run.AgentState) run.Parent {
	if s.Parent == nil {
		return run.Parent{Run: s.Run, Root: s.Run, Depth: 1, Agents: []string{s.Agent}}
	}
	return run.Parent{Run: s.Run, Root: s.Parent.Root, Depth: s.Parent.Depth + 1,
		Agents: append(slices.Clip(s.Parent.Agents), s.Agent)}
}

// Caller returns the agent whose call the run carries out. "" means that nobody delegated the run.
func Caller(s *run.AgentState) string {
	if s.Parent == nil || len(s.Parent.Agents) == 0 {
		return ""
	}
	return s.Parent.Agents[len(s.Parent.Agents)-1]
}

// Delegation returns the child that the claim of the call c records, or why there can be none. Both are nil if the call
// is not delegated, or was claimed before. find finds the deployment's agents; nil = none.
func Delegation(d *agent.Definition, s *run.AgentState, c run.Call, find agent.Agents) (*run.Child, *run.CallFinished) {
	t, ok := d.Tool(c.Tool)
	if !ok || t.Kind != agent.KindAgent || c.Child != "" {
		return nil, nil
	}
	child := run.Child{Run: agent.ChildID(s.Tenant, t.Agent.Agent, s.Run, c.ID)}
	problem := delegationProblem(d, s, t, find)
	if problem == "" {
		problem = promiseBudget(&child, d, s, t)
	}
	if current := find.Find(t.Agent.Agent); problem == "" && child.USD > 0 && !current.Priced() {
		problem = "its budget is in USD, and a model of agent " + t.Agent.Agent + " has no price"
	}
	if problem != "" {
		text := c.Name + " was not asked: " + problem + "."
		return nil, refuseCall(c, run.WhyToolError, text, Decision{}).Refuse
	}
	return &child, nil
}

// delegationProblem says why the run may not ask another agent, budget apart. "" means that it may.
func delegationProblem(d *agent.Definition, s *run.AgentState, t agent.ToolSpec, find agent.Agents) string {
	name, at := t.Agent.Agent, childPosition(s)
	switch {
	case slices.Contains(at.Agents, name):
		return "agent " + name + " would work for itself (" + strings.Join(append(at.Agents, name), " -> ") + ")"
	case find.Find(name) == nil:
		return "this deployment has no agent " + name
	case at.Depth > maxDepth(d.Limits):
		return fmt.Sprintf("there are %d agents above this one's, and no more than %d may stand in a line", at.Depth-1,
			maxDepth(d.Limits))
	case len(s.Children.Open) >= cmp.Or(d.Limits.Children, DefaultChildren):
		return fmt.Sprintf("%d agents are at work for this run, and that is all there may be at a time", len(s.Children.Open))
	case s.Children.Begun >= agent.MaxChildren:
		return fmt.Sprintf("the run has asked agents %d times, and that is all it may", s.Children.Begun)
	default:
		return ""
	}
}

// promiseBudget reserves the child's part of what the run has left. problem says that nothing is left.
func promiseBudget(c *run.Child, d *agent.Definition, s *run.AgentState, t agent.ToolSpec) (problem string) {
	promised, budget := promisedBudget(s), budgetOf(d, s)
	among := int64(0) // the calls to agents that are about to start share what is left
	for _, call := range s.Live {
		asks, known := d.Tool(call.Tool)
		if known && asks.Kind == agent.KindAgent && call.Child == "" &&
			(call.Status == run.StatusNew || call.Status == run.StatusResuming) {
			among++
		}
	}
	among = max(1, among)
	var ok bool
	if c.Tokens, ok = part(budget.Tokens, s.Usage.Total(), promised.Tokens, t.Agent.Tokens, among); !ok {
		return fmt.Sprintf("nothing is left of the run's %d tokens", budget.Tokens)
	}
	usd, ok := part(int64(budget.USD), int64(s.Cost), int64(promised.USD), int64(t.Agent.USD), among)
	if c.USD = run.USD(usd); !ok {
		return fmt.Sprintf("nothing is left of the run's %s USD", budget.USD)
	}
	return ""
}

// part returns an equal part, rounded up, of what is left of a limit, shared among this many calls, and at most most.
// It is false if nothing is left. Zero is no limit.
func part(limit, spent, promised, most, among int64) (int64, bool) {
	if limit <= 0 {
		return max(0, most), true
	}
	left := limit - min(limit, spent)
	if left -= min(left, promised); left <= 0 {
		return 0, false
	}
	return lowerLimit((left-1)/among+1, max(0, most)), true
}

// isBudgetPromised reports whether all that the run has left is promised to its children. The run may go on once they
// answer.
func isBudgetPromised(s *run.AgentState, d *agent.Definition) bool {
	if len(s.Children.Open) == 0 {
		return false
	}
	promised, budget := promisedBudget(s), budgetOf(d, s)
	return budget.Tokens > 0 && promised.Tokens >= budget.Tokens-min(budget.Tokens, s.Usage.Total()) ||
		budget.USD > 0 && promised.USD >= budget.USD-min(budget.USD, s.Cost)
}

// ChildDefinition returns the agent current as it is pinned for the child of a call in a run under d. Its budget is no
// larger than what was promised to the child, and its depth no larger than d's. The policies above are its ceilings.
func ChildDefinition(d *agent.Definition, child run.Child, current *agent.Definition) agent.Definition {
	n := *current
	n.Limits.Tokens = lowerLimit(n.Limits.Tokens, child.Tokens)
	n.Limits.USD = lowerLimit(n.Limits.USD, child.USD)
	if child.Tokens > 0 || child.USD > 0 { // a share of the parent's budget, and the parent asks people for more
		n.Limits.OnBudget = ""
	}
	n.Limits.Depth = min(maxDepth(n.Limits), maxDepth(d.Limits))
	if d.Below != nil {
		n = n.WithModelForAll(*d.Below)
	}
	if d.Folder != "" {
		n = n.ConfinedTo(d.Folder)
	}
	return PinDelegated(d, n)
}

// ChildStart is what a delegated run begins with: a message, or data.
type ChildStart struct {
	Parent  run.Parent
	Message []run.UserBlock // nil = there is Input
	Input   json.RawMessage // without the parent-subject key
}

// ChildStartOf returns what the run of the call c begins with; t has kind agent. The error says that the arguments are
// not JSON.
func ChildStartOf(s *run.AgentState, t agent.ToolSpec, c run.Call) (ChildStart, error) {
	from := ChildStart{Parent: childPosition(s)}
	from.Parent.Call, from.Parent.Domain = c.ID, t.Domain
	var in map[string]json.RawMessage
	if string(t.Schema) == string(agent.DelegateSchema) && json.Unmarshal(c.Input, &in) == nil && len(in) == 1 {
		if text, ok := jsonx.JSONString(in["message"]); ok && text != "" {
			from.Message = []run.UserBlock{{Block: run.Text{Text: text}}}
			return from, nil
		}
	}
	var err error
	if from.Input, err = agent.WithoutParent(c.Input); err != nil {
		return ChildStart{}, fmt.Errorf("read the arguments of call %s: %w", c.ID, err)
	}
	return from, nil
}

// ChildAnswer returns the result of a call whose delegated run s has ended.
func ChildAnswer(t agent.ToolSpec, s *run.AgentState) (text string, isError bool, err error) {
	said := ResultText(s.Output)
	switch {
	case s.Reason == run.ReasonNaturalEnd && t.Agent != nil && t.Agent.History:
		text, err = historyText(s)
		return text, false, err
	case s.Reason == run.ReasonNaturalEnd && said == "":
		return "Agent " + s.Agent + " is done and said nothing.", false, nil
	case s.Reason == run.ReasonNaturalEnd:
		return said, false, nil
	}
	why := "its run was " + strings.Replace(string(s.Reason), ":", ": ", 1)
	switch {
	case s.Error != nil:
		why = string(s.Error.Code) + ": " + s.Error.Message
	case s.Reason == run.ReasonCancelled:
		why = "its run was cancelled"
	}
	text = "Agent " + s.Agent + " did not finish: " + why + "."
	if said != "" {
		text += " It had said: " + said
	}
	return text, true, nil
}

// historyText returns the run's output and its newest messages as JSON.
func historyText(s *run.AgentState) (string, error) {
	messages, err := ViewMessages(WithSeenCounts(newestOf(s.Messages.All()), s.Inferences))
	if err != nil {
		return "", err
	}
	first := NewestWithin(maxHistory, messages, func(m MessageView) int { return len(m.Content) })
	form := struct {
		Output   json.RawMessage `json:"output"`
		Messages []MessageView   `json:"messages"`
		Omitted  int             `json:"omitted,omitempty"` // older messages that are left out here
	}{s.Output, messages[first:], s.Messages.Len() - len(messages) + first}
	text, err := jsonx.MarshalVerbatim(form)
	return string(text), err
}

// NewestWithin returns the index where the newest elements begin whose sizes add up to at most most.
func NewestWithin[T any](most int, list []T, size func(T) int) int {
	first := len(list)
	for ; first > 0; first-- {
		if most -= size(list[first-1]); most < 0 {
			break
		}
	}
	return first
}

// AbandonedChildren returns the children whose call was settled without their answer: nobody waits for them.
func AbandonedChildren(s *run.AgentState) []run.OpenChild {
	return slices.DeleteFunc(slices.Clone(s.Children.Open), func(c run.OpenChild) bool {
		call, ok := s.Call(c.Call)
		return ok && call.Open()
	})
}

// promisedBudget returns how much the open children may use.
func promisedBudget(s *run.AgentState) (sum run.Child) {
	for _, o := range s.Children.Open {
		sum.USD = sum.USD.Add(o.USD)
		sum.Tokens += min(o.Tokens, math.MaxInt64-sum.Tokens)
	}
	return sum
}
