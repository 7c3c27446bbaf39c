package agent

import "sync/atomic"

// Log is a persistent list that grows at its end and shrinks at its front: Append and DropFront return another list and leave the
// receiver as it was, Append in amortised constant time. Versions share memory; the newest of them grows in place and any other
// copies. The zero Log is empty. Safe for concurrent use, as elements are never changed.
type Log[T any] struct {
	back *logBack[T]
	off  int // elements dropped from the front of back
	n    int // end in back
}

type logBack[T any] struct {
	items []T // len == cap; only items[:used] are set
	used  atomic.Int64
}

// Len is the number of elements.
func (l Log[T]) Len() int { return l.n - l.off }

// At is element i, 0 <= i < Len.
func (l Log[T]) At(i int) T { return l.All()[i] }

// All is a read-only view of the elements, nil where there is none. It must not be written to.
func (l Log[T]) All() []T {
	if l.Len() == 0 {
		return nil
	}
	return l.back.items[l.off:l.n:l.n]
}

// DropFront returns l without its first k elements, 0 <= k <= Len.
func (l Log[T]) DropFront(k int) Log[T] {
	l.off += k
	return l
}

// Append returns l with v at its end.
func (l Log[T]) Append(v T) Log[T] {
	if l.back != nil && l.n < len(l.back.items) && l.back.used.CompareAndSwap(int64(l.n), int64(l.n+1)) {
		l.back.items[l.n] = v
		return Log[T]{l.back, l.off, l.n + 1}
	}
	grown := &logBack[T]{items: make([]T, max(8, 2*l.Len()))}
	end := copy(grown.items, l.All())
	grown.items[end] = v
	grown.used.Store(int64(end + 1))
	return Log[T]{grown, 0, end + 1}
}
