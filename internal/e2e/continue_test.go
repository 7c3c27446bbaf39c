package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/internal/bedrockfake"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// A run too long for one execution goes on in another before the history is full: the state machine starts the
// successor itself. The process of functions/step keeps its connections: it opens far fewer than it makes inferences.
func TestLongRunContinuesInANewExecution(t *testing.T) {
	const iterations = 650
	model := bedrockfake.NewFunc(func(r bedrockfake.Request) bedrockfake.Turn {
		n := strings.Count(string(r.Body), `"toolResult"`)
		b := bedrockfake.ToolUse(fmt.Sprintf("t%d", n), "orders_get", `{"order":"1001"}`)
		if n == iterations {
			b = bedrockfake.Text("Done.")
		}
		return bedrockfake.Reply{Blocks: []bedrockfake.Block{b}}
	})
	t.Cleanup(model.Close)
	d := deploy(t, model)
	known, ok := agents.Registry().Agent("refunds")
	require.True(t, ok)
	def := *known
	def.Limits.Interactions = iterations + 10
	def.Guards.DuplicateCalls = false // it looks the same order up for as long as it runs
	st := runtime.Starter{Ports: d.ports}
	s, err := st.Start(t.Context(), runtime.Start{Tenant: acme, Agent: &def, Key: "long", Message: []run.UserBlock{{Block: run.Text{Text: "Look 1001 up."}}}})
	require.NoError(t, err)
	last := d.waitLongFor(acme, s.Run, isDone)
	require.Equal(t, run.ReasonNaturalEnd, last.Reason, "%+v", last.Error)
	require.EqualValues(t, iterations+1, last.Inferences)
	require.EqualValues(t, 1, last.Generation)
	require.Equal(t, runtime.ExecutionName(s.Run, 1), last.Owner)
	d.waitAtRest()
	t.Logf("%d inferences, each with its requests of the table: %d connections of functions/step", last.Inferences, d.relay.connections("step"))
	require.Less(t, d.relay.connections("step"), iterations/10)
	all := d.engine.List(t.Context(), "")
	require.Len(t, all, 2)
	for _, x := range all {
		require.EqualValues(t, "SUCCEEDED", x.Status)
		require.Less(t, x.Events, 10_000, "R10")
	}
}
