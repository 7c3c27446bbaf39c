package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/scenario"
)

const scenarios = "../../scenarios"

func load(t *testing.T, name string) *scenario.Scenario {
	t.Helper()
	s, err := Load(scenarios, name)
	require.NoError(t, err)
	return s
}

// TestCorpus: the first lane has every preset, and all lanes sweep scenarios of the corpus.
func TestCorpus(t *testing.T) {
	presets := map[agent.Preset]bool{}
	for i, lane := range Lanes() {
		require.Subset(t, append(Corpus(), HandOver), lane.Scenarios, lane.Name)
		if i > 0 {
			continue
		}
		require.GreaterOrEqual(t, len(lane.Scenarios), 20)
		for _, name := range lane.Scenarios {
			d := load(t, name).Agents()[0]
			presets[d.Preset] = true
		}
	}
	for _, p := range []agent.Preset{agent.PresetCountersign, agent.PresetArvo, agent.PresetRunner, agent.PresetTirea, agent.PresetCowork, agent.PresetForge} {
		require.True(t, presets[p], "%s is swept", p)
	}
	require.Subset(t, Corpus(), QuickCorpus())
}

// TestQuickCorpus sweeps a part of the corpus: every fault and every intervention at every call. `make sweep` sweeps
// all of it.
func TestQuickCorpus(t *testing.T) {
	for _, name := range QuickCorpus() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sweepOnce(t, name, Scope{Budget: Budget{Faults: 1}})
			sweepOnce(t, name, Scope{Budget: Budget{Interventions: 1}, Interventions: scenario.InterventionKinds()})
		})
	}
}

// TestWarmFunctions sweeps functions that cache the runs that they have read.
func TestWarmFunctions(t *testing.T) {
	sweepOnce(t, "approve", Scope{Budget: Budget{Faults: 1}, Warm: true})
}

// TestHandOver sweeps a run that is handed over to another execution.
func TestHandOver(t *testing.T) {
	lanes := Lanes()
	sweepOnce(t, HandOver, Scope{Budget: Budget{Faults: 1}})
	sweepOnce(t, HandOver, Scope{Budget: Budget{Interventions: 1}, Interventions: lanes[len(lanes)-1].Scope.Interventions})
}

// sweepOnce tries every fault or every intervention at every call.
func sweepOnce(t *testing.T, name string, scope Scope) {
	t.Helper()
	scope.Kinds, scope.Patience = fault.Kinds(), 1
	count, found := Explore(load(t, name), scope)
	for _, f := range found {
		t.Errorf("%v", f)
	}
	require.Positive(t, count.Points)
	require.Greater(t, count.Runs, 4*count.Points)
	require.False(t, scope.Warm && count.Pruned > 0)
	t.Logf("%+v: %s", scope.Budget, count)
}

// TestListingIsWholeOrNotAtAll: an error while the listing of a server is committed disables none of its tools.
func TestListingIsWholeOrNotAtAll(t *testing.T) {
	_, found := Explore(load(t, "forge-mcp"), Scope{Budget: Budget{Faults: 1}, Kinds: []fault.Kind{fault.ErrorBefore}})
	require.Empty(t, found)
}

// TestPruningLosesNothing: pruning finds the same with fewer runs.
func TestPruningLosesNothing(t *testing.T) {
	s := load(t, "cancel-parked")
	scope := Scope{Budget: Budget{Faults: 2}, Kinds: []fault.Kind{fault.CrashAfter}, Window: 4}
	pruned, found := Explore(s, scope)
	require.Empty(t, found)
	scope.NoPruning = true
	whole, found := Explore(s, scope)
	require.Empty(t, found)
	require.Zero(t, whole.Pruned)
	require.Positive(t, pruned.Pruned)
	require.Less(t, pruned.Runs, whole.Runs)
}
