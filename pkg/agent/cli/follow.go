package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/api"
	"github.com/countersign/countersign/pkg/agent/runtime"
)

// follower follows one run and tells how it goes.
type follower struct {
	s        *session
	run      string
	last     string // id of the newest event told; "" = none
	seq      int64  // its entry; -1 = none
	progress *progress
}

// follow begins behind the run as it is in r; a run that is only known by its id is told from its beginning.
func (s *session) follow(r api.Run) *follower {
	f := &follower{s: s, run: r.ID, seq: -1, progress: newProgress(s.p, r)}
	if r.Status != "" {
		f.seq, f.last = r.Seq, strconv.FormatInt(r.Seq, 10)
	}
	return f
}

var errLooked = errors.New("the run has come to a point where it may rest")

// untilRest tells what happens until the run is done, or waits and nothing has arrived for it.
func (f *follower) untilRest(ctx context.Context) (api.Run, error) {
	for {
		r, err := f.look(ctx)
		if err != nil || r.Resting() && f.seq >= r.Seq {
			return r, err
		}
		before := f.last
		err = f.s.client.Follow(ctx, f.run, f.last, f.tell)
		if err == nil && f.last == before {
			err = f.s.stalled(ctx, f.run)
		}
		if err == nil || errors.Is(err, errLooked) {
			continue
		}
		if repeat, err := f.s.again(ctx, err); err != nil || !repeat {
			return api.Run{}, err
		}
	}
}

func (f *follower) look(ctx context.Context) (api.Run, error) {
	return call(ctx, f.s, func(c *api.Client) (api.Run, error) { return c.RunWithoutMessages(ctx, f.run) })
}

func (f *follower) tell(e api.Event) error {
	f.last, f.seq = e.ID, e.Seq
	f.progress.event(e)
	if e.Type == "parked" || e.Type == "finished" {
		return errLooked
	}
	return nil
}

// stalled says so when a run goes on no more though it is open: its execution has ended, because what it stores could not be
// written.
func (s *session) stalled(ctx context.Context, run string) error {
	if s.engine == nil {
		return nil
	}
	l, err := s.engine.home.Ports.Journal.Load(ctx, local.Tenant, run)
	if err != nil || l.State.Status == agent.RunDone {
		return err
	}
	status, err := s.engine.home.Ports.Waiter.Status(ctx, l.State.Owner)
	if err != nil || status != runtime.ExecutionEnded {
		return err
	}
	return fmt.Errorf("run %s stands still: its record could not be written; once that is mended, %s", run, s.p.hint("resume"))
}
