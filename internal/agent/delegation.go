package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// DelegateSchema is what a tool of kind agent takes that has no schema of its own: what the other agent is told.
var DelegateSchema = json.RawMessage(`{"type":"object","properties":{"message":{"type":"string","minLength":1,"description":"What the agent is to do, with everything it has to know."}},"required":["message"],"additionalProperties":false}`)

// The bounds of delegation where a definition says none, and how many runs the calls of one run may be in all.
const (
	DefaultDepth    = 4
	DefaultChildren = 8
	MaxChildren     = 64
)

// DelegateExpiry is how long another agent has to answer whose tool has no timeout of its own: its run may wait for several people.
const DelegateExpiry = 30 * 24 * time.Hour

// maxHistory bounds a child's conversation in its answer, in bytes. Older messages than fit are left out.
const maxHistory = 256 << 10

func (l Limits) depth() int {
	if l.Depth == 0 {
		return DefaultDepth
	}
	return l.Depth
}

func (l Limits) children() int {
	if l.Children == 0 {
		return DefaultChildren
	}
	return l.Children
}

// depth is how many runs there are above the run.
func (s *AgentState) depth() int {
	if s.Parent == nil {
		return 0
	}
	return s.Parent.Depth
}

// line are the agents from the root to the run's own.
func (s *AgentState) line() []string {
	if s.Parent == nil {
		return []string{s.Agent}
	}
	return append(s.Parent.Agents[:len(s.Parent.Agents):len(s.Parent.Agents)], s.Agent)
}

// root is the run that nobody delegated.
func (s *AgentState) root() string {
	if s.Parent == nil {
		return s.Run
	}
	return s.Parent.Root
}

// Delegation is the child that is to be noted in the claim of c, a call that may run, or why there can be none. Both are nil for a call that
// is no run, or has been claimed before. find finds the deployment's agents; nil = it has none here.
func Delegation(d *Definition, s *AgentState, c Call, find func(name string) (*Definition, bool)) (*Child, *CallFinished) {
	t, ok := d.Tool(c.Tool)
	if !ok || t.Kind != KindAgent || c.Child != "" {
		return nil, nil
	}
	child := Child{Run: ChildID(s.Tenant, t.Agent.Agent, s.Run, c.ID)}
	problem := delegationProblem(d, s, t, find)
	if problem == "" {
		problem = child.promise(d, s, t)
	}
	if current := agentNamed(find, t.Agent.Agent); problem == "" && child.USD > 0 && !current.priced() {
		problem = "its budget is in USD, and a model of agent " + t.Agent.Agent + " has no price"
	}
	if problem != "" {
		return nil, &CallFinished{Call: c.ID, IsError: true, Reason: WhyToolError, Content: c.Name + " was not asked: " + problem + "."}
	}
	return &child, nil
}

// agentNamed is nil where there is no such agent.
func agentNamed(find func(name string) (*Definition, bool), name string) *Definition {
	if find == nil {
		return nil
	}
	if d, ok := find(name); ok {
		return d
	}
	return nil
}

// delegationProblem is why the run may not ask another agent, whatever that costs; "" = it may.
func delegationProblem(d *Definition, s *AgentState, t ToolSpec, find func(name string) (*Definition, bool)) string {
	name := t.Agent.Agent
	switch line := s.line(); {
	case slices.Contains(line, name):
		return "agent " + name + " would work for itself (" + strings.Join(append(line, name), " -> ") + ")"
	case agentNamed(find, name) == nil:
		return "this deployment has no agent " + name
	case s.depth() >= d.Limits.depth():
		return fmt.Sprintf("there are %d agents above this one's, and no more than %d may stand in a line", s.depth(), d.Limits.depth())
	case len(s.Children.Open) >= d.Limits.children():
		return fmt.Sprintf("%d agents are at work for this run, and that is all there may be at a time", len(s.Children.Open))
	case s.Children.Begun >= MaxChildren:
		return fmt.Sprintf("the run has asked agents %d times, and that is all it may", s.Children.Begun)
	default:
		return ""
	}
}

