package observe

import (
	"net/http"

	"go.opentelemetry.io/otel/trace"
)

// HTTP lets requests that come in with a traceparent, or else with an X-Ray header, start runs in that trace. A nil
// Tracer gives next itself.
func (t *Tracer) HTTP(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := ExtractTrace(r.Context(), map[string]string{headerParent: r.Header.Get(headerParent), headerState: r.Header.Get(headerState)})
		if !trace.SpanContextFromContext(ctx).IsValid() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, parseXRay(r.Header.Get(headerXRay)))
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
