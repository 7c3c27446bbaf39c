package fault

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// Kind is what goes wrong. The names are those of docs/reliability.md.
type Kind string

// The kinds.
const (
	ErrorBefore Kind = "F1"  // an error, and the call was not made
	ErrorAfter  Kind = "F2"  // the call was made, and then there was an error: the answer is lost
	CrashBefore Kind = "F3"  // the invocation ends before the call is made
	CrashAfter  Kind = "F4"  // it ends after the call was made and before its answer is seen
	Zombie      Kind = "F5"  // its caller gives it up and tries again, and it goes on with this call beside the one after it. More is how many calls are made first
	Twice       Kind = "F6"  // the call is delivered twice; the second answer is seen
	Deadline    Kind = "F7"  // the invocation's time is up at this call. More: 0 = the call was not made, and it is told so; 1 = it was, and the process is ended before it hears
	Throttled   Kind = "F8"  // the call is refused for now. More: 0 = once, 1 = every one of the invocation to this port from here on
	Stale       Kind = "F9"  // a read that may be stale is: it sees nothing of the last writes. More is how many they are; 0 = 1
	Skewed      Kind = "F10" // the clock of the invocation that begins with this call is wrong. More: 0 = five minutes fast, 1 = five minutes slow
)

// Kinds lists all kinds.
func Kinds() []Kind {
	return []Kind{ErrorBefore, ErrorAfter, CrashBefore, CrashAfter, Zombie, Twice, Deadline, Throttled, Stale, Skewed}
}

// Crashes lists the kinds after which the invocation is begun again and nothing else is different.
func Crashes() []Kind { return []Kind{CrashBefore, CrashAfter} }

var meanings = map[Kind]string{
	ErrorBefore: "error before", ErrorAfter: "error after", CrashBefore: "crash before", CrashAfter: "crash after", Zombie: "zombie",
	Twice: "delivered twice", Deadline: "past its deadline", Throttled: "throttled", Stale: "stale read", Skewed: "skewed clock",
}

// String says what the kind means.
func (k Kind) String() string {
	if m, ok := meanings[k]; ok {
		return m
	}
	return string(k)
}

// Variants lists the faults of this kind that can happen at a call. Of zombies, patience says how many calls others
// make at most before it goes on; one that goes on when nothing else moves is always among them.
func (k Kind) Variants(c Call, patience int) []Point {
	at := func(more ...int) []Point {
		var list []Point
		for _, m := range more {
			list = append(list, Point{Call: c.Number, Kind: k, More: m})
		}
		return list
	}
	switch k {
	case Zombie:
		list := at(forEver)
		for i := 1; i <= patience; i++ {
			list = append(list, at(i)...)
		}
		return list
	case Twice:
		if c.Once {
			return nil
		}
		return at(0)
	case Stale:
		if !c.Lags {
			return nil
		}
		return at(1, 3)
	case Skewed:
		if !c.First {
			return nil
		}
		return at(0, 1)
	case Deadline, Throttled:
		return at(0, 1)
	default:
		return at(0)
	}
}

// forEver is the patience of a zombie that goes on when nothing else moves.
const forEver = 0

// errInjected is an error on the way to or from whatever is behind a port.
var errInjected = errors.New("connection reset")

// failure is the error of a call that was not answered, as its port has it.
func failure(c Call, made bool) error {
	switch c.Port {
	case portModel:
		return &agent.ModelError{Class: agent.ModelConnection, Message: errInjected.Error()}
	case portTool, portFunctions:
		if made {
			return &tool.LostError{Err: errInjected}
		}
	}
	return fmt.Errorf("%s %s: %w", c.Port, c.What, errInjected)
}

// refusal is the error of a call that was refused for now, as its port has it.
func refusal(c Call) error {
	switch c.Port {
	case "table.Get", "table.Query", "table.Write":
		return store.ErrThrottled
	case portModel:
		return &agent.ModelError{Class: agent.ModelThrottled, Message: "throttled"}
	default:
		return fmt.Errorf("%s %s: throttled", c.Port, c.What)
	}
}

// The ports whose errors have a type.
const (
	portModel     = "model.Generate"
	portTool      = "tool.Call"
	portFunctions = "functions.Invoke"
)

// hit lets one call go wrong and returns what its caller sees.
func (in *Injector) hit(ctx context.Context, i *invocation, p Point, c Call, call func() error) error {
	switch p.Kind {
	case ErrorBefore:
		return failure(c, false)
	case ErrorAfter:
		if err := call(); err != nil {
			return err
		}
		return failure(c, true)
	case CrashBefore:
		i.crash()
	case CrashAfter:
		return i.unheard(call)
	case Zombie:
		in.abandon(i, p.More)
	case Twice:
		if err := call(); err != nil {
			return err
		}
		i.mustLive()
	case Deadline:
		return in.timeUp(ctx, i, p.More, call)
	case Throttled:
		if p.More == 1 {
			i.refused = c.Port
		}
		return refusal(c)
	case Stale:
		i.lag = max(1, p.More)
		defer func() { i.lag = 0 }()
	}
	return call()
}

// timeUp ends the time that the invocation has.
func (in *Injector) timeUp(_ context.Context, i *invocation, more int, call func() error) error {
	if more == 0 {
		i.life.up.Store(true)
		i.cancel()
		return context.DeadlineExceeded
	}
	return i.unheard(call)
}

// unheard makes the call, and ends the invocation before it hears what came of it.
func (i *invocation) unheard(call func() error) error {
	_ = call() // nobody hears it
	i.mustLive()
	i.crash()
	return ErrExit // not reached: the goroutine has ended
}
