package scenario

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// load reads a scenario of the corpus.
func load(t *testing.T, name string) *Scenario {
	t.Helper()
	return loadFile(t, "../../scenarios/"+name+".txtar", hook.Set{})
}

func loadFile(t *testing.T, file string, code hook.Set) *Scenario {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	s, err := LoadWithOptions(filepath.Base(file), data, agentfile.Options{Hooks: code})
	require.NoError(t, err)
	return s
}

// simulate makes a simulation that has not begun.
func simulate(t *testing.T, s *Scenario) *simulation {
	t.Helper()
	sim, err := newSimulation(s, Options{})
	require.NoError(t, err)
	return sim
}

// played is a simulation at its end.
func played(t *testing.T, s *Scenario) *simulation {
	t.Helper()
	sim := simulate(t, s)
	require.NoError(t, sim.clock.Run(sim.execute))
	return sim
}

// TestSameTrace: the same scenario makes the same calls and leaves the same journal, writers and times included, crash
// or not. Every 24th scenario of the corpus is tried.
func TestSameTrace(t *testing.T) {
	for _, o := range []Options{{}, {Faults: []fault.Point{{Call: 20, Kind: fault.CrashAfter}}}} {
		for i, s := range corpus(t) {
			if i%24 != 0 {
				continue
			}
			first, second := s.Run(o), s.Run(o)
			require.Equal(t, first, second, s.Name)
			require.NotEmpty(t, first.Calls)
		}
	}
}

// TestCrashIsOne: a crash hits the call of its point and changes nothing before it.
func TestCrashIsOne(t *testing.T) {
	s := load(t, "approve")
	plain := s.Run(Options{})
	for i, c := range plain.Calls {
		got := s.Run(Options{Faults: []fault.Point{{Call: c.Number, Kind: fault.CrashBefore}}})
		require.Equal(t, plain.Calls[:i+1], got.Calls[:i+1], "up to the crash nothing differs")
		require.Greater(t, len(got.Calls), len(plain.Calls), "%v was made again", c)
	}
}

// idleWaiter is a waiter that never starts an execution.
type idleWaiter struct{ runtime.Waiter }

func (idleWaiter) Start(context.Context, string, string, string) error { return nil }

func TestRunThatNeverMoves(t *testing.T) {
	sim := simulate(t, load(t, "approve"))
	sim.machine.Starter.Waiter = idleWaiter{sim.machine.Starter.Waiter}
	r := sim.playAndCompare(t)
	require.Contains(t, r.Failures, Failure{Path: "run", Got: "a run that is running after entry 0, and nothing that could move it", Want: "an end or a wait"})
}

func TestRunThatNeverEnds(t *testing.T) {
	sim := simulate(t, load(t, "approve"))
	sim.invocations = maxInvocations
	r := sim.playAndCompare(t)
	require.Contains(t, r.Failures, Failure{Path: "run", Got: "2000 invocations", Want: "an end or a wait"})
}

// A scenario that loops without an invocation ends, too, and reports the state of its run.
func TestRunThatGoesRound(t *testing.T) {
	sim := simulate(t, load(t, "wrong-approver"))
	sim.people.busy = true // no queued line is ever performed
	sim.clock.Go(func() {
		for sim.clock.Sleep(t.Context(), time.Millisecond) == nil {
		}
	})
	r := sim.playAndCompare(t)
	require.Contains(t, r.Failures, Failure{Path: "run", Got: "50000 steps and no end: a run that is waiting after entry 2", Want: "an end or a wait"})
}

// An outcome that a crash made unknown is settled by a person who may decide. If the product refuses, the simulation
// ends.
func TestUnknownOutcomeIsSettledByAnApprover(t *testing.T) {
	bo, _ := anyApprover(approval.Approval{Approvers: []string{"group:x", "user:bo"}}, 0)
	require.Equal(t, "user:bo", bo.ID)
	other, _ := anyApprover(approval.Approval{Approvers: []string{"group:x", "user:bo"}}, 1)
	require.NotEqual(t, "user:bo", other.ID)
	require.True(t, policy.MayDecide([]string{"group:x"}, other))
	sim := simulate(t, load(t, "approve"))
	require.NoError(t, sim.clock.Run(func() {
		sim.clock.Go(func() {
			sim.settleOutcome(approval.DecisionInput{ID: "none", Call: "c1", Action: approval.ReportResult})
		})
		require.NoError(t, sim.endSignal.Wait(t.Context(), 0))
	}))
	require.Len(t, sim.failures, 1)
	require.Equal(t, "call c1 settled", sim.failures[0].Want)
}

// A run parks although a child that nobody waits for has not been taken off yet: its answer wakes the run. Step and
// batch handed such a run to each other for ever. A crash changes which of two expiries comes first, so the story is
// played without.
func TestARunParksBesideAChildThatNobodyWaitsFor(t *testing.T) {
	s := loadFile(t, "testdata/plain/abandoned-child-next-wait.txtar", hook.Set{})
	require.Empty(t, s.Run(Options{}).Failures)
}

// What is written to and read from blobs goes through the ports, so that a crash is tried there too. A large system
// text is stored once and never built again.
func TestCrashesReachTheBlobs(t *testing.T) {
	for _, c := range []struct {
		scenario *Scenario
		want     map[string]int
		why      string
	}{
		{load(t, "large-media"), map[string]int{"Put by start": 1, "Put by tool": 1, "Get by step": 3, "Size by step": 2},
			"the definition, and the picture for each of two requests"},
		{loadFile(t, "testdata/builders/large.txtar", deskHooks), map[string]int{"Put by step": 1, "Get by step": 2},
			"the text, and the definition and the text for the second request"},
	} {
		counts := map[string]int{}
		for _, call := range c.scenario.Run(Options{}).Calls {
			counts[call.Port+" by "+call.Invocation]++
		}
		for at, n := range c.want {
			require.Equal(t, n, counts["blobs."+at], "%s: %s", at, c.why)
		}
	}
}

// playAndCompare runs a simulation that a test has prepared.
func (s *simulation) playAndCompare(t *testing.T) (r Result) {
	t.Helper()
	if err := s.clock.Run(s.execute); err != nil {
		s.reportSchedulerError(err)
	}
	r.Runs = s.compareOutcome()
	r.Failures = s.failures
	return r
}

// Markup takes no more room in the journal than other text: a long page is an answer.
func TestLongMarkup(t *testing.T) {
	archive := `A long page is the answer.
-- agent.yaml --
name: pages
system: You write pages.
-- input.json --
{"message": "Write."}
-- model.jsonl --
{"text": "PAGE"}
-- want.json --
{"status": "done", "reason": "natural_end", "output": "PAGE"}
`
	page := strings.Repeat("<p>&amp;</p>", 14_000)
	s, err := Load("page.txtar", []byte(strings.ReplaceAll(archive, "PAGE", page)))
	require.NoError(t, err)
	require.Empty(t, s.Run(Options{}).Failures)
}
