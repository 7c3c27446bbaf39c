package runtime

import (
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// The values of Route.Next, which the state machine's Choice reads.
const (
	NextTools    = "tools"
	NextStep     = "step"
	NextWait     = "wait"
	NextContinue = "continue"
	NextDone     = "done"
	NextFailed   = "failed"
)

// The limits of a wait, in seconds. A shorter wait costs more than it is worth, and an execution lives for one year.
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
	// the wait that has just ended, or, on the way to a wait, that wait (rule 7)
	Woken       int64  `json:"woken"`
	WaitSeconds int64  `json:"waitSeconds"`         // on the way to a wait: time to the earliest expiry
	Successor   string `json:"successor,omitempty"` // on the way to a hand-over: the execution to start
}

// Invocation identifies who acts: the execution that invoked this function, the wait it was woken from (0 = none), and
// a writer id for this invocation.
type Invocation struct {
	Tenant, Run string
	Execution   string // name
	Woken       int64
	At          int64 // hint: where the journal's live part begins; 0 = unknown
	Writer      string
}

func (i Invocation) route(next string) Route {
	return Route{Tenant: i.Tenant, Run: i.Run, Next: next, At: i.At}
}

// routeAway returns the route of an invocation that may not write to the run: another execution owns it (rules 12, 13),
// it is done, or it is parked and this invocation was not woken (rule 7).
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
		if age := s.HandsOverAt(); age.Before(until) { // wake up then, so that another execution takes over
			until = age
		}
		left := until.Sub(now)
		r.WaitSeconds = min(max(int64((left+time.Second-1)/time.Second), minWait), maxWait)
		return r, true
	default:
		return Route{}, false
	}
}

// cancelledMark is the Woken of a batch that has cancelled the abandoned children of a parked run. The run stays
// parked, although the children's answers are still to come. No sequence is that large.
func cancelledMark(s *run.AgentState) int64 { return s.WaitSeq + 1<<40 }

// routeAfter returns where a run goes from a state that this invocation has just committed.
func routeAfter(i Invocation, d *agent.Definition, s *run.AgentState, now time.Time) Route {
	i.At = s.ReadFrom()
	if r, away := routeAway(i, s, now); away { // the entry has handed over, ended or parked the run
		return r
	}
	if next := policy.Next(d, s).Kind; next == policy.ActTools || next == policy.ActList { // the batch does these
		return i.route(NextTools)
	}
	return i.route(NextStep)
}
