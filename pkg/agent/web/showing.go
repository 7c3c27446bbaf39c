package web

import (
	"context"
	"errors"
	"strings"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/approval"
	"github.com/countersign/countersign/pkg/agent/show"
	"github.com/countersign/countersign/pkg/agent/store"
)

// Runs reads the runs that requests are of; *store.Journal does.
type Runs interface {
	Load(ctx context.Context, tenant, run string) (store.Loaded, error)
}

// Shown makes of requests what people see, by package show: under the definition that a request's run is pinned to, with what the model said beside the
// call. A run that is not there any more says nothing.
func Shown(runs Runs, definitions func(ctx context.Context, tenant, digest string) (*agent.Definition, error)) Showing {
	return Showing{Text: show.Foreign, Of: func(ctx context.Context, a approval.Approval) (show.Request, error) {
		l, err := runs.Load(ctx, a.Tenant, a.Run)
		if errors.Is(err, store.ErrNoRun) {
			return show.Of(a, show.View{}), nil
		}
		if err != nil {
			return show.Request{}, err
		}
		def, err := definitions(ctx, a.Tenant, l.State.Definition)
		if err != nil {
			return show.Request{}, err
		}
		return show.Of(a, show.View{Definition: def, Subject: l.State.Subject, Says: beside(&l.State, a.Call())}), nil
	}}
}

// beside is what the model said in the reply that made a call: its texts between what others said. Live messages alone are looked at: of a call that
// waits, the reply is one of them.
func beside(s *agent.AgentState, call string) string {
	var texts []string
	made := false
	for _, m := range s.Messages.All() {
		if m.Role != agent.RoleAssistant {
			if made {
				break
			}
			texts = nil
			continue
		}
		switch b := m.Block.(type) {
		case agent.Text:
			texts = append(texts, b.Text)
		case agent.ToolUse:
			made = made || b.ID == call
		}
	}
	if !made {
		return ""
	}
	return strings.Join(texts, "\n")
}
