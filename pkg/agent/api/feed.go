package api

import (
	"context"
	"errors"
	"sync"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/clock"
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
	Moved(ctx context.Context, seq int64) error
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
	watchers map[string]map[clock.Signal]bool // by tenant and run
	closed   bool
}

var _ Watcher = (*Feed)(nil)

// NewFeed makes a feed that nobody watches yet.
func NewFeed(c clock.Clock) *Feed {
	return &Feed{clock: c, watchers: map[string]map[clock.Signal]bool{}}
}

// Committed wakes whoever watches the entry's run.
func (f *Feed) Committed(_ context.Context, _ agent.Entry, s *agent.AgentState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for signal := range f.watchers[s.Tenant+"/"+s.Run] {
		signal.Notify()
	}
}

// Close ends every stream, those to come too: the process is about to end.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, signals := range f.watchers {
		for signal := range signals {
			signal.Notify()
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
		f.watchers[w.key] = map[clock.Signal]bool{}
	}
	f.watchers[w.key][w.signal] = true
	return w
}

// feedWatch is notified after every entry of its run.
type feedWatch struct {
	feed   *Feed
	key    string
	signal clock.Signal
}

func (w *feedWatch) Moved(ctx context.Context, _ int64) error {
	if w.feed.isClosed() {
		return errClosed
	}
	return w.signal.Wait(ctx, 0)
}

func (w *feedWatch) Stop() {
	f := w.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers[w.key], w.signal)
	if len(f.watchers[w.key]) == 0 {
		delete(f.watchers, w.key)
	}
}
