package store

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/countersign/countersign/internal/agent"
)

// ErrDamaged says that a stored item is not what was written under its key. Nothing that is found again cures it: whoever meets it tells
// people, and leaves what the item belongs to as it is.
var ErrDamaged = errors.New("the stored item is damaged")

// DamagedError is an ErrDamaged of one item. Adapters give it where the bytes have changed, and readers where they say what no writer says.
type DamagedError struct {
	Key Key
	Err error // what is wrong with it. It quotes nothing that the item holds beyond the names of fields
}

// Damaged makes a *DamagedError of what is wrong with an item.
func Damaged(k Key, format string, args ...any) error {
	return &DamagedError{Key: k, Err: fmt.Errorf(format, args...)}
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("item %q %q is damaged: %v", e.Key.PK, e.Key.SK, e.Err)
}

// Is makes e an ErrDamaged.
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

// Unwrap gives what is wrong with it.
func (e *DamagedError) Unwrap() error { return e.Err }

// Unreadable says of an item, by its key, why it cannot be read: a *DamagedError, unless a newer version wrote it (agent.ErrNewer), which is no damage.
func Unreadable(k Key, err error) error {
	if errors.Is(err, agent.ErrNewer) {
		return fmt.Errorf("item %q %q: %w", k.PK, k.SK, err)
	}
	return &DamagedError{Key: k, Err: err}
}

// Unread reports whether an error says of one item that it cannot be read, as it is damaged or as a newer version wrote it. It says nothing about any
// other item, and nothing cures it here: whoever goes through many tells it and goes on.
func Unread(err error) bool { return errors.Is(err, ErrDamaged) || errors.Is(err, agent.ErrNewer) }

// UnreadItem is an item of a list that cannot be read.
type UnreadItem struct {
	Key Key
	Err error // an ErrDamaged or an agent.ErrNewer
}

// UnreadItems are those of a page that cannot be read. A function that lists gives what it could read and where the page ends beside this error: the
// others are not hidden by one of them.
type UnreadItems []UnreadItem

func (e UnreadItems) Error() string { return fmt.Sprint(errors.Join(e.Unwrap()...)) }

// Unwrap gives the errors of all of them.
func (e UnreadItems) Unwrap() []error {
	out := make([]error, len(e))
	for i, it := range e {
		out[i] = it.Err
	}
	return out
}

// AsError is nil where there are none.
func (e UnreadItems) AsError() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// Spared takes a list's error apart: what could not be read of it, and the error that spoilt all of it.
func Spared(err error) (unread UnreadItems, spoilt error) {
	if items, ok := err.(UnreadItems); ok { //nolint:errorlint // one that is wrapped came with no list
		return items, nil
	}
	return nil, err
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

// Sum is a checksum of where an item stands and of its body, for adapters whose store has none of its own. Attributes are not in it: an Update
// changes them alone.
func Sum(k Key, body []byte) int64 {
	sum := crc32.ChecksumIEEE([]byte(k.PK + separator + k.SK + separator))
	return int64(crc32.Update(sum, crc32.IEEETable, body))
}
