// Package observe records what runs do: spans and metrics of OpenTelemetry, metrics of CloudWatch, and logs without
// content. Tracer and the Meter functions decorate the ports of package runtime; Telemetry and EMF send what they
// record.
package observe

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/countersign/countersign/internal/clock"
)

// TelemetryConfig is what telemetry is made of. Clock and Random are required.
type TelemetryConfig struct {
	Clock  clock.Clock
	Random func([]byte) // fills with random bytes

	Spans    sdktrace.SpanProcessor // nil = no spans are recorded; OTEL_TRACES_SAMPLER says which of them
	Metrics  sdkmetric.Reader       // nil = no metrics are recorded
	Resource *resource.Resource     // beside what OTEL_RESOURCE_ATTRIBUTES says; nil = nothing
	Log      func(text string)      // is told once when sending begins to fail; nil = nobody is
}

// Telemetry records and sends. Its methods may be called on a nil Telemetry, which does neither. Safe for concurrent
// use.
type Telemetry struct {
	Tracers trace.TracerProvider // nil = no spans are recorded
	Meters  metric.MeterProvider // nil = no metrics are recorded

	clock   clock.Clock
	log     func(text string)
	told    atomic.Bool // a failure has been logged, and not all signals were sent since
	sending sync.Mutex
	signals []*signal
}

// signal is spans or metrics, as they are sent.
type signal struct {
	flush, shutdown func(context.Context) error
	resting         time.Time // until then nothing is sent; zero = the last time that it was sent, it was taken
}

// NewTelemetry makes telemetry. The processor and the reader are its own from now on: see Shutdown.
func NewTelemetry(c TelemetryConfig) *Telemetry {
	t := &Telemetry{clock: c.Clock, log: c.Log}
	if c.Spans != nil {
		limits := sdktrace.NewSpanLimits()
		// The bounds where the environment sets none. Each message of a conversation is several attributes, so the SDK's 128
		// would cut most requests to models.
		if limits.AttributeCountLimit == sdktrace.DefaultAttributeCountLimit {
			limits.AttributeCountLimit = 10_000
		}
		if limits.AttributeValueLengthLimit == sdktrace.DefaultAttributeValueLengthLimit {
			limits.AttributeValueLengthLimit = 16 << 10 // characters
		}
		p := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(idGenerator{c.Random}), sdktrace.WithRawSpanLimits(limits),
			sdktrace.WithSpanProcessor(c.Spans), sdktrace.WithResource(c.Resource))
		t.Tracers, t.signals = p, append(t.signals, &signal{flush: p.ForceFlush, shutdown: p.Shutdown})
	}
	if c.Metrics != nil {
		p := sdkmetric.NewMeterProvider(sdkmetric.WithReader(c.Metrics), sdkmetric.WithResource(c.Resource))
		t.Meters, t.signals = p, append(t.signals, &signal{flush: p.ForceFlush, shutdown: p.Shutdown})
	}
	return t
}

// The time that sending may take of an invocation.
const (
	flushWithin = 2 * time.Second
	flushMargin = 200 * time.Millisecond // is left to the invocation for its answer
	// restAfterFailure is how long a collector that failed is left alone, so that it does not hold up every invocation.
	restAfterFailure = 30 * time.Second
)

// Flush sends what was recorded, within two seconds and what ctx's deadline leaves. A failure is logged and is nobody
// else's concern. Flush also sends if ctx is done already.
func (t *Telemetry) Flush(ctx context.Context) {
	if t == nil {
		return
	}
	within := flushWithin
	if at, ok := ctx.Deadline(); ok {
		within = min(within, at.Sub(t.clock.Now())-flushMargin)
	}
	if within <= 0 {
		return // what was recorded stays for the next invocation
	}
	ctx, cancel := t.clock.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	t.sending.Lock()
	defer t.sending.Unlock()
	for _, s := range t.signals {
		if t.clock.Now().Before(s.resting) {
			continue
		}
		if err := s.flush(ctx); err != nil {
			s.resting = t.clock.Now().Add(restAfterFailure)
			t.logFailure(err)
		} else {
			s.resting = time.Time{}
		}
	}
	if !slices.ContainsFunc(t.signals, func(s *signal) bool { return !s.resting.IsZero() }) {
		t.told.Store(false)
	}
}

// Shutdown sends what was recorded, within two seconds, and stops recording.
func (t *Telemetry) Shutdown(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := t.clock.WithTimeout(context.WithoutCancel(ctx), flushWithin)
	defer cancel()
	for _, s := range t.signals {
		if err := s.shutdown(ctx); err != nil {
			t.logFailure(err)
		}
	}
}

// logFailure logs that sending fails, once until every signal is sent again. It leaves out the collector's answer,
// which may hold what was sent.
func (t *Telemetry) logFailure(err error) {
	if t.told.Swap(true) || t.log == nil {
		return
	}
	text := err.Error()
	if errors.Is(err, context.DeadlineExceeded) {
		text = "the collector did not answer in time"
	}
	text, _, _ = strings.Cut(text, "body:")
	t.log("send telemetry: " + strings.TrimRight(text, " (:"))
}

type idsKey struct{}

// WithIDs returns a context in which the next span gets the ids of sc. Start nothing else in it.
func WithIDs(ctx context.Context, sc trace.SpanContext) context.Context {
	return context.WithValue(ctx, idsKey{}, sc)
}

// idGenerator gives spans the ids of WithIDs, else random ones.
type idGenerator struct{ random func([]byte) }

func (g idGenerator) NewIDs(ctx context.Context) (id trace.TraceID, _ trace.SpanID) {
	if sc, ok := ctx.Value(idsKey{}).(trace.SpanContext); ok {
		return sc.TraceID(), sc.SpanID()
	}
	for !id.IsValid() {
		g.random(id[:])
	}
	return id, g.NewSpanID(ctx, id)
}

func (g idGenerator) NewSpanID(ctx context.Context, _ trace.TraceID) (id trace.SpanID) {
	if sc, ok := ctx.Value(idsKey{}).(trace.SpanContext); ok {
		return sc.SpanID()
	}
	for !id.IsValid() {
		g.random(id[:])
	}
	return id
}

// ModelProvider returns the GenAI conventions' name of a definition's provider.
func ModelProvider(name string) attribute.KeyValue {
	if name == "bedrock" {
		return semconv.GenAIProviderNameAWSBedrock
	}
	return semconv.GenAIProviderNameKey.String(name)
}
