package fault

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// Kind is a kind of fault. The names are those of docs/reliability.md.
type Kind string

// The kinds. Param is Point.Param.
const (
	ErrorBefore Kind = "F1" // the call fails and was not made
	ErrorAfter  Kind = "F2" // the call was made and fails: the answer is lost
	CrashBefore Kind = "F3" // the invocation ends before the call is made
	CrashAfter  Kind = "F4" // the invocation ends after the call was made and before the answer arrives
	// The caller abandons the invocation and retries. The invocation goes on beside the retry after Param calls of
	// others; with 0, when nothing else moves.
	Zombie Kind = "F5"
	Twice  Kind = "F6" // the call is delivered twice, and the second answer counts
	// The invocation times out. Param: 0 = the call was not made and returns the timeout; 1 = it was made, and the
	// process ends before the answer.
	Deadline Kind = "F7"
	// the call is throttled. Param: 0 = once; 1 = all later calls of the invocation to this port as well
	Throttled Kind = "F8"
	Stale     Kind = "F9" // the read misses the last writes. Param is their number; 0 = 1
	// The clock of the invocation that begins with this call is wrong. Param: 0 = five minutes fast, 1 = five minutes
	// slow.
	Skewed Kind = "F10"
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{ErrorBefore, ErrorAfter, CrashBefore, CrashAfter, Zombie, Twice, Deadline, Throttled, Stale, Skewed}
}

// Crashes returns the kinds after which the invocation is repeated and nothing else differs.
func Crashes() []Kind { return []Kind{CrashBefore, CrashAfter} }

var kindNames = map[Kind]string{
	ErrorBefore: "error before", ErrorAfter: "error after", CrashBefore: "crash before", CrashAfter: "crash after",
	Zombie: "zombie", Twice: "delivered twice", Deadline: "past its deadline", Throttled: "throttled", Stale: "stale read",
	Skewed: "skewed clock",
}

// String returns the kind in words.
func (k Kind) String() string {
	if m, ok := kindNames[k]; ok {
		return m
	}
	return string(k)
}

// Variants returns the faults of this kind that are possible at a call. Zombies resume after 1 to patience calls of
// others, or when nothing else moves.
func (k Kind) Variants(c Call, patience int) []Point {
	params := []int{0}
	switch {
	case k == Twice && c.NotRepeatable, k == Stale && !c.MayLag, k == Skewed && !c.IsFirst:
		return nil
	case k == Zombie:
		for n := range patience {
			params = append(params, n+1)
		}
	case k == Stale:
		params = []int{1, 3}
	case k == Skewed, k == Deadline, k == Throttled:
		params = []int{0, 1}
	}
	var list []Point
	for _, p := range params {
		list = append(list, Point{Call: c.Number, Kind: k, Param: p})
	}
	return list
}

// errInjected is a connection error of a port.
var errInjected = errors.New("connection reset")

// faultError returns the error of a call without an answer, in the type of its port.
func faultError(c Call, made bool) error {
	switch c.Port {
	case ModelGenerate:
		return &agent.ModelError{Class: agent.ModelConnection, Message: errInjected.Error()}
	case ToolCall, Functions:
		if made {
			return &tool.LostError{Err: errInjected}
		}
	}
	return fmt.Errorf("%s %s: %w", c.Port, c.Target, errInjected)
}

// throttleError returns the error of a throttled call, in the type of its port.
func throttleError(c Call) error {
	switch c.Port {
	case TableGet, TableQuery, TableWrite:
		return store.ErrThrottled
	case ModelGenerate:
		return &agent.ModelError{Class: agent.ModelThrottled, Message: "throttled"}
	default:
		return fmt.Errorf("%s %s: throttled", c.Port, c.Target)
	}
}

// inject injects a fault into a call, and returns the error that the caller sees.
func (in *Injector) inject(i *invocation, p Point, c Call, call func() error) error {
	switch p.Kind {
	case ErrorBefore:
		return faultError(c, false)
	case ErrorAfter:
		if err := call(); err != nil {
			return err
		}
		return faultError(c, true)
	case CrashBefore:
		i.crash()
	case CrashAfter:
		return i.callAndCrash(call)
	case Zombie:
		in.abandon(i, p.Param)
	case Twice:
		if err := call(); err != nil {
			return err
		}
		i.exitIfDead()
	case Deadline:
		if p.Param == 0 {
			i.ctx.timedOut.Store(true)
			i.cancel()
			return context.DeadlineExceeded
		}
		return i.callAndCrash(call)
	case Throttled:
		if p.Param == 1 {
			i.throttledPort = c.Port
		}
		return throttleError(c)
	case Stale:
		i.lagWrites = max(1, p.Param)
		defer func() { i.lagWrites = 0 }()
	}
	return call()
}

// callAndCrash makes the call, and ends the invocation before it gets the answer.
func (i *invocation) callAndCrash(call func() error) error {
	_ = call() // the answer is lost
	i.exitIfDead()
	i.crash()
	return ErrExit // not reached: the goroutine has ended
}
