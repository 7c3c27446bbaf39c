// Package fault makes calls of ports fail, crash, run twice or come late, and counts them. Faults below the ports, of
// HTTP servers and processes, are those of their fakes.
//
// A Hook stands before each call of a port. Tests put hooks before a Table or blobs, for the next call that matches or
// for all:
//
//	table := fault.NewTable(store.NewMemory())
//	table.Once(fault.WritesTo("J#"), fault.Lose(err)) // the next entry is written, and its writer gets an error
//	table.Use(fault.Fail(err))                        // from now on nothing is read or written
//	table.Counts().Writes                             // how often it was written
//
// An Injector is the hook of scenarios and sweeps (docs/reliability.md, fault sweep). It numbers the calls of all ports
// in order. Under a deterministic clock the n-th call of one run is the n-th call of the next, so a run without faults
// shows where faults can be injected. Fakes call Injector.Do themselves; other ports are wrapped.
//
// A crash ends a whole invocation: a function's handler, or one action of a person or client. Goroutines of the
// invocation, tools above all, end at their next call of a port and have no effect any more.
package fault

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/store"
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

	Key store.Key  // of a table's read: the item, or the partition and the first sort key
	Ops []store.Op // of a table's write; an Injector does not keep them
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
	return slices.Clone(in.calls)
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

// Do makes one call of a port, or does what the faults say instead. A call outside any invocation is a test's own: it
// is neither counted nor faulty.
func (in *Injector) Do(ctx context.Context, c Call, call func() error) error {
	i := invocationOf(ctx)
	if i == nil {
		return call()
	}
	i.exitIfDead()
	in.waitForResume(i)
	c.Invocation, c.Ops = i.name, nil
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
		i.skew = 5 * time.Minute
		if p.Param%2 == 1 {
			i.skew = -i.skew
		}
	}
	return c, p, due
}
