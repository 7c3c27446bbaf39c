// Package fault stands between a program and its ports, numbers every call in the order it is made, and lets one of them go wrong
// (docs/reliability.md, fault sweep). Under a deterministic clock the n-th call of one run is the n-th call of the next, so a run
// that only counts says where the others can be hit.
//
// A crash takes a whole invocation: a function's handler, or one thing a person or client does. What the invocation had
// started besides, tools above all, dies at its next call of a port and has no effect any more.
package fault

import (
	"context"
	"fmt"
	"sync"

	"github.com/countersign/countersign/pkg/agent/clock"
)

// Kind is what goes wrong. The names are those of docs/reliability.md.
type Kind string

// The kinds that are built: the invocation ends before the call is made, or after it was and before its answer is seen.
const (
	CrashBefore Kind = "F3"
	CrashAfter  Kind = "F4"
)

// Kinds lists the kinds that are built.
func Kinds() []Kind { return []Kind{CrashBefore, CrashAfter} }

// String says what the kind means.
func (k Kind) String() string {
	switch k {
	case CrashBefore:
		return "crash before"
	case CrashAfter:
		return "crash after"
	default:
		return string(k)
	}
}

// Point is one fault: at which call, from 1, what goes wrong.
type Point struct {
	Call int
	Kind Kind
}

// Call is one call of a port as it was made.
type Call struct {
	Number     int    // from 1
	Port       string // table.Write, model.Generate, ...
	What       string // of that port: a key, a tool, a call
	Invocation string // who made it
}

func (c Call) String() string {
	return fmt.Sprintf("call %d, %s %s by %s", c.Number, c.Port, c.What, c.Invocation)
}

// Injector numbers calls and lets the one of its point go wrong, once. Safe for concurrent use.
type Injector struct {
	clock clock.Clock
	point Point

	mu    sync.Mutex
	calls []Call
	live  int // invocations under way
}

// New makes an injector for one run. A nil point only counts.
func New(c clock.Clock, p *Point) *Injector {
	in := &Injector{clock: c}
	if p != nil {
		in.point = *p
	}
	return in
}

// Calls is every call so far, in order.
func (in *Injector) Calls() []Call {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]Call(nil), in.calls...)
}

// through makes one call of a port. A call that belongs to no invocation is the observer's: it is neither counted nor hit.
func (in *Injector) through(ctx context.Context, port, what string, call func() error) error {
	i := invocationOf(ctx)
	if i == nil {
		return call()
	}
	i.mustLive()
	kind := in.next(Call{Port: port, What: what, Invocation: i.name})
	if kind == CrashBefore {
		i.crash()
	}
	err := call()
	i.mustLive()
	if kind == CrashAfter {
		i.crash()
	}
	return err
}

// next numbers a call and says what is to go wrong with it.
func (in *Injector) next(c Call) Kind {
	in.mu.Lock()
	defer in.mu.Unlock()
	c.Number = len(in.calls) + 1
	in.calls = append(in.calls, c)
	if c.Number == in.point.Call {
		return in.point.Kind
	}
	return ""
}
