// Package edge is what the outside sees of errors: a small closed set of kinds, and the names under which the state machine's
// Retry and Catch know them. An error is mapped once, where a handler returns.
package edge

import (
	"errors"
	"fmt"
)

// Kind says what an error means to whoever called.
type Kind string

// The kinds. The first five pass by themselves: the state machine retries them by these very names.
const (
	Throttled   Kind = "Countersign.Throttled"
	Unavailable Kind = "Countersign.Unavailable"
	Contention  Kind = "Countersign.Contention"
	Busy        Kind = "Countersign.ModelBusy"    // every model of the chain failed in a way that may pass; nothing was committed
	Newer       Kind = "Countersign.NewerVersion" // a newer version wrote what this one was to read: it passes once that one is deployed here
	Invalid     Kind = "Countersign.Invalid"      // what was asked makes no sense, and never will
	Internal    Kind = "Countersign.Internal"     // a bug or a broken record; never retried
)

// Retried reports whether the state machine tries again after an error of this kind.
func (k Kind) Retried() bool {
	return k == Throttled || k == Unavailable || k == Contention || k == Busy || k == Newer
}

// Error is an error with its kind. ErrorType is the name that the state machine sees.
type Error struct {
	Kind Kind
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// ErrorType is the kind's name.
func (e *Error) ErrorType() string { return string(e.Kind) }

// Wrap gives err a kind unless it has one. Nil stays nil.
func Wrap(k Kind, err error) error {
	var known *Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &Error{Kind: k, Err: err}
}

// Invalidf makes an error of kind Invalid.
func Invalidf(format string, args ...any) error {
	return &Error{Kind: Invalid, Err: fmt.Errorf(format, args...)}
}
