package tracing

import (
	"context"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// idSource draws ids, or gives the ones that were promised.
type idSource struct{ fill func([]byte) }

var _ sdktrace.IDGenerator = idSource{}

type promisedKey struct{}

// promised is a context in which a span that is started gets the ids and the sampling of sc. Nothing else may be started in it.
func promised(ctx context.Context, sc trace.SpanContext) context.Context {
	return context.WithValue(ctx, promisedKey{}, sc)
}

// keepPromises samples what was promised to be, and asks next about everything else.
type keepPromises struct{ next sdktrace.Sampler }

// ShouldSample decides about a span.
func (k keepPromises) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	sc, ok := p.ParentContext.Value(promisedKey{}).(trace.SpanContext)
	if !ok {
		return k.next.ShouldSample(p)
	}
	r := sdktrace.SamplingResult{Decision: sdktrace.Drop, Tracestate: sc.TraceState()}
	if sc.IsSampled() {
		r.Decision = sdktrace.RecordAndSample
	}
	return r
}

// Description names the sampler.
func (k keepPromises) Description() string { return k.next.Description() }

// NewIDs gives a root its ids.
func (s idSource) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if sc, ok := ctx.Value(promisedKey{}).(trace.SpanContext); ok {
		return sc.TraceID(), sc.SpanID()
	}
	var id trace.TraceID
	for !id.IsValid() {
		s.fill(id[:])
	}
	return id, s.spanID()
}

// NewSpanID gives a child its id.
func (s idSource) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if sc, ok := ctx.Value(promisedKey{}).(trace.SpanContext); ok {
		return sc.SpanID()
	}
	return s.spanID()
}

func (s idSource) spanID() trace.SpanID {
	var id trace.SpanID
	for !id.IsValid() {
		s.fill(id[:])
	}
	return id
}
