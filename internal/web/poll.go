package web

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/stream"
)

// The bounds of what a Live writes of one attempt at a reply. What is beyond them is in the journal's entry alone.
const (
	liveInterval  = time.Second // between two writes; also the timeout of one
	maxLiveWrites = 60
	maxLiveBytes  = 16 << 10
	liveKept      = time.Hour // after that the table may delete what nothing has overwritten or deleted
)

// Live keeps the reply that a model is writing in one item of its run, for the streams of other processes: see Poll.
// The next reply overwrites it; it is deleted with the run, or by the table after an hour. It is for a process that
// asks for one reply at a time, as functions/step does. Safe for concurrent use.
type Live struct {
	table store.Table
	clock clock.Clock
	log   *slog.Logger

	mu      sync.Mutex
	key     store.Key
	pieces  []stream.Delta // of one attempt; only the text of the last one grows
	size    int            // bytes
	writes  int
	last    time.Time // when a write began
	writing bool
}

// NewLive makes a Live.
func NewLive(t store.Table, c clock.Clock, log *slog.Logger) *Live {
	return &Live{table: t, clock: c, log: log}
}

// ReceiveDelta adds a piece to the reply, and begins to write the reply if it is time to. It is an agent.OnDelta.
func (l *Live) ReceiveDelta(r agent.Request, piece agent.Delta) {
	if isInternalText(r) {
		return
	}
	d := stream.Delta{Inference: r.Inference, Attempt: r.Attempt, Delta: piece}
	l.mu.Lock()
	defer l.mu.Unlock()
	if key := liveKey(r.Tenant, r.Run); key != l.key || !isSameAttempt(l.pieces[0], d) {
		l.key, l.pieces, l.size, l.writes, l.last = key, nil, 0, 0, time.Time{}
	}
	n := len(l.pieces)
	joins := n > 0 && l.pieces[n-1].Precedes(d) && l.pieces[n-1].Name == d.Name
	if l.size += len(d.Text); !joins {
		l.size += 64 // its other fields
	}
	switch {
	case l.size > maxLiveBytes && n > 0:
		return
	case joins:
		l.pieces[n-1].Text += d.Text
	default:
		d.Text = strings.ToValidUTF8(d.Text[:min(len(d.Text), maxLiveBytes)], "")
		l.pieces = append(l.pieces, d)
	}
	now := l.clock.Now()
	if l.writing || l.writes == maxLiveWrites || now.Sub(l.last) < liveInterval {
		return
	}
	body, _ := json.Marshal(l.pieces) // texts and numbers always can be
	l.writing, l.last = true, now
	l.writes++
	op := store.Op{Kind: store.Put, Item: store.Item{Key: l.key, Body: body,
		Attrs: map[string]store.Value{"TTL": store.Num(now.Add(liveKept).Unix())}}}
	l.clock.Go(func() {
		ctx, cancel := l.clock.WithTimeout(context.Background(), liveInterval)
		defer cancel()
		if err := l.table.Write(ctx, op); err != nil {
			l.log.Warn("could not write live text", "error", err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.writing = false
	})
}

// liveKey is the key of a run's live text. Its sort key is outside of the ranges that are read of the run.
func liveKey(tenant, run string) store.Key {
	return store.Key{PK: store.RunKey(tenant, run).PK, SK: "LIVE"}
}

func isSameAttempt(a, b stream.Delta) bool {
	return a.Inference == b.Inference && a.Attempt == b.Attempt
}

// readLive returns what the reply that is being written has beyond what was seen of it, and all of it. It returns
// errClosed if that attempt was begun again, after a crash: the client starts anew, too.
func readLive(
	ctx context.Context, t store.Table, k store.Key, seen []stream.Delta,
) (fresh, reply []stream.Delta, err error) {
	it, found, err := t.Get(ctx, k)
	if err != nil || !found {
		return nil, nil, err
	}
	if err := json.Unmarshal(it.Body, &reply); err != nil || len(reply) == 0 {
		return nil, nil, store.Damaged(k, "want pieces of a reply")
	}
	if len(seen) > 0 && !isSameAttempt(reply[0], seen[0]) {
		seen = nil
	}
	if len(reply) < len(seen) {
		return nil, nil, errClosed
	}
	for i, d := range reply {
		if i < len(seen) {
			rest, ok := strings.CutPrefix(d.Text, seen[i].Text)
			if !ok {
				return nil, nil, errClosed
			}
			if d.Text = rest; rest == "" {
				continue
			}
		}
		fresh = append(fresh, d)
	}
	return fresh, reply, nil
}

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

func (w *pollWatch) TakeDeltas() (pieces []stream.Delta, moved bool) {
	pieces, w.deltas = w.deltas, nil
	return pieces, w.moved
}

func (w *pollWatch) Stop() {}
