package run

import (
	"slices"
	"strings"
)

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
	switch s {
	case StatusNew, StatusRunning, StatusSuspended, StatusResuming, StatusSucceeded, StatusFailed, StatusCancelled:
		return true
	}
	return false
}

// Terminal reports whether s never changes again.
func (s CallStatus) Terminal() bool {
	return s == StatusSucceeded || s == StatusFailed || s == StatusCancelled
}

// RunArrow is one allowed change of a run's status; From is empty where the run begins.
type RunArrow struct {
	From, To RunStatus
	Why      string
}

// CallArrow is one allowed change of a call's status; From is empty where the call begins.
type CallArrow struct {
	From, To CallStatus
	Why      string
}

// RunArrows is the run's transition table. Apply takes no other arrow, and reachable runs take every one of these.
func RunArrows() []RunArrow { return slices.Clone(runArrows[:]) }

// CallArrows is the call's transition table. Apply takes no other arrow, and reachable runs take every one of these.
func CallArrows() []CallArrow { return slices.Clone(callArrows[:]) }

var runArrows = [...]RunArrow{
	{"", RunRunning, "started"},
	{RunRunning, RunWaiting, "nothing goes on before somebody answers"},
	{RunRunning, RunDone, "natural end, stop, error, cancel"},
	{RunWaiting, RunRunning, "decision, answer, input, expiry"},
	{RunWaiting, RunDone, "cancel, error"},
}

var callArrows = [...]CallArrow{
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

func runArrowAllowed(from, to RunStatus) bool {
	return slices.ContainsFunc(runArrows[:], func(a RunArrow) bool { return a.From == from && a.To == to })
}

func callArrowAllowed(from, to CallStatus) bool {
	return slices.ContainsFunc(callArrows[:], func(a CallArrow) bool { return a.From == from && a.To == to })
}

// RunDiagram is the run's transition table as a Mermaid stateDiagram-v2.
func RunDiagram() string {
	d := newDiagram()
	for _, a := range runArrows {
		d.arrow(string(a.From), string(a.To), a.Why)
		d.end(string(a.To), a.To.Terminal())
	}
	return d.String()
}

// CallDiagram is the call's transition table as a Mermaid stateDiagram-v2.
func CallDiagram() string {
	d := newDiagram()
	for _, a := range callArrows {
		d.arrow(string(a.From), string(a.To), a.Why)
		d.end(string(a.To), a.To.Terminal())
	}
	return d.String()
}

// diagram draws arrows as they come and the ends of terminal states behind them, each once.
type diagram struct {
	lines, ends []string
	ended       map[string]bool
}

func newDiagram() *diagram {
	return &diagram{lines: []string{"stateDiagram-v2"}, ended: map[string]bool{}}
}

func (d *diagram) arrow(from, to, why string) {
	if from == "" {
		from = "[*]"
	}
	d.lines = append(d.lines, "    "+from+" --> "+to+" : "+why)
}

func (d *diagram) end(state string, terminal bool) {
	if !terminal || d.ended[state] {
		return
	}
	d.ended[state] = true
	d.ends = append(d.ends, "    "+state+" --> [*]")
}

func (d *diagram) String() string {
	return strings.Join(append(d.lines, d.ends...), "\n") + "\n"
}
