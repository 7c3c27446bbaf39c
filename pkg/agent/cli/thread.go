package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/web/api"
)

type askCommand struct {
	ID   string `arg:"" id:"approval" help:"The approval."`
	Note string `required:"" placeholder:"T" help:"What you want to know."`
}

func (c *askCommand) run(ctx context.Context, p *program) error {
	return p.talk(ctx, c.ID, api.Verdict{Action: api.Ask, Note: c.Note})
}

type replyCommand struct {
	ID   string `arg:"" id:"approval" help:"The approval."`
	Note string `required:"" placeholder:"T" help:"The answer."`
}

func (c *replyCommand) run(ctx context.Context, p *program) error {
	return p.talk(ctx, c.ID, api.Verdict{Action: api.Reply, Note: c.Note})
}

// talk says something of a request, which goes on waiting.
func (p *program) talk(ctx context.Context, id string, v api.Verdict) error {
	return p.looking(ctx, func(s *session) error {
		if s == nil {
			return p.nothing()
		}
		a, err := s.talk(ctx, id, v)
		if err != nil {
			return err
		}
		writeThread(a, func(name, value string) { p.tell("%-10s %s", name, value) })
		return p.answer(a)
	})
}

func (s *session) talk(ctx context.Context, id string, v api.Verdict) (approval.Approval, error) {
	begun := context.WithoutCancel(ctx) // an interrupt must not leave open whether it was said
	return call(begun, s, func(c *api.Client) (approval.Approval, error) { return c.Decide(begun, id, v) })
}

// writeThread shows what people have said of a request.
func writeThread(a approval.Approval, fact func(name, value string)) {
	for _, m := range a.Thread {
		fact("said", "by "+line(m.By)+" at "+stamp(m.At)+": "+text(m.Text))
	}
}

// showThreads shows what people have said of the requests that a run waits for.
func (s *session) showThreads(ctx context.Context, r api.Run) error {
	for _, w := range r.Waiting {
		if w.Approval == "" {
			continue
		}
		a, err := call(ctx, s, func(c *api.Client) (approval.Approval, error) { return c.Approval(ctx, w.Approval) })
		if err != nil {
			return err
		}
		writeThread(a, func(name, value string) { s.p.say("%-9s %s: %s", name, w.Call, value) })
	}
	return nil
}

// askAbout asks the person at the terminal what they want to know of a request, and says it of it.
func (s *session) askAbout(ctx context.Context, a approval.Approval) error {
	note, err := s.prompt(ctx, "what do you want to know? (empty = nothing) ")
	if err != nil || strings.TrimSpace(note) == "" {
		return ignoreEOF(err)
	}
	_, err = s.talk(ctx, a.ID, api.Verdict{Action: api.Ask, Note: note})
	var refused *api.Problem
	if errors.As(err, &refused) {
		s.p.note("that is not taken: %s", lines(refused.Detail))
		return nil
	}
	if err == nil {
		s.p.note("%-8s %s: it waits until somebody decides", "asked", a.ID)
	}
	return err
}
