package e2e

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/web"
)

// A call that another agent carries out is a run, with an execution of its own, which wakes the run whose call it is
// when it ends, and is cancelled with it. The functions start, wake and stop executions with their own roles.
func TestDelegatedRuns(t *testing.T) {
	asked, finished := make(chan struct{}, 2), make(chan struct{})
	model := newModel(t, func(r standins.BedrockRequest) standins.Turn {
		block := standins.ToolUse("t1", "ask_searcher", `{"message":"Which client?"}`)
		switch {
		case strings.Contains(string(r.Body), "You look questions up"):
			asked <- struct{}{}
			<-finished // the searcher's model
			block = standins.Text("The old one.")
		case strings.Contains(string(r.Body), `"toolResult"`):
			block = standins.Text("It was the old one.")
		}
		return standins.Reply{Blocks: []standins.Block{block}, Usage: standins.Usage{Input: 100, Output: 20}}
	})
	d := deploy(t, model)
	ana := d.anaClient()
	start := func(key string) string {
		t.Helper()
		question := web.Start{Agent: "research", Message: []byte(`"Which client was replaced?"`), Key: key}
		started, err := ana.Start(t.Context(), question)
		require.NoError(t, err)
		<-asked
		return started.ID
	}
	cancelled, whole := start("cancelled"), start("whole")
	parked := d.waitFor(acme, cancelled, isParked)
	_, err := ana.Cancel(t.Context(), cancelled, "")
	require.NoError(t, err)
	require.Len(t, parked.Children.Open, 1)
	for _, id := range []string{cancelled, parked.Children.Open[0].Run} {
		require.Equal(t, run.ReasonCancelled, d.waitFor(acme, id, isDone).Reason)
	}
	close(finished)
	s := d.waitFor(acme, whole, isDone)
	require.Equal(t, run.ReasonNaturalEnd, s.Reason, "%+v", s.Error)
	require.Equal(t, `"It was the old one."`, string(s.Output))
	d.waitAtRest()
	require.NoError(t, errors.Join(d.bus.Undelivered()...))
}
