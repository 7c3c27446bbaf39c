package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/scenario"
	"github.com/countersign/countersign/internal/sweep"
)

// patience is how many calls others make at most before a zombie goes on.
const patience = 6

// explore tries faults of these kinds and these deeds everywhere.
func explore(s *scenario.Scenario, kinds string) ([]string, error) {
	scope := sweep.Scope{Patience: patience}
	for name := range strings.SplitSeq(kinds, ",") {
		switch {
		case slices.Contains(fault.Kinds(), fault.Kind(name)):
			scope.Kinds, scope.Budget.Faults = append(scope.Kinds, fault.Kind(name)), 1
		case slices.Contains(scenario.Deeds(), scenario.Deed(name)):
			scope.Deeds, scope.Budget.Acts = append(scope.Deeds, scenario.Deed(name)), 1
		case name == "lost":
			scope.Lost = true
		case name == "warm":
			scope.Warm = true
		default:
			return nil, fmt.Errorf("got %q, want one of %q, of %v, lost or warm", name, names(), scenario.Deeds())
		}
	}
	_, found := sweep.Explore(s, scope)
	var lines []string
	for _, f := range found {
		lines = append(lines, said(fmt.Sprintf("%s, last at %s: ", f.Script, f.Call), f.Failures)...)
	}
	return lines, nil
}
