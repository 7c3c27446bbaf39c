// Package tracing records runs as OpenTelemetry spans, from decorators over the ports of package runtime. Spans have
// the attributes of OpenInference and, beside them, those of OpenTelemetry's GenAI conventions.
//
//	AGENT      the run, from its start to its end; written once, by whoever commits the end
//	CHAIN      one invocation of step, tool or approve
//	LLM        one request to a model, failed ones included
//	TOOL       one entering of a tool
//	GUARDRAIL  what a gate or a person said about a call
//
// No span stays open across functions. The AGENT span's context is promised when the run starts and kept in the run's
// journal (agent.Trace); every function names it as the parent of what it does, and whoever ends the run writes the
// span under the promised id with its true start. A run is one trace, however long it waits.
//
// Content is hidden unless it is asked for: see Hide. Errors are told by their class, never by their text.
// Package telemetry sends the spans.
package observe

import (
	"go.opentelemetry.io/otel/trace"

	"github.com/countersign/countersign/internal/clock"
)

// scopeName is the instrumentation scope of our spans.
const scopeName = "github.com/countersign/countersign"

// Tracer records runs. Its methods may be called on a nil Tracer, which records nothing. Safe for concurrent use.
type Tracer struct {
	spans trace.Tracer
	clock clock.Clock
	hide  Hide
}

// NewTracer makes a tracer whose spans p records; it must be a telemetry.Telemetry's, which knows the ids that a run's own
// span was promised. A nil p makes a nil Tracer.
func NewTracer(p trace.TracerProvider, c clock.Clock, hide Hide) *Tracer {
	if p == nil {
		return nil
	}
	return &Tracer{spans: p.Tracer(scopeName), clock: c, hide: hide}
}
