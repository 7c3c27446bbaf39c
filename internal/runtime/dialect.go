package runtime

import (
	"context"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/dialect"
)

// WithDialect sends next the requests to models that write their calls as text (agent.DialectXML) in text, without
// tools of the provider's. What comes back is read where replies are planned, a script's like a provider's. Requests to
// other models pass as they are. Safe for concurrent use if next is.
func WithDialect(next Model) interface {
	Model
	TokenCounter
} {
	return withDialect{next}
}

type withDialect struct{ next Model }

// Generate implements Model.
func (w withDialect) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	return w.next.Generate(ctx, inDialect(r))
}

// CountTokens implements TokenCounter: of the request as it would be sent.
func (w withDialect) CountTokens(ctx context.Context, r agent.Request) (int64, error) {
	return CountWith(ctx, w.next, inDialect(r))
}

// inDialect is r as its model is sent it.
func inDialect(r agent.Request) agent.Request {
	if r.Model.Dialect == agent.DialectXML {
		return dialect.WithCallsAsText(r)
	}
	return r
}
