package agenttest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/agenttest"
)

// TestScenario plays a story that stands in a Go test.
func TestScenario(t *testing.T) {
	none, err := agent.NewRegistry()
	require.NoError(t, err)
	agenttest.Scenario(t, none, "refund.txtar", []byte(`A refund waits for a person, and is paid once.
-- agent.yaml --
name: clerk
system: You pay refunds.
permission: {approvers: ["group:operators"]}
-- tools.yaml --
- name: refund
  kind: internal
  effect: non_idempotent
  description: Pay a refund.
  schema: {type: object, properties: {amount: {type: integer}}, required: [amount]}
  results: [{text: paid}]
-- input.json --
{"message": "Refund 20."}
-- model.jsonl --
{"calls": [{"id": "c1", "name": "refund", "input": {"amount": 20}}]}
{"text": "Done."}
-- people.jsonl --
{"do": "approve", "call": "c1"}
-- want.json --
{"status": "done", "output": "Done.", "executed": {"refund": 1}}
`))
}
