package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/web/api"
)

// askCommand writes to the thread of a request: an approver's question, or the answer of somebody for whom the run
// acts.
type askCommand struct {
	ID   string `arg:"" id:"approval" help:"The approval."`
	Note string `required:"" placeholder:"T" help:"The question, or the answer to one."`
}

func (c *askCommand) run(ctx context.Context, p *program) error {
	return p.withExistingStore(ctx, false, func(s *session) error {
		a, err := s.sendThreadMessage(ctx, c.ID, api.Verdict{Action: api.Reply, Note: c.Note})
		if err != nil {
			return err
		}
		p.printThread(a, func(name, value string) { p.printText("%-10s %s", name, value) })
		return p.printJSON(a)
	})
}

// sendThreadMessage adds a message to a request, which stays open.
func (s *session) sendThreadMessage(ctx context.Context, id string, v api.Verdict) (approval.Approval, error) {
	begun := context.WithoutCancel(ctx) // an interrupt must not leave the outcome unknown
	return callAPI(begun, s, func(c *api.Client) (approval.Approval, error) { return c.Decide(begun, id, v) })
}

// printThread prints the messages of a request.
func (p *program) printThread(a approval.Approval, fact func(name, value string)) {
	for _, m := range a.Thread {
		fact("said", "by "+line(m.By)+" at "+p.stamp(m.At)+": "+quoteText(m.Text))
	}
}

// printThreads prints the messages of the requests that a run waits for.
func (s *session) printThreads(ctx context.Context, r api.Run) error {
	for _, w := range r.Waiting {
		if w.Approval == "" {
			continue
		}
		a, err := callAPI(ctx, s, func(c *api.Client) (approval.Approval, error) { return c.Approval(ctx, w.Approval) })
		if err != nil {
			return err
		}
		s.p.printThread(a, func(name, value string) { s.p.printLine("%-9s %s: %s", name, w.Call, value) })
	}
	return nil
}

// promptQuestion asks at the terminal for a question about a request and sends it.
func (s *session) promptQuestion(ctx context.Context, a approval.Approval) error {
	note, err := s.promptLine(ctx, "what do you want to know? (empty = nothing) ")
	if err != nil || strings.TrimSpace(note) == "" {
		return ignoreEOF(err)
	}
	_, err = s.sendThreadMessage(ctx, a.ID, api.Verdict{Action: api.Ask, Note: note})
	var refused *api.Problem
	if errors.As(err, &refused) {
		s.p.logLine("that is not taken: %s", lines(refused.Detail))
		return nil
	}
	if err == nil {
		s.p.logLine("%-8s %s: it waits until somebody decides", "asked", a.ID)
	}
	return err
}
