// Package store keeps runs: a table port of three methods, and on it, written once, the journal, the inbox, the head
// view and approvals (ARCHITECTURE.md, the journal; docs/protocol.md).
package store

import (
	"context"
	"errors"
	"fmt"
)

// MaxItem is the largest item, keys and attributes counted, in bytes: DynamoDB's limit, held by every adapter.
const MaxItem = 400 * 1024

// MaxOps is the largest number of operations in one Write.
const MaxOps = 100

// Key names an item. Both parts are non-empty.
type Key struct{ PK, SK string }

// Item is one stored item. Body is opaque; Attrs are the few values that conditions compare; Index and IndexSort, when
// Index is not empty, list the item in the one secondary index, which may lag.
type Item struct {
	Key
	Attrs     map[string]Value
	Body      []byte
	Index     string
	IndexSort string
}

// Value is an attribute: a string or an int64. The zero Value is the number 0.
type Value struct {
	s     string
	n     int64
	isStr bool
}

// Str makes a string value.
func Str(s string) Value { return Value{s: s, isStr: true} }

// Num makes a number value.
func Num(n int64) Value { return Value{n: n} }

// IsString reports whether v is a string.
func (v Value) IsString() bool { return v.isStr }

// String is the string, "" for a number.
func (v Value) String() string { return v.s }

// Int is the number, 0 for a string.
func (v Value) Int() int64 { return v.n }

// Cond must hold for an operation's item as stored. Absent attributes fail every operator but NotExists of the item.
type Cond struct {
	Attr  string // ignored by ItemAbsent and ItemExists
	Op    CondOp
	Value Value
}

// CondOp is a comparison. Ordered operators compare numbers; a string attribute fails them.
type CondOp uint8

// The comparisons.
const (
	ItemAbsent CondOp = iota + 1 // no item under the key
	ItemExists                   // there is one
	Equal
	AtMost // stored <= value
	Above  // stored > value
)

// Op is one part of a Write.
type Op struct {
	Kind OpKind
	Item Item   // Put: the whole item. Update: Key and the Attrs to set, everything else of the stored item is kept
	If   []Cond // all must hold
}

// OpKind says what an Op does.
type OpKind uint8

// Put replaces or creates; Update sets attributes of an existing item (a missing item fails the condition); Check
// writes nothing.
const (
	Put OpKind = iota + 1
	Update
	Check
)

// Range asks for items of one partition, or of the index, in order of the sort key.
type Range struct {
	PK       string // or, with Index, the Item.Index to list
	From, To string // inclusive bounds on SK (or IndexSort); "" = open
	Limit    int    // at most so many items; 0 = as many as a page holds (1 MiB)
	Reverse  bool
	Index    bool   // list the secondary index: eventually consistent
	Cursor   string // where a former page ended; opaque
}

// Page is one answer to Query. An empty Cursor means there is no more.
type Page struct {
	Items  []Item
	Cursor string
}

// Table is the persistence port. Get and non-index Query are strongly consistent. Write is atomic: all operations or
// none.
//
// Errors: *ConditionError when a condition failed (nothing was written); ErrTooLarge, ErrInvalid (nothing was written);
// ErrThrottled and ErrConflict (nothing was written, the identical request may be sent again); context errors and
// anything else are uncertain: the write may have happened. Get and Query give a *DamagedError for an item that cannot
// be read; Query gives the items before it and a Cursor behind it beside that error. Safe for concurrent use. Returned
// items are the caller's to keep; items passed in are not kept.
type Table interface {
	Get(ctx context.Context, k Key) (it Item, found bool, err error)
	Query(ctx context.Context, r Range) (Page, error)
	Write(ctx context.Context, ops ...Op) error
}

// The errors of a Table beside ConditionError.
var (
	ErrTooLarge  = errors.New("item larger than 400 KB")
	ErrInvalid   = errors.New("invalid table operation")
	ErrThrottled = errors.New("store throttled")
	ErrConflict  = errors.New("transaction conflict")
)

// ConditionError says which operations of a Write had a condition that did not hold.
type ConditionError struct{ Failed []int } // indexes into ops, ascending

func (e *ConditionError) Error() string {
	return fmt.Sprintf("condition failed for operations %v", e.Failed)
}

// FailedOp reports whether err is a ConditionError in which operation i failed.
func FailedOp(err error, i int) bool {
	var ce *ConditionError
	if !errors.As(err, &ce) {
		return false
	}
	for _, f := range ce.Failed {
		if f == i {
			return true
		}
	}
	return false
}
