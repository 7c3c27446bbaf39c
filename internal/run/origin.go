package run

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// OriginKind says how a run relates to the one it began from.
type OriginKind string

// The kinds.
const (
	OriginContinues OriginKind = "continues" // continues a finished run's conversation
	OriginFork      OriginKind = "fork"      // a branch of a run at one of its entries
)

// Origin is where a run's conversation began: another run of the tenant, in its state after entry Seq. Nothing is
// copied. A reader of the run reads that run up to Seq (Seed). Entries never change, so the origin stays the same.
type Origin struct {
	Kind OriginKind `json:"kind"`
	Run  string     `json:"run"`
	Seq  int64      `json:"seq"`
	At   int64      `json:"at,omitempty"` // the oldest entry of Run that a reader up to Seq needs (ReadFrom)

	// Unknown asks people about the outcome of every open call of a fork that had been entered, and of no other call.
	Unknown []CallUnknown `json:"unknown,omitempty"`
	// for a fork: what policies remember of Run at that entry, as in Remembered
	Memory map[string]json.RawMessage `json:"memory,omitempty"`
}

// Entered reports whether the call is open and may have happened. Its tool was entered and has neither returned a
// result nor last reported that it has done nothing and asks for input.
func (c Call) Entered() bool {
	asked := c.Status == StatusSuspended && c.Wait.For == ForInput
	answered := c.Status == StatusResuming && c.Resume != nil && c.Grant != nil && !c.Grant.Consumed
	switch {
	case !c.Open() || c.Executions == 0:
		return false
	case !asked && !answered:
		return true
	default:
		return c.AtGate != nil && c.AtGate.Entered
	}
}

// Seed returns the state from which the journal of a run with an origin is folded. past is the origin's state at the
// origin's entry. The result is not a run yet; it accepts only the RunStarted that names past.
func Seed(past AgentState) AgentState { return AgentState{past: &past} }

// inherit begins a run with what its origin held: the conversation with its seenCounts and summary, the calls with
// their ids, the shared state, and the input if the run has none. Counters, owner, waits and grants begin anew.
func (s *AgentState) inherit(past *AgentState) error {
	if s.From == nil && past == nil {
		return nil
	}
	if s.From == nil || past == nil || past.Tenant != s.Tenant || past.Run != s.From.Run || past.Seq() != s.From.Seq {
		return &ApplyError{Problem: "the given state is not that of the run's origin"}
	}
	s.Prior = past.Prior + past.Inferences
	s.Contributors = withPeople(s.Contributors, past.Requesters()...)
	s.EvictedMessages, s.Summary, s.Files, s.Partial = past.EvictedMessages, past.Summary, past.Files, past.Partial
	s.Unseen, s.BlobMessages = past.Unseen, past.BlobMessages
	if s.Input == nil {
		s.Input = past.Input
	}
	for _, m := range past.Messages.All() {
		m.Base, m.Source = m.Seen(past.Inferences), m.Source.inRun(past.Run)
		s.Messages = s.Messages.Append(m)
	}
	s.Settled, s.Named, s.Shared = past.Settled, past.Named, past.Shared
	s.Budget.Asked = past.Budget.Asked
	switch s.From.Kind {
	case OriginFork:
		return s.inheritFork(past)
	case OriginContinues:
	default:
		return &ApplyError{Problem: fmt.Sprintf("%q is no kind of origin", s.From.Kind)}
	}
	if past.Status != RunDone || len(s.From.Unknown) > 0 {
		return &ApplyError{Problem: "only a finished run is continued, and nothing of it is open"}
	}
	for _, c := range past.Live { // the run's end has given each call a result
		s.archiveCall(c)
	}
	if past.Listed && s.Definition == past.Definition { // for a run that undoes a call; other runs list the servers again
		s.Servers = past.Servers
	}
	return nil
}

// inRun returns the source for a run that began from run. A source that names a run already keeps it.
func (from Source) inRun(run string) Source {
	from.Run = cmp.Or(from.Run, run)
	return from
}

