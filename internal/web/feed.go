package web

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/stream"
)

// Watcher tells streams when a run has new entries. *Feed works if the writers of runs are in this process, *Poll
// otherwise. Safe for concurrent use.
type Watcher interface {
	// Watch starts to watch a run for entries written from now on.
	Watch(tenant, run string) Watch
}

// Watch watches one run for one stream. Not safe for concurrent use.
type Watch interface {
	// Wait returns nil when the run may have an entry behind seq, errClosed when the process is ending, or ctx's error.
	Wait(ctx context.Context, seq int64) error
	// TakeDeltas returns what models have written since the last call, and whether there may be a new entry.
	TakeDeltas() (deltas []stream.Delta, moved bool)
	// Stop ends the watch. It must be called.
	Stop()
}

// errClosed ends a stream because the process is ending; the client resumes elsewhere.
var errClosed = errors.New("the feed is closed")

// Feed notifies streams of new entries. It is the runtime.EventSink of the process. Safe for concurrent use.
type Feed struct {
	clock    clock.Clock
	mu       sync.Mutex
	watchers map[string]map[*feedWatch]bool // by tenant and run
	writing  map[string]*deltas             // the newest reply that has no entry yet, by tenant and run
	closed   bool
}

// NewFeed returns a feed without watchers.
func NewFeed(c clock.Clock) *Feed {
	return &Feed{clock: c, watchers: map[string]map[*feedWatch]bool{}, writing: map[string]*deltas{}}
}

// Committed wakes the watchers of the entry's run.
func (f *Feed) Committed(_ context.Context, _ run.Entry, s *run.AgentState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := s.Tenant + "/" + s.Run
	if reply := f.writing[key]; reply != nil && (s.Status == run.RunDone || reply.pieces[0].Inference <= s.Replies()) {
		delete(f.writing, key)
	}
	for w := range f.watchers[key] {
		w.moved = true
		w.signal.Notify()
	}
}

// ReceiveDelta passes a piece of a model's reply to the watchers of its run. It never blocks. A slow watcher misses
// pieces, but the reply in the journal has all of them. It is an agent.OnDelta.
func (f *Feed) ReceiveDelta(r agent.Request, piece agent.Delta) {
	if isInternalText(r) {
		return
	}
	d := stream.Delta{Inference: r.Inference, Attempt: r.Attempt, Delta: piece}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := r.Tenant + "/" + r.Run
	if reply := f.writing[key]; reply == nil || !isSameAttempt(reply.pieces[0], d) {
		f.writing[key] = &deltas{}
	}
	f.writing[key].add(d)
	for w := range f.watchers[key] {
		w.add(d)
		w.signal.Notify()
	}
}

// isInternalText reports whether a request's reply is for no client.
func isInternalText(r agent.Request) bool {
	return r.Lifecycle == run.LifecyclePlan || r.Lifecycle == run.LifecycleRoute
}

// Close ends all streams, future ones too.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, watchers := range f.watchers {
		for w := range watchers {
			w.signal.Notify()
		}
	}
}

// Watch implements Watcher. The watch begins with the pieces of the reply that is being written.
func (f *Feed) Watch(tenant, run string) Watch {
	w := &feedWatch{feed: f, key: tenant + "/" + run, signal: f.clock.NewSignal()}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchers[w.key] == nil {
		f.watchers[w.key] = map[*feedWatch]bool{}
	}
	f.watchers[w.key][w] = true
	if reply := f.writing[w.key]; reply != nil {
		w.deltas = deltas{slices.Clone(reply.pieces), reply.size}
		w.signal.Notify()
	}
	return w
}

// feedWatch is notified after every entry of its run.
type feedWatch struct {
	feed   *Feed
	key    string
	signal clock.Signal

	// Guarded by the feed's mutex. Both are since the last TakeDeltas.
	moved bool
	deltas
}

// deltas are pieces of replies, within bounds. Beyond maxSeparateDeltas, pieces of the same text are joined; beyond the
// other two, pieces are dropped.
type deltas struct {
	pieces []stream.Delta
	size   int // bytes
}

const (
	maxSeparateDeltas = 64
	maxDeltas         = 1024
	maxDeltaBytes     = 1 << 20
)

func (p *deltas) add(d stream.Delta) {
	size, n := len(d.Text)+len(d.Call)+len(d.Name), len(p.pieces)
	switch {
	case p.size+size > maxDeltaBytes && n > 0:
		return
	case n >= maxSeparateDeltas && p.pieces[n-1].Precedes(d):
		p.pieces[n-1].Text += d.Text
	case n >= maxDeltas:
		return
	default:
		p.pieces = append(p.pieces, d)
	}
	p.size += size
}

func (w *feedWatch) TakeDeltas() (pieces []stream.Delta, moved bool) {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	pieces, moved = w.pieces, w.moved
	w.deltas, w.moved = deltas{}, false
	return pieces, moved
}

func (w *feedWatch) Wait(ctx context.Context, _ int64) error {
	w.feed.mu.Lock()
	closed := w.feed.closed
	w.feed.mu.Unlock()
	if closed {
		return errClosed
	}
	return w.signal.Wait(ctx, 0)
}

func (w *feedWatch) Stop() {
	f := w.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers[w.key], w)
	if len(f.watchers[w.key]) == 0 {
		delete(f.watchers, w.key)
	}
}
