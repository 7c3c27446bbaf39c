package scenario

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// Entries implements Recorded over the store of a simulation.
func (s *simulation) Entries(ctx context.Context, id string) ([]run.Entry, error) {
	return s.journal.Entries(ctx, tenant, id, 0, 0)
}

// Blob implements Recorded.
func (s *simulation) Blob(ctx context.Context, digest string) ([]byte, error) {
	return s.blobs.Get(ctx, tenant, digest)
}

// refusedExports are the scenarios whose runs are not exported, beside those of orchestrators, and what is said of each.
var refusedExports = map[string]string{
	"large-media":        `file "large.png" has 135009 bytes: a scenario holds files of at most 98304`,
	"mcp-changed-before": "the scenario does not play what the run did: calls[0].status: ", "mcp-changed-during": "the server of call c2 changed its tool",
	"mcp-down-required": "the servers of desk were not listed", "mcp-fork": "which began from another or ran under another definition",
	"model-busy-open": "is going on: export it when it waits or has ended",
	"policy-changed":  "the policy was changed by a deployment", "scope-tool-edit-asked-again": "the policy was changed by a deployment",
	"via-tightened-parked": "the policy was changed by a deployment", "via-tightened": "approve: got never its turn",
	"policy-changed-mcp": "the policy was changed by a deployment", "policy-changed-effect": "files.delete: got entered",
	"policy-changed-before-run": "payments.send: got entered", "precondition-compare": "call c1 depends on a part of what orders.get gives",
	"stop-timeout": `want "stopped:timeout_reached"`, // a journal does not have how long a model took
}

// unredacted are those that play otherwise without their words: the agent looks for words that no key of its has, counts, or reads what was cut.
var unredacted = strings.Fields(`continued-json continued-three-times cowork-completion-denied cowork-completion-vetoes
	cowork-deflection cowork-deflection-presenting-asks cowork-empty-static cowork-incomplete-ephemeral cowork-incomplete-first
	cowork-incomplete-limit cowork-nudge cowork-seven-screenshots cowork-seven-screenshots-evicted cowork-wording
	forge-ask-question-five forge-ask-question-output heuristic-any-preset limit-summarise-empty
	prefilter-withdrawn read-more-asks result-cut-error result-cut-service result-kept xml-json xml-text-final
	xml-text-final-malformed`)

// playedText is a scenario at its end.
func playedText(t *testing.T, text string) *simulation {
	t.Helper()
	s, err := Load("x.txtar", []byte(text))
	require.NoError(t, err)
	return played(t, s)
}

// A fork at a call that people are asked about reads its precondition again, under a number that its parent's claim has, too.
func TestAForkOfACallWithAPreconditionIsExported(t *testing.T) {
	sim := playedText(t, `
-- agent.yaml --
name: refunds
system: You handle refunds.
-- input.json --
{"message": "Refund order 7."}
-- then.json --
{"fork": "call_suspended"}
-- tools.yaml --
- {name: orders.get, kind: internal, effect: read, description: Look up., schema: {type: object}, results: [{json: {status: paid}}]}
- name: refunds.create
  kind: internal
  effect: non_idempotent
  description: Pay money back.
  schema: {type: object}
  precondition: {tool: orders.get}
  results: [{json: {refund: r1}}]
-- model.jsonl --
{"calls": [{"id": "c1", "name": "refunds_create", "input": {}}]}
{"text": "Refunded."}
{"text": "Denied."}
-- people.jsonl --
{"do": "approve", "call": "c1"}
{"do": "deny", "call": "c1"}
-- want.json --
{"status": "done", "output": "Denied.", "calls": [{"id": "c1", "status": "cancelled"}]}
`)
	_, err := Export(t.Context(), sim, sim.run, false, agentfile.Options{})
	require.NoError(t, err)
	all, err := sim.Entries(t.Context(), sim.run)
	require.NoError(t, err)
	parent := all[0].Events[0].(run.RunStarted).From.Run
	_, err = Export(t.Context(), waiting{sim, parent}, sim.run, false, agentfile.Options{})
	require.ErrorContains(t, err, "it began from run "+parent+", which has not ended, and a scenario begins its second run when the")
	_, err = Export(t.Context(), later{sim, parent}, sim.run, false, agentfile.Options{})
	require.NoError(t, err, "people decided about the fork first")
}