// inheritFork takes over a run in its state, including its newest round. Open calls start again, without decisions.
func (s *AgentState) inheritFork(past *AgentState) error {
	s.Round, s.Correction, s.Patches, s.Cut = past.Round, past.Correction, past.Patches, past.Cut
	if len(s.From.Memory) > 0 {
		s.remember(s.From.Memory)
	}
	s.Built, s.NeedsMessages = past.Built, past.NeedsMessages
	s.Listed, s.Servers = past.Listed, past.Servers // the pinned definition is the same, or differs in its model
	s.inheritPlan(past)
	ofPast := func(c Call) Call { // a result that may still be appended names the run that holds it
		r := *c.Result
		r.Source = r.Source.inRun(past.Run)
		c.Result = &r
		return c
	}
	if past.Plan.Active() {
		s.Settled = s.Settled.Map(func(c Call) Call {
			if c.Step > 0 && !c.Result.Shown {
				return ofPast(c)
			}
			return c
		})
	}
	if past.Built || past.SystemText != "" || past.SystemBlob { // the text that was built for the conversation
		s.System, s.SystemText, s.SystemBlob = past.System, past.SystemText, past.SystemBlob
	}
	s.Queued = Map(past.Queued, func(q queued) queued {
		return queued{q.Block, q.Source.inRun(past.Run), q.Permission}
	})
	unknown := s.From.Unknown
	for _, c := range past.Live {
		if c.Budget && c.Open() { // this run counts its use from zero
			continue
		}
		var err error
		switch {
		case c.Entered():
			c, unknown, err = s.suspendUnknown(c, unknown)
		case c.Open():
			c, err = past.resetCall(c)
		default:
			c = ofPast(c)
		}
		if err != nil {
			return err
		}
		s.Live = append(s.Live, c)
	}
	if len(unknown) > 0 {
		return &ApplyError{Call: unknown[0].Call, Problem: "its outcome is not in doubt"}
	}
	if past.Status != RunDone { // the end that a stop policy or a plugin has asked for still waits for the calls
		s.Ending, s.EndingDetail = past.Ending, past.EndingDetail
	}
	s.flushResults() // calls that were under way in the origin may be suspended here
	s.flushQueued()  // requests about tools of the origin are not answered here
	s.mergeReadyPatches()
	return nil
}

// Use returns a call as the model made it, in the conversation or for a step of the plan.
func (s *AgentState) Use(call string) (use ToolUse, made bool) {
	for _, u := range s.Plan.Uses {
		if u.ID == call {
			use = u.ToolUse
		}
	}
	for _, m := range s.Messages.All() {
		if u, ok := m.Block.(ToolUse); ok && u.ID == call {
			use = u
		}
	}
	return use, use.ID != ""
}

// resetCall returns a call that has not run in the form in which the model made it. It does not inherit decisions and
// edits.
func (s *AgentState) resetCall(c Call) (Call, error) {
	original, made := s.Use(c.ID)
	if !made {
		return c, &ApplyError{Call: c.ID, Problem: "it is open and the conversation does not have it"}
	}
	n := Call{
		ID: c.ID, Tool: c.Tool, Name: c.Name, Effect: c.Effect, Inference: c.Inference, Input: original.Input,
		Service: c.Service, Hidden: c.Hidden, Breaks: c.Breaks, Ahead: c.Ahead, Repeats: c.Repeats, Step: c.Step,
		Undoes: c.Undoes,
	}
	return n, n.transition(StatusNew)
}

// suspendUnknown returns an open call that was entered in the other run, with the arguments it was entered with. The
// call may have happened. So only a person can order to run it again, because the tool knows that attempt by the other
// run's key.
func (s *AgentState) suspendUnknown(c Call, unknown []CallUnknown) (Call, []CallUnknown, error) {
	if c.Status == StatusRunning {
		return c, unknown, &ApplyError{Call: c.ID, Problem: "it was running"}
	}
	if len(unknown) == 0 || unknown[0].Call != c.ID || unknown[0].Approval == "" || unknown[0].Expires.IsZero() {
		return c, unknown, &ApplyError{Call: c.ID, Problem: "its outcome is unknown and nobody is asked"}
	}
	n := Call{ID: c.ID, Tool: c.Tool, Name: c.Name, Effect: c.Effect, Inference: c.Inference, Input: c.Input,
		Executions: c.Executions, Asks: 1, Service: c.Service, Ahead: c.Ahead, Step: c.Step, Undoes: c.Undoes}
	n.EditedBy = c.Editor()
	err := n.transition(StatusNew, StatusRunning, StatusSuspended)
	n.Wait = &Wait{For: ForOutcome, Approval: unknown[0].Approval, Since: s.head.time, Expires: unknown[0].Expires}
	return n, unknown[1:], err
}

