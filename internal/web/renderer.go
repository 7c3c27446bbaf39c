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

// NewRenderer renders requests with package show, from the pinned definition of a request's run and the model's text
// beside the call. A missing run adds nothing.
func NewRenderer(
	runs notify.Runs, definitions func(ctx context.Context, tenant, digest string) (*agent.Definition, error),
) Renderer {
	v := &notify.Viewer{Runs: runs, Definitions: definitions}
	return Renderer{
		Text: show.Foreign,
		Of:   v.Show,
		Uncovered: func(ctx context.Context, a approval.Approval) (show.Document, error) {
			view, err := v.View(ctx, a)
			view.Unmasked = true
			return show.BuildDocument(a, view), err
		},
		Editable: func(ctx context.Context, a approval.Approval) (string, error) {
			view, err := v.View(ctx, a)
			if err != nil {
				return "", err
			}
			args, err := show.Editable(a.Args, view.Schema(a))
			if err != nil {
				return "", err
			}
			var out bytes.Buffer
			err = json.Indent(&out, args, "", "  ")
			return out.String(), err
		},
		Schema: func(ctx context.Context, a approval.Approval) (json.RawMessage, error) {
			view, err := v.View(ctx, a)
			if err != nil {
				return nil, err
			}
			return view.Schema(a), nil
		},
		Restore: func(ctx context.Context, a approval.Approval, edited string) (json.RawMessage, error) {
			view, err := v.View(ctx, a)
			if err != nil {
				return nil, err
			}
			args, err := show.Restore(json.RawMessage(edited), a.Args, view.Schema(a))
			if err != nil {
				return nil, &approval.EditError{Problem: err.Error()}
			}
			return args, nil
		},
	}
}
