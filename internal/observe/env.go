package observe

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
)

// Exporters make what sends spans and metrics. They read their settings from the process's environment.
type Exporters interface {
	// Spans and Metrics make the exporter that OTEL_TRACES_EXPORTER or OTEL_METRICS_EXPORTER names; "" = otlp.
	Spans(ctx context.Context, name string) (sdktrace.SpanProcessor, error)
	Metrics(ctx context.Context, name string) (sdkmetric.Reader, error)
	// Protocols are the protocols of OTLP that a signal, TRACES or METRICS, can be sent by.
	Protocols(signal string) []string
}

// OTLP sends over HTTP, as functions do. A request that fails is not repeated: a function's answer would wait for it.
type OTLP struct{}

// Protocols are those over HTTP.
func (OTLP) Protocols(signal string) []string {
	if signal == "METRICS" {
		return []string{"http/protobuf"}
	}
	return []string{"http/protobuf", "http/json"}
}

// Spans sends batches of spans.
func (OTLP) Spans(ctx context.Context, name string) (sdktrace.SpanProcessor, error) {
	if name != "" && name != "otlp" {
		return nil, errExporter
	}
	x, err := otlptracehttp.New(ctx, otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
	if err != nil {
		return nil, err
	}
	return sdktrace.NewBatchSpanProcessor(x, sdktrace.WithExportTimeout(flushWithin)), nil
}

// Metrics sends metrics every minute, and when they are flushed.
func (OTLP) Metrics(ctx context.Context, name string) (sdkmetric.Reader, error) {
	if name != "" && name != "otlp" {
		return nil, errExporter
	}
	x, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{}))
	if err != nil {
		return nil, err
	}
	return sdkmetric.NewPeriodicReader(x, sdkmetric.WithTimeout(flushWithin)), nil
}

var errExporter = errors.New("want otlp or none")

// TelemetryFromEnv makes telemetry by OpenTelemetry's environment variables, which the SDK reads; of c it needs Clock,
// Random and Log. Spans are exported if OTEL_TRACES_EXPORTER names an exporter other than none or, unless it is set, if
// an endpoint of OTLP is named; likewise metrics. FromEnv returns nil if neither is. An error names a variable and what
// it wants, never its value where that may be a secret.
func TelemetryFromEnv(
	ctx context.Context, getenv func(string) string, x Exporters, c TelemetryConfig,
) (*Telemetry, error) {
	spans, metrics := isExported(getenv, "TRACES"), isExported(getenv, "METRICS")
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || !spans && !metrics {
		return nil, nil
	}
	for _, signal := range []string{"", "TRACES_", "METRICS_"} { // refuse endpoints that the SDK would take for others
		name := "OTEL_EXPORTER_OTLP_" + signal + "ENDPOINT"
		if v := strings.TrimSpace(getenv(name)); v != "" {
			u, err := url.Parse(v)
			if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
				return nil, fmt.Errorf("%s: want http://HOST or https://HOST", name)
			}
		}
	}
	if spans {
		warnOfProtocol(getenv, "TRACES", x, c.Log)
	}
	if metrics {
		warnOfProtocol(getenv, "METRICS", x, c.Log)
	}
	// What the SDK logs names values of the environment beside its messages; they may be secrets.
	otel.SetLogger(funcr.New(func(_, text string) { c.Log("OpenTelemetry: " + text) }, funcr.Options{
		RenderArgsHook: func([]any) []any { return nil },
	}))
	var err error
	if c.Resource, err = describeResource(ctx, getenv); err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: want NAME=VALUE between commas, values escaped as in URLs: %w", err)
	}
	if spans {
		name := getenv("OTEL_TRACES_EXPORTER")
		if c.Spans, err = x.Spans(ctx, name); err != nil {
			return nil, fmt.Errorf("OTEL_TRACES_EXPORTER: got %q: %w", name, err)
		}
	}
	if metrics {
		name := getenv("OTEL_METRICS_EXPORTER")
		if c.Metrics, err = x.Metrics(ctx, name); err != nil {
			return nil, fmt.Errorf("OTEL_METRICS_EXPORTER: got %q: %w", name, err)
		}
	}
	t := NewTelemetry(c)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(t.logFailure))
	return t, nil
}

func isExported(getenv func(string) string, signal string) bool {
	switch exporter := getenv("OTEL_" + signal + "_EXPORTER"); exporter {
	case "none":
		return false
	case "":
		return getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
	default:
		return true
	}
}

// ExporterProtocol returns the OTLP protocol that the environment sets for a signal, and the variable that sets it.
func ExporterProtocol(getenv func(string) string, signal string) (variable, protocol string) {
	variable = "OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL"
	if v := getenv(variable); v != "" {
		return variable, v
	}
	return "OTEL_EXPORTER_OTLP_PROTOCOL", getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
}

func warnOfProtocol(getenv func(string) string, signal string, x Exporters, warn func(text string)) {
	name, v := ExporterProtocol(getenv, signal)
	if known := x.Protocols(signal); v != "" && !slices.Contains(known, v) {
		warn(fmt.Sprintf("%s: got %q, want %s; %s are sent as http/protobuf", name, v, strings.Join(known, " or "),
			strings.ToLower(signal)))
	}
}

// describeResource describes this program, and on Lambda its function. Attributes from the environment override ours.
func describeResource(ctx context.Context, getenv func(string) string) (*resource.Resource, error) {
	about := []attribute.KeyValue{semconv.ServiceName("countersign")}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		about = append(about, semconv.ServiceVersion(info.Main.Version))
	}
	if name := getenv("AWS_LAMBDA_FUNCTION_NAME"); name != "" {
		about = append(about, semconv.CloudProviderAWS, semconv.CloudPlatformAWSLambda,
			semconv.CloudRegion(getenv("AWS_REGION")), semconv.FaaSName(name),
			semconv.FaaSVersion(getenv("AWS_LAMBDA_FUNCTION_VERSION")),
			semconv.FaaSInstance(getenv("AWS_LAMBDA_LOG_STREAM_NAME")),
			semconv.ServiceInstanceID(getenv("AWS_LAMBDA_LOG_STREAM_NAME")))
	}
	return resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(about...), resource.WithFromEnv())
}
