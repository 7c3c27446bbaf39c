package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// setTelemetryEnv sets variables of OpenTelemetry, which its SDK reads from the process's environment.
func (d *harness) setTelemetryEnv(env map[string]string) {
	d.env = env
	for name, value := range env {
		d.t.Setenv(name, value)
	}
}

// A laptop's runs are traced and measured like those of a deployment if the environment names a collector, over HTTP or
// gRPC. The sampler is the environment's, too.
func TestRunIsTracedToTheCollectorOfTheEnvironment(t *testing.T) {
	const byGRPC = "/opentelemetry.proto.collector."
	for _, c := range []struct{ protocol, sampler, metrics, traces string }{
		{"", "", "/v1/metrics", "/v1/traces"}, {"", "always_off", "/v1/metrics", ""},
		{"grpc", "", byGRPC + "metrics.v1.MetricsService/Export", byGRPC + "trace.v1.TraceService/Export"},
	} {
		var mu sync.Mutex
		sent := map[string]string{}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			sent[r.URL.Path] += string(body)
			if c.protocol == "grpc" { // a message follows five bytes, and a status is the trailer
				w.Header().Set("Content-Type", "application/grpc")
				w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
				_, _ = w.Write(make([]byte, 5))
			}
		}))
		server.Config.Protocols = new(http.Protocols)
		server.Config.Protocols.SetHTTP1(true)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		server.Start()
		d := newHarness(t, holdingAgent, holdingModel)
		d.setTelemetryEnv(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL, "OTEL_TRACES_SAMPLER": c.sampler,
			"OTEL_EXPORTER_OTLP_PROTOCOL": c.protocol})
		d.release <- struct{}{}
		who := d.exits(0, "run", d.dir, "--message", "x")
		require.NotContains(t, who.stderr.String(), "OTEL_")
		server.Close()
		require.Contains(t, sent[c.metrics], "countersign.runs.ended")
		require.Equal(t, c.traces != "", strings.Contains(sent[c.traces], "execute_tool"))
		require.Len(t, sent, map[bool]int{true: 2, false: 1}[c.traces != ""])
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
