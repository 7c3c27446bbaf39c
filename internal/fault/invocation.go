package fault

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/countersign/countersign/internal/clock"
)

// ErrExit is what a function's caller sees of an invocation that crashed. Its type is the name Lambda gives it.
var ErrExit error = exitError{}

type exitError struct{}

func (exitError) Error() string     { return "the invocation crashed" }
func (exitError) ErrorType() string { return "Runtime.ExitError" }

// invocation is what dies together.
type invocation struct {
	name   string
	number int // in the order in which they began, from 1
	dead   atomic.Bool
	ended  atomic.Bool  // its handler has returned: what goes on is the process's
	over   clock.Signal // it has returned, died or was given up
	cancel context.CancelFunc
	life   *lifetime

	begun   bool          // it has made a call
	refused string        // the port that refuses it from now on; "" = none
	lag     int           // how many writes its reads that may be late do not see
	skew    time.Duration // of its clock

	frozen   bool // its caller has given it up, and it does not move
	gone     bool // its caller has given it up
	patience int  // calls of others until it goes on; 0 or less = until nothing else moves
	waiting  []clock.Signal
}

// lifetime is an invocation's context. It can end as if the invocation's time were up.
type lifetime struct {
	context.Context
	up atomic.Bool
}

func (l *lifetime) Err() error {
	if err := l.Context.Err(); err == nil || !l.up.Load() {
		return err
	}
	return context.DeadlineExceeded
}

type invocationKey struct{}

func invocationOf(ctx context.Context) *invocation {
	i, _ := ctx.Value(invocationKey{}).(*invocation)
	return i
}

// Crashed reports whether the invocation that ctx belongs to has crashed.
func Crashed(ctx context.Context) bool {
	i := invocationOf(ctx)
	return i != nil && i.dead.Load()
}

// Number is the place of the invocation that ctx belongs to in the order in which they began, from 1; 0 = it belongs to
// none.
func Number(ctx context.Context) int {
	if i := invocationOf(ctx); i != nil {
		return i.number
	}
	return 0
}

// Run runs f as one invocation and reports whether it lived to its end. It returns as soon as the invocation dies or is
// given up, from whichever goroutine; the context of what is left of one that died is done by then.
func (in *Injector) Run(ctx context.Context, name string, f func(ctx context.Context)) (lived bool) {
	ctx, cancel := context.WithCancel(ctx)
	i := &invocation{name: name, number: in.begin(), over: in.clock.NewSignal(), cancel: cancel, life: &lifetime{Context: ctx}}
	by := in.whose()
	in.clock.Go(func() {
		defer cancel()
		defer in.end()
		defer i.ended.Store(true)
		defer i.over.Notify()
		in.enter(i)
		f(context.WithValue(context.Context(i.life), invocationKey{}, i))
		i.skew = 0 // what goes on is the process's, which has the right time
	})
	ended := i.over.Wait(context.WithoutCancel(ctx), 0)
	in.enter(by)
	return ended == nil && !i.dead.Load() && !i.gone
}

// Live is how many invocations are under way.
func (in *Injector) Live() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.live
}

// Started is how many invocations have begun.
func (in *Injector) Started() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.started
}

// begin counts an invocation that begins.
func (in *Injector) begin() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.live++
	in.started++
	return in.started
}

// end counts one that has ended.
func (in *Injector) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.live--
}

// crash ends the invocation, and the goroutine that calls it.
func (i *invocation) crash() {
	i.dead.Store(true)
	i.cancel()
	i.over.Notify()
	runtime.Goexit()
}

// mustLive ends the goroutine that calls it if its invocation is dead.
func (i *invocation) mustLive() {
	if i.dead.Load() {
		runtime.Goexit()
	}
}

// abandon has the caller of an invocation give it up and stops it where it is, until others have made so many calls, or
// nothing else moves.
func (in *Injector) abandon(i *invocation, patience int) {
	in.mu.Lock()
	i.frozen, i.gone, i.patience = true, true, patience
	in.frozen = append(in.frozen, i)
	in.mu.Unlock()
	i.over.Notify()
	in.thaw(i)
}

// thaw returns once the invocation may move.
func (in *Injector) thaw(i *invocation) {
	in.mu.Lock()
	if !i.frozen {
		in.mu.Unlock()
		return
	}
	s := in.clock.NewSignal()
	i.waiting = append(i.waiting, s)
	in.mu.Unlock()
	err := s.Wait(context.Background(), 0)
	in.enter(i)
	if err != nil { // the run is over
		i.dead.Store(true)
		i.mustLive()
	}
}

// Release lets every invocation go on that was given up, and reports whether there was one. It is for when nothing else
// moves.
func (in *Injector) Release() bool {
	in.mu.Lock()
	all := slices.Clone(in.frozen)
	in.mu.Unlock()
	for _, z := range all {
		z.goOn()
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.frozen = nil
	return len(all) > 0
}

func (i *invocation) goOn() {
	i.frozen = false
	for _, s := range i.waiting {
		s.Notify()
	}
	i.waiting = nil
}
