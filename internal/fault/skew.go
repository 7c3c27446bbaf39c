package fault

import (
	"context"
	"time"

	"github.com/countersign/countersign/internal/clock"
)

// skews are by how much clocks are wrong.
var skews = []time.Duration{5 * time.Minute, -5 * time.Minute}

// Clock is the clock of a program behind the injector: it says the time that the invocation's host has whose task reads
// it. Only a deterministic clock, which runs one task at a time, can be told apart like that.
func (in *Injector) Clock() clock.Clock { return &skewed{in.clock, in} }

type skewed struct {
	clock.Clock
	in *Injector
}

func (s *skewed) Now() time.Time {
	now := s.Clock.Now()
	if i := s.in.whose(); i != nil && !i.ended.Load() {
		now = now.Add(i.skew)
	}
	return now
}

func (s *skewed) Sleep(ctx context.Context, d time.Duration) error {
	i := s.in.whose()
	defer s.in.enter(i)
	return s.Clock.Sleep(ctx, d)
}

func (s *skewed) Go(f func()) {
	i := s.in.whose()
	s.Clock.Go(func() {
		s.in.enter(i)
		f()
	})
}

func (s *skewed) NewSignal() clock.Signal { return &skewedSignal{s.Clock.NewSignal(), s.in} }

type skewedSignal struct {
	clock.Signal
	in *Injector
}

func (s *skewedSignal) Wait(ctx context.Context, d time.Duration) error {
	i := s.in.whose()
	defer s.in.enter(i)
	return s.Signal.Wait(ctx, d)
}

// whose is the invocation whose task runs; nil = nobody's.
func (in *Injector) whose() *invocation {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.current
}

// enter says whose task runs from here on.
func (in *Injector) enter(i *invocation) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.current = i
}
