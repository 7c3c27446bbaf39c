package store

import (
	"iter"
	"slices"
	"strings"
)

// row is an item at its store.Position.
type row struct {
	position string
	item     Item
}

// rows are ordered by position, each position once.
type rows []row

func (rs rows) find(position string) (int, bool) {
	return slices.BinarySearchFunc(rs, position, func(r row, p string) int { return strings.Compare(r.position, p) })
}

func (rs rows) with(r row) rows {
	i, found := rs.find(r.position)
	if found {
		rs[i] = r
		return rs
	}
	return slices.Insert(rs, i, r)
}

func (rs rows) without(position string) rows {
	i, found := rs.find(position)
	if !found {
		return rs
	}
	return slices.Delete(rs, i, i+1)
}

// between gives the items of a store.Span in the order asked for.
func (rs rows) between(from, until string, reverse bool) iter.Seq[Item] {
	low, _ := rs.find(from)
	high := len(rs)
	if until != "" {
		high, _ = rs.find(until)
	}
	span := rs[low:max(low, high)]
	return func(yield func(Item) bool) {
		for i := range span {
			if reverse {
				i = len(span) - 1 - i
			}
			if !yield(span[i].item) {
				return
			}
		}
	}
}
