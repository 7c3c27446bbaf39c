package cli

import (
	"context"
	"slices"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/countersign/countersign/internal/observe"
)

// exporters are the exporters of OpenTelemetry's variables: otlp, console, and prometheus for metrics.
type exporters struct{ getenv func(string) string }

// Protocols returns the HTTP protocols and gRPC.
func (exporters) Protocols(signal string) []string {
	return append(observe.OTLP{}.Protocols(signal), "grpc")
}

// Spans sends spans in batches.
func (x exporters) Spans(ctx context.Context, name string) (sdktrace.SpanProcessor, error) {
	if !x.usesAutoexport(name, "TRACES") {
		return observe.OTLP{}.Spans(ctx, name)
	}
	e, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, err
	}
	return sdktrace.NewBatchSpanProcessor(e), nil
}

// Metrics sends metrics every minute and at the end, or serves them.
func (x exporters) Metrics(ctx context.Context, name string) (sdkmetric.Reader, error) {
	if !x.usesAutoexport(name, "METRICS") {
		return observe.OTLP{}.Metrics(ctx, name)
	}
	return autoexport.NewMetricReader(ctx)
}

// usesAutoexport reports whether autoexport creates the exporter of a signal. For OTLP it knows two protocols;
// telemetry.OTLP replaces the others.
func (x exporters) usesAutoexport(name, signal string) bool {
	_, protocol := observe.ExporterProtocol(x.getenv, signal)
	return name != "" && name != "otlp" || slices.Contains([]string{"", "grpc", "http/protobuf"}, protocol)
}
