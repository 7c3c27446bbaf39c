package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/scenario"
)

// Corpus returns the names of the scenarios that are swept: every preset, and every way in which a run waits, resumes,
// ends or delegates.
func Corpus() []string {
	return []string{
		"approve", "edit", "expiry", "cancel-parked", "cancel-during-tool", "outcome-of-a-crash", "quorum", "escalation",
		"grant-once", "standing-grant-uses", "precondition-changed", "policy-changed", "message-parked",
		"message-during-inference", "parallel-order", "executor-sequential", "service-gated", "lambda-async",
		"delegate-child-asks", "delegate-cancel-parent", "undo-approved", "plan", "countersign-progressive", "notify-asked",
		"arvo-permission", "service-asked", "advisory-approval", "tirea-suspend-replay", "all-suspended-starts-early",
		"early-kept", "cowork-approval", "cowork-nudge", "forge-approval", "forge-mcp",
	}
}

// QuickCorpus returns the scenarios that `make test` sweeps.
func QuickCorpus() []string {
	return []string{"cancel-parked", "arvo-permission", "service-asked"}
}

// Load reads a scenario from a folder.
func Load(dir, name string) (*scenario.Scenario, error) {
	file := filepath.Join(dir, name+".txtar")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s, err := scenario.Load(file, data)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", file, err)
	}
	return s, nil
}

// SmallCorpus returns the scenarios that every lane sweeps: short ones that differ in approvers and in repeatable
// effects.
func SmallCorpus() []string {
	return []string{"approve", "cancel-parked", "cancel-during-tool", "outcome-of-a-crash", "expiry", "message-parked",
		"service-asked", "tirea-suspend-replay"}
}

// HandOver is the scenario in which another execution takes over. An expiry is no act in it: it would let days pass
// within one invocation around a hand-over, which only a sweep repairs.
const HandOver = "outlives-its-execution"

// Lane is one way of sweeping.
type Lane struct {
	Name      string
	About     string
	Scope     Scope
	Scenarios []string // names from the corpus
}

// Lanes returns the lanes of `make sweep`. On two cores they take at most half an hour. The number of runs grows with
// the square of the calls, so pairs of faults use a small corpus or window.
func Lanes() []Lane {
	long := []string{ // too many calls for a sweep whose cost grows with the square of the calls
		"standing-grant-uses", "notify-asked", "delegate-cancel-parent", "cowork-approval", "escalation", "policy-changed",
		"undo-approved", "precondition-changed", "forge-mcp", "grant-once", "lambda-async", "service-gated",
	}
	others := slices.DeleteFunc(scenario.InterventionKinds(),
		func(d scenario.InterventionKind) bool { return d == scenario.Approve || d == scenario.SendMessage })
	lasting := []fault.Kind{fault.ErrorAfter, fault.CrashAfter, fault.Zombie}
	acts := slices.DeleteFunc(scenario.InterventionKinds(),
		func(d scenario.InterventionKind) bool { return d == scenario.Expire })
	return []Lane{
		{"faults and people", "every fault with a decision and with a message", Scope{
			Budget: Budget{1, 1}, Kinds: fault.Kinds(), Patience: 1,
			Interventions: []scenario.InterventionKind{scenario.Approve, scenario.SendMessage},
		}, slices.DeleteFunc(Corpus(), func(name string) bool { return slices.Contains(long, name) })},
		{"faults and others", "lasting faults with every other act", Scope{
			Budget: Budget{1, 1}, Kinds: lasting, Interventions: others,
		}, SmallCorpus()},
		{"others", "every act", Scope{Budget: Budget{0, 1}, Interventions: scenario.InterventionKinds()}, Corpus()},
		{"lost people", "people and clients who crash and do not return", Scope{
			Budget: Budget{1, 1}, Kinds: fault.Crashes(), LostCallers: true,
			Interventions: []scenario.InterventionKind{scenario.Approve, scenario.SendMessage, scenario.CancelRun,
				scenario.StartAgain},
		}, SmallCorpus()},
		{"warm functions", "every fault; functions keep what they read", Scope{
			Budget: Budget{1, 0}, Kinds: fault.Kinds(), Patience: 1, Warm: true,
		}, Corpus()},
		{"warm functions and others", "every act; functions keep what they read",
			Scope{Budget: Budget{0, 1}, Interventions: scenario.InterventionKinds(), Warm: true}, Corpus()},
		{"pairs of lasting faults", "all pairs within twelve calls", Scope{Budget: Budget{2, 0}, Kinds: lasting, Window: 12},
			Corpus()},
		{"pairs of all faults", "all pairs within twelve calls",
			Scope{Budget: Budget{2, 0}, Kinds: fault.Kinds(), Patience: 1, Window: 12}, []string{"approve", "cancel-parked"}},
		{"hand-overs", "lasting faults with every act but an expiry", Scope{
			Budget: Budget{1, 1}, Kinds: lasting, Interventions: acts,
		}, []string{HandOver}},
	}
}
