package observe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// invocation is one invocation of a function: a CHAIN span that begins before anybody knows whose run it is, and is
// therefore made once the run has been read.
type invocation struct {
	function string
	start    time.Time
	xray     trace.SpanContext // of the Lambda service; invalid = none that is sampled

	mu   sync.Mutex
	span trace.Span // nil until the run is known
	run  string
	open map[any]func() // ends the spans of tools that nobody waits for any more
}

type invocationKey struct{}

func current(ctx context.Context) *invocation {
	inv, _ := ctx.Value(invocationKey{}).(*invocation)
	return inv
}

// onEnd registers a function that ends a span before the invocation itself ends. The returned function removes it.
func (inv *invocation) onEnd(key any, end func()) (forget func()) {
	if inv == nil {
		return func() {}
	}
	inv.mu.Lock()
	defer inv.mu.Unlock()
	if inv.open == nil {
		inv.open = map[any]func(){}
	}
	inv.open[key] = end
	return func() {
		inv.mu.Lock()
		defer inv.mu.Unlock()
		delete(inv.open, key)
	}
}

// Invoked begins an invocation of a function; what it returns ends it.
func (t *Tracer) Invoked(ctx context.Context, function string) (context.Context, func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	header, _ := ctx.Value("x-amzn-trace-id").(string) // as the Lambda runtime's own client leaves it
	inv := &invocation{function: function, start: t.clock.Now(), xray: parseXRay(header)}
	return context.WithValue(ctx, invocationKey{}, inv), func(err error) {
		inv.mu.Lock()
		defer inv.mu.Unlock()
		for _, end := range inv.open {
			end()
		}
		if inv.span == nil { // nobody learned which run it was for
			t.startInvocation(ctx, inv, &run.AgentState{})
		}
		if err != nil {
			markFailed(inv.span, errorClass(err))
		}
		inv.span.End(trace.WithTimestamp(t.clock.Now()))
	}
}

func markFailed(s trace.Span, class string) {
	s.SetStatus(codes.Error, class)
	s.SetAttributes(semconv.ErrorTypeKey.String(class))
}

// errorClass returns the name of an error, without its text.
func errorClass(err error) string {
	var known interface{ ErrorType() string } // as the functions' errors have it
	var model *agent.ModelError
	switch {
	case errors.As(err, &known):
		return known.ErrorType()
	case errors.As(err, &model):
		return string(model.Class)
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	default:
		return "error"
	}
}

// startInvocation makes the CHAIN span: a child of the run's AGENT span; where the run has none, of what invoked the
// function.
func (t *Tracer) startInvocation(ctx context.Context, inv *invocation, s *run.AgentState) {
	parent := spanContextOf(s.Trace)
	opts := []trace.SpanStartOption{
		trace.WithTimestamp(inv.start), trace.WithAttributes(append(identityAttributes(s), keyKind.String("CHAIN"))...),
	}
	switch {
	case parent.IsValid() && inv.xray.IsValid():
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: inv.xray}))
	case !parent.IsValid() && inv.xray.IsValid():
		parent = inv.xray
	}
	_, inv.span = t.spans.Start(trace.ContextWithRemoteSpanContext(context.WithoutCancel(ctx), parent), inv.function,
		opts...)
	inv.run = s.Run
}

// Within is ctx inside the run: the invocation's CHAIN span, or the run's own where no function was invoked.
func (t *Tracer) Within(ctx context.Context, s *run.AgentState) context.Context {
	ctx = context.WithValue(ctx, identityKey{}, identityAttributes(s))
	inv := current(ctx)
	if inv == nil {
		return trace.ContextWithRemoteSpanContext(ctx, spanContextOf(s.Trace))
	}
	inv.mu.Lock()
	defer inv.mu.Unlock()
	if inv.span == nil {
		t.startInvocation(ctx, inv, s)
	}
	if inv.run != s.Run {
		return trace.ContextWithRemoteSpanContext(ctx, spanContextOf(s.Trace))
	}
	return trace.ContextWithSpan(ctx, inv.span)
}

type identityKey struct{}

func identityAttributes(s *run.AgentState) []attribute.KeyValue {
	var out []attribute.KeyValue
	for _, kv := range []attribute.KeyValue{
		keySession.String(s.Run), semconv.GenAIConversationID(s.Run), keyUser.String(s.Subject),
		keyAgent.String(s.Agent), semconv.GenAIAgentName(s.Agent),
	} {
		if kv.Value.AsString() != "" {
			out = append(out, kv)
		}
	}
	return out
}

func (t *Tracer) span(
	ctx context.Context, name string, kind trace.SpanKind, kvs ...attribute.KeyValue,
) (context.Context, trace.Span) {
	who, _ := ctx.Value(identityKey{}).([]attribute.KeyValue)
	return t.spans.Start(ctx, name, trace.WithTimestamp(t.clock.Now()), trace.WithSpanKind(kind),
		trace.WithAttributes(kvs...), trace.WithAttributes(who...))
}

func (t *Tracer) end(s trace.Span) { s.End(trace.WithTimestamp(t.clock.Now())) }

// The headers of a trace: W3C Trace Context and AWS X-Ray.
const (
	headerParent = "traceparent"
	headerState  = "tracestate"
	headerXRay   = "X-Amzn-Trace-Id"
)

// maxTracestate bounds, in bytes, what callers make a run remember; the specification asks for at least so much.
const maxTracestate = 512

// TraceCarrier returns the trace context of ctx's span for an event or a request: traceparent, and tracestate if there
// is one. It is empty if ctx has no trace, and set even if the trace is not sampled.
func TraceCarrier(ctx context.Context) map[string]string {
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, c)
	return c
}

// ExtractTrace returns ctx with the trace of a W3C carrier. If the carrier has no valid trace, ctx is unchanged.
func ExtractTrace(ctx context.Context, carrier map[string]string) context.Context {
	if len(carrier[headerState]) > maxTracestate {
		carrier = map[string]string{headerParent: carrier[headerParent]}
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(carrier))
}

func spanContextOf(t *run.Trace) trace.SpanContext {
	if t == nil {
		return trace.SpanContext{}
	}
	ctx := ExtractTrace(context.Background(), map[string]string{headerParent: t.Traceparent, headerState: t.Tracestate})
	return trace.SpanContextFromContext(ctx)
}

// XRayHeader returns the trace context of ctx's span in the form of X-Ray's services, such as StartExecution's
// traceHeader; empty if ctx has no trace.
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
			if epoch, rest, _ := strings.Cut(strings.TrimPrefix(v, "1-"), "-"); len(epoch) == 8 {
				c.TraceID, _ = trace.TraceIDFromHex(strings.ToLower(epoch + rest)) // none is not valid
			}
		case "Parent":
			c.SpanID, _ = trace.SpanIDFromHex(strings.ToLower(v))
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

// HTTP lets requests that come in with a traceparent, or else with an X-Ray header, start runs in that trace. A nil
// Tracer gives next itself.
func (t *Tracer) HTTP(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := ExtractTrace(r.Context(), map[string]string{headerParent: r.Header.Get(headerParent),
			headerState: r.Header.Get(headerState)})
		if !trace.SpanContextFromContext(ctx).IsValid() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, parseXRay(r.Header.Get(headerXRay)))
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
