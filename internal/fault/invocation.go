package fault

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/countersign/countersign/pkg/agent/clock"
)

// ErrExit is what a function's caller sees of an invocation that crashed. Its type is the name Lambda gives it.
var ErrExit error = exitError{}

type exitError struct{}

func (exitError) Error() string     { return "the invocation crashed" }
func (exitError) ErrorType() string { return "Runtime.ExitError" }

// invocation is what dies together.
type invocation struct {
	name   string
	dead   atomic.Bool
	over   clock.Signal // it has returned or died
	cancel context.CancelFunc
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

// Run runs f as one invocation and reports whether it lived to its end. It returns as soon as the invocation dies, from whichever
// goroutine; the context of what is left of it is done by then.
func (in *Injector) Run(ctx context.Context, name string, f func(ctx context.Context)) (lived bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	i := &invocation{name: name, over: in.clock.NewSignal(), cancel: cancel}
	in.count(1)
	defer in.count(-1)
	in.clock.Go(func() {
		defer i.over.Notify()
		f(context.WithValue(ctx, invocationKey{}, i))
	})
	ended := i.over.Wait(context.WithoutCancel(ctx), 0)
	return ended == nil && !i.dead.Load()
}

// Live is how many invocations are under way.
func (in *Injector) Live() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.live
}

func (in *Injector) count(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.live += n
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
