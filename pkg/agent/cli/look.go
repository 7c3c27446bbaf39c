package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
	"github.com/countersign/countersign/internal/web/stream"
)

// looking runs f in a session that changes nothing. Where nothing has run yet, no store is made: f gets nil.
func (p *program) looking(ctx context.Context, f func(s *session) error) error {
	if _, err := os.Stat(p.home); errors.Is(err, fs.ErrNotExist) {
		return f(nil)
	}
	return p.with(ctx, false, f)
}

// existing runs f in a session that does something to what is there. Where nothing has run yet, no store is made for it to be missing in.
func (p *program) existing(ctx context.Context, f func(s *session) error) error {
	if _, err := os.Stat(p.home); errors.Is(err, fs.ErrNotExist) {
		return p.nothing()
	}
	return p.with(ctx, true, f)
}

// nothing is the error of a command that looks at one thing where there is no store.
func (p *program) nothing() error {
	return usage("there is no store in %s: nothing has run there yet (--home or COUNTERSIGN_HOME name another)", p.home)
}

type runsCommand struct {
	Status string `placeholder:"S" help:"Only these: running, waiting or done."`
	Agent  string `placeholder:"A" help:"Only runs of this agent."`
	Root   string `placeholder:"RUN" id:"run" help:"Only runs that are carried out for calls of this one, however far below."`
}

func (c *runsCommand) run(ctx context.Context, p *program) error {
	if c.Status != "" && !run.RunStatus(c.Status).Valid() {
		return usage("--status: got %q, want running, waiting or done", c.Status)
	}
	return p.looking(ctx, func(s *session) error {
		heads, err := s.runs(ctx, api.RunQuery{Status: c.Status, Agent: c.Agent, Root: c.Root})
		if err != nil {
			return err
		}
		for _, h := range heads {
			p.tell("%s  %-8s %-28s %-20s %s", h.ID, h.Status, h.Reason, line(h.Agent), stamp(h.StartedAt))
		}
		if len(heads) == 0 {
			p.tell("no runs")
		}
		return p.answer(api.RunPage{Runs: heads})
	})
}

// tell writes a line of what was asked for, in the form for people.
func (p *program) tell(format string, args ...any) {
	if !p.json {
		p.say(format, args...)
	}
}

// answer writes what was asked for as JSON, if that is the form.
func (p *program) answer(v any) error {
	if p.json {
		return p.document(v)
	}
	return nil
}

// runs lists all runs that fit; of no session, none.
func (s *session) runs(ctx context.Context, q api.RunQuery) ([]api.RunHead, error) {
	all := []api.RunHead{}
	if s == nil {
		return all, nil
	}
	q.Limit = 200
	for {
		page, err := call(ctx, s, func(c *api.Client) (api.RunPage, error) { return c.Runs(ctx, q) })
		if err != nil {
			return nil, err
		}
		all = append(all, page.Runs...)
		if q.Cursor = page.Cursor; q.Cursor == "" {
			return all, nil
		}
	}
}

type showCommand struct {
	Run      string `arg:"" id:"run" help:"The run."`
	Messages bool   `help:"Show the conversation, too."`
}

func (c *showCommand) run(ctx context.Context, p *program) error {
	return p.looking(ctx, func(s *session) error {
		if s == nil {
			return p.nothing()
		}
		r, err := call(ctx, s, func(cl *api.Client) (api.Run, error) { return cl.Run(ctx, c.Run) })
		if err != nil {
			return err
		}
		if c.Messages {
			if r.Messages, err = allMessages(ctx, s, c.Run); err != nil {
				return err
			}
		}
		if p.json {
			return p.document(r)
		}
		p.summary(r)
		if err := s.showThreads(ctx, r); err != nil {
			return err
		}
		if err := s.showTree(ctx, r); err != nil {
			return err
		}
		if c.Messages {
			return p.conversation(ctx, s.views(), r)
		}
		return nil
	})
}

