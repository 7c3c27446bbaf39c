package bolt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/countersign/countersign/internal/store"
)

// Table is a store.Table in one file. Open makes one, Close ends it. Safe for concurrent use.
type Table struct {
	path string
	file *os.File // the file of the database
	db   *bbolt.DB

	lead  chan struct{} // held by the one Write that commits (group.go)
	mu    sync.Mutex    // guards queue and fault
	queue []*pending
	fault error // set once a commit failed with an unknown outcome; wraps ErrUnknownState
}

// Close waits for running calls and releases the file. Later calls fail.
func (t *Table) Close() error {
	t.lead <- struct{}{}
	defer func() { <-t.lead }()
	if err := t.release(); err != nil {
		return fmt.Errorf("close store %s: %w", t.path, err)
	}
	return nil
}

// release closes the database. If the database did not open or is in an unknown state, it only closes the file, since
// bbolt may then hold locks that are never released.
func (t *Table) release() error {
	if t.db != nil && t.failure() == nil {
		return t.db.Close()
	}
	return t.closeFile()
}

// closeFile closes the file and releases its lock. Closing it again is not an error.
func (t *Table) closeFile() error {
	if t.file == nil {
		return nil
	}
	f := t.file
	t.file = nil
	if _, err := f.Stat(); errors.Is(err, os.ErrClosed) {
		return nil
	}
	return errors.Join(unlock(f), f.Close())
}

// Get implements store.Table. If bbolt fails on its own pages, the error is an ErrDamaged.
func (t *Table) Get(ctx context.Context, k store.Key) (it store.Item, found bool, err error) {
	if err := cmp.Or(ctx.Err(), store.CheckKey(k)); err != nil {
		return store.Item{}, false, err
	}
	err = t.view(func(b buckets) error {
		it, found, err = b.get(k)
		return err
	})
	if err != nil {
		return store.Item{}, false, fmt.Errorf("get %q %q from store %s: %w", k.PK, k.SK, t.path, err)
	}
	return it, found, nil
}

// Query implements store.Table. Its errors are those of Get.
func (t *Table) Query(ctx context.Context, r store.Range) (store.Page, error) {
	if err := ctx.Err(); err != nil {
		return store.Page{}, err
	}
	from, until, err := store.Span(r)
	if err != nil {
		return store.Page{}, err
	}
	pager := store.Pager{Range: r}
	err = t.view(func(b buckets) error {
		// Fill a page with the items of a store.Span in the order of r, up to the first unreadable one.
		bucket, load := b.items, b.fromItem
		if r.Index {
			bucket, load = b.index, b.fromRow
		}
		s := span{c: bucket.Cursor(), prefix: r.PK + separator, from: from, until: until}
		first, next := s.first, s.c.Next
		if r.Reverse {
			first, next = s.last, s.c.Prev
		}
		for k, v := first(); s.holds(k); k, v = next() {
			it, err := load(k, v)
			if err != nil {
				if at := strings.TrimPrefix(string(k), s.prefix); !r.Index || strings.Count(at, separator) == 2 {
					pager.Skip(at)
				}
				return err
			}
			if !pager.Add(it) {
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return pager.Page, fmt.Errorf("query %q in store %s: %w", r.PK, t.path, err)
	}
	return pager.Page, nil
}

func (t *Table) view(read func(buckets) error) error {
	if err := t.failure(); err != nil {
		return err
	}
	return recoverDamage(func() error {
		return t.db.View(func(tx *bbolt.Tx) error { return read(bucketsOf(tx)) })
	})
}

// failure returns the error that stops the table from working, or nil.
func (t *Table) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fault
}

// recoverDamage turns a panic or a memory fault into ErrDamaged, because bbolt trusts the pages it reads.
func recoverDamage(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return f()
}

const separator = "\x00"

// buckets are the two buckets in one transaction.
type buckets struct{ items, index *bbolt.Bucket }

func bucketsOf(tx *bbolt.Tx) buckets {
	b := buckets{tx.Bucket(itemsBucket), tx.Bucket(indexBucket)}
	b.items.FillPercent, b.index.FillPercent = 1, 1
	return b
}

func itemKey(k store.Key) []byte {
	return []byte(k.PK + separator + k.SK)
}

func indexKey(it store.Item) []byte {
	return []byte(it.Index + separator + store.Position(it, true))
}

func (b buckets) get(k store.Key) (store.Item, bool, error) {
	v := b.items.Get(itemKey(k))
	if v == nil {
		return store.Item{}, false, nil
	}
	it, err := decode(k, v)
	return it, err == nil, err
}

// put stores the change of one key and moves its index row.
func (b buckets) put(c store.Change) error {
	if c.Found && c.Old.Index != "" && (c.Old.Index != c.New.Index || c.Old.IndexSort != c.New.IndexSort) {
		if err := b.index.Delete(indexKey(c.Old)); err != nil {
			return err
		}
	}
	if c.Gone {
		return b.items.Delete(itemKey(c.Old.Key))
	}
	if c.New.Index != "" {
		if err := b.index.Put(indexKey(c.New), nil); err != nil {
			return err
		}
	}
	value, err := encode(c.New)
	if err != nil {
		return err
	}
	return b.items.Put(itemKey(c.New.Key), value)
}

func (b buckets) fromItem(key, value []byte) (store.Item, error) {
	pk, sk, _ := strings.Cut(string(key), separator)
	return decode(store.Key{PK: pk, SK: sk}, value)
}

// fromRow returns the item that an index row lists.
func (b buckets) fromRow(key, _ []byte) (store.Item, error) {
	parts := strings.Split(string(key), separator)
	if len(parts) != 4 {
		return store.Item{}, fmt.Errorf("index row %q: %w", key, ErrDamaged)
	}
	k := store.Key{PK: parts[2], SK: parts[3]}
	it, found, err := b.get(k)
	if err == nil && (!found || !bytes.Equal(indexKey(it), key)) {
		err = store.Damaged(k, "index row %q points at no such item", key)
	}
	return it, err
}

// span is a half-open interval of keys under a prefix.
type span struct {
	c                   *bbolt.Cursor
	prefix, from, until string
}

func (s span) first() (k, v []byte) { return s.c.Seek([]byte(s.prefix + s.from)) }

// last goes to the greatest key below the end of the span.
func (s span) last() (k, v []byte) {
	end := s.prefix + s.until
	if s.until == "" {
		end = strings.TrimSuffix(s.prefix, separator) + "\x01"
	}
	if k, _ = s.c.Seek([]byte(end)); k == nil {
		return s.c.Last()
	}
	return s.c.Prev()
}

func (s span) holds(key []byte) bool {
	position, ours := strings.CutPrefix(string(key), s.prefix)
	return ours && position >= s.from && (s.until == "" || position < s.until)
}
