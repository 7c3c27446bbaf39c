package cli

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// Who follows a run reads which tools it has not got of its servers, and that an attempt which came to nothing is no answer of anybody's.
func TestProgressTellsWhatIsMissing(t *testing.T) {
	all := []run.ServerState{
		{Name: "files", Tools: []string{"list"}, Disabled: []run.DisabledTool{{Tool: "read", Why: run.DisabledChanged}, {Tool: "wipe", Why: run.DisabledNew}}},
		{Name: "good", Tools: []string{"a"}},
		{Name: "web", Problem: "connection\nrefused"},
	}
	for name, c := range map[string]struct {
		fact run.Event
		want string
	}{
		"listed": {run.ToolsListed{Servers: all}, "" +
			"disabled read of files: its server has changed it since mcp.lock was written (run: countersign mcp lock)\n" +
			"disabled wipe of files: it is not in mcp.lock (run: countersign mcp lock)\n" +
			"server   web could not be listed: connection\\nrefused\n"},
		"lost": {
			run.ToolsDisabled{Server: "files", Tool: "read", Why: run.DisabledChanged},
			"disabled read of files: its server has changed it since mcp.lock was written (run: countersign mcp lock)\n",
		},
		"again":    {run.Answered{Call: "c1", Rerun: true, NotRun: true, By: "reconcile"}, "again    files.read (c1): nothing came of an attempt\n"},
		"answered": {run.Answered{Call: "c1", By: "user:ana"}, "answered files.read (c1) by user:ana\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			pr := newProgress(&program{stderr: &said}, api.Run{Calls: []api.Call{{ID: "c1", Tool: "files.read"}}})
			pr.printEvent(eventOf(t, c.fact))
			require.Equal(t, c.want, said.String())
		})
	}
}

func eventOf(t *testing.T, fact run.Event) api.Event {
	t.Helper()
	data, err := json.Marshal(fact)
	require.NoError(t, err)
	return api.Event{Type: run.EventType(fact), Data: data}
}
