package bolt

import (
	"bytes"
	"fmt"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/countersign/countersign/internal/store"
)

const separator = "\x00"

// buckets are the two of one transaction.
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

// put stores what a Write decided for one key and moves its index row.
func (b buckets) put(c store.Change) error {
	if c.Found && c.Old.Index != "" && (c.Old.Index != c.New.Index || c.Old.IndexSort != c.New.IndexSort) {
		if err := b.index.Delete(indexKey(c.Old)); err != nil {
			return err
		}
	}
	if c.New.Index != "" {
		if err := b.index.Put(indexKey(c.New), nil); err != nil {
			return err
		}
	}
	return b.items.Put(itemKey(c.New.Key), encode(c.New))
}

func (b buckets) fromItem(key, value []byte) (store.Item, error) {
	pk, sk, _ := strings.Cut(string(key), separator)
	return decode(store.Key{PK: pk, SK: sk}, value)
}

// fromRow is the item that an index row lists.
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
