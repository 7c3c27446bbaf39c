package observe_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/observe"
)

// collector is an exporter that answers what it is told to.
type collector struct {
	got   []string // names of spans
	calls int
	err   error
	hang  bool
}

func (c *collector) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	c.calls++
	if c.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if c.err == nil {
		for _, s := range spans {
			c.got = append(c.got, s.Name())
		}
	}
	return c.err
}

func (*collector) Shutdown(context.Context) error { return nil }

// inBubble gives f telemetry that sends spans to a collector, nothing in the background meanwhile, and what is logged.
func inBubble(
	t *testing.T, f func(t *testing.T, c *collector, tel *observe.Telemetry, log *[]string), metrics ...sdkmetric.Reader,
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clk, col, log := clock.System(), &collector{}, []string{}
		config := observe.TelemetryConfig{
			Clock: clk, Random: clock.SeededIDs(clk, 1).Fill, Log: func(text string) { log = append(log, text) },
			Spans: sdktrace.NewBatchSpanProcessor(col, sdktrace.WithBatchTimeout(24*time.Hour)),
		}
		for _, m := range metrics {
			config.Metrics = m
		}
		tel := observe.NewTelemetry(config)
		f(t, col, tel, &log)
		col.hang = false
		tel.Shutdown(context.Background())
	})
}

// once is an invocation that records a span.
func once(ctx context.Context, tel *observe.Telemetry, name string) {
	_, span := tel.Tracers.Tracer("test").Start(ctx, name)
	span.End()
	tel.Flush(ctx)
}

// A collector that is down is told of once, also where it takes metrics meanwhile, is left alone for a while, and then
// gets what was recorded since.
func TestCollectorIsDown(t *testing.T) {
	inBubble(t, func(t *testing.T, c *collector, tel *observe.Telemetry, log *[]string) {
		c.err = &url.Error{Op: "Post", URL: "http://127.0.0.1:4318", Err: errors.New("connection refused (body: s3cret)")}
		for range 5 {
			once(t.Context(), tel, "lost or kept")
		}
		require.Equal(t, 1, c.calls, "it does not cost every invocation its wait")
		time.Sleep(time.Minute)
		once(t.Context(), tel, "lost")
		require.Equal(t, 2, c.calls)
		require.Len(t, *log, 1, "told once")
		require.Contains(t, (*log)[0], "connection refused")
		require.NotContains(t, (*log)[0], "s3cret")
		c.err = nil
		once(t.Context(), tel, "kept")
		require.Equal(t, 2, c.calls, "it is left alone")
		time.Sleep(time.Minute)
		once(t.Context(), tel, "sent")
		require.Equal(t, []string{"kept", "sent"}, c.got)
		c.err = errors.New("502")
		once(t.Context(), tel, "lost")
		require.Len(t, *log, 2)
	}, sdkmetric.NewManualReader())
}

// Sending takes two seconds at most, and leaves the invocation the time for its answer.
func TestFlushIsBounded(t *testing.T) {
	for name, c := range map[string]struct{ left, took time.Duration }{
		"time enough": {time.Minute, 2 * time.Second}, "little time": {time.Second, 800 * time.Millisecond}, "none": {100 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, col *collector, tel *observe.Telemetry, log *[]string) {
				col.hang = true
				ctx, cancel := context.WithTimeout(context.Background(), c.left)
				defer cancel()
				from := time.Now()
				once(ctx, tel, "slow")
				require.Equal(t, c.took, time.Since(from))
				require.Equal(t, c.took > 0, strings.Contains(strings.Join(*log, ""), "did not answer in time"))
			})
		})
	}
}

// A function sends by what OpenTelemetry's variables say; what they say wrong is an error that names the variable and
// nothing secret.
func TestFromEnvOfAFunction(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for name, c := range map[string]struct {
		env             map[string]string
		traces, metrics bool
		err, log        string
	}{
		"nothing":           {},
		"an endpoint":       {env: map[string]string{endpoint: "http://127.0.0.1:1"}, traces: true, metrics: true},
		"one of spans":      {env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, traces: true},
		"a collector here":  {env: map[string]string{"OTEL_METRICS_EXPORTER": "otlp"}, metrics: true},
		"disabled":          {env: map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}},
		"none":              {env: map[string]string{endpoint: "http://h", "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}},
		"no URL":            {env: map[string]string{endpoint: "s3cret:4318"}, err: endpoint + ": want http://HOST"},
		"unknown exporter":  {env: map[string]string{"OTEL_TRACES_EXPORTER": "console"}, err: `OTEL_TRACES_EXPORTER: got "console": want otlp or none`},
		"unknown protocol":  {env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, traces: true, log: `got "grpc", want http/protobuf or http/json`},
		"JSON of metrics":   {env: map[string]string{"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/json"}, metrics: true, log: "metrics are sent as http/protobuf"},
		"a header as a key": {env: map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_HEADERS": "s3cret"}, traces: true, metrics: true, log: "parse headers"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v) // the SDK reads the process's environment
			}
			var log strings.Builder
			clk := clock.System()
			tel, err := observe.TelemetryFromEnv(t.Context(), func(name string) string { return c.env[name] }, observe.OTLP{}, observe.TelemetryConfig{
				Clock: clk, Random: clock.NewIDs(clk).Fill, Log: func(text string) { log.WriteString(text) },
			})
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.NotContains(t, err.Error(), "s3cret")
				return
			}
			require.NoError(t, err)
			defer tel.Shutdown(t.Context())
			require.Equal(t, []bool{c.traces, c.metrics}, []bool{tel != nil && tel.Tracers != nil, tel != nil && tel.Meters != nil})
			require.Contains(t, log.String(), c.log)
			require.NotContains(t, log.String(), "s3cret")
		})
	}
}

// manual is OTLP with a reader of its own.
type manual struct {
	observe.OTLP
	reader sdkmetric.Reader
}

func (m manual) Metrics(context.Context, string) (sdkmetric.Reader, error) { return m.reader, nil }

// The metrics of two processes of a function are two series: each counts from zero.
func TestEachProcessIsAnInstance(t *testing.T) {
	env := map[string]string{"OTEL_METRICS_EXPORTER": "otlp", "AWS_LAMBDA_FUNCTION_NAME": "step", "AWS_LAMBDA_LOG_STREAM_NAME": "2026/01/01/[1]a"}
	m, c := manual{reader: sdkmetric.NewManualReader()}, observe.TelemetryConfig{Clock: clock.System()}
	tel, err := observe.TelemetryFromEnv(t.Context(), func(name string) string { return env[name] }, m, c)
	require.NoError(t, err)
	defer tel.Shutdown(t.Context())
	var got metricdata.ResourceMetrics
	require.NoError(t, m.reader.Collect(t.Context(), &got))
	require.Contains(t, got.Resource.String(), "service.instance.id=2026/01/01/[1]a")
}
