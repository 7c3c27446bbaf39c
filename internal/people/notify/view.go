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

// Viewer loads what people are shown of requests besides what is stored with them. Both fields are required.
type Viewer struct {
	Runs        Runs
	Definitions func(ctx context.Context, tenant, digest string) (*agent.Definition, error)
}

// Runs loads the runs of requests; *store.Journal implements it.
type Runs interface {
	Load(ctx context.Context, tenant, run string) (store.Loaded, error)
}

// View returns the definition that a request's run is pinned to, and the model's text beside the call. It is empty if
// the run no longer exists.
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

// Show returns what people are shown of a request.
func (v Viewer) Show(ctx context.Context, a approval.Approval) (show.Document, error) {
	view, err := v.View(ctx, a)
	if err != nil {
		return show.Document{}, err
	}
	return show.BuildDocument(a, view), nil
}

// textBesideCall returns the model's text in the reply that made a call. It searches only live messages, which include
// the reply of a waiting call.
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
