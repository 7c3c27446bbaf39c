package local

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/store"
)

// dueFunction is the name by which the alarm calls what is due, as the state machine calls its functions. No state has it.
const dueFunction = "due"

const (
	// maxDue is how many requests one call attends to; the alarm rings again for the others.
	maxDue = 1000
	// retry is after how long the alarm rings again when it could not be done what was due, or not be read what is.
	retry = 30 * time.Second
	// finishing bounds what one call may take, and so how long Close waits for messages that are on their way.
	finishing = 15 * time.Second
)

// notices tells people of requests, and has what is due about them done at its time while the process runs. One timer is set, to the earliest:
// nothing is looked at in between, and without anything due there is none.
type notices struct {
	*notify.Notifier
	clock   clock.Clock
	invoke  Invoker
	trouble func(function string, err error)
	ctx     context.Context // of every timer
	cancel  context.CancelFunc

	mu     sync.Mutex
	at     time.Time          // the timer's; zero = none is set
	unset  context.CancelFunc // ends it
	live   int                // timers that have not returned
	closed bool
	quiet  clock.Signal // no timer is left

	telling map[string][]func() error // runs of whose requests somebody is telling, and who wants to after them
}

// withNotices gives the machine what tells people; c.Notify nil = it has nobody to tell.
func (m *Machine) withNotices(c Config) {
	if c.Notify == nil {
		return
	}
	n := *c.Notify
	n.Table, n.Journal, n.Clock = m.Ports.Table, m.Ports.Journal, m.Ports.Clock
	if n.Show == nil {
		n.Show = notify.Viewer{Runs: m.Ports.Journal, Definitions: m.Definitions}.Show
	}
	if n.Directory == nil && c.People != nil {
		n.Directory = c.People
	}
	if n.Recorder == nil && m.audits != nil {
		n.Recorder = m.audits.log
	}
	m.notices = &notices{
		Notifier: &n, clock: c.Clock, trouble: c.Trouble, quiet: c.Clock.NewSignal(), telling: map[string][]func() error{},
	}
	m.notices.ctx, m.notices.cancel = context.WithCancel(context.Background())
	m.Ports.Notify = m.notices
}

// Asked is runtime.Notify's: what it makes due is waited for.
func (n *notices) Asked(ctx context.Context, tenant, run string) error {
	ctx = context.WithoutCancel(ctx) // a process that ends because the run waits has people told of it first
	defer n.look(ctx)
	return n.inTurn(run, func() error { return n.Notifier.Asked(ctx, tenant, run) })
}

// inTurn tells of the requests of a run behind whoever is telling of them: two at once would share them out and send
// two messages where one does. Whoever is telling does it then, and nobody waits.
func (n *notices) inTurn(run string, tell func() error) error {
	n.mu.Lock()
	if behind, busy := n.telling[run]; busy {
		n.telling[run] = append(behind, tell)
		n.mu.Unlock()
		return nil
	}
	n.telling[run] = nil
	n.mu.Unlock()
	done := false
	defer func() { // a function that crashes leaves nobody waiting for it
		if !done {
			n.mu.Lock()
			defer n.mu.Unlock()
			delete(n.telling, run)
		}
	}()
	for all := []error(nil); ; {
		all = append(all, tell())
		n.mu.Lock()
		behind := n.telling[run]
		if len(behind) == 0 {
			delete(n.telling, run)
			done = true
			n.mu.Unlock()
			return errors.Join(all...)
		}
		tell, n.telling[run] = behind[0], behind[1:]
		n.mu.Unlock()
	}
}

// Decided is approval.Desk's.
func (n *notices) Decided(ctx context.Context, a approval.Approval) {
	n.Notifier.Decided(ctx, a)
	n.look(ctx)
}

// Noted is approval.Desk's, of an approval that is not the last one that it takes.
func (n *notices) Noted(ctx context.Context, a approval.Approval) {
	n.Notifier.Noted(ctx, a)
	n.look(ctx)
}