// promise takes the child's part of what the run has left; the problem is that there is nothing.
func (c *Child) promise(d *Definition, s *AgentState, t ToolSpec) (problem string) {
	promised := s.Children.promised()
	among := max(1, s.unasked(d))
	var ok bool
	if c.Tokens, ok = part(d.Limits.Tokens, s.Usage.Total(), promised.Tokens, t.Agent.Tokens, among); !ok {
		return fmt.Sprintf("nothing is left of the run's %d tokens", d.Limits.Tokens)
	}
	usd, ok := part(int64(d.Limits.USD), int64(s.Cost), int64(promised.USD), int64(t.Agent.USD), among)
	if c.USD = USD(usd); !ok {
		return fmt.Sprintf("nothing is left of the run's %s USD", d.Limits.USD)
	}
	return ""
}

// part is one of so many equal parts, rounded up, of what is left of a limit, and no more than most; false where nothing is. Zero is no
// limit.
func part(limit, spent, promised, most, among int64) (int64, bool) {
	if limit <= 0 {
		return max(0, most), true
	}
	left := limit - min(limit, spent)
	if left -= min(left, promised); left <= 0 {
		return 0, false
	}
	left = (left-1)/among + 1
	if most > 0 {
		left = min(left, most)
	}
	return left, true
}

// promised is what the open children may use.
func (c Children) promised() Child {
	var sum Child
	for _, o := range c.Open {
		sum.USD = sum.USD.add(o.USD)
		sum.Tokens += min(o.Tokens, math.MaxInt64-sum.Tokens)
	}
	return sum
}

// unasked counts the calls that are other agents and about to be asked: they share what is left.
func (s *AgentState) unasked(d *Definition) int64 {
	n := int64(0)
	for _, c := range s.Live {
		if t, ok := d.Tool(c.Tool); ok && t.Kind == KindAgent && c.Child == "" && (c.Status == StatusNew || c.Status == StatusResuming) {
			n++
		}
	}
	return n
}

// spokenFor reports whether what the run has left is promised to its children: it may go on when they have answered.
func (s *AgentState) spokenFor(d *Definition) bool {
	if len(s.Children.Open) == 0 {
		return false
	}
	promised := s.Children.promised()
	return d.Limits.Tokens > 0 && promised.Tokens >= d.Limits.Tokens-min(d.Limits.Tokens, s.Usage.Total()) ||
		d.Limits.USD > 0 && promised.USD >= d.Limits.USD-min(d.Limits.USD, s.Cost)
}

// priced reports whether it is known what each of the agent's models costs.
func (d *Definition) priced() bool {
	unpriced := func(m ModelSpec) bool { return m.Price == nil }
	return !slices.ContainsFunc(d.Model.Chain(), unpriced) && !slices.ContainsFunc(d.Orchestrator.models(), func(m planModel) bool { return unpriced(*m.spec) })
}

// ChildDefinition is the agent current as it is pinned for the open child of a call of t in the run s under d: its limits are no larger than
// what was promised, and than those of the line above it, and what that line would not let pass does not pass.
func ChildDefinition(d *Definition, child Child, current *Definition) Definition {
	n := *current
	n.Limits.Tokens = lesser(n.Limits.Tokens, child.Tokens)
	n.Limits.USD = lesser(n.Limits.USD, child.USD)
	n.Limits.Depth = min(n.Limits.depth(), d.Limits.depth())
	if d.Below != nil {
		n = n.Throughout(*d.Below)
	}
	if d.Folder != "" {
		n = n.Within(d.Folder)
	}
	return Delegated(d, n)
}

// Throughout is the agent with the provider, id, base URL and file of m in place of its models', and of those of every agent below it.
// What its own model costs and its settings stay.
func (d Definition) Throughout(m ModelSpec) Definition {
	d.Model.Provider, d.Model.ID, d.Model.BaseURL, d.Model.File, d.Model.Fallbacks = m.Provider, m.ID, m.BaseURL, m.File, nil
	d.Orchestrator.Planner, d.Orchestrator.Router = nil, nil
	d.Below = &m
	return d
}

