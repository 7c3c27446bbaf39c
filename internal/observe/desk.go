package observe

import (
	"context"
	"crypto/sha256"

	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/countersign/countersign/internal/approval"

	"github.com/countersign/countersign/internal/store"
)

// Heads reads runs' views; *store.Journal does.
type Heads interface {
	Head(ctx context.Context, tenant, run string) (store.Head, error)
}

// Decided records every decision as a GUARDRAIL span from the request to the decision: the time the run waited for a
// person. It is an approval.Desk's Decided, costs one read, and is nil for a nil Tracer. A decision that is told twice
// is the same span, under the same id.
func (t *Tracer) Decided(heads Heads) func(ctx context.Context, a approval.Approval) {
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
			keyKind.String(kindGuardrail), keySession.String(a.Run), semconv.GenAIConversationID(a.Run),
			keyAgent.String(a.Agent), semconv.GenAIAgentName(a.Agent), keyUser.String(said.By),
			keyToolName.String(a.Tools[0]), keyToolID.String(a.Call()), keyVerdict.String(string(said.Action)),
			t.hide.input(string(a.Args)), t.hide.output(said.Note),
		))
		span.End(trace.WithTimestamp(said.At))
	}
}
