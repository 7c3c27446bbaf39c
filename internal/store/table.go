// Package store keeps runs: a table port of three methods, and on it, written once, the journal, the inbox, the head
// view and approvals (ARCHITECTURE.md, the journal; docs/protocol.md).
package store

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/clock"
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
	// Put: the whole item. Update: Key and the Attrs to set, everything else of the stored item is kept. Add: Key and the
	// numbers to add to Attrs of that name, which are numbers or missing. Else: Key
	Item Item
	If   []Cond // all must hold
}

// OpKind says what an Op does.
type OpKind uint8

// Put replaces or creates; Update sets attributes of an existing item (a missing item fails the condition); Check
// writes nothing; Delete removes the item, if there is one; Add adds to numbers, and creates the item where there is
// none.
const (
	Put OpKind = iota + 1
	Update
	Check
	Delete
	Add
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
	return errors.As(err, &ce) && slices.Contains(ce.Failed, i)
}

// Keys of the one table (ARCHITECTURE.md, the journal). Under a run's partition the sort keys order themselves so that
// one range reads the journal's tail and exactly the undrained inbox: HEAD < I# (markers) < J# (journal) < K# (inbox,
// newest first).
const (
	headSK    = "HEAD"
	maxSlot   = 9_999_999_999 // ten digits
	journalSK = "J#"
	inboxSK   = "K#"
	markerSK  = "I#"
	pastInbox = "K#~"
)

func runPK(tenant, run string) string { return "T#" + tenant + "#RUN#" + run }

func entryKey(tenant, run string, seq int64) Key { return Key{runPK(tenant, run), entrySK(seq)} }

func entrySK(seq int64) string { return fmt.Sprintf("%s%010d", journalSK, seq) }

func slotKey(tenant, run string, n int64) Key { return Key{runPK(tenant, run), slotSK(n)} }

func slotSK(n int64) string { return fmt.Sprintf("%s%010d", inboxSK, maxSlot-n) }

// slotNumber reads the slot's number from its sort key; a *DamagedError where that holds none.
func slotNumber(k Key) (int64, error) {
	left, err := strconv.ParseInt(strings.TrimPrefix(k.SK, inboxSK), 10, 64)
	if err != nil || left < 0 || slotSK(maxSlot-left) != k.SK {
		return 0, Damaged(k, "sort key: want %s and ten digits", inboxSK)
	}
	return maxSlot - left, nil
}

func markerKey(tenant, run, id string) Key { return Key{runPK(tenant, run), markerSK + id} }

// RunKey is the key of a run's view, by which lists know the run.
func RunKey(tenant, run string) Key { return Key{runPK(tenant, run), headSK} }

// runsIndex is a list of runs, which is in shards. Deletions are rare: their lists have no shards.
func runsIndex(tenant, status string) string { return "T#" + tenant + "#RUNS#" + status }

// shards is how many partitions of the index a list has that all runs of a tenant are in. Each takes 1,000 write units
// a second.
const shards = 8

func shardName(list string, shard int) string { return fmt.Sprintf("%s#%d", list, shard) }

// Shard is the shard of a list that has what belongs to a run.
func Shard(list, run string) string {
	return shardName(list, int(crc32.ChecksumIEEE([]byte(run))%shards))
}

// ReadShards is ReadPage of a list in shards, one after the other: everything is read once, in the range's order only
// within a shard. PK is the list. A page may be empty and yet have a cursor, which begins with the shard's number.
func ReadShards[T any](
	ctx context.Context, t Table, r Range, read func(Item) (T, error),
) (list []T, next string, err error) {
	shard := 0
	if r.Cursor != "" {
		shard, r.Cursor = int(r.Cursor[0])-'0', r.Cursor[1:]
	}
	if shard < 0 || shard >= shards {
		return nil, "", fmt.Errorf("query %q: the cursor is not from such a query: %w", r.PK, ErrInvalid)
	}
	r.PK = shardName(r.PK, shard)
	list, next, err = ReadPage(ctx, t, r, read)
	switch {
	case next != "":
		next = fmt.Sprint(shard, next)
	case shard+1 < shards:
		next = fmt.Sprint(shard + 1)
	}
	return list, next, err
}

// ErrDamaged says that a stored item cannot be read: it is not what was written under its key, or another version wrote
// it. To read it again does not help.
var ErrDamaged = errors.New("the stored item cannot be read")

