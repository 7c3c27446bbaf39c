package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/web"
	"github.com/countersign/countersign/internal/web/stream"
)

// withReadSession runs f in a session that changes nothing. Without a store it creates none and calls f with nil.
func (p *program) withReadSession(ctx context.Context, f func(s *session) error) error {
	if _, err := os.Stat(p.home); errors.Is(err, fs.ErrNotExist) {
		return f(nil)
	}
	return p.withSession(ctx, f)
}

// withExistingStore runs f in a session that carries on the family of a run; "" = none. Without a store it returns an
// error and creates none.
func (p *program) withExistingStore(ctx context.Context, run string, f func(s *session) error) error {
	if _, err := os.Stat(p.home); errors.Is(err, fs.ErrNotExist) {
		return usageErrorf("there is no store in %s: nothing has run there yet (--home or COUNTERSIGN_HOME name another)",
			p.home)
	}
	return p.withSession(ctx, func(s *session) error {
		if err := s.carryOn(ctx, run); err != nil {
			return err
		}
		return f(s)
	})
}

type runsCommand struct {
	Status string `placeholder:"S" help:"Only these: running, waiting or done."`
	Agent  string `placeholder:"A" help:"Only runs of this agent."`
	Root   string `placeholder:"RUN" id:"run" help:"Only runs below this one."`

	Repaired bool `help:"List what was repaired of runs, when and how."` // in place of runs
}

func (c *runsCommand) run(ctx context.Context, p *program) error {
	if c.Repaired {
		if c.Status+c.Agent+c.Root != "" {
			return usageErrorf("--repaired: want it alone: it lists repairs of all runs")
		}
		return printList(ctx, p, "nothing was repaired", func(s *session) ([]runtime.Repaired, error) {
			return listAll(ctx, s, func(c *web.Client, cursor string) (web.Page[runtime.Repaired], error) {
				return c.Repairs(ctx, cursor, pageSize)
			})
		}, func(r runtime.Repaired) {
			p.printText("%s  %-11s  run %s at entry %d  %s", p.stamp(r.At), r.Kind, r.Run, r.Seq, line(r.Of))
		})
	}
	if c.Status != "" && !run.RunStatus(c.Status).Valid() {
		return usageErrorf("--status: got %q, want running, waiting or done", c.Status)
	}
	return printList(ctx, p, "no runs", func(s *session) ([]web.RunHead, error) {
		return s.listRuns(ctx, web.RunQuery{Status: c.Status, Agent: c.Agent, Root: c.Root})
	}, func(h web.RunHead) {
		p.printText("%s  %-8s %-28s %-20s %s", h.ID, h.Status, h.Reason, line(h.Agent), p.stamp(h.StartedAt))
	})
}

// printList prints the items that read returns, or that there are none. Its JSON document is one page of all of them.
func printList[T any](
	ctx context.Context, p *program, none string, read func(s *session) ([]T, error), print func(T),
) error {
	return p.withReadSession(ctx, func(s *session) error {
		all, err := read(s)
		if err != nil {
			return err
		}
		for _, one := range all {
			print(one)
		}
		if len(all) == 0 {
			p.printText("%s", none)
		}
		return p.printJSON(web.Page[T]{Items: all})
	})
}

type showCommand struct {
	Run      string `arg:"" id:"run" help:"The run."`
	Messages bool   `help:"Show the conversation, too."`
}

func (c *showCommand) run(ctx context.Context, p *program) error {
	return p.withExistingStore(ctx, "", func(s *session) error {
		r, err := s.loadRun(ctx, c.Run)
		if err != nil {
			return err
		}
		if c.Messages {
			r.Messages, err = listAll(ctx, s, func(cl *web.Client, cursor string) (web.Page[web.Message], error) {
				return cl.Messages(ctx, c.Run, cursor, pageSize)
			})
			if err != nil {
				return err
			}
		}
		if p.json {
			return p.writeJSON(r)
		}
		definitions := s.newDefinitionCache()
		p.printRun(ctx, definitions, r)
		if err := s.printThreads(ctx, r); err != nil {
			return err
		}
		if err := s.printTree(ctx, r); err != nil {
			return err
		}
		if c.Messages {
			return p.printMessages(ctx, definitions, r)
		}
		return nil
	})
}

