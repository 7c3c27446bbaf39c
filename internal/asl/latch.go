package asl

import (
	"context"
	"sync"

	"github.com/countersign/countersign/internal/clock"
)

// latch is closed until it is released, and then open for good. It is safe for concurrent use.
type latch struct {
	clock   clock.Clock
	mu      sync.Mutex
	open    bool
	waiters []clock.Signal
}

func (l *latch) release() {
	l.mu.Lock()
	waiters := l.waiters
	l.open, l.waiters = true, nil
	l.mu.Unlock()
	for _, w := range waiters {
		w.Notify()
	}
}

// wait returns nil when the latch is open, the context's error when that is done before.
func (l *latch) wait(ctx context.Context) error {
	l.mu.Lock()
	open := l.open
	s := l.clock.NewSignal()
	if !open {
		l.waiters = append(l.waiters, s)
	}
	l.mu.Unlock()
	if open {
		return nil
	}
	return s.Wait(ctx, 0)
}
