package store

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
)

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
	return fmt.Sprintf("item %q %q cannot be read: %v (deploy the version that wrote it, or restore the item)", e.Key.PK, e.Key.SK, e.Err)
}

// Is makes e an ErrDamaged.
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

// Unwrap gives what is wrong with it.
func (e *DamagedError) Unwrap() error { return e.Err }

// ReadPage reads the items of one page of a range. An item that cannot be read is an ErrDamaged beside the others and
// next: whoever lists fails with it, and a sweep over many reports it and goes on.
func ReadPage[T any](ctx context.Context, t Table, r Range, read func(Item) (T, error)) (list []T, next string, err error) {
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
