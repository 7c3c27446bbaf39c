package runtime

import (
	"context"
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/run"
)

// tell tells a sink of an entry. A sink that panics has not heard of it: the entry is committed, and what listens is nobody's durable
// concern (semantics.md, 1.9: listener failures are swallowed).
func tell(ctx context.Context, sink EventSink, e run.Entry, s *run.AgentState) {
	defer func() { _ = recover() }()
	sink.Committed(ctx, e, s)
}

// Detached lets listeners take their time: each notice waits in a queue of its listener, and nobody waits for the listener. A notice that
// finds the queue full is lost, a panic costs the notice it happens in, and a listener that never returns hears nothing more. Safe for
// concurrent use; the listener hears one notice at a time, in order.
type Detached struct {
	clock clock.Clock
	room  int
	sink  EventSink
	said  agent.OnDelta

	mu      sync.Mutex
	waiting []func()
	working bool
	lost    int
}

var _ EventSink = (*Detached)(nil)

// Detach makes the queue of a listener, with room for so many notices that wait. Sink hears of entries and said of what models write, as an
// adapter's OnDelta does; either may be nil.
func Detach(c clock.Clock, room int, sink EventSink, said agent.OnDelta) *Detached {
	return &Detached{clock: c, room: room, sink: sink, said: said}
}

// Committed implements EventSink.
func (d *Detached) Committed(ctx context.Context, e run.Entry, s *run.AgentState) {
	if d.sink != nil {
		ctx = context.WithoutCancel(ctx)
		d.queue(func() { d.sink.Committed(ctx, e, s) })
	}
}

// Said tells the listener of a piece of a reply. It is an agent.OnDelta.
func (d *Detached) Said(r agent.Request, piece agent.Delta) {
	if d.said != nil {
		d.queue(func() { d.said(r, piece) })
	}
}

// Lost is how many notices found no room.
func (d *Detached) Lost() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost
}

// queue keeps a notice, and sees to it that somebody works on what is kept. Where nothing is kept, nobody does.
func (d *Detached) queue(notice func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) >= d.room {
		d.lost++
		return
	}
	d.waiting = append(d.waiting, notice)
	if !d.working {
		d.working = true
		d.clock.Go(d.work)
	}
}

func (d *Detached) work() {
	for notice := d.next(); notice != nil; notice = d.next() {
		heard(notice)
	}
}

func (d *Detached) next() func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) == 0 {
		d.working = false
		return nil
	}
	first := d.waiting[0]
	d.waiting = d.waiting[1:]
	return first
}

func heard(notice func()) {
	defer func() { _ = recover() }()
	notice()
}
