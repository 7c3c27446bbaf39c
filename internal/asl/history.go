package asl

import "time"

// MaxEvents is the longest history of an execution. The event that fills it is the execution's failure, which nothing
// can catch.
const MaxEvents = 25000

// HistoryEvent is something that happened in an execution, counted and named as in a Step Functions history.
type HistoryEvent struct {
	ExecutionARN string
	ID           int // 1 for the first of an execution
	Type         string
	State        string // empty for events of the execution itself
	At           time.Time
	Error        string
	Cause        string
}

// event counts an event in the state the execution is in, and stops the execution when there is room for its end only.
func (x *execution) event(kind string, f *Failure) {
	ev := HistoryEvent{Type: kind, State: x.at}
	if f != nil {
		ev.Error, ev.Cause = f.Name, f.Cause
	}
	if !x.count(ev, MaxEvents-1) {
		x.cancel(&end{status: Failed, error: Runtime, cause: "the execution reached the maximum number of history events (25000)"})
	}
}

// lastEvent counts the end of the execution.
func (x *execution) lastEvent(e *end) {
	kind := map[Status]string{
		Succeeded: "ExecutionSucceeded", Failed: "ExecutionFailed", TimedOut: "ExecutionTimedOut", Aborted: "ExecutionAborted",
	}[e.status]
	x.count(HistoryEvent{Type: kind, Error: e.error, Cause: e.cause}, MaxEvents)
}

// count takes an event in unless there are limit already.
func (x *execution) count(ev HistoryEvent, limit int) bool {
	x.engine.mu.Lock()
	ok := x.rec.Events < limit
	if ok {
		x.rec.Events++
		ev.ID = x.rec.Events
	}
	x.engine.mu.Unlock()
	if ok && x.engine.Observe != nil {
		ev.ExecutionARN, ev.At = x.arn, x.engine.Clock.Now()
		x.engine.Observe(ev)
	}
	return ok
}

// transition counts a state entered or tried again.
func (x *execution) transition() {
	x.engine.mu.Lock()
	x.rec.Transitions++
	x.engine.mu.Unlock()
}
