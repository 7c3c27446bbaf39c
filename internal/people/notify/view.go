package notify

import (
	"context"
	"errors"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Viewer finds what is known of requests beside what is stored with them. Both fields are required.
type Viewer struct {
	Runs        Runs
	Definitions func(ctx context.Context, tenant, digest string) (*agent.Definition, error)
}

// Runs reads the runs that requests are of; *store.Journal does.
type Runs interface {
	Load(ctx context.Context, tenant, run string) (store.Loaded, error)
}

// View is what is known of a request: the definition that its run is pinned to, and what the model said beside the call. Of a run that is not there any more nothing is.
func (v Viewer) View(ctx context.Context, a approval.Approval) (show.View, error) {
	l, err := v.Runs.Load(ctx, a.Tenant, a.Run)
	if errors.Is(err, store.ErrNoRun) {
		return show.View{}, nil
	}
	if err != nil {
		return show.View{}, err
	}
	def, err := v.Definitions(ctx, a.Tenant, l.State.Definition)
	if err != nil {
		return show.View{}, err
	}
	return show.View{Definition: def, ModelText: textBesideCall(&l.State, a.Call())}, nil
}

// Show is what people are shown of a request.
func (v Viewer) Show(ctx context.Context, a approval.Approval) (show.Request, error) {
	view, err := v.View(ctx, a)
	if err != nil {
		return show.Request{}, err
	}
	return show.BuildRequest(a, view), nil
}

// textBesideCall is what the model said in the reply that made a call: its texts between what others said. Live messages alone are looked at: of a call that
// waits, the reply is one of them.
func textBesideCall(s *run.AgentState, call string) string {
	var texts []string
	made := false
	for _, m := range s.Messages.All() {
		if m.Role != run.RoleAssistant {
			if made {
				break
			}
			texts = nil
			continue
		}
		switch b := m.Block.(type) {
		case run.Text:
			texts = append(texts, b.Text)
		case run.ToolUse:
			made = made || b.ID == call
		}
	}
	if !made {
		return ""
	}
	return strings.Join(texts, "\n")
}