func (p *program) printRun(ctx context.Context, definitions *definitionCache, r web.Run) {
	fact := func(name, format string, args ...any) { p.printLine("%-9s %s", name, fmt.Sprintf(format, args...)) }
	fact("run", "%s", r.ID)
	fact("agent", "%s", line(strings.TrimSpace(r.Agent+" "+r.Version)))
	fact("status", "%s", strings.TrimSpace(string(r.Status)+" "+string(r.Reason)+" "+line(r.Detail)))
	if cut := cutNote(r); cut != "" {
		fact("cut", "%s", cut)
	}
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
	fact("started", "%s", p.stamp(r.StartedAt))
	if len(r.StartedBy) > 0 {
		fact("by", "%s", line(strings.Join(r.StartedBy, ", ")))
	}
	if r.Subject != "" && !slices.Contains(r.StartedBy, r.Subject) {
		fact("claim", "the caller says (not checked): the run is for %s", quoteText(r.Subject))
	}
	if !r.EndedAt.IsZero() {
		fact("ended", "%s", p.stamp(r.EndedAt))
	}
	fact("model", "%s, %d of %s, %s", counted(r.ModelCalls, "request"), r.Interactions.Current,
		counted(r.Interactions.Max, "interaction"), formatUsage(r.Usage, 0))
	for _, c := range r.Calls {
		whole := ""
		if c.Whole != nil { // the conversation holds only a part of the result
			whole = fmt.Sprintf(", all %d characters in blob %s", c.Whole.Chars, c.Whole.Blob)
		}
		fact("call", "%s %s %s%s", c.ID, line(c.Tool), strings.TrimSpace(string(c.Status)+" "+string(c.Reason)), whole)
		if c.Undoes != "" {
			fact("undoes", "%s of run %s", line(c.Undoes), r.Continues)
		}
		if c.Undo != nil {
			fact("undo", "%s", p.formatUndo(ctx, definitions, r.ID, c))
		}
	}
	if n := len(r.Queued); n > 0 {
		fact("queued", "%s, until the calls have their results", counted(n, "message"))
	}
	for _, w := range r.Waiting {
		fact("waits", "%s for %s until %s", w.Call, strings.TrimSpace(string(w.For)+" "+w.Approval), p.stamp(w.Expires))
		if w.Ticket != nil && w.Ticket.Message != "" {
			fact("asks", "%s (not to be trusted)", quoteText(w.Ticket.Message))
		}
	}
	for _, v := range r.Servers {
		p.printServer(v, fact)
	}
	if r.Summary != "" {
		fact("summary", "%s", people.MaskedLines(r.Summary))
	}
	if state := string(r.State); state != "" && state != "{}" {
		fact("state", "%s", people.MaskedJSON(r.State))
	}
	if out := formatOutput(r.Output); out != "" {
		fact("output", "%s", out)
	}
}

func (p *program) printMessages(ctx context.Context, definitions *definitionCache, r web.Run) error {
	for _, m := range slices.Concat(r.Messages, r.Queued) {
		var b struct {
			Type, Text, Name, ID, MediaType, Blob, Content string
			Input                                          json.RawMessage
		}
		if err := json.Unmarshal(m.Content, &b); err != nil {
			return fmt.Errorf("show message of run %s: %w", r.ID, err)
		}
		shown := ""
		switch b.Type {
		case "text":
			shown = people.MaskedLines(b.Text)
		case "media":
			shown = line(strings.TrimSpace(b.Name + " (" + b.MediaType + ") " + b.Blob))
		case "reasoning":
			if shown = people.MaskedLines(b.Text); shown == "" {
				shown = "(not shown by the provider)"
			}
		case "tool_use":
			shown = line(b.ID + " " + b.Name + " " + definitions.maskInput(ctx, r.ID, b.Name, b.Input))
		case "tool_result":
			shown = people.MaskedLines(b.ID + " " + b.Content)
		}
		gone := ""
		if m.Evicted {
			gone = ", evicted"
		}
		p.printLine("\n%s %s, seen %s%s\n%s", m.Role, b.Type, counted(m.SeenCount, "time"), gone, shown)
	}
	return nil
}

type approvalsCommand struct {
	Status string `placeholder:"S" help:"pending (default), approved, denied, expired, cancelled or voided."`
	Run    string `placeholder:"RUN" id:"run" help:"Only what this run asks."`
	Root   string `placeholder:"RUN" id:"run" help:"Only what this run and those below it ask."`
}

