package runtime

import (
	"context"

	"github.com/countersign/countersign/pkg/agent"
)

// WithDialect sends next the requests to models that write their calls as text (agent.DialectXML) in text, without tools of the
// provider's. What comes back is read where replies are planned, a script's like a provider's. Requests to other models pass as they are.
// Safe for concurrent use if next is.
func WithDialect(next Model) Model { return withDialect{next} }

type withDialect struct{ next Model }

// Generate implements Model.
func (w withDialect) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	if r.Model.Dialect == agent.DialectXML {
		r = r.InText()
	}
	return w.next.Generate(ctx, r)
}
