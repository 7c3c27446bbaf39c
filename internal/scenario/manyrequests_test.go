package scenario

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestManyApprovalsAreClaimedInSeveralEntries: each of 100 approvals is used up by the claim of its call, which is a
// write beside the entry; all are decided before the first call may run. As a file of the corpus it would be played
// with a crash at each of its thousand calls of a port.
func TestManyApprovalsAreClaimedInSeveralEntries(t *testing.T) {
	const calls = 100
	var replies, people []string
	for i := range calls {
		replies = append(replies, fmt.Sprintf(`{"id": "c%d", "name": "pay", "input": {"amount": %d}}`, i, i))
		people = append(people, fmt.Sprintf(`{"do": "approve", "call": "c%d", "by": "user:ana"}`, i))
	}
	s, err := Load("many.txtar", fmt.Appendf(nil, `All calls of a reply run once people have approved all of them.
-- agent.yaml --
name: billing
system: You run the billing desk.
executor: parallel_batch_approval
resume: batch_all
limits: {open: %d}
permission: {approvers: ["user:ana"]}
-- input.json --
{"message": "Pay."}
-- tools.yaml --
- {name: pay, kind: internal, effect: non_idempotent, description: Pay., schema: {type: object}, results: [{text: paid}]}
-- model.jsonl --
{"calls": [%s]}
{"text": "Done."}
-- people.jsonl --
%s
-- want.json --
{"status": "done", "reason": "natural_end", "executed": {"pay": %d}, "waiting": []}
`, calls, strings.Join(replies, ", "), strings.Join(people, "\n"), calls))
	require.NoError(t, err)
	require.Empty(t, s.Run(Options{}).Failures)
}

// TestLongEarlyDecisions: what decides the calls of a reply early takes several entries where it is long.
func TestLongEarlyDecisions(t *testing.T) {
	var calls, people []string
	for i := range 20 {
		calls = append(calls, fmt.Sprintf(`{"id": "c%d", "name": "pay", "input": {}}`, i))
		people = append(people, fmt.Sprintf(`{"do": "deny", "call": "c%d", "by": "user:ana", "note": %q, "at": "start"}`, i,
			strings.Repeat("n", 25<<10)))
	}
	s, err := Load("early.txtar", fmt.Appendf(nil, `-- agent.yaml --
name: billing
preset: tirea
system: You run the billing desk.
permission: {default: ask, approvers: ["user:ana"]}
-- input.json --
{"message": "Pay."}
-- tools.yaml --
- {name: pay, kind: internal, effect: non_idempotent, description: Pay., schema: {type: object}}
-- model.jsonl --
{"calls": [%s]}
{"text": "Not paid."}
-- people.jsonl --
%s
-- want.json --
{"status": "done", "executed": {}}
`, strings.Join(calls, ", "), strings.Join(people, "\n")))
	require.NoError(t, err)
	require.Empty(t, s.Run(Options{}).Failures)
}

// TestManyApprovers: requests that name many people fill neither an item nor a transaction. Under block_and_retry, calls
// for which the one request has no room are refused.
func TestManyApprovers(t *testing.T) {
	for mode, c := range map[string]struct{ calls, people int }{
		"block_and_retry": {60, 100}, "suspend_and_replay": {50, 1600},
	} {
		var calls, people []string
		for i := range c.calls {
			calls = append(calls, fmt.Sprintf(`{"id": "c%d", "name": "pay", "input": {}}`, i))
		}
		for i := range c.people {
			people = append(people, fmt.Sprintf("user:%050d", i))
		}
		s, err := Load("approvers.txtar", fmt.Appendf(nil, `-- agent.yaml --
name: billing
preset: tirea
system: You run the billing desk.
limits: {open: 80}
permission: {mode: %s, default: ask, approvers: ["%s"]}
-- input.json --
{"message": "Pay."}
-- tools.yaml --
- {name: pay, kind: internal, effect: non_idempotent, description: Pay., schema: {type: object}, results: [{text: paid}]}
-- model.jsonl --
{"calls": [%s]}
%s-- want.json --
{"status": "waiting"}
`, mode, strings.Join(people, `", "`), strings.Join(calls, ", "), map[bool]string{true: "{\"text\": \"I wait.\"}\n"}[mode == "block_and_retry"]))
		require.NoError(t, err)
		require.Empty(t, s.Run(Options{}).Failures, mode)
	}
}
