package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/standins"
)

// A run whose execution is almost a year old goes on in another, which the state machine starts itself. internal/proof
// shows that a long run does so before the history is full. The process of functions/step keeps its connections: it
// opens far fewer than it makes inferences.
func TestOldRunContinuesInANewExecution(t *testing.T) {
	const iterations = 16
	model := newModel(t, func(r standins.BedrockRequest) standins.Turn {
		n := strings.Count(string(r.Body), `"toolResult"`)
		b := standins.ToolUse(fmt.Sprintf("t%d", n), "orders_get", `{"order":"1001"}`)
		if n == iterations {
			b = standins.Text("Done.")
		}
		return standins.Reply{Blocks: []standins.Block{b}}
	})
	d := deploy(t, model)
	id := d.startLost(361*24*time.Hour, func(def *agent.Definition) {
		def.Limits.Interactions = iterations + 10
		def.Guards.DuplicateCalls = false // it looks the same order up for as long as it runs
	})
	d.sweep()
	last := d.waitFor(acme, id, isDone)
	require.Equal(t, run.ReasonNaturalEnd, last.Reason, "%+v", last.Error)
	require.EqualValues(t, iterations+1, last.Inferences)
	require.EqualValues(t, 1, last.Generation)
	require.Equal(t, runtime.ExecutionName(id, 1), last.Owner)
	d.waitAtRest()
	t.Logf("%d inferences, each with its requests of the table: %d connections of functions/step", last.Inferences, d.relay.connections("step"))
	require.Less(t, d.relay.connections("step"), iterations, "what is opened for each inference would be more")
	all := d.engine.List(t.Context(), "")
	require.Len(t, all, 2)
	for _, x := range all {
		require.EqualValues(t, "SUCCEEDED", x.Status)
	}
}