// DamagedError is an ErrDamaged of one item. Adapters return it where the bytes have changed, and readers where they
// say what this version does not write.
type DamagedError struct {
	Key Key
	Err error // what is wrong with it. It quotes nothing that the item holds beyond the names of fields
}

// Damaged makes a *DamagedError of what is wrong with an item.
func Damaged(k Key, format string, args ...any) error {
	return &DamagedError{Key: k, Err: fmt.Errorf(format, args...)}
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("item %q %q cannot be read: %v (deploy the version that wrote it, or restore the item)", e.Key.PK,
		e.Key.SK, e.Err)
}

// Is makes e an ErrDamaged.
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

// Unwrap gives what is wrong with it.
func (e *DamagedError) Unwrap() error { return e.Err }

// ReadPage reads the items of one page of a range. An item that cannot be read is an ErrDamaged beside the others and
// next: whoever lists fails with it, and a sweep over many reports it and goes on.
func ReadPage[T any](
	ctx context.Context, t Table, r Range, read func(Item) (T, error),
) (list []T, next string, err error) {
	p, err := t.Query(ctx, r)
	errs := []error{err}
	for _, it := range p.Items {
		v, err := read(it)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, v)
	}
	return list, p.Cursor, errors.Join(errs...)
}

// Text is a string attribute; a *DamagedError where it is missing or a number.
func (it Item) Text(name string) (string, error) {
	v, ok := it.Attrs[name]
	if !ok || !v.isStr {
		return "", Damaged(it.Key, "%s: got %s, want a string", name, v.kind(ok))
	}
	return v.s, nil
}

// Number is a number attribute; a *DamagedError where it is missing or a string.
func (it Item) Number(name string) (int64, error) {
	v, ok := it.Attrs[name]
	if !ok || v.isStr {
		return 0, Damaged(it.Key, "%s: got %s, want a number", name, v.kind(ok))
	}
	return v.n, nil
}

func (v Value) kind(there bool) string {
	switch {
	case !there:
		return "nothing"
	case v.isStr:
		return "a string"
	default:
		return "a number"
	}
}

// Sum is a checksum of where an item stands and of its body, for adapters whose store has none of its own. Attributes
// are not in it: an Update changes them alone.
func Sum(k Key, body []byte) int64 {
	sum := crc32.ChecksumIEEE([]byte(k.PK + separator + k.SK + separator))
	return int64(crc32.Update(sum, crc32.IEEETable, body))
}

// The budget of Resend: so many attempts in all, with pauses that double between these bounds. At worst it waits 2.6 s.
const (
	resendAttempts = 8
	resendFirst    = 25 * time.Millisecond
	resendLast     = time.Second
)

// Resend makes a Table that sends a request again, unchanged, when t answers ErrThrottled or ErrConflict: nothing was
// written then, and nothing else may be resent (protocol.md rule 2). It makes up to 8 attempts; before each but the
// first it sleeps on c at least half and at most all of a pause that grows from 25 ms to 1 s. jitter draws a duration
// from 0 to its argument, inclusive. After the last attempt its error is returned; when ctx ends during a pause, that
// error and the context's. Safe for concurrent use if jitter is.
func Resend(t Table, c clock.Clock, jitter func(limit time.Duration) time.Duration) Table {
	return &resender{table: t, clock: c, jitter: jitter}
}

type resender struct {
	table  Table
	clock  clock.Clock
	jitter func(time.Duration) time.Duration
}

func (r *resender) Get(ctx context.Context, k Key) (it Item, found bool, err error) {
	err = r.resend(ctx, func() error {
		it, found, err = r.table.Get(ctx, k)
		return err
	})
	return it, found, err
}

func (r *resender) Query(ctx context.Context, q Range) (p Page, err error) {
	err = r.resend(ctx, func() error {
		p, err = r.table.Query(ctx, q)
		return err
	})
	return p, err
}

func (r *resender) Write(ctx context.Context, ops ...Op) error {
	return r.resend(ctx, func() error { return r.table.Write(ctx, ops...) })
}

func (r *resender) resend(ctx context.Context, send func() error) (err error) {
	ended := clock.Retry(ctx, r.clock, func(n int) (time.Duration, bool) {
		err = send()
		if n == resendAttempts || !errors.Is(err, ErrThrottled) && !errors.Is(err, ErrConflict) {
			return 0, false
		}
		pause := min(resendFirst<<(n-1), resendLast)
		return pause/2 + r.jitter(pause/2), true
	})
	if ended != nil {
		return fmt.Errorf("%w, and before it was resent: %w", err, ended)
	}
	return err
}
