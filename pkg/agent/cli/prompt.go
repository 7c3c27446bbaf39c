package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web"
)

// decider decides requests; nil = nobody here does.
type decider struct {
	// one returns a verdict on a request; nil = decide later.
	one func(ctx context.Context, a approval.Approval) (*web.Verdict, error)
	// batch returns which of several requests are approved at once, as they are: their digests. Later leaves all of them
	// for later. Nil = each is decided alone.
	batch func(ctx context.Context, ids []string) (approved map[string]string, later bool, err error)
}

func (s *session) decideAlways(action approval.Action, flag string) *decider {
	return &decider{one: func(_ context.Context, a approval.Approval) (*web.Verdict, error) {
		s.p.logEvent("decide", "%s: %s as %s (%s)", a.ID, action, s.as.ID, flag)
		return &web.Verdict{Action: action}, nil
	}}
}

// promptBatch lists the requests of a batch at the terminal, and asks whether all of them are approved. Only calls are,
// of which each is shown whole before.
func (s *session) promptBatch(ctx context.Context, ids []string) (approved map[string]string, later bool, err error) {
	approved = map[string]string{}
	var open []approval.Approval
	for _, id := range ids {
		a, err := s.loadApproval(ctx, id)
		if err != nil {
			return nil, false, err
		}
		allowed := a.ChannelsOf("")
		if a.Status == approval.Pending && a.Kind == approval.KindCall && allowed.Allow(agent.ViaCLI) {
			open = append(open, a)
		}
	}
	if len(open) < 2 {
		return approved, false, nil
	}
	for _, a := range open {
		if _, err := s.showRequest(ctx, a); err != nil {
			return nil, false, err
		}
	}
	for {
		answer, err := s.promptLine(ctx,
			fmt.Sprintf("approve all %d of these, decide one by one, or later? [all/one/l] ", len(open)))
		if err != nil {
			return approved, errors.Is(err, io.EOF), ignoreEOF(err)
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "all":
			for _, a := range open {
				approved[a.ID] = a.Digest
			}
			return approved, false, nil
		case "one", "o":
			return approved, false, nil
		case "l", "later":
			return approved, true, nil
		}
	}
}

func (s *session) showRequest(ctx context.Context, a approval.Approval) (v people.DocumentView, err error) {
	fmt.Fprintln(s.p.stderr)
	if v, err = s.newDefinitionCache().loadView(ctx, a); err != nil {
		return v, err
	}
	if v.ModelText, err = s.loadModelText(ctx, a); err != nil {
		return v, err
	}
	return v, writeApproval(s.p.stderr, a, v)
}

func (s *session) promptDecision(ctx context.Context, a approval.Approval) (*web.Verdict, error) {
	v, err := s.showRequest(ctx, a)
	if err != nil {
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
	case !c.Allow(agent.ViaCLI):
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
		answer = cmp.Or(map[string]string{"approve": "a", "deny": "d", "edit": "e", "later": "l"}[answer], answer)
		switch taken := slices.Contains(strings.Fields(answers), answer); {
		case answer == "d":
			note, err := s.promptLine(ctx, "note for the model (may be empty): ")
			if err != nil {
				return nil, ignoreEOF(err)
			}
			return &web.Verdict{Action: approval.Deny, Tool: tool, Note: note}, nil
		case answer == "l":
			return nil, nil
		case answer == "a" && taken:
			return &web.Verdict{Action: approval.Approve, Tool: tool}, nil
		case answer == "e" && taken:
			if v, err := s.promptEdit(ctx, a, v); v != nil || err != nil {
				return v, err
			}
		case answer == "ask" && taken:
			return nil, s.promptQuestion(ctx, a)
		case answer != "" && strings.HasSuffix(answers, "JSON"):
			result, err := jsonx.CompactJSON([]byte(typed), jsonx.JSONLimits{})
			if err == nil {
				return &web.Verdict{Action: approval.Approve, Result: result}, nil
			}
			s.p.logLine("that is not taken: %v", err)
		}
	}
}

// promptEdit asks for edited arguments; nil = no edit. Where EDITOR or VISUAL names an editor, it opens them there,
// else they are typed. Masked values are kept where their placeholders stand.
func (s *session) promptEdit(ctx context.Context, a approval.Approval, v people.DocumentView) (*web.Verdict, error) {
	schema := v.Schema(a)
	editable, err := people.EditableArguments(a.Args, schema)
	if err != nil { // arguments that are no object: all is typed
		editable = a.Args
	}
	var typed string
	if editor := cmp.Or(s.p.getenv("VISUAL"), s.p.getenv("EDITOR")); editor != "" {
		if typed, err = s.p.editText(ctx, editor, editable); err != nil {
			s.p.logLine("that is not taken: %v", err)
			return nil, nil
		}
	} else {
		if !bytes.Equal(editable, a.Args) {
			s.p.logLine("what is masked is kept where its placeholder is typed: %s", line(string(editable)))
		}
		typed, err = s.promptLine(ctx, "arguments as JSON on one line (empty = no edit): ")
	}
	if err != nil || strings.TrimSpace(typed) == "" {
		return nil, ignoreEOF(err)
	}
	args, err := people.RestoreArguments([]byte(typed), a.Args, schema)
	if err != nil {
		s.p.logLine("that is not taken: %v", err)
		return nil, nil
	}
	return &web.Verdict{Action: approval.Edit, Args: args}, nil
}

// editText opens JSON in the person's editor, a command line of the shell, and returns it as it was saved; "" = it was
// not changed. The file is the person's alone and is removed.
func (p *program) editText(ctx context.Context, editor string, value []byte) (string, error) {
	var text bytes.Buffer
	if err := json.Indent(&text, value, "", "  "); err != nil {
		return "", err
	}
	text.WriteByte('\n')
	f, err := os.CreateTemp("", "countersign-*.json") // 0600
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(text.Bytes())
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, "sh", f.Name())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.stdin, p.stderr, p.stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w", editor, err)
	}
	saved, err := os.ReadFile(f.Name())
	if err != nil || bytes.Equal(saved, text.Bytes()) {
		return "", err
	}
	return string(saved), nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (s *session) promptLine(ctx context.Context, question string) (string, error) {
	fmt.Fprint(s.p.stderr, s.p.paint("1", question))
	if s.p.stdinLines == nil {
		s.p.stdinLines = &lineReader{in: bufio.NewReader(s.p.stdin), clock: s.p.clock, results: make(chan readResult, 1)}
	}
	return s.p.stdinLines.readLine(ctx)
}

// loadModelText returns the text that the model wrote beside a call.
func (s *session) loadModelText(ctx context.Context, a approval.Approval) (string, error) {
	r, err := s.loadRun(ctx, a.Run)
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
