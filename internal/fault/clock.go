package fault

import (
	"context"
	"time"

	"github.com/countersign/countersign/internal/clock"
)

// skews are the errors of skewed clocks.
var skews = []time.Duration{5 * time.Minute, -5 * time.Minute}

// Clock returns the clock for the program behind the injector. It has the skew of the invocation whose task reads it.
// That needs a deterministic clock, which runs one task at a time.
func (in *Injector) Clock() clock.Clock { return &skewed{in.clock, in} }

type skewed struct {
	clock.Clock
	in *Injector
}

func (s *skewed) Now() time.Time {
	now := s.Clock.Now()
	if i := s.in.runningInvocation(); i != nil && !i.returned.Load() {
		now = now.Add(i.skew)
	}
	return now
}

func (s *skewed) Sleep(ctx context.Context, d time.Duration) error {
	defer s.in.setRunning(s.in.runningInvocation())
	return s.Clock.Sleep(ctx, d)
}

func (s *skewed) Go(f func()) {
	i := s.in.runningInvocation()
	s.Clock.Go(func() {
		s.in.setRunning(i)
		f()
	})
}

func (s *skewed) NewSignal() clock.Signal { return &skewedSignal{s.Clock.NewSignal(), s.in} }

type skewedSignal struct {
	clock.Signal
	in *Injector
}

func (s *skewedSignal) Wait(ctx context.Context, d time.Duration) error {
	defer s.in.setRunning(s.in.runningInvocation())
	return s.Signal.Wait(ctx, d)
}

// runningInvocation returns the invocation whose task runs; nil = none.
func (in *Injector) runningInvocation() *invocation {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.running
}

// setRunning sets the invocation whose task runs.
func (in *Injector) setRunning(i *invocation) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.running = i
}
