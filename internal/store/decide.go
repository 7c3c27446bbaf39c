package store

import (
	"fmt"
	"maps"
)

// Change is what an accepted Put or Update does to one key.
type Change struct {
	Old   Item // the item as it was; zero unless Found
	Found bool
	New   Item // shares attributes and body with the operation or with Old: an adapter copies what it keeps
}

// Decide evaluates a Write for adapters that hold the items themselves: against what get returns for each key it gives
// the changes to make, in the order of ops, Checks left out. Or it gives an error and nothing may be written:
// *ConditionError with every operation that failed, ErrTooLarge when an Update grows an item over MaxItem, or the error
// of get. ops have passed CheckOps.
func Decide(ops []Op, get func(Key) (it Item, found bool, err error)) ([]Change, error) {
	changes := make([]Change, 0, len(ops))
	var failed []int
	for i, op := range ops {
		old, found, err := get(op.Item.Key)
		if err != nil {
			return nil, err
		}
		if !Holds(op.If, old, found) || op.Kind == Update && !found {
			failed = append(failed, i)
			continue
		}
		if op.Kind != Check {
			changes = append(changes, Change{Old: old, Found: found, New: result(op, old)})
		}
	}
	if len(failed) > 0 {
		return nil, &ConditionError{Failed: failed}
	}
	for _, c := range changes {
		if n := Size(c.New); n > MaxItem {
			return changes, fmt.Errorf("update %q %q to %d bytes: %w", c.New.PK, c.New.SK, n, ErrTooLarge)
		}
	}
	return changes, nil
}

// Holds reports whether every condition holds for the stored item; found is false when there is none. No conditions
// always hold. A missing item or attribute, and a value of the other type, fail every operator but ItemAbsent of a
// missing item.
func Holds(conds []Cond, stored Item, found bool) bool {
	for _, c := range conds {
		if !holds(c, stored, found) {
			return false
		}
	}
	return true
}

func holds(c Cond, stored Item, found bool) bool {
	v, has := stored.Attrs[c.Attr]
	ordered := found && has && !v.isStr && !c.Value.isStr
	switch c.Op {
	case ItemAbsent:
		return !found
	case ItemExists:
		return found
	case Equal:
		return found && has && v == c.Value
	case AtMost:
		return ordered && v.n <= c.Value.n
	case Above:
		return ordered && v.n > c.Value.n
	}
	return false
}

// result is the item after op: the Put item, or the stored one with the Update's attributes and index over it.
func result(op Op, old Item) Item {
	if op.Kind == Put {
		return op.Item
	}
	it := old
	it.Attrs = maps.Clone(old.Attrs)
	if it.Attrs == nil {
		it.Attrs = make(map[string]Value, len(op.Item.Attrs))
	}
	maps.Copy(it.Attrs, op.Item.Attrs)
	if op.Item.Index != "" {
		it.Index, it.IndexSort = op.Item.Index, op.Item.IndexSort
	}
	return it
}
