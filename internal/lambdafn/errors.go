package lambdafn

import (
	"errors"
	"fmt"
	"slices"
)

// Kind says what an error means to whoever called a function. The set is small and closed, and the state machine's
// Retry and Catch know the kinds by these names.
type Kind string

// The kinds.
const (
	KindThrottled   Kind = "Countersign.Throttled"
	KindUnavailable Kind = "Countersign.Unavailable"
	KindContention  Kind = "Countersign.Contention"
	// every model of the chain failed in a way that may pass; nothing was committed
	KindBusy     Kind = "Countersign.ModelBusy"
	KindInvalid  Kind = "Countersign.Invalid"  // the request makes no sense, and never will
	KindInternal Kind = "Countersign.Internal" // a bug or a broken record; never retried
)

// retried are the kinds that pass by themselves, sorted. The state machine retries them by these very names.
var retried = []Kind{KindContention, KindBusy, KindThrottled, KindUnavailable}

// Retried reports whether the state machine tries again after an error of this kind.
func (k Kind) Retried() bool { return slices.Contains(retried, k) }

// Error is an error with its kind. An error gets its kind once, where a handler returns.
type Error struct {
	Kind Kind
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// ErrorType is the kind's name, which the state machine sees.
func (e *Error) ErrorType() string { return string(e.Kind) }

// wrap gives err a kind unless it has one. Nil stays nil.
func wrap(k Kind, err error) error {
	var known *Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &Error{Kind: k, Err: err}
}

// invalidf makes an error of kind KindInvalid.
func invalidf(format string, args ...any) error {
	return &Error{Kind: KindInvalid, Err: fmt.Errorf(format, args...)}
}
