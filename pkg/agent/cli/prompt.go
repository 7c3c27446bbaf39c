package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// decider returns a verdict on a request; nil = decide later.
type decider func(ctx context.Context, a approval.Approval) (*api.Verdict, error)

// decideAlways returns a decider with a fixed verdict, which it logs.
func (s *session) decideAlways(action approval.Action, flag string) decider {
	return func(_ context.Context, a approval.Approval) (*api.Verdict, error) {
		s.p.logLine("%-8s %s: %s as %s (%s)", "decide", a.ID, action, s.as.ID, flag)
		return &api.Verdict{Action: action}, nil
	}
}

// promptDecision shows a request at the terminal and asks for a verdict.
func (s *session) promptDecision(ctx context.Context, a approval.Approval) (*api.Verdict, error) {
	fmt.Fprintln(s.p.stderr)
	v, err := s.newDefinitionCache().loadView(ctx, a)
	if err != nil {
		return nil, err
	}
	if v.ModelText, err = s.loadModelText(ctx, a); err != nil {
		return nil, err
	}
	if err := writeApproval(s.p.stderr, a, v); err != nil {
		return nil, err
	}
	tool := "" // of a request about tools, the first undecided one; the others follow one by one
	if a.Kind == approval.KindTools {
		i := slices.IndexFunc(a.Permissions, func(p approval.Permission) bool { return p.Verdict == "" })
		if i < 0 {
			return nil, nil
		}
		tool = a.Permissions[i].Tool
	}
	question, answers := "approve, deny, edit, ask or later? [a/d/e/ask/l] ", "a d e ask l"
	switch c := a.ChannelsOf(tool); {
	case !c.Allow(approval.ViaCLI):
		s.p.logLine("the policy lets people approve this by %s; here it can be denied", c.Words())
		question, answers = "deny, ask or later? [d/ask/l] ", "d ask l"
	case a.Kind == approval.KindTools:
		question, answers = line(tool)+": approve, deny or later? [a/d/l] ", "a d l"
	case a.Kind == approval.KindInput:
		question, answers = "the answer as JSON on one line, deny or later? [JSON/d/l] ", "d l JSON"
	}
	for {
		typed, err := s.promptLine(ctx, question)
		if err != nil {
			return nil, ignoreEOF(err)
		}
		answer := strings.ToLower(strings.TrimSpace(typed))
		if short, ok := map[string]string{"approve": "a", "deny": "d", "edit": "e", "later": "l"}[answer]; ok {
			answer = short
		}
		switch taken := slices.Contains(strings.Fields(answers), answer); {
		case answer == "d":
			note, err := s.promptLine(ctx, "note for the model (may be empty): ")
			return &api.Verdict{Action: approval.Deny, Tool: tool, Note: note}, ignoreEOF(err)
		case answer == "l":
			return nil, nil
		case answer == "a" && taken:
			return &api.Verdict{Action: approval.Approve, Tool: tool}, nil
		case answer == "e" && taken:
			if v, err := s.promptEdit(ctx, a, v); v != nil || err != nil {
				return v, err
			}
		case answer == "ask" && taken:
			return nil, s.promptQuestion(ctx, a)
		case answer != "" && strings.HasSuffix(answers, "JSON"):
			result, err := jsonx.CompactJSON([]byte(typed), jsonx.JSONLimits{})
			if err == nil {
				return &api.Verdict{Action: approval.Approve, Result: result}, nil
			}
			s.p.logLine("that is not taken: %v", err)
		}
	}
}

// promptEdit asks for edited arguments; nil = no edit. It prints the masked arguments that may be edited.
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
	if s.p.stdinLines == nil {
		s.p.stdinLines = &lineReader{in: bufio.NewReader(s.p.stdin), clock: s.p.clock, results: make(chan readResult, 1)}
	}
	return s.p.stdinLines.readLine(ctx)
}

// loadModelText returns the text that the model wrote beside a call.
func (s *session) loadModelText(ctx context.Context, a approval.Approval) (string, error) {
	r, err := callAPI(ctx, s, func(c *api.Client) (api.Run, error) { return c.Run(ctx, a.Run) })
	if err != nil {
		return "", err
	}
	text := ""
	for _, m := range r.Messages {
		var b struct{ Type, Text, ID string }
		if err := json.Unmarshal(m.Content, &b); err != nil {
			return "", fmt.Errorf("read message of run %s: %w", a.Run, err)
		}
		switch {
		case m.Role != run.RoleAssistant:
			text = ""
		case b.Type == "text":
			text = b.Text
		case b.ID == a.Call():
			return text, nil
		}
	}
	return "", nil
}

// lineReader reads lines that a person types. If the context ends first, the pending line belongs to the next call.
type lineReader struct {
	in      *bufio.Reader
	clock   clock.Clock
	results chan readResult
	reading bool
}

type readResult struct {
	text string
	err  error
}

// readLine returns the next line without its end, or io.EOF.
func (t *lineReader) readLine(ctx context.Context) (string, error) {
	if !t.reading {
		t.reading = true
		t.clock.Go(func() {
			s, err := t.in.ReadString('\n')
			t.results <- readResult{s, err}
		})
	}
	select {
	case l := <-t.results:
		t.reading = false
		if errors.Is(l.err, io.EOF) && l.text != "" {
			l.err = nil
		}
		return strings.TrimRight(l.text, "\r\n"), l.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