// Within is the agent whose tools are confined to a folder, an absolute path, and whose programs start there, and so of every agent below it.
func (d Definition) Within(folder string) Definition {
	d.Folder, d.Tools, d.MCP = folder, slices.Clone(d.Tools), slices.Clone(d.MCP)
	for i := range d.Tools {
		d.Tools[i].Root = folder
	}
	for i := range d.MCP {
		if len(d.MCP[i].Command) > 0 {
			d.MCP[i].Dir = folder
		}
	}
	return d
}

// lesser is the lower one of two limits of which 0 is none.
func lesser[T int64 | USD](a, b T) T {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// ChildStart is what the run of a call begins with: a message, or data.
type ChildStart struct {
	Parent  Parent
	Message []UserBlock     // nil = there is Input
	Input   json.RawMessage // without the key that says whom a run's end is announced to
}

// StartOf is what the run of a call of t begins with, whose kind is agent. An error says that its arguments are no JSON.
func StartOf(s *AgentState, t ToolSpec, c Call) (ChildStart, error) {
	from := ChildStart{Parent: Parent{Run: s.Run, Call: c.ID, Root: s.root(), Depth: s.depth() + 1, Agents: s.line(), Domain: t.Domain}}
	if text, ok := toldMessage(t, c); ok {
		from.Message = []UserBlock{{Text{Text: text}}}
		return from, nil
	}
	var err error
	if from.Input, err = withoutParent(c.Input); err != nil {
		return ChildStart{}, fmt.Errorf("read the arguments of call %s: %w", c.ID, err)
	}
	return from, nil
}

// toldMessage is what another agent is told by a call of a tool without a schema of its own.
func toldMessage(t ToolSpec, c Call) (string, bool) {
	var in map[string]json.RawMessage
	if string(t.Schema) != string(DelegateSchema) || json.Unmarshal(c.Input, &in) != nil || len(in) != 1 {
		return "", false
	}
	text, ok := jsonString(in["message"])
	return text, ok && text != ""
}

// ChildAnswer is what a call of t hears of the run it is, s, which has ended.
func ChildAnswer(t ToolSpec, s *AgentState) (text string, isError bool, err error) {
	said := ResultText(s.Output)
	switch {
	case s.Reason == ReasonNaturalEnd && t.Agent != nil && t.Agent.History:
		text, err = s.historyText()
		return text, false, err
	case s.Reason == ReasonNaturalEnd && said == "":
		return "Agent " + s.Agent + " is done and said nothing.", false, nil
	case s.Reason == ReasonNaturalEnd:
		return said, false, nil
	}
	text = "Agent " + s.Agent + " did not finish: " + s.endWord() + "."
	if said != "" {
		text += " It had said: " + said
	}
	return text, true, nil
}

// endWord is why a run that did not end by itself ended.
func (s *AgentState) endWord() string {
	switch {
	case s.Error != nil:
		return string(s.Error.Code) + ": " + s.Error.Message
	case s.Reason == ReasonCancelled:
		return "its run was cancelled"
	default:
		return "its run was " + strings.Replace(string(s.Reason), ":", ": ", 1)
	}
}

// historyText is the run's output and its conversation, the newest messages of it, as JSON.
func (s *AgentState) historyText() (string, error) {
	all := newest(s.Messages.All())
	messages, err := messagesJSON(all, s.Inferences)
	if err != nil {
		return "", err
	}
	size := 0
	first := len(messages)
	for first > 0 {
		if size += len(messages[first-1].Content); size > maxHistory {
			break
		}
		first--
	}
	form := struct {
		Output   json.RawMessage `json:"output"`
		Messages []messageJSON   `json:"messages"`
		Omitted  int             `json:"omitted,omitempty"` // older messages that are left out here
	}{s.Output, messages[first:], s.Messages.Len() - len(messages) + first}
	text, err := MarshalVerbatim(form)
	return string(text), err
}
