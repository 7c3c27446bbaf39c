package fault

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/countersign/countersign/internal/clock"
)

// ErrExit is the error of an invocation that crashed. Its type has Lambda's name.
var ErrExit error = exitError{}

type exitError struct{}

func (exitError) Error() string     { return "the invocation crashed" }
func (exitError) ErrorType() string { return "Runtime.ExitError" }

// invocation is a unit that crashes as a whole.
type invocation struct {
	name     string
	number   int // in the order of their starts, from 1
	dead     atomic.Bool
	returned atomic.Bool  // the handler has returned; tasks that go on belong to the process
	done     clock.Signal // the invocation has returned, crashed or was abandoned
	cancel   context.CancelFunc
	ctx      *invocationContext

	hasCalled     bool          // it has made a call of a port
	throttledPort string        // the port whose calls are throttled from now on; "" = none
	lagWrites     int           // the number of last writes that its stale reads miss
	skew          time.Duration // of its clock

	frozen           bool // it is a zombie that has not resumed yet
	abandoned        bool // its caller has retried without it
	callsUntilResume int  // calls of others until it resumes; 0 or less = until nothing else moves
	waiters          []clock.Signal
}

// invocationContext is the context of an invocation. It can end with a timeout.
type invocationContext struct {
	context.Context
	timedOut atomic.Bool
}

func (l *invocationContext) Err() error {
	if err := l.Context.Err(); err == nil || !l.timedOut.Load() {
		return err
	}
	return context.DeadlineExceeded
}

type invocationKey struct{}

func invocationOf(ctx context.Context) *invocation {
	i, _ := ctx.Value(invocationKey{}).(*invocation)
	return i
}

// HasCrashed reports whether the invocation of ctx has crashed.
func HasCrashed(ctx context.Context) bool {
	i := invocationOf(ctx)
	return i != nil && i.dead.Load()
}

// InvocationNumber returns the number of the invocation of ctx in the order of starts, from 1; 0 = ctx has none.
func InvocationNumber(ctx context.Context) int {
	if i := invocationOf(ctx); i != nil {
		return i.number
	}
	return 0
}

// Run runs f as one invocation and reports whether f returned. Run returns as soon as the invocation crashes or is
// abandoned, in whichever goroutine. The context of a crashed invocation is done by then.
func (in *Injector) Run(ctx context.Context, name string, f func(ctx context.Context)) (lived bool) {
	ctx, cancel := context.WithCancel(ctx)
	in.mu.Lock()
	in.liveCount++
	in.startedCount++
	number := in.startedCount
	in.mu.Unlock()
	i := &invocation{
		name: name, number: number, done: in.clock.NewSignal(), cancel: cancel, ctx: &invocationContext{Context: ctx},
	}
	by := in.runningInvocation()
	in.clock.Go(func() {
		defer cancel()
		defer func() {
			in.mu.Lock()
			in.liveCount--
			in.mu.Unlock()
		}()
		defer i.returned.Store(true)
		defer i.done.Notify()
		in.setRunning(i)
		f(context.WithValue(context.Context(i.ctx), invocationKey{}, i))
		i.skew = 0 // later tasks belong to the process, whose clock is right
	})
	ended := i.done.Wait(context.WithoutCancel(ctx), 0)
	in.setRunning(by)
	return ended == nil && !i.dead.Load() && !i.abandoned
}

// LiveInvocations returns the number of invocations under way.
func (in *Injector) LiveInvocations() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.liveCount
}

// StartedInvocations returns the number of invocations so far.
func (in *Injector) StartedInvocations() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.startedCount
}

// crash ends the invocation, and the goroutine that calls it.
func (i *invocation) crash() {
	i.dead.Store(true)
	i.cancel()
	i.done.Notify()
	runtime.Goexit()
}

// exitIfDead ends the goroutine that calls it if its invocation is dead.
func (i *invocation) exitIfDead() {
	if i.dead.Load() {
		runtime.Goexit()
	}
}

// abandon makes an invocation a zombie: its caller sees it end, and the invocation stops until others have made so many
// calls, or until nothing else moves.
func (in *Injector) abandon(i *invocation, patience int) {
	in.mu.Lock()
	i.frozen, i.abandoned, i.callsUntilResume = true, true, patience
	in.frozen = append(in.frozen, i)
	in.mu.Unlock()
	i.done.Notify()
	in.waitForResume(i)
}

// waitForResume returns once the invocation is no stopped zombie.
func (in *Injector) waitForResume(i *invocation) {
	in.mu.Lock()
	if !i.frozen {
		in.mu.Unlock()
		return
	}
	s := in.clock.NewSignal()
	i.waiters = append(i.waiters, s)
	in.mu.Unlock()
	err := s.Wait(context.Background(), 0)
	in.setRunning(i)
	if err != nil { // the run is over
		i.dead.Store(true)
		i.exitIfDead()
	}
}

// ReleaseZombies resumes all zombies, and reports whether there was one. Call it when nothing else moves.
func (in *Injector) ReleaseZombies() bool {
	in.mu.Lock()
	all := in.frozen
	in.frozen = nil
	in.mu.Unlock()
	for _, z := range all {
		z.resume()
	}
	return len(all) > 0
}

func (i *invocation) resume() {
	i.frozen = false
	for _, s := range i.waiters {
		s.Notify()
	}
	i.waiters = nil
}

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

func (in *Injector) setRunning(i *invocation) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.running = i
}
