package api

import (
	"context"
	"sync"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/clock"
)

// Feed tells streams that a run has moved: it is the runtime.EventSink of the process whose handler it feeds. Safe for
// concurrent use.
type Feed struct {
	clock    clock.Clock
	mu       sync.Mutex
	watchers map[string]map[clock.Signal]bool // by tenant and run
	closed   bool
}

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

// Watch gives a signal that is notified after every entry of the run from now on. Stop must be called when nobody waits for it any more.
func (f *Feed) Watch(tenant, run string) (signal clock.Signal, stop func()) {
	key := tenant + "/" + run
	signal = f.clock.NewSignal()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchers[key] == nil {
		f.watchers[key] = map[clock.Signal]bool{}
	}
	f.watchers[key][signal] = true
	return signal, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers[key], signal)
		if len(f.watchers[key]) == 0 {
			delete(f.watchers, key)
		}
	}
}