// hasOriginBodies reports whether the conversation still has bodies in another run's journal. Results and messages that
// wait to be appended can be in that journal too, but only while an open call keeps such a body in the conversation.
func (s *AgentState) hasOriginBodies() bool {
	return s.From != nil && slices.ContainsFunc(s.Messages.All(), func(m Message) bool { return m.Source.Run != "" })
}

// Parent is the call of another run that a run carries out. It is a value that must not be changed.
type Parent struct {
	Run    string   `json:"run"`
	Call   string   `json:"call"`
	Root   string   `json:"root"`   // the run at the top, where people see all requests
	Depth  int      `json:"depth"`  // 1 = Run is the root
	Agents []string `json:"agents"` // agents of the runs from the root to Run, without the run's own
	// where the event of the run's end is routed; "" = no particular place
	Domain string `json:"domain,omitempty"`
}

// Child is a delegated run and its share of what its parent had left. Zero amounts are no limit.
type Child struct {
	Run    string `json:"run"`
	Tokens int64  `json:"tokens,omitempty"`
	USD    USD    `json:"usd,omitempty"`
}

// ChildUsage is what a run used, including all runs that it delegated.
type ChildUsage struct {
	Usage    Usage `json:"usage"`
	Requests int64 `json:"requests"` // to models, including failed ones
	Units    int64 `json:"units"`
	Cost     USD   `json:"cost,omitempty"` // 0 if no price is known
}

// Add returns the sum of both.
func (u ChildUsage) Add(v ChildUsage) ChildUsage {
	return ChildUsage{Usage: u.Usage.Add(v.Usage), Requests: u.Requests + v.Requests, Units: u.Units + v.Units,
		Cost: u.Cost.Add(v.Cost)}
}

// Used returns what the run has used, including the children that have answered. It lacks the children that have not.
func (s *AgentState) Used() ChildUsage {
	return ChildUsage{Usage: s.Usage, Requests: s.ModelCalls, Units: s.ExecutionUnits, Cost: s.Cost}
}

func (s *AgentState) spend(u ChildUsage) {
	u = s.Used().Add(u)
	s.Usage, s.ModelCalls, s.ExecutionUnits, s.Cost = u.Usage, u.Requests, u.Units, u.Cost
}

// Children are the runs that a run delegated. The zero value is none.
type Children struct {
	// children that have not answered, oldest first, even if their call is settled. Never written in place
	Open  []OpenChild `json:"open,omitempty"`
	Begun int         `json:"begun,omitempty"` // total number
}

// OpenChild is a child that has not answered.
type OpenChild struct {
	Call string `json:"call"`
	Child
}

// ChildOf returns the open child of a call.
func (s *AgentState) ChildOf(call string) (Child, bool) {
	c, open := First(s.Children.Open, func(c OpenChild) bool { return c.Call == call })
	return c.Child, open
}

// abandonChild removes a child that will not answer.
func (s *AgentState) abandonChild(call string) {
	s.Children.Open = without(s.Children.Open, func(c OpenChild) bool { return c.Call == call })
}

// applyChildAnswer applies the answer of an open child: it adds the child's use and settles its call in any state. A
// repeated answer changes nothing.
func (s *AgentState) applyChildAnswer(e Answered) error {
	if _, open := s.ChildOf(e.Call); !open {
		return nil
	}
	if err := s.requireAwake(); err != nil {
		return err
	}
	s.spend(*e.Used)
	s.abandonChild(e.Call)
	if _, ok := s.Call(e.Call); !ok { // settled so long ago that a snapshot lacks it
		return nil
	}
	return s.changeCall(e.Call, func(c *Call) error { return s.settleCall(c, e.result(), "", outcome(e.IsError)) })
}

// Via is the channel through which a person's decision or remark came in. It is set by the code that authenticated the
// person, never by the person. "" = not recorded. Package agent declares the channels.
type Via string

// Confirm is the extra confirmation that an approval on a page behind a link needs; "" = none. Package agent declares
// the confirmations.
type Confirm string
