package api

import (
	"context"
	"time"

	"github.com/countersign/countersign/internal/clock"
)

// Poll intervals after the newest known entry: they grow from the first to the last.
const (
	firstPollInterval = 500 * time.Millisecond
	lastPollInterval  = 2 * time.Second
)

// Tail reports whether a run has an entry of a sequence, by one consistent read; *store.Journal implements it.
type Tail interface {
	HasEntry(ctx context.Context, tenant, run string, seq int64) (bool, error)
}

// Poll watches runs that other processes write to, by reading the tail of their journals. It has no state. Safe for
// concurrent use.
type Poll struct {
	tail  Tail
	clock clock.Clock
}

var _ Watcher = (*Poll)(nil)

// NewPoll makes a Poll.
func NewPoll(t Tail, c clock.Clock) *Poll { return &Poll{tail: t, clock: c} }

// Watch implements Watcher. It reads nothing yet.
func (p *Poll) Watch(tenant, run string) Watch { return &pollWatch{poll: p, tenant: tenant, run: run} }

type pollWatch struct {
	poll        *Poll
	tenant, run string
}

func (w *pollWatch) Wait(ctx context.Context, seq int64) error {
	pause := firstPollInterval
	for {
		if err := w.poll.clock.Sleep(ctx, pause); err != nil {
			return err
		}
		if there, err := w.poll.tail.HasEntry(ctx, w.tenant, w.run, seq+1); err != nil || there {
			return err
		}
		pause = min(pause*3/2, lastPollInterval)
	}
}

func (w *pollWatch) Stop() {}
