package agent

import "sync/atomic"

// Log is a persistent append-only list: Append returns a longer list and leaves the receiver as it was, in amortised
// constant time. Versions share memory; the newest of them grows in place and any other copies. The zero Log is empty. Safe
// for concurrent use, as elements are never changed.
type Log[T any] struct {
	back *logBack[T]
	n    int
}

type logBack[T any] struct {
	items []T // len == cap; only items[:used] are set
	used  atomic.Int64
}

// Len is the number of elements.
func (l Log[T]) Len() int { return l.n }

// At is element i, 0 <= i < Len.
func (l Log[T]) At(i int) T { return l.All()[i] }

// All is a read-only view of the elements. It must not be written to.
func (l Log[T]) All() []T {
	if l.back == nil {
		return nil
	}
	return l.back.items[:l.n:l.n]
}

// Append returns l with v at its end.
func (l Log[T]) Append(v T) Log[T] {
	if l.back != nil && l.n < len(l.back.items) && l.back.used.CompareAndSwap(int64(l.n), int64(l.n+1)) {
		l.back.items[l.n] = v
		return Log[T]{l.back, l.n + 1}
	}
	grown := &logBack[T]{items: make([]T, max(8, 2*l.n))}
	copy(grown.items, l.All())
	grown.items[l.n] = v
	grown.used.Store(int64(l.n + 1))
	return Log[T]{grown, l.n + 1}
}
