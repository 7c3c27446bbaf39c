package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/scenario"
)

// Script is the disturbances of one run, in order.
type Script struct {
	Faults        []fault.Point
	Interventions []scenario.Intervention
}

func (s Script) String() string {
	var all []string
	for _, f := range s.Faults {
		all = append(all, f.String())
	}
	for _, a := range s.Interventions {
		all = append(all, a.String())
	}
	return strings.Join(all, " ")
}

func (s Script) withFault(p fault.Point) Script {
	return Script{Faults: append(slices.Clone(s.Faults), p), Interventions: s.Interventions}
}

func (s Script) withIntervention(a scenario.Intervention) Script {
	return Script{Faults: s.Faults, Interventions: append(slices.Clone(s.Interventions), a)}
}

// lastCall returns the call of the script's last disturbance; 0 = there is none.
func (s Script) lastCall() int {
	n := 0
	for _, f := range s.Faults {
		n = max(n, f.Call)
	}
	for _, a := range s.Interventions {
		n = max(n, a.Call)
	}
	return n
}

// Budget is how many disturbances a run may still have.
type Budget struct {
	Faults, Interventions int
}

// Scope configures an exploration.
type Scope struct {
	Budget        Budget
	Kinds         []fault.Kind
	Interventions []scenario.InterventionKind
	// Patience is the largest number of other calls before a zombie resumes. Every number up to it is tried, and a
	// zombie that resumes when nothing else moves.
	Patience int
	// Window is the largest distance of two faults in calls; 0 = any. It does not limit interventions.
	Window      int
	LostCallers bool // also try interventions whose caller does not retry
	Limit       int  // the largest number of runs; 0 = no limit
	NoPruning   bool // no run ends early
	Warm        bool // functions cache the runs that they have read (scenario.Options.Warm); no run ends early
}

// Finding is a run that broke an invariant or differs from the wanted outcome.
type Finding struct {
	Scenario string
	Script   Script
	Call     fault.Call // the call of the last disturbance
	Failures []scenario.Failure
}

func (f Finding) String() string {
	return fmt.Sprintf("%s, %s (last at %v): %v", f.Scenario, f.Script, f.Call, f.Failures)
}

// Count counts the runs of explorations.
type Count struct {
	Points      int // calls of ports in the plain run
	Runs        int
	Pruned      int // runs that ended early at a known state
	Ineffective int // runs whose intervention found nothing to do: they equal the run without it
	Swept       int // runs that only a sweep moved
	Skipped     int // disturbances that were not run because of the limit
}

// Add adds the counts of another exploration.
func (c *Count) Add(o Count) {
	c.Points += o.Points
	c.Runs += o.Runs
	c.Pruned += o.Pruned
	c.Ineffective += o.Ineffective
	c.Swept += o.Swept
	c.Skipped += o.Skipped
}

func (c Count) String() string {
	s := fmt.Sprintf("%d I/O points, %d runs, %d pruned, %d with nothing to do", c.Points, c.Runs, c.Pruned, c.Ineffective)
	if c.Swept > 0 {
		s += fmt.Sprintf(", %d moved by a sweep", c.Swept)
	}
	if c.Skipped > 0 {
		s += fmt.Sprintf(", %d not played", c.Skipped)
	}
	return s
}

// explorer explores one scenario.
type explorer struct {
	*scenario.Scenario
	scope    Scope
	seen     map[state]bool
	count    Count
	findings []Finding
}

// state is a state of a simulation with the budget left in it.
type state struct {
	fingerprint [16]byte
	budget      Budget
}

// Explore runs a scenario with all disturbances that the scope allows. The plain run must pass.
func Explore(s *scenario.Scenario, scope Scope) (Count, []Finding) {
	x := &explorer{Scenario: s, scope: scope, seen: map[state]bool{}}
	x.explore(Script{}, scope.Budget)
	return x.count, x.findings
}

// explore runs a script, and then every script that extends it by one disturbance.
func (x *explorer) explore(s Script, left Budget) {
	if x.scope.Limit > 0 && x.count.Runs >= x.scope.Limit {
		x.count.Skipped++
		return
	}
	o := scenario.Options{Faults: s.Faults, Interventions: s.Interventions, Warm: x.scope.Warm}
	if !x.scope.NoPruning && !x.scope.Warm {
		o.IsKnownState = func(fingerprint [16]byte) bool { return x.seen[state{fingerprint, left}] }
	}
	r := x.Run(o)
	x.count.Runs++
	if s.lastCall() == 0 {
		x.count.Points = len(r.Calls)
	}
	if len(r.Failures) > 0 {
		f := Finding{Scenario: x.Name, Script: s, Failures: r.Failures}
		if n := s.lastCall(); n > 0 && n <= len(r.Calls) {
			f.Call = r.Calls[n-1]
		}
		x.findings = append(x.findings, f)
		return // extensions of the script would repeat the finding
	}
	if r.Ineffective > 0 {
		x.count.Ineffective++
		return
	}
	if r.Sweeps > 0 {
		x.count.Swept++
	}
	until := len(r.Calls)
	if r.Pruned && len(r.Boundaries) > 0 {
		x.count.Pruned++
		until = r.Boundaries[len(r.Boundaries)-1].Call - 1
	}
	for _, b := range r.Boundaries { // none without pruning
		x.seen[state{b.Fingerprint, left}] = true
	}
	if left == (Budget{}) {
		return
	}
	for _, c := range r.Calls[s.lastCall():until] {
		within := x.scope.Window == 0 || len(s.Faults) == 0 || c.Number-s.Faults[len(s.Faults)-1].Call <= x.scope.Window
		if left.Faults > 0 && within {
			for _, k := range x.scope.Kinds {
				for _, p := range k.Variants(c, x.scope.Patience) {
					x.explore(s.withFault(p), Budget{left.Faults - 1, left.Interventions})
				}
			}
		}
		if left.Interventions == 0 {
			continue
		}
		next := Budget{left.Faults, left.Interventions - 1}
		for _, d := range x.scope.Interventions {
			x.explore(s.withIntervention(scenario.Intervention{Call: c.Number, Do: d}), next)
			if x.scope.LostCallers && left.Faults > 0 {
				x.explore(s.withIntervention(scenario.Intervention{Call: c.Number, Do: d, Lost: true}), next)
			}
		}
	}
}