// allMessages are a run's messages, page by page, those that have left its conversation included.
func allMessages(ctx context.Context, s *session, run string) ([]api.Message, error) {
	var all []api.Message
	for cursor := ""; ; {
		page, err := call(ctx, s, func(cl *api.Client) (api.MessagePage, error) { return cl.Messages(ctx, run, cursor, 200) })
		if err != nil {
			return nil, err
		}
		all = append(all, page.Messages...)
		if cursor = page.Cursor; cursor == "" {
			return all, nil
		}
	}
}

func (p *program) summary(r api.Run) {
	fact := func(name, format string, args ...any) { p.say("%-9s %s", name, fmt.Sprintf(format, args...)) }
	fact("run", "%s", r.ID)
	fact("agent", "%s", line(strings.TrimSpace(r.Agent+" "+r.Version)))
	fact("status", "%s", strings.TrimSpace(string(r.Status)+" "+string(r.Reason)+" "+line(r.Detail)))
	if r.Cost > 0 {
		fact("cost", "%s USD", r.Cost)
	}
	if r.Error != nil {
		fact("error", "%s: %s", r.Error.Code, lines(r.Error.Message))
	}
	if r.Continues != "" {
		fact("continues", "%s", r.Continues)
	}
	if r.Parent != "" && r.ParentSeq != nil {
		fact("fork of", "%s at entry %d", r.Parent, *r.ParentSeq)
	}
	if r.Root != "" {
		fact("below", "call %s of run %s, for run %s", r.ParentCall, r.Parent, r.Root)
	}
	fact("started", "%s", stamp(r.StartedAt))
	if len(r.StartedBy) > 0 {
		fact("by", "%s", line(strings.Join(r.StartedBy, ", ")))
	}
	if r.Subject != "" && !slices.Contains(r.StartedBy, r.Subject) {
		fact("claim", "the caller says (not checked): the run is for %s", text(r.Subject))
	}
	if !r.EndedAt.IsZero() {
		fact("ended", "%s", stamp(r.EndedAt))
	}
	fact("model", "%d requests, %d of %d interactions, %d tokens in, %d out",
		r.ModelCalls, r.Interactions.Current, r.Interactions.Max, r.Usage.Input, r.Usage.Output)
	for _, c := range r.Calls {
		fact("call", "%s %s %s%s", c.ID, line(c.Tool), strings.TrimSpace(string(c.Status)+" "+string(c.Reason)), whole(c.Whole))
		if c.Undoes != "" {
			fact("undoes", "%s of run %s", line(c.Undoes), r.Continues)
		}
		if c.Undo != nil {
			fact("undo", "%s", p.undo(r.ID, c))
		}
	}
	for _, w := range r.Waiting {
		fact("waits", "%s for %s until %s", w.Call, strings.TrimSpace(string(w.For)+" "+w.Approval), stamp(w.Expires))
		if w.Ticket != nil && w.Ticket.Message != "" {
			fact("asks", "%s (not to be trusted)", text(w.Ticket.Message))
		}
	}
	for _, v := range r.Servers {
		p.tellServerOf(v, fact)
	}
	if r.Summary != "" {
		fact("summary", "%s", lines(r.Summary))
	}
	if state := string(r.State); state != "" && state != "{}" {
		fact("state", "%s", show.OneLine(r.State, nil))
	}
	if out := output(r.Output); out != "" {
		fact("output", "%s", out)
	}
}

// whole says where all of a call's result is, where the conversation holds a part of it.
func whole(w *run.Whole) string {
	if w == nil {
		return ""
	}
	return fmt.Sprintf(", all %d characters in blob %s", w.Chars, w.Blob)
}

func (p *program) conversation(ctx context.Context, seen *views, r api.Run) error {
	for _, m := range r.Messages {
		var b struct {
			Type, Text, Name, ID, MediaType, Blob string
			Input                                 json.RawMessage
			Content                               string
			IsError                               bool
		}
		if err := json.Unmarshal(m.Content, &b); err != nil {
			return fmt.Errorf("show message of run %s: %w", r.ID, err)
		}
		shown := ""
		switch b.Type {
		case "text":
			shown = show.MaskedLines(b.Text)
		case "media":
			shown = line(strings.TrimSpace(b.Name + " (" + b.MediaType + ") " + b.Blob))
		case "reasoning":
			if shown = show.MaskedLines(b.Text); shown == "" {
				shown = "(not shown by the provider)"
			}
		case "tool_use":
			shown = line(b.ID + " " + b.Name + " " + seen.input(ctx, r.ID, b.Name, b.Input))
		case "tool_result":
			shown = show.MaskedLines(b.ID + " " + b.Content)
		}
		gone := ""
		if m.Evicted {
			gone = ", evicted"
		}
		p.say("\n%s %s, seen %d times%s\n%s", m.Role, b.Type, m.SeenCount, gone, shown)
	}
	return nil
}

