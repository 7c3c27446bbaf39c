package tracing

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/observe/otlp"
)

// recorder makes spans, by OpenTelemetry's interfaces for those who instrument: what a tool or a library starts below the span that it
// finds in its context is recorded, too. It does what the SDK's provider does with one processor, and nothing else of it. Safe for
// concurrent use.
type recorder struct {
	embedded.TracerProvider
	ended   func(otlp.Span) // takes every sampled span
	random  func([]byte)
	sampled Sampler
	limits  Limits
	clock   clock.Clock
}

var _ trace.TracerProvider = (*recorder)(nil)

// Tracer makes spans for a library of that name.
func (r *recorder) Tracer(name string, opts ...trace.TracerOption) trace.Tracer {
	c := trace.NewTracerConfig(opts...)
	return &scoped{by: r, scope: otlp.Scope{Name: name, Version: c.InstrumentationVersion()}}
}

// scoped makes spans of one library.
type scoped struct {
	embedded.Tracer
	by    *recorder
	scope otlp.Scope
}

// Start starts a span below ctx's.
func (t *scoped) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	if ctx == nil { // as interface and SDK have it
		ctx = context.Background()
	}
	c := trace.NewSpanStartConfig(opts...)
	var parent trace.SpanContext
	if !c.NewRoot() {
		parent = trace.SpanContextFromContext(ctx)
	}
	s := &span{by: t.by}
	s.done = otlp.Span{
		Name: name, SpanContext: t.by.newContext(ctx, parent), Parent: parent, SpanKind: trace.ValidateSpanKind(c.SpanKind()), Scope: t.scope,
		StartTime: c.Timestamp(),
	}
	s.recording = s.done.SpanContext.IsSampled()
	if s.recording {
		if s.done.StartTime.IsZero() {
			s.done.StartTime = t.by.clock.Now()
		}
		for _, l := range c.Links() {
			s.AddLink(l)
		}
		s.SetAttributes(c.Attributes()...)
	}
	return trace.ContextWithSpan(ctx, s), s
}

type promisedKey struct{}

// promised is a context in which a span that is started gets the ids and the sampling of sc. Nothing else may be started in it.
func promised(ctx context.Context, sc trace.SpanContext) context.Context {
	return context.WithValue(ctx, promisedKey{}, &sc)
}

// newContext is the context of a span that starts: the one that was promised, or drawn, and sampled or not.
func (r *recorder) newContext(ctx context.Context, parent trace.SpanContext) trace.SpanContext {
	if sc, ok := ctx.Value(promisedKey{}).(*trace.SpanContext); ok {
		return sc.WithRemote(false)
	}
	c := trace.SpanContextConfig{TraceID: parent.TraceID(), TraceState: parent.TraceState()}
	for !c.TraceID.IsValid() {
		r.random(c.TraceID[:])
	}
	for !c.SpanID.IsValid() {
		r.random(c.SpanID[:])
	}
	c.TraceFlags = parent.TraceFlags().WithSampled(r.sampled(parent, c.TraceID))
	return trace.NewSpanContext(c)
}
