package cli

import (
	"context"
	"encoding/json"

	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	webpages "github.com/countersign/countersign/internal/web"
	"github.com/countersign/countersign/internal/web/api"
)

// newConsole makes the console of an engine. What it reads it reads as any client does; what it decides goes to the desk.
func newConsole(e *engine, b api.Backend, token string, as policy.Principal) *webpages.Console {
	draw := ids.System(e.p.clock)
	return &webpages.Console{
		Pages:  e.newDeployment().Pages(),
		Tenant: local.Tenant, As: as, Read: e.newClient(as), Agents: e.p.registry.Agents, Token: token, Start: draw.Token()[:10], Key: draw.Token(),
		Conversation: func(ctx context.Context, run string) ([]run.Spoken, error) {
			l, err := b.Journal.Load(ctx, local.Tenant, run)
			if err != nil {
				return nil, err
			}
			return b.Journal.Conversation(ctx, local.Tenant, &l.State)
		},
		Arguments: func(ctx context.Context, run, tool string, raw []byte) ([]show.Argument, error) {
			schema, err := argumentSchema(ctx, b, run, tool)
			if err != nil {
				return nil, err
			}
			lines, _ := show.Arguments(raw, schema)
			return lines, nil
		},
	}
}

// argumentSchema is the schema of a tool's arguments, as the run is pinned to it; nil where no tool of that name is known.
func argumentSchema(ctx context.Context, b api.Backend, run, tool string) (json.RawMessage, error) {
	if tool == "" {
		return nil, nil
	}
	l, err := b.Journal.Load(ctx, local.Tenant, run)
	if err != nil {
		return nil, err
	}
	def, err := b.Definitions(ctx, local.Tenant, l.State.Definition)
	if err != nil {
		return nil, err
	}
	t, _ := def.Tool(tool)
	return t.Schema, nil
}
