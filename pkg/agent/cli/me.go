package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/web/api"
	"github.com/countersign/countersign/pkg/agent/agentfile"
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

type preferencesCommand struct {
	Notify string `placeholder:"CHANNELS" help:"Be told by these: email, slack or both, in order and with a comma between them; none; or default, as the directory of people has it."`
}

func (c *preferencesCommand) run(ctx context.Context, p *program) error {
	var wanted person.Preferences
	switch c.Notify {
	case "", "default":
	case "none":
		wanted.Notify = []string{}
	default:
		wanted.Notify = strings.Split(c.Notify, ",")
	}
	if err := wanted.Check(); err != nil {
		return usage("preferences: %v", err)
	}
	if c.Notify == "" {
		return p.looking(ctx, func(s *session) error {
			if s == nil {
				as, err := p.acting()
				return p.tellPreferences(as, person.Preferences{}, err)
			}
			got, err := call(ctx, s, func(cl *api.Client) (person.Preferences, error) { return cl.Preferences(ctx) })
			return p.tellPreferences(s.as, got, err)
		})
	}
	return p.with(ctx, false, func(s *session) error {
		got, err := call(ctx, s, func(cl *api.Client) (person.Preferences, error) { return cl.Prefer(ctx, wanted) })
		return p.tellPreferences(s.as, got, err)
	})
}

// tellPreferences shows what somebody has said, unless it could not be read.
func (p *program) tellPreferences(as agent.Principal, got person.Preferences, err error) error {
	if err != nil {
		return err
	}
	switch {
	case got.Notify == nil:
		p.tell("%s is told of requests as the directory of people has it", as.ID)
	case len(got.Notify) == 0:
		p.tell("%s is told of no requests", as.ID)
	default:
		p.tell("%s is told of requests by %s", as.ID, strings.Join(got.Notify, ", then "))
	}
	return p.answer(got)
}

type dutiesCommand struct {
	List dutiesListCommand `cmd:"" default:"1" help:"List who decides in your place, and in whose you do (default)."`
	Give dutiesGiveCommand `cmd:"" help:"Let another decide in your place, for a time."`
	End  dutiesEndCommand  `cmd:"" help:"End a duty that you have given or were given."`
}

type dutiesListCommand struct{}

func (*dutiesListCommand) run(ctx context.Context, p *program) error {
	return p.looking(ctx, func(s *session) error {
		list := api.DutyList{Given: []person.Duty{}, Received: []person.Duty{}}
		var as agent.Principal
		var err error
		if s == nil {
			as, err = p.acting()
		} else {
			as = s.as
			list, err = call(ctx, s, func(c *api.Client) (api.DutyList, error) { return c.Duties(ctx) })
		}
		if err != nil {
			return err
		}
		if s != nil {
			s.list(list.Unread)
		}
		for _, d := range slices.Concat(list.Given, list.Received) {
			p.tellDuty(d)
		}
		if len(list.Given)+len(list.Received) == 0 {
			p.tell("nobody decides for %s, nor they for anybody", as.ID)
		}
		return p.answer(list)
	})
}

func (p *program) tellDuty(d person.Duty) {
	p.tell("%s decides for %s from %s until %s%s", d.To, d.By, stamp(d.From), stamp(d.Until), noteOf(d.Note))
	p.tell("  groups     %s", cmp.Or(strings.Join(d.Groups, ", "), "nobody"))
	p.tell("  %s", p.hint("duties", "end", d.ID))
}

type dutiesGiveCommand struct {
	To    string `arg:"" help:"Who decides meanwhile: user:NAME."`
	From  string `placeholder:"WHEN" help:"From when: 2026-08-01, at the beginning of the day (UTC), or 2026-08-01T09:00:00Z (default: now)."`
	Until string `required:"" placeholder:"WHEN" help:"Until when, written alike: not on that day any more; or how long, such as 2d or 12h."`
	Note  string `placeholder:"T" help:"Kept with the duty."`
}

func (c *dutiesGiveCommand) run(ctx context.Context, p *program) error {
	from := p.clock.Now().UTC().Truncate(time.Millisecond) // the same however often it is said
	f := api.DutyForm{To: c.To, From: &from, Note: c.Note}
	var err error
	if c.From != "" {
		if from, err = readTime("--from", c.From); err != nil {
			return err
		}
	}
	if long, durationErr := agentfile.ParseDuration(c.Until); durationErr == nil && long > 0 {
		f.Until = from.Add(long)
	} else if f.Until, err = readTime("--until", c.Until); err != nil {
		return err
	}
	return p.with(ctx, false, func(s *session) error {
		if err := s.who.knows(c.To); err != nil {
			return usage("duties give: to: %v", err)
		}
		begun := context.WithoutCancel(ctx) // an interrupt must not leave open whether it was given
		d, err := call(begun, s, func(cl *api.Client) (person.Duty, error) { return cl.GiveDuty(begun, f) })
		if err != nil {
			return err
		}
		p.tellDuty(d)
		return p.answer(d)
	})
}

// readTime reads a day, or a time with its zone.
func readTime(flag, s string) (time.Time, error) {
	day, dayErr := time.Parse(time.DateOnly, s)
	at, err := time.Parse(time.RFC3339, s)
	switch {
	case dayErr == nil:
		return day, nil
	case err != nil || at.IsZero():
		also := ""
		if flag == "--until" {
			also = ", or a duration as 2d"
		}
		return at, usage("%s: got %q, want a day as 2026-08-01 or a time as 2026-08-01T09:00:00Z%s", flag, s, also)
	}
	return at.UTC(), nil
}

type dutiesEndCommand struct {
	ID string `arg:"" help:"The duty."`
}

// ended is the JSON document of duties end.
type endedDuty struct {
	ID    string `json:"id"`
	Ended bool   `json:"ended"`
}

func (c *dutiesEndCommand) run(ctx context.Context, p *program) error {
	return p.looking(ctx, func(s *session) error {
		if s == nil {
			return p.nothing()
		}
		begun := context.WithoutCancel(ctx)
		_, err := call(begun, s, func(cl *api.Client) (struct{}, error) { return struct{}{}, cl.EndDuty(begun, c.ID) })
		if err != nil {
			return err
		}
		p.tell("nobody decides by %s any more", c.ID)
		return p.answer(endedDuty{c.ID, true})
	})
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
