package scenario

import (
	"fmt"
	"hash/crc32"
	"os"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
)

// Failure is one difference from the wanted values, or one broken invariant.
type Failure struct {
	Path string // a path into want.json, or a file and line
	Got  string
	Want string
}

func (f Failure) String() string { return fmt.Sprintf("%s: got %s, want %s", f.Path, f.Got, f.Want) }

// Result is the outcome of one simulation.
type Result struct {
	Failures []Failure    // broken invariants, then differences; none = it passed
	Calls    []fault.Call // of ports, in order: the points for faults and interventions
	Diverged bool         // a crash lost a model request during which a person acted, so nothing is compared

	Ineffective int        // interventions that found nothing to do
	Sweeps      int        // sweeps without which nothing would have moved
	Boundaries  []Boundary // states in which a handler began alone after the last disturbance
	Pruned      bool       // it reached a known state, and ended there

	Effects []Effect // under Options.InvariantsOnly: effects of tools, in order

	// Runs is the run of want.json and those that it delegated to, each after its parent, if they were compared. Under
	// Options.InvariantsOnly it is every run, and the earlier run comes first.
	Runs []Run
}

// Effect is one time that a tool took effect.
type Effect struct {
	Run, Call, Tool string
	Args            string // JSON
	Repeatable      bool   // it may happen more than once for a call
}

// Run is one run of a scenario, as the journal has it.
type Run struct {
	Seed    run.AgentState // the state from which its journal is folded
	State   run.AgentState // at the end of it
	Journal []run.Entry
}

// Boundary is a state of the simulation in which a handler begins alone.
type Boundary struct {
	Call        int      // the number of its first call of a port
	Fingerprint [16]byte // of the state, regardless of random ids and instants
}

// Options configures a simulation. The zero value runs the scenario as written.
type Options struct {
	Faults        []fault.Point                   // injected at calls of ports
	Interventions []Intervention                  // made before calls of ports
	IsKnownState  func(fingerprint [16]byte) bool // true ends the simulation at the boundary; nil = no state is known

	// Warm lets functions cache the runs that they have read, step and tool each in a process of its own. A crash does
	// not empty the caches. A fingerprint does not include them: do not combine Warm with IsKnownState.
	Warm bool

	// InvariantsOnly checks invariants and compares nothing with want.json, for programs whose outcome is not known. An
	// exhausted script ends the run, and lines that find nothing to do are no failures. An action must still be either
	// taken or refused.
	InvariantsOnly bool
}

// CrashFailure is a simulation with a crash that failed.
type CrashFailure struct {
	At       fault.Call
	Kind     fault.Kind
	Failures []Failure
}

// CrashResult is the outcome of a scenario as written and with crashes.
type CrashResult struct {
	Plain    Result
	Points   int // calls of ports in the plain run
	Runs     int // simulations with a crash
	Diverged int // of these, diverged ones: they only had to come to rest
	Failures []CrashFailure
}

// CrashesInTests returns the number of crashes for each scenario of a test: few, or 0 = all, as in `make crash`.
func CrashesInTests(few int) int {
	if os.Getenv("COUNTERSIGN_CRASHES") == "all" {
		return 0
	}
	return few
}

// Crash runs the scenario as written to count its calls of ports, and then once for each call and each kind of crash.
// With most > 0 it makes at most that many crashes, spread evenly and always the same ones. If the plain run fails,
// there are no crashes.
func (s *Scenario) Crash(most int) CrashResult {
	r := CrashResult{Plain: s.Run(Options{})}
	if len(r.Plain.Failures) > 0 {
		return r
	}
	r.Points = len(r.Plain.Calls)
	kinds := fault.Crashes()
	all := r.Points * len(kinds)
	if most <= 0 || most > all {
		most = all
	}
	offset := crc32.ChecksumIEEE([]byte(s.Name)) // scenarios crash at different places
	for i := range most {
		n := (int(offset%uint32(all)) + i*all/most) % all
		at, kind := r.Plain.Calls[n/len(kinds)], kinds[n%len(kinds)]
		r.Runs++
		got := s.Run(Options{Faults: []fault.Point{{Call: at.Number, Kind: kind}}})
		if got.Diverged {
			r.Diverged++
		}
		if len(got.Failures) > 0 {
			r.Failures = append(r.Failures, CrashFailure{At: at, Kind: kind, Failures: got.Failures})
		}
	}
	return r
}
