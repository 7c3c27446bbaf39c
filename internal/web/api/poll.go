package api

import (
	"context"
	"time"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/stream"
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

// Poll watches runs that other processes write to, by reading the tail of their journals, and the replies that a Live
// keeps. It has no state. Safe for concurrent use.
type Poll struct {
	// Buffered says that buffered responses have replies, too. Each has a reply from its beginning, ends with it, and
	// asks its client to come back after a second.
	Buffered bool

	tail  Tail
	live  store.Table // nil = nobody keeps replies
	clock clock.Clock
}

var _ Watcher = (*Poll)(nil)

// NewPoll makes a Poll. Live is the table of a Live; nil = there is none.
func NewPoll(t Tail, live store.Table, c clock.Clock) *Poll {
	return &Poll{tail: t, live: live, clock: c}
}

// Watch implements Watcher. It reads nothing yet.
func (p *Poll) Watch(tenant, run string) Watch { return &pollWatch{poll: p, tenant: tenant, run: run} }

type pollWatch struct {
	poll        *Poll
	tenant, run string

	wantsDeltas  bool
	seen, deltas []stream.Delta // all that was returned of a reply, and what is to be returned
	moved        bool
}

func (w *pollWatch) Wait(ctx context.Context, seq int64) error {
	pause := firstPollInterval
	for {
		if err := w.poll.clock.Sleep(ctx, pause); err != nil {
			return err
		}
		var fresh, reply []stream.Delta
		var err error
		if w.wantsDeltas { // before the journal: the client needs the entry before the reply
			fresh, reply, err = readLive(ctx, w.poll.live, liveKey(w.tenant, w.run), w.seen)
		}
		if err == nil {
			w.moved, err = w.poll.tail.HasEntry(ctx, w.tenant, w.run, seq+1)
		}
		if err != nil || w.moved {
			return err
		}
		if len(fresh) > 0 {
			w.deltas, w.seen = fresh, reply
			return nil
		}
		pause = min(pause*3/2, lastPollInterval)
	}
}

// TakeDeltas implements deltaWatch.
func (w *pollWatch) TakeDeltas() (pieces []stream.Delta, moved bool) {
	pieces, w.deltas = w.deltas, nil
	return pieces, w.moved
}

func (w *pollWatch) Stop() {}
