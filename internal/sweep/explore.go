// Package sweep explores what becomes of scenarios when things go wrong and others act meanwhile (docs/reliability.md,
// fault sweep): every call of a port is a place for a fault, or for somebody to act, and every story is played again
// for each of them. Runs that come to a state which was seen before with the same still to come are left there.
package sweep

import (
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/scenario"
)

// Script is what happens in one run beside its story, in order.
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

// lastCall is the call of the script's last disturbance.
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

// Budget is how much may still happen in a run.
type Budget struct {
	Faults, Interventions int
}

func (b Budget) isEmpty() bool { return b.Faults == 0 && b.Interventions == 0 }

// Scope says what is explored of a scenario.
type Scope struct {
	Budget        Budget
	Kinds         []fault.Kind
	Interventions []scenario.InterventionKind
	// Patience is how many calls others make at most before a zombie goes on; it is tried with each number up to that, and
	// with as many as there are.
	Patience int
	// Window is how many calls lie at most between two faults; 0 = any number. Of a fault and an act it is not asked.
	Window      int
	LostCallers bool // people who crash do not come back, too
	Limit       int  // runs at most; 0 = no limit
	NoPruning   bool // no run is left early
	Warm        bool // functions keep the runs that they have read, each in a process of its own; no run is left early
}

// Finding is a run in which a promise was broken.
type Finding struct {
	Scenario string
	Script   Script
	Call     fault.Call // at which the last disturbance was
	Failures []scenario.Failure
}

func (f Finding) String() string {
	return fmt.Sprintf("%s, %s (last at %v): %v", f.Scenario, f.Script, f.Call, f.Failures)
}

// Count is what was explored.
type Count struct {
	Points      int // calls of ports in the plain run
	Runs        int
	Pruned      int // runs that were left at a state which was seen before
	Ineffective int // runs whose act found nothing to do: they are the run without it
	Diverged    int // runs whose story a fault changed, so that promises alone were checked
	Swept       int // runs that only a sweep moved
	Skipped     int // disturbances that were not played, because the limit was reached
}

// Add adds what another exploration counted.
func (c *Count) Add(o Count) {
	c.Points += o.Points
	c.Runs += o.Runs
	c.Pruned += o.Pruned
	c.Ineffective += o.Ineffective
	c.Diverged += o.Diverged
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

// state is one in which so much may still happen.
type state struct {
	fingerprint [16]byte
	budget      Budget
}

// Explore plays a scenario with everything that the scope allows. The plain run must be as wanted.
func Explore(s *scenario.Scenario, scope Scope) (Count, []Finding) {
	x := &explorer{Scenario: s, scope: scope, seen: map[state]bool{}}
	x.explore(Script{}, scope.Budget)
	return x.count, x.findings
}

// explore plays a script, and then every script that goes on from it with one disturbance more.
func (x *explorer) explore(s Script, left Budget) {
	r := x.simulate(s, left)
	x.count.Runs++
	if s.lastCall() == 0 {
		x.count.Points = len(r.Calls)
	}
	if bad := slices.Concat(r.Violations, r.Failures); len(bad) > 0 {
		f := Finding{Scenario: x.Name, Script: s, Failures: bad}
		if n := s.lastCall(); n > 0 && n <= len(r.Calls) {
			f.Call = r.Calls[n-1]
		}
		x.findings = append(x.findings, f)
		return // what goes on from here is the same mistake
	}
	if r.Ineffective > 0 {
		x.count.Ineffective++
		return
	}
	if r.Diverged {
		x.count.Diverged++
	}
	if r.Sweeps > 0 {
		x.count.Swept++
	}
	until := len(r.Calls)
	if r.Pruned && len(r.Boundaries) > 0 {
		x.count.Pruned++
		until = r.Boundaries[len(r.Boundaries)-1].Call - 1
	}
	for _, b := range r.Boundaries { // none where nobody asked
		x.seen[state{b.Fingerprint, left}] = true
	}
	if left.isEmpty() {
		return
	}
	for _, c := range r.Calls[s.lastCall():until] {
		x.disturbAt(s, left, c)
	}
}

// disturbAt goes on with a script by each disturbance that there can be at a call.
func (x *explorer) disturbAt(s Script, left Budget, c fault.Call) {
	if left.Faults > 0 && x.isWithinWindow(s, c) {
		for _, k := range x.scope.Kinds {
			for _, p := range k.Variants(c, x.scope.Patience) {
				x.exploreNext(s.withFault(p), Budget{left.Faults - 1, left.Interventions})
			}
		}
	}
	if left.Interventions > 0 {
		for _, d := range x.scope.Interventions {
			x.exploreNext(s.withIntervention(scenario.Intervention{Call: c.Number, Do: d}), Budget{left.Faults, left.Interventions - 1})
			if x.scope.LostCallers && left.Faults > 0 {
				x.exploreNext(s.withIntervention(scenario.Intervention{Call: c.Number, Do: d, Lost: true}), Budget{left.Faults, left.Interventions - 1})
			}
		}
	}
}

func (x *explorer) exploreNext(s Script, left Budget) {
	if x.scope.Limit > 0 && x.count.Runs >= x.scope.Limit {
		x.count.Skipped++
		return
	}
	x.explore(s, left)
}

// isWithinWindow reports whether a call lies within the window behind the script's last fault.
func (x *explorer) isWithinWindow(s Script, c fault.Call) bool {
	if x.scope.Window == 0 || len(s.Faults) == 0 {
		return true
	}
	return c.Number-s.Faults[len(s.Faults)-1].Call <= x.scope.Window
}

func (x *explorer) simulate(s Script, left Budget) scenario.Result {
	o := scenario.Options{Faults: s.Faults, Interventions: s.Interventions, Warm: x.scope.Warm}
	if !x.scope.NoPruning && !x.scope.Warm {
		o.IsKnownState = func(print [16]byte) bool { return x.seen[state{print, left}] }
	}
	return x.Run(o)
}
