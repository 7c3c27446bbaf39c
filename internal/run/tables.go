package run

import "slices"

// RunStatus is the coarse state of a run (seed 001, layer 1). The zero value means that the run has not started.
type RunStatus string

// The run statuses.
const (
	RunRunning RunStatus = "running"
	RunWaiting RunStatus = "waiting"
	RunDone    RunStatus = "done"
)

// Valid reports whether s is a status of a started run.
func (s RunStatus) Valid() bool { return s == RunRunning || s == RunWaiting || s == RunDone }

// Terminal reports whether s never changes again.
func (s RunStatus) Terminal() bool { return s == RunDone }

// CallStatus is the state of one tool call (seed 001, layer 2). The zero value means that the call does not exist.
type CallStatus string

// The call statuses.
const (
	StatusNew       CallStatus = "new"
	StatusRunning   CallStatus = "running"
	StatusSuspended CallStatus = "suspended"
	StatusResuming  CallStatus = "resuming"
	StatusSucceeded CallStatus = "succeeded"
	StatusFailed    CallStatus = "failed"
	StatusCancelled CallStatus = "cancelled"
)

// Valid reports whether s is a status of an existing call.
func (s CallStatus) Valid() bool {
	return slices.ContainsFunc(callTransitions[:], func(a Transition[CallStatus]) bool { return a.To == s })
}

// Terminal reports whether s never changes again.
func (s CallStatus) Terminal() bool {
	return s == StatusSucceeded || s == StatusFailed || s == StatusCancelled
}

// Transition is one allowed change of the status of a run or a call. From is empty where a run or a call begins.
type Transition[S ~string] struct {
	From, To S
	Why      string
}

// RunTransitions returns the run's transition table. Apply accepts no other transition, and reachable runs use each of
// them.
func RunTransitions() []Transition[RunStatus] { return slices.Clone(runTransitions[:]) }

// CallTransitions returns the call's transition table. Apply accepts no other transition, and reachable runs use each
// of them.
func CallTransitions() []Transition[CallStatus] { return slices.Clone(callTransitions[:]) }

var runTransitions = [...]Transition[RunStatus]{
	{"", RunRunning, "started"},
	{RunRunning, RunWaiting, "nothing goes on before somebody answers"},
	{RunRunning, RunDone, "natural end, stop, error, cancel"},
	{RunWaiting, RunRunning, "decision, answer, input, expiry"},
	{RunWaiting, RunDone, "cancel, error"},
}

var callTransitions = [...]Transition[CallStatus]{
	{"", StatusNew, "the model asked"},
	{StatusNew, StatusRunning, "claimed or entered"},
	{StatusNew, StatusSuspended, "needs a person"},
	{StatusNew, StatusSucceeded, "result given without running it"},
	{StatusNew, StatusFailed, "refused at the gate"},
	{StatusNew, StatusCancelled, "run ended, skipped"},
	{StatusRunning, StatusSuspended, "needs input, a service was asked, or outcome unknown"},
	{StatusRunning, StatusSucceeded, "result"},
	{StatusRunning, StatusFailed, "error"},
	{StatusRunning, StatusCancelled, "run ended"},
	{StatusSuspended, StatusResuming, "approved, answered, late result"},
	{StatusSuspended, StatusCancelled, "denied, expired, cancelled"},
	{StatusResuming, StatusRunning, "claimed"},
	{StatusResuming, StatusSuspended, "asked again"},
	{StatusResuming, StatusSucceeded, "answer is the result"},
	{StatusResuming, StatusFailed, "answer is an error, or refused at the claim"},
	{StatusResuming, StatusCancelled, "run ended"},
}

func allows[S ~string](all []Transition[S], from, to S) bool {
	return slices.ContainsFunc(all, func(t Transition[S]) bool { return t.From == from && t.To == to })
}
