package notify

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Viewer loads what people are shown of requests besides what is stored with them. Both fields are required. It keeps
// the run that it read last: many requests of one reply take one read. Safe for concurrent use.
type Viewer struct {
	Runs        Runs
	Definitions func(ctx context.Context, tenant, digest string) (*agent.Definition, error)

	last atomic.Pointer[run.AgentState]
}

// Runs loads the runs of requests; *store.Journal implements it.
type Runs interface {
	Load(ctx context.Context, tenant, run string) (store.Loaded, error)
}

// View returns the definition that a request's run is pinned to, and the model's text beside the call. It is empty if
// the run no longer exists, and was not read last.
func (v *Viewer) View(ctx context.Context, a approval.Approval) (show.View, error) {
	s, text, made := v.last.Load(), "", false
	if s != nil && s.Tenant == a.Tenant && s.Run == a.Run { // of a call that was made, nothing that is shown changes
		text, made = textBesideCall(s, a.Call())
	}
	if !made {
		l, err := v.Runs.Load(ctx, a.Tenant, a.Run)
		if errors.Is(err, store.ErrNoRun) {
			return show.View{}, nil
		}
		if err != nil {
			return show.View{}, err
		}
		s = &l.State
		v.last.Store(s)
		text, _ = textBesideCall(s, a.Call())
	}
	def, err := v.Definitions(ctx, a.Tenant, s.Definition)
	if err != nil {
		return show.View{}, err
	}
	return show.View{Definition: def, ModelText: text}, nil
}

// Show returns what people are shown of a request.
func (v *Viewer) Show(ctx context.Context, a approval.Approval) (show.Document, error) {
	view, err := v.View(ctx, a)
	if err != nil {
		return show.Document{}, err
	}
	return show.BuildDocument(a, view), nil
}

// textBesideCall returns the model's text in the reply that made a call, and whether it was made. It searches only live
// messages, which include the reply of a waiting call.
func textBesideCall(s *run.AgentState, call string) (text string, made bool) {
	var texts []string
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
		return "", false
	}
	return strings.Join(texts, "\n"), true
}
