// Package fault wraps the ports of a program, numbers their calls in order, and injects faults into some of them
// (docs/reliability.md, fault sweep). Under a deterministic clock the n-th call of one run is the n-th call of the
// next, so a run without faults shows where faults can be injected.
//
// A crash ends a whole invocation: a function's handler, or one action of a person or client. Goroutines of the
// invocation, tools above all, end at their next call of a port and have no effect any more.
package fault

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/countersign/countersign/internal/clock"
)

// Point is one fault at a call.
type Point struct {
	Call  int // number of the call, from 1
	Kind  Kind
	Param int // a parameter of the kind; see the kinds
}

func (p Point) String() string {
	s := fmt.Sprintf("%s@%d", string(p.Kind), p.Call)
	if p.Param != 0 {
		s += fmt.Sprintf("/%d", p.Param)
	}
	return s
}

// Call is one call of a port as it was made.
type Call struct {
	Number           int    // from 1
	Port             string // table.Write, model.Generate, ...
	Target           string // what the call is about: a key, a tool, a call id
	Invocation       string // name of the invocation that made it
	InvocationNumber int    // as the function InvocationNumber has it
	NotRepeatable    bool   // the effect must not happen twice, so the call is never delivered twice
	MayLag           bool   // the read may be stale
	IsFirst          bool   // the first call of its invocation
}

func (c Call) String() string {
	return fmt.Sprintf("call %d, %s %s by %s", c.Number, c.Port, c.Target, c.Invocation)
}

// Injector numbers calls and injects each of its faults once. It is safe for concurrent use.
type Injector struct {
	clock      clock.Clock
	points     map[int]Point
	beforeCall func(Call)

	mu           sync.Mutex
	calls        []Call
	liveCount    int           // invocations under way
	startedCount int           // invocations so far
	frozen       []*invocation // zombies that have not resumed yet
	running      *invocation   // the invocation whose task runs, under the clock of Clock
}

// New returns an injector for one run. Of several points at one call the last one counts.
func New(c clock.Clock, points ...Point) *Injector {
	in := &Injector{clock: c, points: map[int]Point{}}
	for _, p := range points {
		in.points[p.Call] = p
	}
	return in
}

// Before makes the injector call f before each counted call, in the task of that call. Calls that f makes get later
// numbers. Set it before the run.
func (in *Injector) Before(f func(Call)) { in.beforeCall = f }

// Calls returns all calls so far, in order.
func (in *Injector) Calls() []Call {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]Call(nil), in.calls...)
}

// Call returns the call of that number; ok is false if it was not made yet.
func (in *Injector) Call(n int) (c Call, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if n < 1 || n > len(in.calls) {
		return Call{}, false
	}
	return in.calls[n-1], true
}

// IsSpent reports whether all faults were injected and all zombies have resumed.
func (in *Injector) IsSpent() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	for n := range in.points {
		if n > len(in.calls) {
			return false
		}
	}
	return len(in.frozen) == 0
}

// intercept makes one call of a port. A call outside any invocation is a test's own: it is neither counted nor faulty.
func (in *Injector) intercept(ctx context.Context, c Call, call func() error) error {
	i := invocationOf(ctx)
	if i == nil {
		return call()
	}
	i.exitIfDead()
	in.waitForResume(i)
	c.Invocation = i.name
	c, point, due := in.register(i, c)
	for _, z := range due {
		z.resume()
	}
	if in.beforeCall != nil {
		in.beforeCall(c)
		i.exitIfDead()
	}
	var err error
	switch {
	case point.Kind != "":
		err = in.inject(i, point, c, call)
	case i.throttledPort == c.Port:
		err = throttleError(c)
	default:
		err = call()
	}
	i.exitIfDead()
	return err
}

// register numbers a call, and returns its fault and the zombies that resume now.
func (in *Injector) register(i *invocation, c Call) (Call, Point, []*invocation) {
	in.mu.Lock()
	defer in.mu.Unlock()
	c.Number, c.InvocationNumber, c.IsFirst = len(in.calls)+1, i.number, !i.hasCalled
	i.hasCalled = true
	in.calls = append(in.calls, c)
	var due []*invocation
	in.frozen = slices.DeleteFunc(in.frozen, func(z *invocation) bool {
		z.callsUntilResume--
		if z.callsUntilResume == 0 {
			due = append(due, z)
		}
		return z.callsUntilResume == 0
	})
	p := in.points[c.Number]
	if p.Kind == Skewed && c.IsFirst {
		i.skew = skews[p.Param%len(skews)]
	}
	return c, p, due
}
