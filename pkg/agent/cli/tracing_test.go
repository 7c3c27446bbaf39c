package cli

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	colmetricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector keeps what it is sent by OTLP, over HTTP or gRPC.
type collector struct {
	*httptest.Server
	kinds   map[string]int // of spans
	traces  map[string]bool
	metrics map[string]bool
}

func newCollector(t *testing.T) *collector {
	var mu sync.Mutex
	c := &collector{kinds: map[string]int{}, traces: map[string]bool{}, metrics: map[string]bool{}}
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, err := io.ReadAll(r.Body)
		var spans coltracepb.ExportTraceServiceRequest
		var metrics colmetricspb.ExportMetricsServiceRequest
		if r.Header.Get("Content-Type") == "application/grpc" { // a message follows five bytes, and a status is the trailer
			body = body[min(5, len(body)):]
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
			_, _ = w.Write(make([]byte, 5))
		}
		switch r.URL.Path {
		case "/v1/traces", "/opentelemetry.proto.collector.trace.v1.TraceService/Export":
			err = errors.Join(err, proto.Unmarshal(body, &spans))
		case "/v1/metrics", "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export":
			err = errors.Join(err, proto.Unmarshal(body, &metrics))
		default:
			err = errors.New(r.URL.Path)
		}
		if err != nil {
			t.Error(err)
			return
		}
		for _, rs := range spans.ResourceSpans {
			for _, s := range rs.ScopeSpans[0].Spans {
				c.traces[string(s.TraceId)] = true
				for _, a := range s.Attributes {
					if a.Key == "openinference.span.kind" {
						c.kinds[a.Value.GetStringValue()]++
					}
				}
			}
		}
		for _, rm := range metrics.ResourceMetrics {
			for _, m := range rm.ScopeMetrics[0].Metrics {
				c.metrics[m.Name] = true
			}
		}
	}))
	c.Config.Protocols = new(http.Protocols)
	c.Config.Protocols.SetHTTP1(true)
	c.Config.Protocols.SetUnencryptedHTTP2(true)
	c.Start()
	t.Cleanup(c.Close)
	return c
}

// setTelemetryEnv sets variables of OpenTelemetry, which its SDK reads from the process's environment.
func (d *harness) setTelemetryEnv(env map[string]string) {
	d.env = env
	for name, value := range env {
		d.t.Setenv(name, value)
	}
}

// A laptop's runs are traced and measured like those of a deployment if the environment names a collector. The sampler is
// the environment's, too.
func TestRunIsTracedToTheCollectorOfTheEnvironment(t *testing.T) {
	all := map[string]int{"AGENT": 1, "CHAIN": 3, "LLM": 2, "TOOL": 1}
	for _, by := range []struct {
		protocol, sampler string
		spans             map[string]int
	}{{spans: all}, {protocol: "grpc", spans: all}, {sampler: "always_off", spans: map[string]int{}}} {
		c, spans := newCollector(t), by.spans
		d := newHarness(t, holdingAgent, holdingModel)
		d.setTelemetryEnv(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_TRACES_SAMPLER": by.sampler,
			"OTEL_EXPORTER_OTLP_PROTOCOL": by.protocol})
		d.release <- struct{}{}
		who := d.exits(0, "run", d.dir, "--message", "x")
		require.NotContains(t, who.stderr.String(), "OTEL_")
		c.Close()
		require.Equal(t, spans, c.kinds)
		require.Len(t, c.traces, min(1, len(spans)))
		require.Equal(t, []string{
			"countersign.inferences", "countersign.run.duration", "countersign.runs.ended", "countersign.runs.started",
			"countersign.tool.calls", "countersign.tool.duration", "gen_ai.client.operation.duration", "gen_ai.client.token.usage",
		}, slices.Sorted(maps.Keys(c.metrics)))
	}
}

// A collector that refuses what it is sent is told of once, without what it answered, and fails no run.
func TestCollectorThatRefusesFailsNoRun(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "s3cret", http.StatusUnauthorized)
	}))
	defer server.Close()
	d := newHarness(t, holdingAgent, `{"text": "Done."}`)
	d.setTelemetryEnv(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL, "OTEL_EXPORTER_OTLP_HEADERS": "s3cret"})
	who := d.exits(0, "run", d.dir, "--message", "x")
	require.Contains(t, who.stderr.String(), "401 Unauthorized")
	require.Len(t, regexp.MustCompile("send telemetry").FindAllString(who.stderr.String(), -1), 1)
	require.Contains(t, who.stderr.String(), "parse headers", "a header that is none is told of, too")
	require.NotContains(t, who.stderr.String(), "s3cret")
}

func TestBadTelemetryVariableIsNamed(t *testing.T) {
	for variable, c := range map[string]struct{ bad, want string }{
		"OTEL_EXPORTER_OTLP_ENDPOINT":         {"localhost:4318", "want http://HOST or https://HOST"},
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": {"s3cret", "want http://HOST or https://HOST"},
		"OTEL_TRACES_EXPORTER":                {"zipkin", "zipkin"},
		"OTEL_RESOURCE_ATTRIBUTES":            {"a", "want NAME=VALUE between commas"},
		"OPENINFERENCE_HIDE_INPUTS":           {"perhaps", "want true or false"},
	} {
		t.Run(variable, func(t *testing.T) {
			d := newHarness(t, holdingAgent, `{"text": "Done."}`)
			env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
			env[variable] = c.bad
			d.setTelemetryEnv(env)
			who := d.run(t.Context(), "", "run", d.dir, "--message", "x")
			require.NotZero(t, who.code)
			require.Contains(t, who.stderr.String(), variable+": ")
			require.Contains(t, who.stderr.String(), c.want)
			require.NotContains(t, who.stderr.String(), "s3cret")
		})
	}
}