// later is what a store has if people took an hour longer for a run.
type later struct {
	*simulation
	run string
}

func (l later) Entries(ctx context.Context, id string) ([]run.Entry, error) {
	all, err := l.simulation.Entries(ctx, id)
	for i := range all {
		if id == l.run && all[i].Seq > 2 {
			all[i].Time = all[i].Time.Add(time.Hour)
		}
	}
	return all, err
}

// waiting is what a store has while a run waits.
type waiting struct {
	*simulation
	run string
}

func (w waiting) Entries(ctx context.Context, id string) ([]run.Entry, error) {
	all, err := w.simulation.Entries(ctx, id)
	parked := slices.IndexFunc(all, func(e run.Entry) bool {
		_, is := e.Events[len(e.Events)-1].(run.Parked)
		return is
	})
	if id != w.run || parked < 0 {
		return all, err
	}
	return all[:parked+1], err
}

// An undo is ordered of a run that has ended, however long ago: no line waits for it. What the runtime said of an edit is
// no part of the result that the undo reads.
func TestAnUndoAfterAWhileIsExported(t *testing.T) {
	sim := playedText(t, `
-- agent.yaml --
name: refunds
system: You handle refunds.
-- input.json --
{"message": "Refund order 7."}
-- tools.yaml --
- {name: refunds.create, schema: {type: object}, undo: {tool: refunds.cancel, args: {id: {result: /id}}}, results: [{json: {id: r1}, sleep: 2s}]}
- {name: refunds.cancel, effect: idempotent, schema: {type: object}, results: [{text: cancelled}]}
-- model.jsonl --
{"calls": [{"id": "c1", "name": "refunds_create", "input": {}}]}
{"text": "Refunded."}
-- people.jsonl --
{"do": "edit", "call": "c1", "args": {"order": "4711"}}
{"do": "undo", "call": "c1"}
{"do": "approve", "call": "c3-0"}
-- want.json --
{"status": "done", "output": "cancelled"}
`)
	_, err := Export(t.Context(), sim, sim.run, false, agentfile.Options{})
	require.NoError(t, err)
	redacted, err := Export(t.Context(), sim, sim.run, true, agentfile.Options{})
	require.NoError(t, err)
	require.NotContains(t, string(redacted), "4711", "digits in a text are no number of JSON")
}

// TestExportedRuns plays every third scenario and exports its run, with its texts and without. Export itself plays what it
// returns; `make crash` exports all, and plays what comes with crashes.
func TestExportedRuns(t *testing.T) {
	whole := CrashesInTests(2) == 0
	for i, s := range corpus(t) {
		if !whole && i%3 != 1 {
			continue // make crash exports them all
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			sim := played(t, s)
			data, err := Export(t.Context(), sim, sim.run, false, agentfile.Options{})
			why := refusedExports[s.Name]
			if s.agent.Orchestrator.Enabled {
				why = "plans: the journal does not have what its planner said"
			}
			if err != nil && strings.Contains(err.Error(), "it used a standing grant that people gave in another run") {
				return
			}
			if why != "" {
				require.ErrorContains(t, err, "export run "+sim.run+" as a test: ")
				require.Equal(t, 1, strings.Count(err.Error(), why), err)
				return
			}
			require.NoError(t, err)
			if whole {
				again, err := Load(s.Name+".txtar", data)
				require.NoError(t, err)
				for _, f := range again.Crash(2).Failures {
					t.Errorf("%s, %s: %v\n%s", f.Kind, f.At, f.Failures, data)
				}
			}
			_, err = Export(t.Context(), sim, sim.run, true, agentfile.Options{})
			if !strings.Contains(" "+strings.Join(unredacted, " ")+" ", " "+s.Name+" ") {
				require.NoError(t, err)
			}
		})
	}
}
