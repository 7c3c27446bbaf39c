package observe

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
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
	carrier := TraceCarrier(trace.ContextWithSpanContext(context.Background(), sc)) // empty where sc is not valid
	out := &run.Trace{Traceparent: carrier[headerParent], Tracestate: sc.TraceState().String()}
	if parent.IsValid() {
		out.Parent = parent.SpanID().String()
	}
	return out
}

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
			t.recordGate(ctx, s, fact.Call, refusals[fact.Reason], e.Time)
		case run.CallFinished:
			t.recordGate(ctx, s, fact.Call, refusals[fact.Reason], e.Time)
		}
	}
}

// refusals are the reasons of results that a gate gave in the tool's place.
var refusals = map[run.CallReason]string{run.WhyDenied: "deny", run.WhyVoided: "void", run.WhyExpired: "expire",
	run.WhyAwaiting: "ask"}

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
	kvs := append(identityAttributes(s), keyKind.String("AGENT"), semconv.GenAIOperationNameInvokeAgent,
		keyReason.String(string(s.Reason)), t.hide.input(runInput(s)))
	if s.Status == run.RunDone {
		var text string // the output itself, if it is a string
		if json.Unmarshal(s.Output, &text) != nil {
			text = string(s.Output)
		}
		kvs = append(kvs, t.hide.output(text))
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

func (t *Tracer) recordGate(ctx context.Context, s *run.AgentState, call, verdict string, at time.Time) {
	c, ok := s.Call(call)
	if !ok || verdict == "" { // it was no gate that settled the call
		return
	}
	_, span := t.spans.Start(ctx, "gate "+c.Tool, trace.WithTimestamp(at),
		trace.WithAttributes(append(identityAttributes(s),
			keyKind.String("GUARDRAIL"), keyToolName.String(c.Tool), keyToolID.String(c.ID), keyVerdict.String(verdict),
			t.hide.input(string(c.Input)),
		)...))
	span.End(trace.WithTimestamp(at))
}

// Tool records every call of a tool as a TOOL span, which the tool finds in its context. The span ends with the
// context if the tool does not: then nobody waits for it any more. A nil Tracer returns the tool itself.
func (t *Tracer) Tool(found tool.Tool) tool.Tool {
	if t == nil {
		return found
	}
	return aroundTool(found, func(ctx context.Context, call tool.Call) (agent.ToolResultData, error) {
		ctx, span := t.span(ctx, "execute_tool "+call.Name, trace.SpanKindInternal,
			keyKind.String("TOOL"), keyToolName.String(call.Name), keyToolID.String(call.ID),
			semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(call.Name), semconv.GenAIToolCallID(call.ID),
			t.hide.input(string(call.Args)), keyToolParameters.String(hiddenOr(t.hide.Inputs, string(call.Args))))
		var once sync.Once
		end := func(problem string) { // The first end that is reported counts.
			once.Do(func() {
				if problem != "" {
					markFailed(span, problem)
				}
				t.end(span)
			})
		}
		abandon := func() { end(errorClass(ctx.Err())) }
		stop := context.AfterFunc(ctx, abandon)
		defer stop()
		defer current(ctx).onEnd(&once, abandon)()
		defer end("panic") // does nothing where the tool returned
		res, err := found.Call(ctx, call)
		problem := ""
		if err != nil {
			problem = errorClass(err)
		} else if span.SetAttributes(t.hide.output(res.Content)); res.IsError {
			problem = string(run.WhyToolError)
		}
		end(problem)
		return res, err
	})
}

// This file records runs as OpenTelemetry spans, from decorators over the ports of package runtime. Spans have
// the attributes of OpenInference and, beside them, those of OpenTelemetry's GenAI conventions.
//
//	AGENT      the run, from its start to its end; written once, by whoever commits the end
//	CHAIN      one invocation of step, tool or approve
//	LLM        one request to a model, failed ones included
//	TOOL       one entering of a tool
//	GUARDRAIL  what a gate or a person said about a call
//
// No span stays open across functions. The AGENT span's context is promised when the run starts and kept in the run's
// journal (run.Trace); every function names it as the parent of what it does, and whoever ends the run writes the
// span under the promised id with its true start. A run is one trace, however long it waits.
//
// Content is hidden unless it is asked for: see Hide. Errors are told by their class, never by their text.
// Telemetry sends the spans.

// Tracer records runs. Its methods may be called on a nil Tracer, which records nothing. Safe for concurrent use.
type Tracer struct {
	spans trace.Tracer
	clock clock.Clock
	hide  Hide
}

// NewTracer makes a tracer whose spans p records; it must be a Telemetry's, which knows the ids that a run's
// own span was promised. A nil p makes a nil Tracer.
func NewTracer(p trace.TracerProvider, c clock.Clock, hide Hide) *Tracer {
	if p == nil {
		return nil
	}
	return &Tracer{spans: p.Tracer("github.com/countersign/countersign"), clock: c, hide: hide}
}

// Decided records every decision as a GUARDRAIL span from the request to the decision: the time the run waited for a
// person. It is an approval.Desk's Decided, costs one read, and is nil for a nil Tracer. A decision that is told twice
// is the same span, under the same id.
func (t *Tracer) Decided(heads *store.Journal) func(ctx context.Context, a approval.Approval) {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, a approval.Approval) {
		h, err := heads.Head(ctx, a.Tenant, a.Run)
		if err != nil {
			return // whoever wakes the run reads the same and complains
		}
		own := spanContextOf(h.Trace)
		// tools of a request are decided one by one
		if !own.IsValid() || len(a.Decisions) == 0 || a.Status == approval.Pending {
			return
		}
		var id trace.SpanID
		sum := sha256.Sum256([]byte("approval/" + a.Tenant + "/" + a.ID))
		copy(id[:], sum[:])
		said := a.Decisions[len(a.Decisions)-1]
		spanCtx := WithIDs(trace.ContextWithRemoteSpanContext(context.Background(), own), own.WithSpanID(id))
		requested := trace.WithTimestamp(a.RequestedAt)
		_, span := t.spans.Start(spanCtx, "approval "+a.Tools[0], requested, trace.WithAttributes(
			keyKind.String("GUARDRAIL"), keySession.String(a.Run), semconv.GenAIConversationID(a.Run),
			keyAgent.String(a.Agent), semconv.GenAIAgentName(a.Agent), keyUser.String(said.By),
			keyToolName.String(a.Tools[0]), keyToolID.String(a.Call()), keyVerdict.String(string(said.Action)),
			t.hide.input(string(a.Args)), t.hide.output(said.Note),
		))
		span.End(trace.WithTimestamp(said.At))
	}
}
