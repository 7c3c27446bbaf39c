package scenario

import (
	"fmt"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/pkg/agent"
)

// Failure is one thing that is not as wanted.
type Failure struct {
	Path string // where: a path into want.json, or file and line of what else was wanted
	Got  string
	Want string
}

func (f Failure) String() string { return fmt.Sprintf("%s: got %s, want %s", f.Path, f.Got, f.Want) }

// Result is what came of one run of a scenario. No failures means that everything was as wanted.
type Result struct {
	Failures []Failure
	Calls    []fault.Call // of ports, in order: the points at which a fault can be put
	Journal  []agent.Entry
	Children [][]agent.Entry  // the journals of the runs that calls were, each behind the one whose call it was
	Seed     agent.AgentState // what Journal is folded from: the run that it goes on with, where there is one
	Diverged bool             // under a crash: what somebody said during an inference came before its repetition, so nothing is compared
}

// Options says how a scenario is run. The zero value runs it as it is.
type Options struct {
	Crash *fault.Point // nil = nothing goes wrong
}

// CrashFailure is a run with a crash that did not come to what is wanted.
type CrashFailure struct {
	At       fault.Call
	Kind     fault.Kind
	Failures []Failure
}

// CrashResult is what came of a scenario and all its crashes.
type CrashResult struct {
	Plain    Result
	Points   int // calls of ports in the plain run
	Runs     int // runs with a crash
	Diverged int // of these, runs in which a crash moved what somebody said to another inference: they only had to come to rest
	Failures []CrashFailure
}

// Crash runs the scenario as it is, to count the calls of ports, and then once for each of them and each kind of crash. Where
// the plain run fails there are no others.
func (s *Scenario) Crash() CrashResult {
	r := CrashResult{Plain: s.Run(Options{})}
	if len(r.Plain.Failures) > 0 {
		return r
	}
	r.Points = len(r.Plain.Calls)
	for _, c := range r.Plain.Calls {
		for _, k := range fault.Kinds() {
			r.Runs++
			got := s.Run(Options{Crash: &fault.Point{Call: c.Number, Kind: k}})
			if got.Diverged {
				r.Diverged++
			}
			if len(got.Failures) > 0 {
				r.Failures = append(r.Failures, CrashFailure{At: c, Kind: k, Failures: got.Failures})
			}
		}
	}
	return r
}
