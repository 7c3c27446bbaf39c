package observe

import (
	"context"
	"encoding/json"
	"time"

	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

var (
	_ runtime.Tracer    = (*Tracer)(nil)
	_ runtime.EventSink = (*Tracer)(nil)
)

// Begin promises the AGENT span of a run that is about to start: a child of ctx's span, else of the X-Ray segment that
// invoked this function, else the root of a new trace. Whether it is sampled is decided now, for the whole run.
//
// It starts the span for its ids and its sampling, and forgets it: the one that is written is made when the run ends.
func (t *Tracer) Begin(ctx context.Context, agentName string) *run.Trace {
	parent := trace.SpanContextFromContext(ctx)
	if inv := current(ctx); !parent.IsValid() && inv != nil {
		parent = inv.xray
	}
	_, span := t.spans.Start(trace.ContextWithRemoteSpanContext(context.Background(), parent), agentSpan(agentName),
		trace.WithTimestamp(t.clock.Now()))
	sc := span.SpanContext()
	out := &run.Trace{Traceparent: traceparent(sc), Tracestate: sc.TraceState().String()}
	if parent.IsValid() {
		out.Parent = parent.SpanID().String()
	}
	return out
}

// agentSpan names the AGENT span of an agent's runs.
func agentSpan(agent string) string { return "invoke_agent " + agent }

// Committed writes what only a commit makes true: what gates said, and the AGENT span of a run that has ended. A nil
// Tracer writes nothing.
func (t *Tracer) Committed(ctx context.Context, e run.Entry, s *run.AgentState) {
	if t == nil {
		return
	}
	for _, fact := range e.Events {
		switch fact := fact.(type) {
		case run.Finished:
			t.writeAgentSpan(s, e.Time)
		case run.CallSuspended:
			if fact.For != run.ForAnswer {
				t.recordGate(ctx, s, fact.Call, "ask", e.Time)
			}
		case run.CallCancelled:
			t.recordRefusal(ctx, s, fact.Call, fact.Reason, e.Time)
		case run.CallFinished:
			t.recordRefusal(ctx, s, fact.Call, fact.Reason, e.Time)
		}
	}
}

// refusals are the reasons of results that a gate gave in the tool's place.
var refusals = map[run.CallReason]string{run.WhyDenied: "deny", run.WhyVoided: "void", run.WhyExpired: "expire", run.WhyAwaiting: "ask"}

// recordRefusal records the gate's verdict if it is the reason why a call was settled.
func (t *Tracer) recordRefusal(ctx context.Context, s *run.AgentState, call string, why run.CallReason, at time.Time) {
	if verdict, ok := refusals[why]; ok {
		t.recordGate(ctx, s, call, verdict, at)
	}
}

// writeAgentSpan writes the promised AGENT span of a run that has ended.
func (t *Tracer) writeAgentSpan(s *run.AgentState, end time.Time) {
	own := spanContextOf(s.Trace)
	if !own.IsSampled() {
		return
	}
	ctx := context.Background()
	if above, err := trace.SpanIDFromHex(s.Trace.Parent); err == nil {
		ctx = trace.ContextWithRemoteSpanContext(ctx, own.WithSpanID(above))
	}
	kvs := append(identityAttributes(s), keyKind.String(kindAgent), semconv.GenAIOperationNameInvokeAgent,
		keyReason.String(string(s.Reason)), t.hide.input(runInput(s)))
	if s.Status == run.RunDone {
		kvs = append(kvs, t.hide.output(runOutput(s)))
	}
	_, span := t.spans.Start(WithIDs(ctx, own), agentSpan(s.Agent), trace.WithTimestamp(s.StartedAt),
		trace.WithAttributes(kvs...))
	if s.Error != nil {
		markFailed(span, string(s.Error.Code))
	}
	span.End(trace.WithTimestamp(end))
}

// runInput returns the run's input, or its first user text. For a run that continues another it returns the first
// message of its own.
func runInput(s *run.AgentState) string {
	if s.From != nil && s.From.Kind == run.OriginContinues {
		for _, m := range s.Messages.All() {
			if m.Source.Run == "" && m.Source.Seq == 0 {
				return blockText(m.Block)
			}
		}
		return ""
	}
	if s.Input != nil {
		return string(s.Input)
	}
	if s.EvictedMessages > 0 || s.Messages.Len() == 0 {
		return ""
	}
	return blockText(s.Messages.At(0).Block)
}

// runOutput returns the output of the run, as text if it is a string.
func runOutput(s *run.AgentState) string {
	var text string
	if json.Unmarshal(s.Output, &text) == nil {
		return text
	}
	return string(s.Output)
}

// recordGate records what a gate decided about a call.
func (t *Tracer) recordGate(ctx context.Context, s *run.AgentState, call, verdict string, at time.Time) {
	c, ok := s.Call(call)
	if !ok {
		return
	}
	_, span := t.spans.Start(ctx, "gate "+c.Tool, trace.WithTimestamp(at), trace.WithAttributes(append(identityAttributes(s),
		keyKind.String(kindGuardrail), keyToolName.String(c.Tool), keyToolID.String(c.ID), keyVerdict.String(verdict), t.hide.input(string(c.Input)),
	)...))
	span.End(trace.WithTimestamp(at))
}
