package run

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// OriginKind says what a run is to the one it began from.
type OriginKind string

// The kinds.
const (
	OriginContinues OriginKind = "continues" // a finished run's conversation goes on
	OriginFork      OriginKind = "fork"      // a branch of a run at one of its entries
)

// Origin is where a run's conversation began: another run of the tenant, as it was after its entry Seq. Nothing of it
// is copied; who reads the run reads that one up to there (Seed). Entries never change, so it stays what it was.
type Origin struct {
	Kind OriginKind `json:"kind"`
	Run  string     `json:"run"`
	Seq  int64      `json:"seq"`
	At   int64      `json:"at,omitempty"` // the oldest entry of Run that a reader of it as of Seq needs, by ReadFrom

	// Unknown asks anew what became of every open call of a fork that had been entered. It has these calls alone, and all.
	Unknown []CallUnknown `json:"unknown,omitempty"`
	// of a fork: what policies remember of Run there, as in Remembered
	Memory map[string]json.RawMessage `json:"memory,omitempty"`
}

// Entered reports whether the call is open and may have happened: its tool was entered and has given neither a result
// nor, as its last report, that it has done nothing and asks for input first.
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

// Seed is what the journal of a run that began from another is folded from: past is that one as of the origin's entry.
// It is no run yet, and the only fact that it takes is the RunStarted that names it.
func Seed(past AgentState) AgentState { return AgentState{past: &past} }

// inherit begins a run on what its origin held. Kept are the conversation with its seenCounts and summary, the calls
// with their ids, the state that tools share, and the input where the run has none of its own; everything that counts,
// owns, waits or grants begins anew.
func (s *AgentState) inherit(past *AgentState) error {
	if s.From == nil && past == nil {
		return nil
	}
	if s.From == nil || past == nil || past.Tenant != s.Tenant || past.Run != s.From.Run || past.Seq() != s.From.Seq {
		return &ApplyError{Problem: "the past it was given is not the one it names"}
	}
	s.Prior = past.Prior + past.Inferences
	s.Heard = withPeople(s.Heard, past.Requesters()...)
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
		return s.forked(past)
	case OriginContinues:
	default:
		return &ApplyError{Problem: fmt.Sprintf("%q is no kind of origin", s.From.Kind)}
	}
	if past.Status != RunDone || len(s.From.Unknown) > 0 {
		return &ApplyError{Problem: "only a finished run is continued, and nothing of it is open"}
	}
	for _, c := range past.Live { // its end has given each a result
		s.archiveCall(c)
	}
	if past.Listed && s.Definition == past.Definition { // for who takes a call back: anybody else asks the servers anew
		s.Servers = past.Servers
	}
	return nil
}

// inRun returns the source with the run that holds it, for a run that began from that one.
func (from Source) inRun(run string) Source {
	from.Run = cmp.Or(from.Run, run)
	return from
}

