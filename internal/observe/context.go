package observe

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/countersign/countersign/internal/run"
)

// The headers of a trace: W3C Trace Context and AWS X-Ray.
const (
	headerParent = "traceparent"
	headerState  = "tracestate"
	headerXRay   = "X-Amzn-Trace-Id"
)

// maxTracestate bounds, in bytes, what callers make a run remember; the specification asks for at least so much.
const maxTracestate = 512

// TraceCarrier is the context of ctx's span as it goes out with an event or a request: traceparent, and tracestate where
// there is one. It is empty where ctx is in no trace, and it is there also where the trace is not sampled.
func TraceCarrier(ctx context.Context) map[string]string {
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, c)
	return c
}

// ExtractTrace is ctx with the trace that a W3C carrier names. A carrier that names none, or makes no sense, leaves ctx as
// it is.
func ExtractTrace(ctx context.Context, carrier map[string]string) context.Context {
	if len(carrier[headerState]) > maxTracestate {
		carrier = map[string]string{headerParent: carrier[headerParent]}
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(carrier))
}

// spanContextOf returns the context of a run's own span.
func spanContextOf(t *run.Trace) trace.SpanContext {
	if t == nil {
		return trace.SpanContext{}
	}
	ctx := ExtractTrace(context.Background(), map[string]string{headerParent: t.Traceparent, headerState: t.Tracestate})
	return trace.SpanContextFromContext(ctx)
}

// traceparent writes a context; empty where it is not valid.
func traceparent(sc trace.SpanContext) string {
	return TraceCarrier(trace.ContextWithSpanContext(context.Background(), sc))[headerParent]
}

// XRayHeader is the context of ctx's span as X-Ray's services take it, such as StartExecution's traceHeader; empty where ctx
// is in no trace.
func XRayHeader(ctx context.Context) string {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return ""
	}
	id, sampled := sc.TraceID().String(), 0
	if sc.IsSampled() {
		sampled = 1
	}
	return fmt.Sprintf("Root=1-%s-%s;Parent=%s;Sampled=%d", id[:8], id[8:], sc.SpanID(), sampled)
}

// parseXRay reads an X-Ray header: Root=1-EPOCH-REST;Parent=SPAN;Sampled=1, in any order, with fields that we do not
// know. One that is not sampled is none: on Lambda it only says that X-Ray does not trace the function, which is no
// word on our spans.
func parseXRay(header string) trace.SpanContext {
	var c trace.SpanContextConfig
	for field := range strings.SplitSeq(header, ";") {
		k, v, _ := strings.Cut(strings.TrimSpace(field), "=")
		switch k {
		case "Root":
			epoch, rest, _ := strings.Cut(strings.TrimPrefix(v, "1-"), "-")
			if b, err := hex.DecodeString(epoch + rest); err == nil && len(b) == len(c.TraceID) && len(epoch) == 8 {
				copy(c.TraceID[:], b)
			}
		case "Parent":
			if b, err := hex.DecodeString(v); err == nil && len(b) == len(c.SpanID) {
				copy(c.SpanID[:], b)
			}
		case "Sampled":
			if v == "1" {
				c.TraceFlags = trace.FlagsSampled
			}
		}
	}
	c.Remote = true
	if sc := trace.NewSpanContext(c); sc.IsSampled() && sc.IsValid() {
		return sc
	}
	return trace.SpanContext{}
}