type eventsCommand struct {
	Run    string `arg:"" id:"run" help:"The run."`
	After  *int64 `placeholder:"N" help:"Only what came after this sequence."`
	Follow bool   `help:"Go on until the run is done, and carry it on if nobody does."`
	Format string `placeholder:"F" help:"journal (default), canonical, arvo, cowork, forge, agui or aisdk: what an event is."`
}

func (c *eventsCommand) run(ctx context.Context, p *program) error {
	after := ""
	if c.After != nil {
		if *c.After < 0 {
			return usage("--after: got %d, want 0 or more", *c.After)
		}
		after = fmt.Sprint(*c.After)
	}
	to := &eventsShown{p: p, format: c.Format}
	if c.Format == "journal" {
		to.format = ""
	}
	if to.format != "" {
		if _, err := stream.ReadFormat(to.format); err != nil {
			return usage("--format: got %q, want journal, %s", c.Format, strings.Join(stream.Formats(), ", "))
		}
	}
	if c.Follow {
		if _, err := os.Stat(p.home); errors.Is(err, fs.ErrNotExist) {
			return p.nothing()
		}
		err := p.existing(ctx, func(s *session) error { return s.tail(ctx, c.Run, after, to) })
		if err == nil || canceled(ctx, err) {
			return errors.Join(err, to.answer())
		}
		return err
	}
	return p.looking(ctx, func(s *session) error {
		if s == nil {
			return p.nothing()
		}
		if err := s.events(ctx, c.Run, after, to); err != nil {
			return err
		}
		return to.answer()
	})
}

type approvalsCommand struct {
	Status string `placeholder:"S" help:"pending (default), approved, denied, expired, cancelled or voided."`
	Run    string `placeholder:"RUN" id:"run" help:"Only what this run asks."`
	Root   string `placeholder:"RUN" id:"run" help:"Only what this run asks, or one that is carried out for it, however far below."`
}

func (c *approvalsCommand) run(ctx context.Context, p *program) error {
	if c.Status != "" && !approval.Status(c.Status).Valid() {
		return usage("--status: got %q, want pending, approved, denied, expired, cancelled or voided", c.Status)
	}
	return p.looking(ctx, func(s *session) error {
		all, err := s.approvals(ctx, approval.Query{Status: approval.Status(c.Status), Run: c.Run, Root: c.Root})
		if err != nil {
			return err
		}
		if p.json {
			return p.document(api.ApprovalPage{Approvals: all})
		}
		seen := s.views()
		for _, a := range all {
			v, err := seen.of(ctx, a)
			if err != nil {
				return err
			}
			if err := writeApproval(p.stdout, a, v); err != nil {
				return err
			}
			if a.Status == approval.Pending {
				p.say("  %s", strings.Join(p.ways(a), "\n  "))
			}
			p.say("")
		}
		if len(all) == 0 {
			p.say("nothing waits for anybody")
		}
		return nil
	})
}

// approvals lists all requests that fit; of no session, none.
func (s *session) approvals(ctx context.Context, q approval.Query) ([]approval.Approval, error) {
	all := []approval.Approval{}
	q.Limit = 200
	for s != nil {
		page, err := call(ctx, s, func(c *api.Client) (api.ApprovalPage, error) { return c.FindApprovals(ctx, q) })
		if err != nil {
			return nil, err
		}
		all = append(all, page.Approvals...)
		if q.Cursor = page.Cursor; q.Cursor == "" {
			break
		}
	}
	return all, nil
}