// forked takes over a run as it was, with its newest round. Open calls are asked anew, as if nobody had decided yet.
func (s *AgentState) forked(past *AgentState) error {
	s.Round, s.Correction, s.Patches, s.Cut = past.Round, past.Correction, past.Patches, past.Cut
	if len(s.From.Memory) > 0 {
		s.remember(s.From.Memory)
	}
	s.Built, s.Unsaid = past.Built, past.Unsaid
	s.Listed, s.Servers = past.Listed, past.Servers // it is pinned to the same definition, or to that with another model
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
	asked := s.From.Unknown
	for _, c := range past.Live {
		if c.Budget && c.Open() { // what this run uses is counted anew
			continue
		}
		var err error
		switch {
		case c.Entered():
			c, asked, err = s.doubtfulCall(c, asked)
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
	if len(asked) > 0 {
		return &ApplyError{Call: asked[0].Call, Problem: "its outcome is not in doubt"}
	}
	s.flushResults() // a round that moved in the parent may rest here
	s.flushQueued()  // nobody answers the parent's requests about tools here
	s.settleState()
	return nil
}

// resetCall returns a call that has not run as the model made it, in the conversation or for a step of the run's plan:
// decisions and edits are not inherited.
func (s *AgentState) resetCall(c Call) (Call, error) {
	var asked ToolUse
	for _, u := range s.Plan.Uses {
		if u.ID == c.ID {
			asked = u.ToolUse
		}
	}
	for _, m := range s.Messages.All() {
		if u, ok := m.Block.(ToolUse); ok && u.ID == c.ID {
			asked = u
		}
	}
	if asked.ID == "" {
		return c, &ApplyError{Call: c.ID, Problem: "it is open and the conversation does not have it"}
	}
	n := Call{
		ID: c.ID, Tool: c.Tool, Name: c.Name, Effect: c.Effect, Inference: c.Inference, Input: asked.Input,
		Service: c.Service, Hidden: c.Hidden, Breaks: c.Breaks, Ahead: c.Ahead, Repeats: c.Repeats, Step: c.Step,
		Undoes: c.Undoes,
	}
	return n, n.transition(StatusNew)
}

// doubtfulCall returns an open call that was entered in the other run, with the arguments it was entered with. It may
// have happened, so only a person's order lets it run again: the tool knows that attempt by the other run's key.
func (s *AgentState) doubtfulCall(c Call, asked []CallUnknown) (Call, []CallUnknown, error) {
	if c.Status == StatusRunning {
		return c, asked, &ApplyError{Call: c.ID, Problem: "it was running"}
	}
	if len(asked) == 0 || asked[0].Call != c.ID || asked[0].Approval == "" || asked[0].Expires.IsZero() {
		return c, asked, &ApplyError{Call: c.ID, Problem: "its outcome is unknown and nobody is asked"}
	}
	n := Call{ID: c.ID, Tool: c.Tool, Name: c.Name, Effect: c.Effect, Inference: c.Inference, Input: c.Input,
		Executions: c.Executions, Asks: 1, Service: c.Service, Ahead: c.Ahead, Step: c.Step, Undoes: c.Undoes}
	n.EditedBy = c.Editor()
	err := n.transition(StatusNew, StatusRunning, StatusSuspended)
	n.Wait = &Wait{For: ForOutcome, Approval: asked[0].Approval, Since: s.head.time, Expires: asked[0].Expires}
	return n, asked[1:], err
}

// inherits reports whether the conversation still has bodies that another run's journal holds. Results that are not
// said yet, and users who wait for them, are that run's only while a call is open whose own words are such a body.
func (s *AgentState) inherits() bool {
	return s.From != nil && slices.ContainsFunc(s.Messages.All(), func(m Message) bool { return m.Source.Run != "" })
}

// Parent is the call of another run that a run is carried out for. It is a value that nobody may change.
type Parent struct {
	Run    string   `json:"run"`
	Call   string   `json:"call"`
	Root   string   `json:"root"`   // the run that nobody delegated, at which people see what is asked of them
	Depth  int      `json:"depth"`  // 1 = Run is the root
	Agents []string `json:"agents"` // of the runs from the root to Run; the run's own agent is none of them
	// where the event of the run's end is to be routed; "" = nowhere in particular
	Domain string `json:"domain,omitempty"`
}

// Child is a run that a call is, and what it was promised of what its parent had left. Zero amounts are no limit.
type Child struct {
	Run    string `json:"run"`
	Tokens int64  `json:"tokens,omitempty"`
	USD    USD    `json:"usd,omitempty"`
}

// ChildUsage is what a run used, with all the runs that its own calls were.
type ChildUsage struct {
	Usage    Usage `json:"usage"`
	Requests int64 `json:"requests"` // to models, failed ones included
	Units    int64 `json:"units"`
	Cost     USD   `json:"cost,omitempty"` // 0 where no price is known
}

// Add is both together.
func (u ChildUsage) Add(v ChildUsage) ChildUsage {
	return ChildUsage{Usage: u.Usage.Add(v.Usage), Requests: u.Requests + v.Requests, Units: u.Units + v.Units,
		Cost: u.Cost.Add(v.Cost)}
}

// Used is what the run itself has used, with the children that have answered. It lacks those that have not.
func (s *AgentState) Used() ChildUsage {
	return ChildUsage{Usage: s.Usage, Requests: s.ModelCalls, Units: s.ExecutionUnits, Cost: s.Cost}
}

func (s *AgentState) spend(u ChildUsage) {
	u = s.Used().Add(u)
	s.Usage, s.ModelCalls, s.ExecutionUnits, s.Cost = u.Usage, u.Requests, u.Units, u.Cost
}

// Children are the runs that a run's calls are. The zero value is none.
type Children struct {
	// that have not answered, oldest first; also those whose call is settled. Never written in place
	Open  []OpenChild `json:"open,omitempty"`
	Begun int         `json:"begun,omitempty"` // in all
}

// OpenChild is a child that has not answered.
type OpenChild struct {
	Call string `json:"call"`
	Child
}

// ChildOf is the open child of a call.
func (s *AgentState) ChildOf(call string) (Child, bool) {
	c, open := First(s.Children.Open, func(c OpenChild) bool { return c.Call == call })
	return c.Child, open
}

// abandonChild removes a child that will not answer.
func (s *AgentState) abandonChild(call string) {
	s.Children.Open = without(s.Children.Open, func(c OpenChild) bool { return c.Call == call })
}

// applyChildAnswer applies the answer of an open child: it counts what that used, and settles its call wherever that
// stands. One that was applied before changes nothing.
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

// Via is the channel by which a person's decision or remark came in. Whatever authenticated the person says which one
// it was, never the person. "" = not recorded. Package agent has the channels.
type Via string

// Confirm is what an approval on a page behind a link takes besides; "" = nothing. Package agent has them.
type Confirm string
