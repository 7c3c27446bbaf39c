package api

import (
	"context"
	"errors"
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/stream"
)

// Watcher tells streams when a run moves. *Feed is one, where whoever writes to runs is in this process; *Poll is another, where it is
// not. Safe for concurrent use.
type Watcher interface {
	// Watch begins to watch a run. What is written from now on is noticed.
	Watch(tenant, run string) Watch
}

// Watch is one stream's watch over one run. Not safe for concurrent use.
type Watch interface {
	// Moved returns nil when the run may have an entry behind seq, errClosed when the process is about to end, and ctx's error.
	Wait(ctx context.Context, seq int64) error
	// Stop ends the watch. It must be called.
	Stop()
}

// errClosed ends a stream because the process is about to end; its client resumes elsewhere.
var errClosed = errors.New("the feed is closed")

// Feed tells streams that a run has moved: it is the runtime.EventSink of the process whose handler it feeds. Safe for
// concurrent use.
type Feed struct {
	clock    clock.Clock
	mu       sync.Mutex
	watchers map[string]map[*feedWatch]bool // by tenant and run
	closed   bool
}

var _ Watcher = (*Feed)(nil)

// NewFeed makes a feed that nobody watches yet.
func NewFeed(c clock.Clock) *Feed {
	return &Feed{clock: c, watchers: map[string]map[*feedWatch]bool{}}
}

// Committed wakes whoever watches the entry's run.
func (f *Feed) Committed(_ context.Context, _ run.Entry, s *run.AgentState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watchers[s.Tenant+"/"+s.Run] {
		w.moved = true
		w.signal.Notify()
	}
}

// ReceiveDelta tells whoever watches the request's run what its model has just written. It never blocks; a watcher that does not keep up
// misses pieces, all of which are in the reply. It is an agent.OnDelta.
func (f *Feed) ReceiveDelta(r agent.Request, piece agent.Delta) {
	if r.Lifecycle == run.LifecyclePlan || r.Lifecycle == run.LifecycleRoute { // nobody is meant to read that
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watchers[r.Tenant+"/"+r.Run] {
		w.addDelta(stream.Delta{Inference: r.Inference, Attempt: r.Attempt, Delta: piece})
	}
}

// Close ends every stream, those to come too: the process is about to end.
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

func (f *Feed) isClosed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// Watch implements Watcher.
func (f *Feed) Watch(tenant, run string) Watch {
	w := &feedWatch{feed: f, key: tenant + "/" + run, signal: f.clock.NewSignal()}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchers[w.key] == nil {
		f.watchers[w.key] = map[*feedWatch]bool{}
	}
	f.watchers[w.key][w] = true
	return w
}

// feedWatch is notified after every entry of its run.
type feedWatch struct {
	feed   *Feed
	key    string
	signal clock.Signal

	// Behind the feed's lock.
	moved  bool           // since the last Take
	deltas []stream.Delta // since the last Take
	size   int            // bytes of them
}

// The bounds of what a watcher has not taken: pieces of the same are joined, and more bytes, or pieces that differ, are not kept.
const (
	maxSeparateDeltas = 64
	maxDeltas         = 1024
	maxDeltaBytes     = 1 << 20
)

func (w *feedWatch) addDelta(d stream.Delta) {
	size, n := len(d.Text)+len(d.Call)+len(d.Name), len(w.deltas)
	switch {
	case w.size+size > maxDeltaBytes:
		return
	case n >= maxSeparateDeltas && w.deltas[n-1].Precedes(d):
		w.deltas[n-1].Text += d.Text
	case n >= maxDeltas:
		return
	default:
		w.deltas = append(w.deltas, d)
	}
	w.size += size
	w.signal.Notify()
}

// TakeDeltas implements live.
func (w *feedWatch) TakeDeltas() (said []stream.Delta, moved bool) {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	said, moved = w.deltas, w.moved
	w.deltas, w.size, w.moved = nil, 0, false
	return said, moved
}

func (w *feedWatch) Wait(ctx context.Context, _ int64) error {
	if w.feed.isClosed() {
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
