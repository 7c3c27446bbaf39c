package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// OriginKind says what a run is to the one it began from.
type OriginKind string

// The kinds.
const (
	OriginContinues OriginKind = "continues" // a finished run's conversation goes on
	OriginFork      OriginKind = "fork"      // a branch of a run at one of its entries
)

// Origin is where a run's conversation began: another run of the tenant, as it was after its entry Seq. Nothing of it is copied; who
// reads the run reads that one up to there (Seed). Entries never change and are never deleted, so it stays what it was.
type Origin struct {
	Kind OriginKind `json:"kind"`
	Run  string     `json:"run"`
	Seq  int64      `json:"seq"`
	At   int64      `json:"at,omitempty"` // the oldest entry of Run that a reader of it as of Seq needs, by ReadFrom

	// Unknown asks anew what became of every open call of a fork that had been entered. Only these calls may be in it, and all of them.
	Unknown []CallUnknown `json:"unknown,omitempty"`
}

// The errors of ContinueFrom and ForkFrom. A call that takes another back, and is open, is in no fork: it would be made twice.
var (
	ErrNotFinished = errors.New("the run has not finished")
	ErrCallRunning = errors.New("a call was running at that entry")
	ErrUndoing     = errors.New("the run takes a call back, which is done once")
)

// ContinueFrom is the origin of a run that goes on with the finished run s; ErrNotFinished where it has not.
func ContinueFrom(s *AgentState) (Origin, error) {
	if s.Status != RunDone {
		return Origin{}, fmt.Errorf("continue run %s, which is %s: %w", s.Run, s.Status, ErrNotFinished)
	}
	return Origin{Kind: OriginContinues, Run: s.Run, Seq: s.Seq(), At: s.ReadFrom()}, nil
}

// ForkFrom is the origin of the run child that branches off s, a run as of one of its entries. ErrCallRunning where a call was claimed
// and had no result: it may have happened or not, and only that run's own journal will say.
func ForkFrom(s *AgentState, child string, now time.Time) (Origin, error) {
	o := Origin{Kind: OriginFork, Run: s.Run, Seq: s.Seq(), At: s.ReadFrom()}
	for _, c := range s.Live {
		switch {
		case c.Undoes != "" && c.Open():
			return Origin{}, fmt.Errorf("fork run %s at %d: %w", s.Run, s.Seq(), ErrUndoing)
		case c.Status == StatusRunning:
			return Origin{}, fmt.Errorf("fork run %s at %d: call %s: %w", s.Run, s.Seq(), c.ID, ErrCallRunning)
		case c.entered():
			o.Unknown = append(o.Unknown, CallUnknown{
				Call: c.ID, Approval: ApprovalID(child, c.ID, 1), Expires: now.UTC().Truncate(time.Millisecond).Add(OutcomeExpiry),
			})
		}
	}
	return o, nil
}

