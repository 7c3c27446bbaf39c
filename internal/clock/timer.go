package clock

import (
	"container/heap"
	"time"
)

// timer is one instant of a Virtual at which something happens. Timers due at the same instant fire in order of
// creation.
type timer struct {
	at    time.Time
	order int
	fire  func() // called without the clock's lock
	index int    // place in the heap, -1 when not in it
}

// timers is a heap, the earliest first.
type timers []*timer

func (h timers) Len() int { return len(h) }

func (h timers) Less(i, j int) bool {
	if c := h[i].at.Compare(h[j].at); c != 0 {
		return c < 0
	}
	return h[i].order < h[j].order
}

func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timers) Push(x any) {
	t := x.(*timer)
	t.index = len(*h)
	*h = append(*h, t)
}

func (h *timers) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = -1
	return t
}

// set arms t to fire at an instant.
func (v *Virtual) set(t *timer, at time.Time) {
	v.timerOrder++
	t.at, t.order = at, v.timerOrder
	heap.Push(&v.timers, t)
}

// unset disarms t, if it is armed.
func (v *Virtual) unset(t *timer) {
	if t.index >= 0 {
		heap.Remove(&v.timers, t.index)
	}
}
