// Package store stores runs. It declares the ports of the table and of blobs, and implements on the table the journal,
// the inbox, the head view and deletions (ARCHITECTURE.md, the journal; docs/protocol.md).
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

// MaxItem is the largest item in bytes, including keys and attributes. Every adapter enforces DynamoDB's limit.
const MaxItem = 400 * 1024

// MaxOps is the largest number of operations in one Write.
const MaxOps = 100

// Key names an item. Both parts are non-empty.
type Key struct{ PK, SK string }

// Item is one stored item. Body is opaque. Attrs are the few values that conditions compare. If Index is not empty,
// Index and IndexSort list the item in the one secondary index, which may lag.
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

// Str returns a string value.
func Str(s string) Value { return Value{s: s, isStr: true} }

// Num returns a number value.
func Num(n int64) Value { return Value{n: n} }

// IsString reports whether v is a string.
func (v Value) IsString() bool { return v.isStr }

// String returns the string, or "" for a number.
func (v Value) String() string { return v.s }

// Int returns the number, or 0 for a string.
func (v Value) Int() int64 { return v.n }

// Cond is a condition on an operation's item as stored. A missing attribute fails every comparison.
type Cond struct {
	Attr  string // ignored by ItemAbsent and ItemExists
	Op    CondOp
	Value Value
}

// CondOp is a comparison. Ordered operators compare numbers; a string attribute fails them.
type CondOp uint8

// The comparisons.
const (
	ItemAbsent CondOp = iota + 1 // there is no item with the key
	ItemExists                   // there is one
	Equal
	AtMost // stored <= value
	Above  // stored > value
)

// Op is one part of a Write.
type Op struct {
	Kind OpKind
	// Put: the whole item. Update: Key and the Attrs to set; the rest of the stored item stays. Add: Key and the numbers
	// to add to Attrs of that name, which are numbers or missing. Otherwise: Key
	Item Item
	If   []Cond // all must hold
}

// OpKind says what an Op does.
type OpKind uint8

// Put replaces or creates an item. Update sets attributes of an existing item; a missing item fails the condition.
// Check writes nothing. Delete removes the item, if any. Add adds to numbers and creates a missing item.
const (
	Put OpKind = iota + 1
	Update
	Check
	Delete
	Add
)

// Range selects items of one partition, or of the index, in the order of the sort key.
type Range struct {
	PK       string // partition, or, with Index, the Item.Index to list
	From, To string // inclusive bounds on SK (or IndexSort); "" = open
	Limit    int    // most items per page; 0 = as many as a page holds (1 MiB)
	Reverse  bool
	Index    bool   // list the secondary index: eventually consistent
	Cursor   string // end of the previous page; opaque
}

// Page is one result of Query. An empty Cursor means that there are no more pages.
type Page struct {
	Items  []Item
	Cursor string
}

// Table is the persistence port. Get and non-index Query are strongly consistent. Write is atomic: all operations or
// none.
//
// Errors: *ConditionError if a condition failed, ErrTooLarge and ErrInvalid (nothing was written); ErrThrottled and
// ErrConflict (nothing was written, and the identical request may be sent again). After a context error, or any other
// error, the outcome is unknown: the write may have happened. Get and Query return a *DamagedError for an unreadable
// item. With that error, Query also returns the items before it and a Cursor after it. Safe for concurrent use.
// Returned items belong to the caller; passed items are not kept.
type Table interface {
	Get(ctx context.Context, k Key) (it Item, found bool, err error)
	Query(ctx context.Context, r Range) (Page, error)
	Write(ctx context.Context, ops ...Op) error
}

// The errors of a Table, in addition to ConditionError.
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

// Keys of the one table (ARCHITECTURE.md, the journal). The sort keys of a run's partition are ordered so that one
// range reads the journal's tail and exactly the undrained inbox: HEAD < I# (markers) < J# (journal) < K# (inbox,
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

// slotNumber returns the slot's number from its sort key, or a *DamagedError if the key has none.
func slotNumber(k Key) (int64, error) {
	rest, err := strconv.ParseInt(strings.TrimPrefix(k.SK, inboxSK), 10, 64)
	if err != nil || rest < 0 || slotSK(maxSlot-rest) != k.SK {
		return 0, Damaged(k, "sort key: want %s and ten digits", inboxSK)
	}
	return maxSlot - rest, nil
}

func markerKey(tenant, run, id string) Key { return Key{runPK(tenant, run), markerSK + id} }

