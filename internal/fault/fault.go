// Package fault stands between a program and its ports, numbers every call in the order it is made, and lets some of
// them go wrong (docs/reliability.md, fault sweep). Under a deterministic clock the n-th call of one run is the n-th
// call of the next, so a run that only counts says where the others can be hit.
//
// A crash takes a whole invocation: a function's handler, or one thing a person or client does. What the invocation had
// started besides, tools above all, dies at its next call of a port and has no effect any more.
package fault

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/countersign/countersign/internal/clock"
)

// Point is one fault: at which call, from 1, what goes wrong.
type Point struct {
	Call int
	Kind Kind
	More int // what the kind says it is
}

func (p Point) String() string {
	s := fmt.Sprintf("%s@%d", string(p.Kind), p.Call)
	if p.More != 0 {
		s += fmt.Sprintf("/%d", p.More)
	}
	return s
}

// Call is one call of a port as it was made.
type Call struct {
	Number     int    // from 1
	Port       string // table.Write, model.Generate, ...
	What       string // of that port: a key, a tool, a call
	Invocation string // who made it
	By         int    // that invocation's place, as Number has it
	Once       bool   // made twice it would be done twice, and the port says so: nobody may deliver it again
	Lags       bool   // what it reads may be late
	First      bool   // of its invocation
}

func (c Call) String() string {
	return fmt.Sprintf("call %d, %s %s by %s", c.Number, c.Port, c.What, c.Invocation)
}

// Injector numbers calls and lets those of its points go wrong, each once. Safe for concurrent use.
type Injector struct {
	clock  clock.Clock
	points map[int]Point
	before func(Call)

	mu      sync.Mutex
	calls   []Call
	live    int           // invocations under way
	started int           // invocations so far
	frozen  []*invocation // those that were given up and have yet to go on
	current *invocation   // whose task runs, under a clock of Clock
}

// New makes an injector for one run, with what is to go wrong. Of points at one call the last counts. None only counts.
func New(c clock.Clock, points ...Point) *Injector {
	in := &Injector{clock: c, points: map[int]Point{}}
	for _, p := range points {
		in.points[p.Call] = p
	}
	return in
}

// Before has f called before each call that is counted, in the task that makes it: what others do at just that moment.
// Calls that f makes are counted behind it. Set it before the run.
func (in *Injector) Before(f func(Call)) { in.before = f }

// Calls is every call so far, in order.
func (in *Injector) Calls() []Call {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]Call(nil), in.calls...)
}

// Call is the call of that number; ok is false where it has not been made.
func (in *Injector) Call(n int) (c Call, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if n < 1 || n > len(in.calls) {
		return Call{}, false
	}
	return in.calls[n-1], true
}

// Spent reports whether everything that was to go wrong has, and nobody who was given up is still to go on.
func (in *Injector) Spent() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	for n := range in.points {
		if n > len(in.calls) {
			return false
		}
	}
	return len(in.frozen) == 0
}

// through makes one call of a port. A call that belongs to no invocation is the observer's: it is neither counted nor
// hit.
func (in *Injector) through(ctx context.Context, c Call, call func() error) error {
	i := invocationOf(ctx)
	if i == nil {
		return call()
	}
	i.mustLive()
	in.thaw(i)
	c.Invocation = i.name
	c, point, due := in.next(i, c)
	for _, z := range due {
		z.goOn()
	}
	if in.before != nil {
		in.before(c)
		i.mustLive()
	}
	var err error
	switch {
	case point.Kind != "":
		err = in.hit(ctx, i, point, c, call)
	case i.refused == c.Port:
		err = refusal(c)
	default:
		err = call()
	}
	i.mustLive()
	return err
}

// next numbers a call, says what is to go wrong with it, and which zombies go on now.
func (in *Injector) next(i *invocation, c Call) (Call, Point, []*invocation) {
	in.mu.Lock()
	defer in.mu.Unlock()
	c.Number, c.By, c.First = len(in.calls)+1, i.number, !i.begun
	i.begun = true
	in.calls = append(in.calls, c)
	var due []*invocation
	in.frozen = slices.DeleteFunc(in.frozen, func(z *invocation) bool {
		z.patience--
		if z.patience == 0 {
			due = append(due, z)
		}
		return z.patience == 0
	})
	p := in.points[c.Number]
	if p.Kind == Skewed && c.First {
		i.skew = skews[p.More%len(skews)]
	}
	return c, p, due
}
