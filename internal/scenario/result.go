package scenario

import (
	"fmt"
	"hash/crc32"
	"os"
	"slices"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
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
	Journal  []run.Entry
	Children [][]run.Entry  // the journals of the runs that calls were, each behind the one whose call it was
	Seed     run.AgentState // what Journal is folded from: the run that it goes on with, where there is one
	Diverged bool           // under a crash: what somebody said during an inference came before its repetition, so nothing is compared

	Violations  []Failure  // promises that were broken, whatever the story
	Ineffective int        // acts that found nothing to do
	Repaired    int        // runs that a sweep repaired
	Sweeps      int        // sweeps without which nothing would have moved
	Boundaries  []Boundary // once nothing more was to go wrong: the states in which handlers began alone
	Pruned      bool       // it came to a state that was seen before, and was left there

	Effects []Effect // of tools, in the order in which they came about
	Runs    []Run    // under Options.PromisesOnly: every run of the story
}

// Effect is one time that a tool took effect.
type Effect struct {
	Run, Call, Tool string
	Args            string // JSON
	Repeatable      bool   // it may come about more than once for a call
}

// Run is one run of a story, as it is on record.
type Run struct {
	Seed    run.AgentState // what its journal is folded from
	State   run.AgentState // at the end of it
	Journal []run.Entry
}

// Boundary is a state of everything, as a handler begins that is the only one.
type Boundary struct {
	Call        int      // the number that its first call will have
	Fingerprint [16]byte // of the state, by which equal ones are known: random ids and instants do not count
}

// Options says how a scenario is run. The zero value runs it as it is.
type Options struct {
	Faults        []fault.Point             // what goes wrong
	Interventions []Intervention            // what others do meanwhile
	IsKnownState  func(print [16]byte) bool // asked at each boundary; true ends the run there. Nil = none is known

	// Warm keeps the runs that functions have read, step's and tool's each in a process of its own. A crash does not empty them. What a function knows is
	// no part of a print: Seen is of no use then.
	Warm bool

	// PromisesOnly checks what must hold of every story, and nothing that is wanted of this one: nobody knows what comes of it. A script that runs out
	// ends the run, and people who find nothing to do are no failure; but what they do is taken or refused, and nothing else.
	InvariantsOnly bool
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

// CrashesInTests is how many runs with a crash the tests of this repository make of each scenario; 0 = all, as `make crash` wants.
func CrashesInTests() int {
	if os.Getenv("COUNTERSIGN_CRASHES") == "all" {
		return 0
	}
	return 12
}

// Crash runs the scenario as it is, to count the calls of ports, and then once for each of them and each kind of crash. With most > 0
// it makes at most that many of these runs, spread evenly over the story and always the same ones. Where the plain run fails there are
// no others.
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
	offset := crc32.ChecksumIEEE([]byte(s.Name)) // else every story would be disturbed at the same places
	for i := range most {
		n := (int(offset%uint32(all)) + i*all/most) % all
		at, kind := r.Plain.Calls[n/len(kinds)], kinds[n%len(kinds)]
		r.Runs++
		got := s.Run(Options{Faults: []fault.Point{{Call: at.Number, Kind: kind}}})
		if got.Diverged {
			r.Diverged++
		}
		if bad := slices.Concat(got.Violations, got.Failures); len(bad) > 0 {
			r.Failures = append(r.Failures, CrashFailure{At: at, Kind: kind, Failures: bad})
		}
	}
	return r
}
