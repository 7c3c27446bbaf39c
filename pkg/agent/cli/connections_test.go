package cli

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ten inferences of a run go to an OpenAI-compatible server over one connection, whichever model of the chain is asked.
func TestTenInferencesAreOneConnection(t *testing.T) {
	var opened atomic.Int64
	asked := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		delta := fmt.Sprintf(`{"tool_calls": [{"index": 0, "id": "c%d", "function": {"name": "count", "arguments": "{}"}}]}`, asked)
		if asked++; asked == 10 {
			delta = `{"content": "Counted."}`
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, data := range []string{`{"choices": [{"delta": ` + delta + `, "finish_reason": "stop"}]}`, "[DONE]"} {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
			http.NewResponseController(w).Flush() //nolint:errcheck // the recorder of the test sees what came
		}
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	d := newHarness(t, `{name: counter, system: You count., guards: {duplicateCalls: false}, tools: [{name: count}], model: {provider: openai, id: m, baseURL: "`+server.URL+`/v1"}}`, "")
	who := d.run(t.Context(), "", "run", d.dir, "--message", "Count.", "--yes")
	require.Equal(t, 0, who.code, who.stderr.String())
	require.Equal(t, "Counted.\n", who.stdout.String())
	require.Equal(t, 10, asked)
	require.EqualValues(t, 1, opened.Load())
}
