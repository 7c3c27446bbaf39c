package web

import (
	"bytes"
	"context"
	"encoding/json"
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
	v := viewer{runs, definitions}
	return Showing{
		Text: show.Foreign,
		Of: func(ctx context.Context, a approval.Approval) (show.Request, error) {
			view, err := v.of(ctx, a)
			if err != nil {
				return show.Request{}, err
			}
			return show.Of(a, view), nil
		},
		Editable: func(ctx context.Context, a approval.Approval) (string, error) {
			schema, err := v.schema(ctx, a)
			if err != nil {
				return "", err
			}
			args, err := show.Editable(a.Args, schema)
			if err != nil {
				return "", err
			}
			return indented(args)
		},
		Restore: func(ctx context.Context, a approval.Approval, edited string) (json.RawMessage, error) {
			schema, err := v.schema(ctx, a)
			if err != nil {
				return nil, err
			}
			args, err := show.Restore(json.RawMessage(edited), a.Args, schema)
			if err != nil {
				return nil, &approval.EditError{Problem: err.Error()}
			}
			return args, nil
		},
	}
}

// indented is JSON over several lines, for people to edit.
func indented(data json.RawMessage) (string, error) {
	var out bytes.Buffer
	err := json.Indent(&out, data, "", "  ")
	return out.String(), err
}

// viewer finds what is known of requests beside what is stored with them.
type viewer struct {
	runs        Runs
	definitions func(ctx context.Context, tenant, digest string) (*agent.Definition, error)
}

func (v viewer) of(ctx context.Context, a approval.Approval) (show.View, error) {
	l, err := v.runs.Load(ctx, a.Tenant, a.Run)
	if errors.Is(err, store.ErrNoRun) {
		return show.View{}, nil
	}
	if err != nil {
		return show.View{}, err
	}
	def, err := v.definitions(ctx, a.Tenant, l.State.Definition)
	if err != nil {
		return show.View{}, err
	}
	return show.View{Definition: def, Subject: l.State.Subject, Says: beside(&l.State, a.Call())}, nil
}

// schema is that of the arguments of a request's call; nil where nothing is known of it.
func (v viewer) schema(ctx context.Context, a approval.Approval) (json.RawMessage, error) {
	view, err := v.of(ctx, a)
	if err != nil || view.Definition == nil || len(a.Tools) == 0 {
		return nil, err
	}
	t, _ := view.Definition.Tool(a.Tools[0])
	return t.Schema, nil
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
