package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/scenario"
)

// tally counts the features, disturbances and outcomes of random programs, to show their coverage. It counts shrinking
// runs, too.
type tally map[string]int

// currentTally is the tally of the running test. The tests do not run in parallel.
var currentTally = tally{}

func (c tally) countProgram(tags map[string]bool) {
	c["programs"]++
	for tag := range tags {
		if len(tag) < 48 && !strings.Contains(tag, "map[") {
			c["has "+tag]++
		}
	}
}

// countRun counts the last disturbance of a script, and the states of the runs.
func (c tally) countRun(s Script, r scenario.Result) {
	c["runs"]++
	c["calls of ports"] += len(r.Calls)
	if r.Sweeps > 0 {
		c["runs that a sweep moved"]++
	}
	for _, run := range r.Runs {
		c["status "+string(run.State.Status)+" "+string(run.State.Reason)]++
		c["entries"] += len(run.Journal)
		for _, call := range run.State.Calls() {
			c["call "+string(call.Status)]++
		}
		for _, e := range run.Journal {
			for _, ev := range e.Events {
				c["event "+eventName(ev)]++
			}
		}
	}
	for i, f := range s.Faults {
		if i == len(s.Faults)-1 && f.Call == s.lastCall() && f.Call <= len(r.Calls) {
			c[fmt.Sprintf("fault %s at %s", f.Kind, r.Calls[f.Call-1].Port)]++
			c["faults"]++
		}
	}
	if n := len(s.Interventions); n > 0 && s.Interventions[n-1].Call == s.lastCall() {
		a := s.Interventions[n-1]
		c["acts"]++
		name := "act " + string(a.Do)
		if a.Lost {
			name += " lost"
		}
		if r.Ineffective == 0 {
			c[name+" did something"]++
		} else {
			c[name]++
		}
	}
}

func (c tally) String() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&b, "%7d %s\n", c[key], key)
	}
	return b.String()
}

func eventName(ev run.Event) string { return run.EventType(ev) }
