package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/web/api"
)

// repairsCommand lists what was repaired.
type repairsCommand struct{}

// listPage is how many repairs, or runs in quarantine, are asked for at once.
const listPage = 200

func (*repairsCommand) run(ctx context.Context, p *program) error {
	return p.looking(ctx, func(s *session) error {
		all, err := s.repairs(ctx)
		if err != nil {
			return err
		}
		for _, r := range all {
			p.tell("%s  %-11s  run %s at entry %d  %s", stamp(r.At), r.Kind, r.Run, r.Seq, line(r.Of))
		}
		if len(all) == 0 {
			p.tell("nothing was repaired")
		}
		return p.answer(api.RepairPage{Repairs: all, Unread: s.unreadItems()})
	})
}

// repairs lists all repairs; of no session, none.
func (s *session) repairs(ctx context.Context) ([]runtime.Repaired, error) {
	all, cursor := []runtime.Repaired{}, ""
	for s != nil {
		page, err := call(ctx, s, func(c *api.Client) (api.RepairPage, error) { return c.Repairs(ctx, cursor, listPage) })
		if err != nil {
			return nil, err
		}
		all = append(all, page.Repairs...)
		s.list(page.Unread)
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	return all, nil
}

// restoreCommand is what an operator does about a store that was put back from an older copy.
type restoreCommand struct {
	Mark    restoreMarkCommand    `cmd:"" help:"Say that the store was restored from an older copy: every open run is quarantined. Before anything carries runs on."`
	List    restoreListCommand    `cmd:"" help:"List runs in quarantine, and the calls that run once they are released."`
	Release restoreReleaseCommand `cmd:"" help:"Let a run out of quarantine and carry it on. To end it instead: cancel RUN."`
}

type restoreMarkCommand struct {
	At string `required:"" placeholder:"TIME" help:"When the copy had been made, as 2006-01-02T15:04:05Z."`
}

func (c *restoreMarkCommand) run(ctx context.Context, p *program) error {
	at, err := time.Parse(time.RFC3339, c.At)
	if err != nil {
		return usage("--at: got %q, want a time as 2006-01-02T15:04:05Z", c.At)
	}
	return p.looking(ctx, func(s *session) error {
		switch {
		case s == nil:
			return p.nothing()
		case s.engine == nil:
			return fmt.Errorf("restore mark: another process has the store and may carry runs on: end it first, then restore the store again")
		}
		m, err := s.engine.home.Restored(ctx, local.Tenant, at, s.as.ID)
		if err != nil {
			return err
		}
		p.tell("%d runs are in quarantine (%s)", m.Quarantined, p.hint("restore", "list"))
		if m.Damaged > 0 {
			p.tell("%d runs cannot be read: what is stored of them is damaged, and nobody goes on with them", m.Damaged)
		}
		return p.answer(m)
	})
}

type restoreListCommand struct{}

func (*restoreListCommand) run(ctx context.Context, p *program) error {
	return p.looking(ctx, func(s *session) error {
		all, err := s.quarantined(ctx)
		if err != nil {
			return err
		}
		for _, r := range all {
			p.tellQuarantined(r)
		}
		if len(all) == 0 {
			p.tell("no run is in quarantine")
		}
		return p.answer(api.QuarantinePage{Runs: all, Unread: s.unreadItems()})
	})
}

// quarantined lists all runs in quarantine; of no session, none.
func (s *session) quarantined(ctx context.Context) ([]api.QuarantinedRun, error) {
	all, cursor := []api.QuarantinedRun{}, ""
	for s != nil {
		page, err := call(ctx, s, func(c *api.Client) (api.QuarantinePage, error) { return c.Quarantine(ctx, cursor, listPage) })
		if err != nil {
			return nil, err
		}
		all = append(all, page.Runs...)
		s.list(page.Unread)
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	return all, nil
}

func (p *program) tellQuarantined(r api.QuarantinedRun) {
	p.tell("run %s of %s at entry %d: %s since %s, ends %s", r.ID, line(r.Agent), r.Seq, r.Quarantine.Why, stamp(r.Quarantine.Since), stamp(r.Quarantine.Expires))
	var calls []string
	for _, c := range r.Calls {
		calls = append(calls, fmt.Sprintf("%s %s (%s)", line(c.ID), line(c.Tool), c.Status))
	}
	if len(calls) > 0 {
		p.tell("  may have run already: %s", strings.Join(calls, ", "))
	}
	p.tell("  %s", p.hint("restore", "release", r.ID))
	p.tell("  %s", p.hint("cancel", r.ID))
}

type restoreReleaseCommand struct {
	Run  string `arg:"" id:"run" help:"The run."`
	Note string `placeholder:"T" help:"Why it may go on."`
}

func (c *restoreReleaseCommand) run(ctx context.Context, p *program) error {
	return p.existing(ctx, func(s *session) error {
		return s.launch(ctx, func(ctx context.Context, cl *api.Client) (api.Accepted, error) { return cl.Release(ctx, c.Run, c.Note) }, s.terminal())
	})
}