// Thread is approval.Desk's, of a remark.
func (n *notices) Thread(ctx context.Context, a approval.Approval) {
	n.Notifier.Thread(ctx, a)
	n.look(ctx)
}

// look sets the timer to what is due next, unless it rings before.
func (n *notices) look(ctx context.Context) {
	at, found, err := n.Next(ctx)
	if err != nil {
		if ctx.Err() == nil { // not just called off, as with a process that ends while the run waits
			n.failed(err)
		}
		at, found = n.clock.Now().Add(retry), true
	}
	if found {
		n.set(at)
	}
}

func (n *notices) set(at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || !n.at.IsZero() && !at.Before(n.at) {
		return
	}
	if n.unset != nil {
		n.unset()
	}
	n.live++
	n.at = at
	var ctx context.Context
	ctx, n.unset = context.WithCancel(n.ctx)
	n.clock.Go(func() {
		defer n.returned()
		if n.clock.Sleep(ctx, at.Sub(n.clock.Now())) == nil {
			n.ring(ctx)
		}
	})
}

// ring does what is due and sets the timer to what is due next. A process that ends meanwhile does not cut it off: a message that is
// cut off may have arrived.
func (n *notices) ring(ctx context.Context) {
	n.mu.Lock()
	n.at, n.unset = time.Time{}, nil
	n.mu.Unlock()
	work, done := n.clock.WithTimeout(context.WithoutCancel(ctx), finishing)
	defer done()
	if _, err := n.invoke(work, dueFunction, nil); err != nil && ctx.Err() == nil {
		n.failed(err)
		n.set(n.clock.Now().Add(retry))
		return
	}
	n.look(ctx)
}

func (n *notices) failed(err error) {
	if n.trouble != nil {
		n.trouble(dueFunction, err)
	}
}

func (n *notices) returned() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.live--; n.live == 0 {
		n.quiet.Notify()
	}
}

// close ends the timer, and waits for what it has begun.
func (n *notices) close() error {
	n.cancel()
	n.mu.Lock()
	n.closed = true
	live := n.live
	n.mu.Unlock()
	for live > 0 {
		if err := n.quiet.Wait(context.Background(), 0); err != nil {
			return err
		}
		n.mu.Lock()
		live = n.live
		n.mu.Unlock()
	}
	return nil
}

// serve answers the alarm, and hands everything else on.
func (n *notices) serve(next Invoker) Invoker {
	if n == nil {
		return next
	}
	return func(ctx context.Context, function string, payload []byte) ([]byte, error) {
		if function != dueFunction {
			return next(ctx, function, payload)
		}
		did, err := n.Due(ctx, maxDue)
		if err != nil {
			return nil, err
		}
		return json.Marshal(did)
	}
}

// ensure tells of the tenant's requests of which nobody began to tell, and does what has become due while no process ran.
func (n *notices) ensure(ctx context.Context, tenant string) error {
	if n == nil {
		return nil
	}
	for cursor := ""; ; {
		asked, next, err := approval.List(ctx, n.Table, tenant, approval.Pending, 0, cursor)
		if errors.Is(err, store.ErrDamaged) {
			n.failed(err)
		} else if err != nil {
			return err
		}
		for _, a := range asked {
			err := n.inTurn(a.Run, func() error {
				_, err := n.Ensure(ctx, a)
				return err
			})
			if err != nil {
				n.failed(err)
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	n.look(ctx)
	return nil
}

// Close ends what the machine does at a safe point. Runs go on when it is made again over the same table. People are told of what waits for
// them: a process that ends because its run waits may be the last for long.
func (m *Machine) Close() error {
	err := m.Engine.Close()
	if m.notices != nil {
		err = errors.Join(err, m.notices.ensure(context.Background(), Tenant), m.notices.close())
	}
	return err
}
