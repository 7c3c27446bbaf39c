package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A laptop's runs are traced like those of a deployment where the environment names a collector.
func TestRunIsTracedToTheCollectorOfTheEnvironment(t *testing.T) {
	var mu sync.Mutex
	kinds, traces := map[string]int{}, map[string]bool{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct {
			ResourceSpans []struct {
				ScopeSpans []struct {
					Spans []struct {
						TraceID    string `json:"traceId"`
						Attributes []struct {
							Key   string
							Value struct{ StringValue string }
						}
					}
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
			return
		}
		for _, s := range body.ResourceSpans[0].ScopeSpans[0].Spans {
			traces[s.TraceID] = true
			for _, a := range s.Attributes {
				if a.Key == "openinference.span.kind" {
					kinds[a.Value.StringValue]++
				}
			}
		}
	}))
	defer collector.Close()
	d := newDesk(t, holding, `{"calls": [{"id": "c1", "name": "hold", "input": {}}]}`+"\n"+`{"text": "Done."}`)
	d.env = map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}
	d.release <- struct{}{}
	who := d.command(t.Context(), "", "run", d.dir, "--message", "x")
	require.Equal(t, 0, who.code, who.stderr.String())
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, map[string]int{"AGENT": 1, "CHAIN": 3, "LLM": 2, "TOOL": 1}, kinds)
	require.Len(t, traces, 1)
}

func TestBadTraceVariableIsNamed(t *testing.T) {
	d := newDesk(t, holding, `{"text": "Done."}`)
	d.env = map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318"}
	who := d.command(t.Context(), "", "run", d.dir, "--message", "x")
	require.NotZero(t, who.code)
	require.Contains(t, who.stderr.String(), "OTEL_EXPORTER_OTLP_ENDPOINT: want http://HOST or https://HOST")
}
