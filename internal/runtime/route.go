package runtime

import (
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// Where a route leads, as the state machine's Choice reads it.
const (
	NextTools    = "tools"
	NextStep     = "step"
	NextWait     = "wait"
	NextContinue = "continue"
	NextDone     = "done"
	NextFailed   = "failed"
)

// The bounds of a wait, in seconds: a task that times out sooner costs more than it tells, and a year is all an
// execution has.
const (
	minWait = 60
	maxWait = 31_536_000
)

// Route is all that travels through the state machine: ids and hints, never content.
type Route struct {
	Tenant string `json:"tenant"`
	Run    string `json:"run"`
	Next   string `json:"next"`
	At     int64  `json:"at"` // hint: where the journal's live part begins
	// the wait that has just ended; on the way to a wait, that wait (rule 7)
	Woken       int64  `json:"woken"`
	WaitSeconds int64  `json:"waitSeconds"`         // on the way to a wait: to the earliest expiry
	Successor   string `json:"successor,omitempty"` // on the way to a hand-over: the execution to start
}

// Invocation is who acts: the execution that invoked us, the wait it was woken from (0 = none), and a writer id of this
// very invocation.
type Invocation struct {
	Tenant, Run string
	Execution   string // name
	Woken       int64
	At          int64 // hint: where the journal's live part begins; 0 = find it
	Writer      string
}

func (i Invocation) route(next string) Route {
	return Route{Tenant: i.Tenant, Run: i.Run, Next: next, At: i.At}
}

// routeAway is the route of an invocation that may not touch the run: another execution owns it (rules 12, 13), it is
// done, or it is parked and this invocation was not woken (rule 7).
func routeAway(i Invocation, s *run.AgentState, now time.Time) (Route, bool) {
	switch {
	case s.Owner != i.Execution && s.FormerOwner == i.Execution:
		r := i.route(NextContinue)
		r.Successor = s.Owner
		return r, true
	case s.Owner != i.Execution:
		return i.route(NextDone), true
	case s.Status == run.RunDone && s.Reason == run.ReasonError:
		return i.route(NextFailed), true
	case s.Status == run.RunDone:
		return i.route(NextDone), true
	case s.Status == run.RunWaiting && i.Woken != s.WaitSeq:
		r := i.route(NextWait)
		r.Woken, r.At = s.WaitSeq, s.ReadFrom()
		until := s.EarliestExpiry()
		if age := s.HandsOverAt(); age.Before(until) { // woken then, for another execution to wait on
			until = age
		}
		left := until.Sub(now)
		r.WaitSeconds = min(max(int64((left+time.Second-1)/time.Second), minWait), maxWait)
		return r, true
	default:
		return Route{}, false
	}
}

// cancelledMark is what a batch says in place of the wait that has ended, once it has cancelled the children that
// nobody waits for: the run parks then, though their answers, which take them off, are still to come. No sequence is so
// large.
func cancelledMark(s *run.AgentState) int64 { return s.WaitSeq + 1<<40 }

// routeAfter is where a run goes from a state this invocation has just committed.
func routeAfter(i Invocation, d *agent.Definition, s *run.AgentState, now time.Time) Route {
	i.At = s.ReadFrom()
	if r, away := routeAway(i, s, now); away { // it has handed the run over, ended or parked it
		return r
	}
	if next := policy.Next(d, s).Kind; next == policy.ActTools || next == policy.ActList { // the batch's to do
		return i.route(NextTools)
	}
	return i.route(NextStep)
}
