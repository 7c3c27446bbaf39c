package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// CheckOps validates operations for all adapters, so that all of them accept the same. It returns nil, ErrTooLarge for
// a Put over MaxItem, or ErrInvalid for anything else that no adapter accepts:
//
//   - no operations, more than MaxOps, more than MaxWrite bytes in total, or a key named twice;
//   - a key, index, attribute name or string that is empty where it names something, too long, not UTF-8, or contains a
//     NUL (which separates keys in ordered stores); an Index without IndexSort, or the reverse;
//   - an unknown kind or operator; an ordered operator with a string;
//   - an Update with a body or without anything to set, a Check with more than its key or without a condition, a Delete
//     with more than its key, an Add of anything but numbers or with a condition.
//
// An Update with Index and IndexSort moves the item there. Without them the item stays listed where it was.
func CheckOps(ops []Op) error {
	if len(ops) == 0 || len(ops) > MaxOps {
		return fmt.Errorf("write %d operations, want 1 to %d: %w", len(ops), MaxOps, ErrInvalid)
	}
	seen := make(map[Key]struct{}, len(ops))
	total := 0
	for i, op := range ops {
		if err := checkOp(op); errors.Is(err, ErrTooLarge) { // clients are told, who know no keys
			return fmt.Errorf("write %w", err)
		} else if err != nil {
			return fmt.Errorf("check operation %d on %q %q: %w", i, op.Item.PK, op.Item.SK, err)
		}
		if _, twice := seen[op.Item.Key]; twice {
			return fmt.Errorf("check operation %d on %q %q: key named twice: %w", i, op.Item.PK, op.Item.SK, ErrInvalid)
		}
		seen[op.Item.Key] = struct{}{}
		total += Size(op.Item)
	}
	if total > MaxWrite {
		return fmt.Errorf("write %d bytes at once, want at most %d: %w", total, MaxWrite, ErrInvalid)
	}
	return nil
}

// CheckKey returns ErrInvalid if no item can be stored under k.
func CheckKey(k Key) error {
	return errors.Join(checkName("partition key", k.PK, MaxPK), checkName("sort key", k.SK, MaxSK))
}

func checkOp(op Op) error {
	if err := CheckKey(op.Item.Key); err != nil {
		return err
	}
	it := op.Item
	bare := len(it.Attrs) == 0 && it.Index == "" && it.IndexSort == ""
	empty := bare && len(it.Body) == 0
	switch op.Kind {
	case Put:
		if n := Size(it); n > MaxItem {
			return fmt.Errorf("%d bytes: %w", n, ErrTooLarge)
		}
	case Update:
		if bare || len(it.Body) > 0 {
			return fmt.Errorf("an update sets attributes or the index, and no body: %w", ErrInvalid)
		}
	case Check:
		if !empty || len(op.If) == 0 {
			return fmt.Errorf("a check has a key and conditions: %w", ErrInvalid)
		}
	case Delete:
		if !empty {
			return fmt.Errorf("a deletion has a key and perhaps conditions: %w", ErrInvalid)
		}
	case Add:
		if !isAddition(op) {
			return fmt.Errorf("an addition has a key and numbers, and no conditions: %w", ErrInvalid)
		}
	default:
		return fmt.Errorf("unknown kind %d: %w", op.Kind, ErrInvalid)
	}
	if it.Index != "" || it.IndexSort != "" {
		err := errors.Join(checkName("index", it.Index, MaxPK), checkName("index sort key", it.IndexSort, MaxSK))
		if err != nil {
			return err
		}
	}
	for name, v := range it.Attrs {
		if err := checkAttrName(name); err != nil {
			return err
		}
		if !utf8.ValidString(v.s) {
			return fmt.Errorf("attribute %q is not UTF-8: %w", name, ErrInvalid)
		}
	}
	for _, c := range op.If {
		switch c.Op {
		case ItemAbsent, ItemExists:
			continue
		case Equal:
		case AtMost, Above:
			if c.Value.isStr {
				return fmt.Errorf("condition on %q orders a string: %w", c.Attr, ErrInvalid)
			}
		default:
			return fmt.Errorf("unknown operator %d: %w", c.Op, ErrInvalid)
		}
		if err := checkAttrName(c.Attr); err != nil {
			return err
		}
		if !utf8.ValidString(c.Value.s) {
			return fmt.Errorf("condition on %q is not UTF-8: %w", c.Attr, ErrInvalid)
		}
	}
	return nil
}

func isAddition(op Op) bool {
	for _, v := range op.Item.Attrs {
		if v.isStr {
			return false
		}
	}
	return len(op.Item.Attrs) > 0 && op.Item.Index == "" && len(op.Item.Body) == 0 && len(op.If) == 0
}

func checkAttrName(name string) error {
	switch name {
	case NamePK, NameSK, NameBody, NameIndex, NameIndexSort, NameSum:
		return fmt.Errorf("attribute name %q is reserved: %w", name, ErrInvalid)
	}
	return checkName("attribute name", name, MaxSK)
}

func checkName(what, s string, most int) error {
	if s == "" {
		return fmt.Errorf("%s is empty: %w", what, ErrInvalid)
	}
	if len(s) > most {
		return fmt.Errorf("%s has %d bytes, want at most %d: %w", what, len(s), most, ErrInvalid)
	}
	return checkText(what, s)
}

func checkText(what, s string) error {
	if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
		return fmt.Errorf("%s %q is not UTF-8 without NUL: %w", what, s, ErrInvalid)
	}
	return nil
}

// Further limits of DynamoDB, enforced by every adapter.
const (
	// MaxPage is the most bytes of items in one page of a Query. The first item is always in its page, whatever its size.
	MaxPage = 1 << 20
	// MaxWrite is the most bytes of items in one Write.
	MaxWrite = 4 << 20
	// MaxPK and MaxSK are the longest keys in bytes; they also apply to Index and IndexSort.
	MaxPK = 2048
	MaxSK = 1024
)

// The names under which an item's own parts are stored beside its attributes. They count towards its size. So an
// adapter with other names must not choose longer ones, and no attribute may have these names.
const (
	NamePK        = "PK"
	NameSK        = "SK"
	NameBody      = "Body"
	NameIndex     = "Index"
	NameIndexSort = "IndexSort"
	NameSum       = "Sum" // an adapter may store Sum there; it is not counted
)

// Size returns the item's size in bytes as DynamoDB counts it towards MaxItem and capacity: names and values of keys,
// attributes, index and body, without empty ones. Numbers use DynamoDB's documented estimate, rounded up.
func Size(it Item) int {
	n := len(NamePK) + len(it.PK) + len(NameSK) + len(it.SK)
	if len(it.Body) > 0 {
		n += len(NameBody) + len(it.Body)
	}
	if it.Index != "" {
		n += len(NameIndex) + len(it.Index) + len(NameIndexSort) + len(it.IndexSort)
	}
	for name, v := range it.Attrs {
		n += len(name) + valueSize(v)
	}
	return n
}

// valueSize counts a number as one byte, plus one for two digits, plus one for a minus sign.
func valueSize(v Value) int {
	if v.isStr {
		return len(v.s)
	}
	digits := len(strconv.FormatInt(v.n, 10))
	if v.n < 0 {
		return 2 + digits/2 // digits includes the sign: (digits-1+1)/2
	}
	return 1 + (digits+1)/2
}
