package observe

import (
	"context"
	"sync"

	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// Tools records every entering of a tool of next as a TOOL span, which the tool finds in its context. A nil Tracer
// gives next itself.
func (t *Tracer) Tools(next runtime.ToolSource) runtime.ToolSource {
	if t == nil || next == nil {
		return next
	}
	return &tools{t, next}
}

// Remotes records every entering of a tool of next in the same way. A nil Tracer gives next itself.
func (t *Tracer) Remotes(next runtime.Remotes) runtime.Remotes {
	if t == nil {
		return next
	}
	return next.Around(t.traceTool)
}

type tools struct {
	*Tracer
	next runtime.ToolSource
}

// Lookup finds a tool of next.
func (s *tools) Lookup(original string) (tool.Tool, bool) {
	found, ok := s.next.Lookup(original)
	if !ok {
		return nil, false
	}
	return s.traceTool(found), true
}

// traceTool wraps a tool and records its calls. A tool that can reconcile still can.
func (t *Tracer) traceTool(found tool.Tool) tool.Tool {
	traced := &tracedTool{found, t}
	if r, ok := found.(tool.Reconciler); ok {
		return &reconcilingTool{traced, r}
	}
	return traced
}

type tracedTool struct {
	tool.Tool
	t *Tracer
}

// Unwrap returns the tool itself.
func (c *tracedTool) Unwrap() tool.Tool { return c.Tool }

// reconcilingTool can also tell what became of a call.
type reconcilingTool struct {
	*tracedTool
	tool.Reconciler
}

// Call enters the tool. The span ends with ctx if the tool does not: then nobody waits for it any more.
func (c *tracedTool) Call(ctx context.Context, call tool.Call) (agent.ToolResultData, error) {
	ctx, span := c.t.span(ctx, "execute_tool "+call.Name, trace.SpanKindInternal,
		keyKind.String(kindTool), keyToolName.String(call.Name), keyToolID.String(call.ID),
		semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(call.Name), semconv.GenAIToolCallID(call.ID),
		c.t.hide.input(string(call.Args)), keyToolParameters.String(hiddenOr(c.t.hide.Inputs, string(call.Args))))
	e := &openToolSpan{t: c.t, span: span}
	abandon := func() { e.end(errorClass(ctx.Err())) }
	stop := context.AfterFunc(ctx, abandon)
	defer stop()
	defer current(ctx).onEnd(e, abandon)()
	defer e.end("panic") // does nothing where the tool returned
	res, err := c.Tool.Call(ctx, call)
	e.end(c.recordResult(span, res, err))
	return res, err
}

// openToolSpan is the span of one tool call. It ends once, with the first end that is reported.
type openToolSpan struct {
	t    *Tracer
	span trace.Span
	once sync.Once
}

func (e *openToolSpan) end(problem string) {
	e.once.Do(func() {
		if problem != "" {
			markFailed(e.span, problem)
		}
		e.t.end(e.span)
	})
}

// recordResult records the tool's result and returns the description of its failure.
func (c *tracedTool) recordResult(span trace.Span, res agent.ToolResultData, err error) string {
	if err != nil {
		return errorClass(err)
	}
	span.SetAttributes(c.t.hide.output(res.Content))
	if res.IsError {
		return string(run.WhyToolError)
	}
	return ""
}