func (c *approvalsCommand) run(ctx context.Context, p *program) error {
	if c.Status != "" && !approval.Status(c.Status).Valid() {
		return usageErrorf("--status: got %q, want pending, approved, denied, expired, cancelled or voided", c.Status)
	}
	return p.withReadSession(ctx, func(s *session) error {
		all, err := s.listApprovals(ctx, approval.Query{Status: approval.Status(c.Status), Run: c.Run, Root: c.Root})
		if err != nil {
			return err
		}
		if p.json {
			return p.writeJSON(web.Page[approval.Approval]{Items: all})
		}
		definitions := s.newDefinitionCache()
		for _, a := range all {
			v, err := definitions.loadView(ctx, a)
			if err != nil {
				return err
			}
			if err := writeApproval(p.stdout, a, v); err != nil {
				return err
			}
			if a.Status == approval.Pending {
				p.printLine("  %s", strings.Join(p.answerCommands(a), "\n  "))
			}
			p.printLine("")
		}
		switch {
		case len(all) > 0:
		case c.Status == "" || c.Status == string(approval.Pending):
			p.printLine("nothing waits for anybody")
		default:
			p.printLine("no approval is %s", c.Status)
		}
		return nil
	})
}

const journalFormat = "journal" // of events that the command line shows with their time and type

type eventsCommand struct {
	Run    string `arg:"" id:"run" help:"The run."`
	After  *int64 `placeholder:"N" help:"Only what came after this sequence."`
	Follow bool   `help:"Go on until the run is done, and carry it on if nobody does."`
	Format string `default:"journal" help:"journal, canonical, arvo, cowork, forge, agui or aisdk."`
}

func (c *eventsCommand) run(ctx context.Context, p *program) error {
	to := &eventPrinter{p: p, format: c.Format, events: []json.RawMessage{}}
	if c.After != nil {
		if *c.After < 0 {
			return usageErrorf("--after: got %d, want 0 or more", *c.After)
		}
		to.last = fmt.Sprint(*c.After)
	}
	if c.Format != journalFormat && !stream.Format(c.Format).Valid() {
		return usageErrorf("--format: got %q, want journal, %s", c.Format, strings.Join(stream.Formats(), ", "))
	}
	if c.Follow {
		err := p.withExistingStore(ctx, c.Run, func(s *session) error { return to.follow(ctx, s, c.Run) })
		if err == nil || isInterrupted(ctx, err) {
			return errors.Join(err, p.printJSON(web.Page[json.RawMessage]{Items: to.events}))
		}
		return err
	}
	return p.withExistingStore(ctx, "", func(s *session) error {
		for cursor := to.last; ; {
			page, err := callAPI(ctx, s, func(cl *web.Client) (web.Page[json.RawMessage], error) {
				return cl.EncodedEvents(ctx, c.Run, c.Format, cursor, pageSize)
			})
			if err != nil {
				return err
			}
			for _, e := range page.Items {
				var at struct {
					ID    string      `json:"id"`
					Seq   json.Number `json:"seq"`
					Index json.Number `json:"index"`
				}
				if err := json.Unmarshal(e, &at); err != nil {
					return fmt.Errorf("read event: %w", err)
				}
				id := cmp.Or(at.ID, string(at.Seq+"."+at.Index))
				if c.Format == string(stream.Agui) || c.Format == string(stream.Aisdk) {
					id = "-" // these forms have ids of messages, and their place in the run only in streams
				}
				if err := to.print(id, e); err != nil {
					return err
				}
			}
			if cursor = page.Cursor; cursor == "" {
				return p.printJSON(web.Page[json.RawMessage]{Items: to.events})
			}
		}
	})
}

// eventPrinter prints events as they come, one line each, and collects those with an id for the JSON document.
type eventPrinter struct {
	p      *program
	format string
	last   string // id of the newest printed event, or of the one to begin behind; "" = begin at the start
	events []json.RawMessage
}

// print prints an event. Live pieces of text have no id.
func (to *eventPrinter) print(id string, e json.RawMessage) error {
	if to.format == journalFormat {
		var fact web.Event
		if err := json.Unmarshal(e, &fact); err != nil {
			return fmt.Errorf("read event: %w", err)
		}
		to.p.printText("%-8s %s %-14s %s", id, to.p.stamp(fact.At), fact.Type, people.MaskedJSON(fact.Data))
	} else {
		to.p.printText("%-8s %s", id, people.MaskedJSON(e))
	}
	if id != "" {
		to.last = id
		to.events = append(to.events, e)
	}
	return nil
}

// follow prints events as they come, until the run is done.
func (to *eventPrinter) follow(ctx context.Context, s *session, runID string) error {
	for {
		r, err := s.loadHead(ctx, runID)
		if err != nil {
			return err
		}
		err = s.client.FollowEncoded(ctx, runID, to.format, to.last, to.print)
		if err == nil && r.Status == run.RunDone {
			return nil
		}
		if _, err := s.reconnect(ctx, err); err != nil {
			return err
		}
	}
}
