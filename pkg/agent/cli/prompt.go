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

// decider gets a verdict on a request. A nil verdict means later.
type decider func(ctx context.Context, a approval.Approval) (*api.Verdict, error)

// decideAlways gives the same verdict on everything, and says so.
func (s *session) decideAlways(action approval.Action, flag string) decider {
	return func(_ context.Context, a approval.Approval) (*api.Verdict, error) {
		s.p.logLine("%-8s %s: %s as %s (%s)", "decide", a.ID, action, s.as.ID, flag)
		return &api.Verdict{Action: action}, nil
	}
}

// promptDecision shows a request to the person at the terminal and asks what to do.
func (s *session) promptDecision(ctx context.Context, a approval.Approval) (*api.Verdict, error) {
	fmt.Fprintln(s.p.stderr)
	v, err := s.newDefinitionCache().loadView(ctx, a)
	if err != nil {
		return nil, err
	}
	if v.Says, err = s.loadModelText(ctx, a); err != nil {
		return nil, err
	}
	if err := writeApproval(s.p.stderr, a, v); err != nil {
		return nil, err
	}
	if a.Kind == approval.KindInput {
		return s.promptInput(ctx)
	}
	if a.Kind == approval.KindTools {
		return s.promptTools(ctx, a)
	}
	for {
		answer, err := s.promptLine(ctx, "approve, deny, edit, ask or later? [a/d/e/ask/l] ")
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
			note, err := s.promptLine(ctx, "note for the model (may be empty): ")
			return &api.Verdict{Action: approval.Deny, Note: note}, ignoreEOF(err)
		case "e", "edit":
			if v, err := s.promptEdit(ctx, a, v); v != nil || err != nil {
				return v, err
			}
		case "ask":
			return nil, s.promptQuestion(ctx, a)
		case "l", "later":
			return nil, nil
		}
	}
}

// promptInput asks the person at the terminal what the tool asks.
func (s *session) promptInput(ctx context.Context) (*api.Verdict, error) {
	for {
		typed, err := s.promptLine(ctx, "the answer as JSON on one line, deny or later? [JSON/d/l] ")
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
			note, err := s.promptLine(ctx, "note for the model (may be empty): ")
			return &api.Verdict{Action: approval.Deny, Note: note}, ignoreEOF(err)
		case "l", "later":
			return nil, nil
		}
		answer, err := jsonx.CompactJSON([]byte(typed), jsonx.JSONLimits{})
		if err != nil {
			s.p.logLine("that is not taken: %v", err)
			continue
		}
		return &api.Verdict{Action: approval.Approve, Result: answer}, nil
	}
}

// promptTools asks about the first tool of a request that nobody has decided about; the others are asked about in their turn.
func (s *session) promptTools(ctx context.Context, a approval.Approval) (*api.Verdict, error) {
	i := slices.IndexFunc(a.Permissions, func(p approval.Permission) bool { return p.Verdict == "" })
	if i < 0 {
		return nil, nil
	}
	tool := a.Permissions[i].Tool
	for {
		answer, err := s.promptLine(ctx, line(tool)+": approve, deny or later? [a/d/l] ")
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
			note, err := s.promptLine(ctx, "note for the model (may be empty): ")
			return &api.Verdict{Action: approval.Deny, Tool: tool, Note: note}, ignoreEOF(err)
		case "l", "later":
			return nil, nil
		}
	}
}

// promptEdit asks for other arguments. Nil means that there are none. Where some are masked, it shows what may be typed in their place.
func (s *session) promptEdit(ctx context.Context, a approval.Approval, v show.View) (*api.Verdict, error) {
	schema := v.Schema(a)
	if editable, err := show.Editable(a.Args, schema); err == nil && !bytes.Equal(editable, a.Args) {
		s.p.logLine("what is masked is kept where its placeholder is typed: %s", line(string(editable)))
	}
	typed, err := s.promptLine(ctx, "arguments as JSON on one line (empty = no edit): ")
	if err != nil || strings.TrimSpace(typed) == "" {
		return nil, ignoreEOF(err)
	}
	args, err := show.Restore([]byte(typed), a.Args, schema)
	if err != nil {
		s.p.logLine("that is not taken: %v", err)
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

func (s *session) promptLine(ctx context.Context, question string) (string, error) {
	fmt.Fprint(s.p.stderr, question)
	return s.p.openStdin().readLine(ctx)
}

func (p *program) openStdin() *lineReader {
	if p.stdinLines == nil {
		p.stdinLines = newLineReader(p.stdin, p.clock)
	}
	return p.stdinLines
}

// loadModelText is the text with which the model asked for a call.
func (s *session) loadModelText(ctx context.Context, a approval.Approval) (string, error) {
	r, err := callAPI(ctx, s, func(c *api.Client) (api.Run, error) { return c.Run(ctx, a.Run) })
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