// RunKey returns the key of a run's view, by which lists identify the run.
func RunKey(tenant, run string) Key { return Key{runPK(tenant, run), headSK} }

// runsIndex returns the index name of a list of runs, which is split into shards. Lists of deletions have no shards,
// because deletions are rare.
func runsIndex(tenant, status string) string { return "T#" + tenant + "#RUNS#" + status }

// shards is how many index partitions a list of all runs of a tenant has. Each accepts 1,000 write units a second.
const shards = 8

func shardName(list string, shard int) string { return fmt.Sprintf("%s#%d", list, shard) }

// Shard returns the shard of a list that holds the items of a run.
func Shard(list, run string) string {
	return shardName(list, int(crc32.ChecksumIEEE([]byte(run))%shards))
}

// Shards returns all shards of a list.
func Shards(list string) (names []string) {
	for i := range shards {
		names = append(names, shardName(list, i))
	}
	return names
}

// ReadShards is ReadPage for a list in shards, one after the other. Everything is read once, in the range's order
// within a shard only. PK is the list. A page may be empty and still have a cursor, which begins with the shard's
// number.
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

// ErrDamaged says that a stored item cannot be read: it has changed, or another version wrote it. Reading it again does
// not help.
var ErrDamaged = errors.New("the stored item cannot be read")

// DamagedError is the ErrDamaged of one item. Adapters return it if the bytes have changed, and readers if the content
// is not what this version writes.
type DamagedError struct {
	Key Key
	Err error // what is wrong with the item; quotes nothing of it except names of fields
}

// Damaged returns a *DamagedError that says what is wrong with an item.
func Damaged(k Key, format string, args ...any) error {
	return &DamagedError{Key: k, Err: fmt.Errorf(format, args...)}
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("item %q %q cannot be read: %v (deploy the version that wrote it, or restore the item)", e.Key.PK,
		e.Key.SK, e.Err)
}

// Is makes e an ErrDamaged.
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

// Unwrap returns what is wrong with the item.
func (e *DamagedError) Unwrap() error { return e.Err }

// ReadPage reads the items of one page of a range. For an unreadable item it adds an ErrDamaged to err, but returns the
// other items and next. Lists fail with this error, while a sweep reports it and continues.
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

// ReadAll reads all pages of a range. An unreadable item is an error.
func ReadAll(ctx context.Context, t Table, r Range) (all []Item, err error) {
	for {
		p, err := t.Query(ctx, r)
		if err != nil {
			return nil, err
		}
		all = append(all, p.Items...)
		if r.Cursor = p.Cursor; r.Cursor == "" {
			return all, nil
		}
	}
}

// Text returns a string attribute, or a *DamagedError if it is missing or a number.
func (it Item) Text(name string) (string, error) {
	v, ok := it.Attrs[name]
	if !ok || !v.isStr {
		return "", Damaged(it.Key, "%s: got %s, want a string", name, v.kind(ok))
	}
	return v.s, nil
}

// Number returns a number attribute, or a *DamagedError if it is missing or a string.
func (it Item) Number(name string) (int64, error) {
	v, ok := it.Attrs[name]
	if !ok || v.isStr {
		return 0, Damaged(it.Key, "%s: got %s, want a number", name, v.kind(ok))
	}
	return v.n, nil
}

func (v Value) kind(present bool) string {
	switch {
	case !present:
		return "nothing"
	case v.isStr:
		return "a string"
	default:
		return "a number"
	}
}

// Sum returns a checksum of an item's key and body, for adapters whose store has none. It does not cover attributes,
// because an Update changes only those.
func Sum(k Key, body []byte) int64 {
	sum := crc32.ChecksumIEEE([]byte(k.PK + separator + k.SK + separator))
	return int64(crc32.Update(sum, crc32.IEEETable, body))
}

// The limits of Resend: the total number of attempts, and the shortest and longest pause, which doubles. The pauses add
// up to at most 2.6 s.
const (
	resendAttempts = 8
	resendFirst    = 25 * time.Millisecond
	resendLast     = time.Second
)

// Resend returns a Table that sends a request again, unchanged, after ErrThrottled or ErrConflict. Only then was
// certainly nothing written, so nothing else may be resent (protocol rule 2). It makes up to 8 attempts. Before each
// further attempt it sleeps on c for half to all of a pause that grows from 25 ms to 1 s. jitter returns a random
// duration from 0 to its argument, inclusive. It returns the last attempt's error, joined with the context's if ctx
// ends during a pause. Safe for concurrent use if jitter is.
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
