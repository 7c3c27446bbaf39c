package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

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
	seen := s.views()
	f.progress.input = func(name string, input json.RawMessage) string {
		return seen.input(context.Background(), r.ID, name, input) // bounded by the program's patience
	}
	f.progress.known = func() []api.Call {
		ctx, cancel := s.p.clock.WithTimeout(context.Background(), s.p.patience)
		defer cancel()
		whole, err := s.client.Run(ctx, r.ID)
		if err != nil { // a name that is not told is no reason to stop following
			return nil
		}
		return whole.Calls
	}
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
		if err := f.listen(ctx); err != nil {
			return api.Run{}, err
		}
	}
}

// glance is how often a run that is silent is looked at, where the engine is in this process.
const glance = time.Second

// listen tells what comes until it is time to look at the run.
func (f *follower) listen(ctx context.Context) error {
	before, window := f.last, ctx
	if f.s.engine != nil {
		var cancel context.CancelFunc
		window, cancel = f.s.p.clock.WithTimeout(ctx, glance)
		defer cancel()
	}
	err := f.s.client.Follow(window, f.run, f.last, f.tell)
	switch {
	case errors.Is(err, errLooked):
		return nil
	case err == nil, window.Err() != nil && ctx.Err() == nil:
		if f.last == before {
			return f.s.stalled(ctx, f.run)
		}
		return nil
	default:
		_, err = f.s.again(ctx, err)
		return err
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

// stalled says so when a run goes on no more though it is open: its execution has given up, because what it owes cannot be read or
// written, or stands still, because this process does not know the agent that a call is for.
func (s *session) stalled(ctx context.Context, run string) error {
	if s.engine == nil {
		return nil
	}
	before, err := s.engine.home.Ports.Journal.Head(ctx, local.Tenant, run)
	if err != nil || before.Status == agent.RunDone {
		return err
	}
	if err := s.engine.home.StandsStill(before.Owner); err != nil {
		return fmt.Errorf("run %s is not carried on by this process: %w; %s carries it on where the agent is registered, or is in ./%s or ./agents/*/%s",
			run, err, s.p.hint("resume"), agentFile, agentFile)
	}
	status, err := s.engine.home.Ports.Waiter.Status(ctx, before.Owner)
	if err != nil || status != runtime.ExecutionEnded && status != runtime.ExecutionSucceeded {
		return err
	}
	after, err := s.engine.home.Ports.Journal.Head(ctx, local.Tenant, run)
	if err != nil || !after.Equal(before) { // it has ended, or been handed over, while we looked
		return err
	}
	return fmt.Errorf("run %s stands still: its execution has given up; once what troubled it is mended, %s carries it on", run, s.p.hint("resume"))
}
