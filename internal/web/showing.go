package web

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/show"
)

// Shown makes of requests what people see, by package show: under the definition that a request's run is pinned to, with what the model said beside the
// call. A run that is not there any more says nothing.
func Shown(runs notify.Runs, definitions func(ctx context.Context, tenant, digest string) (*agent.Definition, error)) Showing {
	v := notify.Viewer{Runs: runs, Definitions: definitions}
	return Showing{
		Text: show.Foreign,
		Of:   v.Show,
		Uncovered: func(ctx context.Context, a approval.Approval) (show.Request, error) {
			view, err := v.View(ctx, a)
			view.Unmasked = true
			return show.BuildRequest(a, view), err
		},
		Editable: func(ctx context.Context, a approval.Approval) (string, error) {
			schema, err := schemaOf(ctx, v, a)
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
			schema, err := schemaOf(ctx, v, a)
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

// schemaOf is that of the arguments of a request's call; nil where nothing is known of it.
func schemaOf(ctx context.Context, v notify.Viewer, a approval.Approval) (json.RawMessage, error) {
	view, err := v.View(ctx, a)
	if err != nil || view.Definition == nil || len(a.Tools) == 0 {
		return nil, err
	}
	t, _ := view.Definition.Tool(a.Tools[0])
	return t.Schema, nil
}