// entered reports whether the call is open and may have happened: its tool was entered and has given neither a result nor, as its last
// word, that it has done nothing and asks for input first.
func (c Call) entered() bool {
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

// OriginOf is where a run began, by its first entry; nil where it began by itself.
func OriginOf(first Entry) *Origin {
	for _, e := range first.Events {
		if s, ok := e.(RunStarted); ok {
			return s.From
		}
	}
	return nil
}

// Seed is what the journal of a run that began from another is folded from: past is that one as of the origin's entry. It is no run
// yet, and the only fact that it takes is the RunStarted that names it.
func Seed(past AgentState) AgentState { return AgentState{past: &past} }

// inherit begins a run on what its origin held. Kept are the conversation with its seenCounts and summary, the calls with their ids,
// the state that tools share, and the input where the run has none of its own; everything that counts, owns, waits or grants begins anew.
func (s *AgentState) inherit(past *AgentState) error {
	if s.From == nil && past == nil {
		return nil
	}
	if s.From == nil || past == nil || past.Tenant != s.Tenant || past.Run != s.From.Run || past.Seq() != s.From.Seq {
		return &ApplyError{Event: "run_started", Problem: "the past it was given is not the one it names"}
	}
	s.Prior = past.Prior + past.Inferences
	s.Heard = withPeople(s.Heard, past.Requesters()...)
	s.EvictedMessages, s.Summary, s.Files, s.Partial = past.EvictedMessages, past.Summary, past.Files, past.Partial
	s.Unseen, s.BlobMessages = past.Unseen, past.BlobMessages
	if s.Input == nil {
		s.Input = past.Input
	}
	for _, m := range past.Messages.All() {
		m.Base, m.Source = m.Seen(past.Inferences), m.Source.in(past.Run)
		s.Messages = s.Messages.Append(m)
	}
	s.Settled, s.Named, s.Shared = past.Settled, past.Named, past.Shared
	switch s.From.Kind {
	case OriginContinues:
		return s.continued(past)
	case OriginFork:
		return s.forked(past)
	default:
		return &ApplyError{Event: "run_started", Problem: fmt.Sprintf("%q is no kind of origin", s.From.Kind)}
	}
}

// in is the source as a run sees it that began from the source's run.
func (from Source) in(run string) Source {
	if from.Run == "" {
		from.Run = run
	}
	return from
}

// continued takes over a run that has ended, and with that every call of it: its end has given each a result.
func (s *AgentState) continued(past *AgentState) error {
	if past.Status != RunDone || len(s.From.Unknown) > 0 {
		return &ApplyError{Event: "run_started", Problem: "only a finished run is continued, and nothing of it is open"}
	}
	for _, c := range past.Live {
		s.settled(c)
	}
	if past.Listed && s.Definition == past.Definition { // for who takes a call back: anybody else asks the servers anew
		s.Servers = past.Servers
	}
	return nil
}

// forked takes over a run as it was, with its newest round. Calls that are open are asked anew, as if nobody had decided yet.
func (s *AgentState) forked(past *AgentState) error {
	s.Round, s.Correction, s.Patches, s.Cut, s.Recovery = past.Round, past.Correction, past.Patches, past.Cut, past.Recovery
	s.Built, s.Unsaid = past.Built, past.Unsaid
	s.Listed, s.Servers = past.Listed, past.Servers // it is pinned to the same definition, or to that with another model
	s.inheritPlan(past)
	s.disown(past)
	if past.Built || past.SystemText != "" || past.SystemBlob { // the text that was built for the conversation
		s.System, s.SystemText, s.SystemBlob = past.System, past.SystemText, past.SystemBlob
	}
	for _, q := range past.Queued {
		s.Queued = append(s.Queued, queued{q.block, q.source.in(past.Run), q.permission})
	}
	asked := s.From.Unknown
	for _, c := range past.Live {
		if c.Result != nil {
			r := *c.Result
			r.source = r.source.in(past.Run)
			c.Result = &r
		}
		var err error
		switch {
		case c.entered():
			c, asked, err = s.inDoubt(c, asked)
		case c.Open():
			c, err = past.anew(c)
		}
		if err != nil {
			return err
		}
		s.Live = append(s.Live, c)
	}
	if len(asked) > 0 {
		return &ApplyError{Event: "run_started", Call: asked[0].Call, Problem: "its outcome is not in doubt"}
	}
	s.flush()   // a round that moved in the parent may rest here
	s.unqueue() // nobody answers the parent's requests about tools here
	s.settleState()
	return nil
}

// disown says of the results of a plan's steps in whose journal they stand: they are not said yet, and may be.
func (s *AgentState) disown(past *AgentState) {
	if !past.Plan.active() {
		return
	}
	var settled CallLog
	for _, c := range s.Settled.All() {
		if c.Step > 0 && !c.Result.Shown {
			r := *c.Result
			r.source = r.source.in(past.Run)
			c.Result = &r
		}
		settled = settled.Append(c)
	}
	s.Settled = settled
}

// anew is a call that has not run yet as the model made it: what people decided or changed is not inherited.
func (s *AgentState) anew(c Call) (Call, error) {
	asked, ok := s.askedInput(c.ID)
	if !ok {
		return c, &ApplyError{Event: "run_started", Call: c.ID, Problem: "it is open and the conversation does not have it"}
	}
	n := Call{
		ID: c.ID, Tool: c.Tool, Name: c.Name, Effect: c.Effect, Inference: c.Inference, Input: asked,
		Service: c.Service, Hidden: c.Hidden, Breaks: c.Breaks, Ahead: c.Ahead, Repeats: c.Repeats, Step: c.Step, Undoes: c.Undoes,
	}
	return n, n.move("run_started", StatusNew)
}

// askedInput is the arguments of a call as the model made it, in the conversation or for a step of the run's plan.
func (s *AgentState) askedInput(id string) (json.RawMessage, bool) {
	for _, m := range s.Messages.All() {
		if u, ok := m.Block.(ToolUse); ok && u.ID == id {
			return u.Input, true
		}
	}
	for _, step := range s.Plan.Steps {
		if step.Use.ID == id && id != "" {
			return step.Use.Input, true
		}
	}
	return nil, false
}

// inDoubt is an open call that was entered in the other run, with the arguments it was entered with. It may have happened, so nothing but
// a person's word lets it run again; the tool is not asked, since it knows that attempt under the other run's key.
func (s *AgentState) inDoubt(c Call, asked []CallUnknown) (Call, []CallUnknown, error) {
	if c.Status == StatusRunning {
		return c, asked, &ApplyError{Event: "run_started", Call: c.ID, Problem: "it was running"}
	}
	if len(asked) == 0 || asked[0].Call != c.ID || asked[0].Approval == "" || asked[0].Expires.IsZero() {
		return c, asked, &ApplyError{Event: "run_started", Call: c.ID, Problem: "its outcome is unknown and nobody is asked"}
	}
	n := Call{ID: c.ID, Tool: c.Tool, Name: c.Name, Effect: c.Effect, Inference: c.Inference, Input: c.Input, Executions: c.Executions, Asks: 1, Service: c.Service, Ahead: c.Ahead, Step: c.Step, Undoes: c.Undoes}
	n.EditedBy = c.Editor()
	err := n.move("run_started", StatusNew, StatusRunning, StatusSuspended)
	n.Wait = &Wait{For: ForOutcome, Approval: asked[0].Approval, Since: s.head.time, Expires: asked[0].Expires}
	return n, asked[1:], err
}

// inherits reports whether the conversation still has bodies that another run's journal holds. Results that are not said yet, and users
// who wait for them, are that run's only while a call is open whose own words are such a body.
func (s *AgentState) inherits() bool {
	return s.From != nil && slices.ContainsFunc(s.Messages.All(), func(m Message) bool { return m.Source.Run != "" })
}
