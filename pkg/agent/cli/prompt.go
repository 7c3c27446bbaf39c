package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// asker gets a verdict on a request. A nil verdict means later.
type asker func(ctx context.Context, a approval.Approval) (*api.Verdict, error)

// always gives the same verdict on everything, and says so.
func (s *session) always(action approval.Action, flag string) asker {
	return func(_ context.Context, a approval.Approval) (*api.Verdict, error) {
		s.p.note("%-8s %s: %s as %s (%s)", "decide", a.ID, action, s.as.ID, flag)
		return &api.Verdict{Action: action}, nil
	}
}

// ask shows a request to the person at the terminal and asks what to do.
func (s *session) ask(ctx context.Context, a approval.Approval) (*api.Verdict, error) {
	fmt.Fprintln(s.p.stderr)
	v, err := s.views().of(ctx, a)
	if err != nil {
		return nil, err
	}
	if v.ModelText, err = s.said(ctx, a); err != nil {
		return nil, err
	}
	if err := writeApproval(s.p.stderr, a, v); err != nil {
		return nil, err
	}
	if a.Kind == approval.KindInput {
		return s.askInput(ctx)
	}
	if a.Kind == approval.KindTools {
		return s.askTools(ctx, a)
	}
	for {
		answer, err := s.prompt(ctx, "approve, deny, edit, ask or later? [a/d/e/ask/l] ")
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "a", "approve":
			return &api.Verdict{Action: approval.Approve}, nil
		case "d", "deny":
			note, err := s.prompt(ctx, "note for the model (may be empty): ")
			return &api.Verdict{Action: approval.Deny, Note: note}, ignoreEOF(err)
		case "e", "edit":
			if v, err := s.edited(ctx, a, v); v != nil || err != nil {
				return v, err
			}
		case "ask":
			return nil, s.askAbout(ctx, a)
		case "l", "later":
			return nil, nil
		}
	}
}

// askInput asks the person at the terminal what the tool asks.
func (s *session) askInput(ctx context.Context) (*api.Verdict, error) {
	for {
		typed, err := s.prompt(ctx, "the answer as JSON on one line, deny or later? [JSON/d/l] ")
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		switch strings.ToLower(strings.TrimSpace(typed)) {
		case "":
			continue
		case "d", "deny":
			note, err := s.prompt(ctx, "note for the model (may be empty): ")
			return &api.Verdict{Action: approval.Deny, Note: note}, ignoreEOF(err)
		case "l", "later":
			return nil, nil
		}
		answer, err := jsonx.CompactJSON([]byte(typed), jsonx.JSONLimits{})
		if err != nil {
			s.p.note("that is not taken: %v", err)
			continue
		}
		return &api.Verdict{Action: approval.Approve, Result: answer}, nil
	}
}

// askTools asks about the first tool of a request that nobody has decided about; the others are asked about in their turn.
func (s *session) askTools(ctx context.Context, a approval.Approval) (*api.Verdict, error) {
	i := slices.IndexFunc(a.Permissions, func(p approval.Permission) bool { return p.Verdict == "" })
	if i < 0 {
		return nil, nil
	}
	tool := a.Permissions[i].Tool
	for {
		answer, err := s.prompt(ctx, line(tool)+": approve, deny or later? [a/d/l] ")
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "a", "approve":
			return &api.Verdict{Action: approval.Approve, Tool: tool}, nil
		case "d", "deny":
			note, err := s.prompt(ctx, "note for the model (may be empty): ")
			return &api.Verdict{Action: approval.Deny, Tool: tool, Note: note}, ignoreEOF(err)
		case "l", "later":
			return nil, nil
		}
	}
}

// edited asks for other arguments. Nil means that there are none. Where some are masked, it shows what may be typed in their place.
func (s *session) edited(ctx context.Context, a approval.Approval, v show.View) (*api.Verdict, error) {
	schema := v.Schema(a)
	if editable, err := show.Editable(a.Args, schema); err == nil && !bytes.Equal(editable, a.Args) {
		s.p.note("what is masked is kept where its placeholder is typed: %s", line(string(editable)))
	}
	typed, err := s.prompt(ctx, "arguments as JSON on one line (empty = no edit): ")
	if err != nil || strings.TrimSpace(typed) == "" {
		return nil, ignoreEOF(err)
	}
	args, err := show.Restore([]byte(typed), a.Args, schema)
	if err != nil {
		s.p.note("that is not taken: %v", err)
		return nil, nil
	}
	return &api.Verdict{Action: approval.Edit, Args: args}, nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (s *session) prompt(ctx context.Context, question string) (string, error) {
	fmt.Fprint(s.p.stderr, question)
	return s.p.typing().line(ctx)
}

func (p *program) typing() *typed {
	if p.typed == nil {
		p.typed = newTyped(p.stdin, p.clock)
	}
	return p.typed
}

// said is the text with which the model asked for a call.
func (s *session) said(ctx context.Context, a approval.Approval) (string, error) {
	r, err := call(ctx, s, func(c *api.Client) (api.Run, error) { return c.Run(ctx, a.Run) })
	if err != nil {
		return "", err
	}
	said := ""
	for _, m := range r.Messages {
		var b struct{ Type, Text, ID string }
		if err := json.Unmarshal(m.Content, &b); err != nil {
			return "", fmt.Errorf("read message of run %s: %w", a.Run, err)
		}
		switch {
		case m.Role != run.RoleAssistant:
			said = ""
		case b.Type == "text":
			said = b.Text
		case b.ID == a.Call():
			return said, nil
		}
	}
	return "", nil
}
