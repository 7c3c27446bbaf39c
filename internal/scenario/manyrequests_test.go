package scenario

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestManyApprovalsAreClaimedInSeveralEntries: each of 100 approvals is used up by the claim of its call, which is a
// write beside the entry; all are decided before the first call may run. No entry holds all that the calls depend on. As a file of the corpus it would be played
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
- {name: pay, kind: internal, effect: non_idempotent, description: Pay., schema: {type: object}, results: [{text: paid}],
   precondition: {tool: look}}
- {name: look, kind: internal, effect: read, description: Look., schema: {type: object}, results: [{text: %q}]}
-- model.jsonl --
{"calls": [%s]}
{"text": "Done."}
-- people.jsonl --
%s
-- want.json --
{"status": "done", "reason": "natural_end", "executed": {"pay": %d, "look": %d}, "waiting": []}
`, calls, strings.Repeat("v", 8<<10), strings.Join(replies, ", "), strings.Join(people, "\n"), calls, 2*calls))
	require.NoError(t, err)
	require.Empty(t, s.Run(Options{}).Failures)
}
