package local

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/store"
)

const (
	// dueFunction is the name by which the timer calls what is due, as the state machine calls its functions. No state
	// has it.
	dueFunction = "due"

	maxDue    = 1000             // requests that one call attends to; the timer rings again for the others
	retry     = 30 * time.Second // until the timer rings again if what is due could not be done or read
	finishing = 15 * time.Second // for one call, and so for messages that Close waits for
)

// notices tells people of requests, and has what is due about them done at its time while the process runs. One timer
// is set, to the earliest: nothing is looked at in between, and without anything due there is none.
type notices struct {
	*people.Notifier
	clock  clock.Clock
	invoke Invoker
	report func(err error)
	ctx    context.Context // of every timer
	cancel context.CancelFunc

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
		n.Show = (&people.Viewer{Runs: m.Ports.Journal, Definitions: m.Definitions}).Show
	}
	if n.Directory == nil && c.People != nil {
		n.Directory = c.People
	}
	m.notices = &notices{
		Notifier: &n, clock: c.Clock, report: func(err error) { m.report(dueFunction, err) }, quiet: c.Clock.NewSignal(),
		telling: map[string][]func() error{},
	}
	m.notices.ctx, m.notices.cancel = context.WithCancel(context.Background())
	m.Ports.Notify = m.notices
}

// NotifyRun is runtime.Notify's: what it makes due is waited for.
func (n *notices) NotifyRun(ctx context.Context, tenant, run string) error {
	ctx = context.WithoutCancel(ctx) // a process that ends because the run waits has people told of it first
	defer n.schedule(ctx)
	return n.serialize(run, func() error { return n.Notifier.NotifyRun(ctx, tenant, run) })
}

// serialize notifies people of a run's requests, one caller at a time for each run: two at once would split them and
// send two messages. If another caller is at it, that one does it, and this one does not wait.
func (n *notices) serialize(run string, tell func() error) error {
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

// NotifyChange is approval.Desk's OnChange.
func (n *notices) NotifyChange(ctx context.Context, a approval.Approval) {
	n.Notifier.NotifyChange(ctx, a)
	n.schedule(ctx)
}

// schedule sets the timer to what is due next, unless it rings before.
func (n *notices) schedule(ctx context.Context) {
	at, found, err := n.NextDue(ctx)
	if err != nil {
		if ctx.Err() == nil { // not just called off, as with a process that ends while the run waits
			n.report(err)
		}
		at, found = n.clock.Now().Add(retry), true
	}
	if found {
		n.setTimer(at)
	}
}

func (n *notices) setTimer(at time.Time) {
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
		defer func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.live--; n.live == 0 {
				n.quiet.Notify()
			}
		}()
		if n.clock.Sleep(ctx, at.Sub(n.clock.Now())) == nil {
			n.notifyDue(ctx)
		}
	})
}

// notifyDue does what is due and sets the timer again. The end of the process does not cut it off, because a message
// that is cut off may have arrived.
func (n *notices) notifyDue(ctx context.Context) {
	n.mu.Lock()
	n.at, n.unset = time.Time{}, nil
	n.mu.Unlock()
	work, done := n.clock.WithTimeout(context.WithoutCancel(ctx), finishing)
	defer done()
	if _, err := n.invoke(work, dueFunction, nil); err != nil && ctx.Err() == nil {
		n.report(err)
		n.setTimer(n.clock.Now().Add(retry))
		return
	}
	n.schedule(ctx)
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

// interceptAlarm handles the alarm and passes everything else on.
func (n *notices) interceptAlarm(next Invoker) Invoker {
	if n == nil {
		return next
	}
	return func(ctx context.Context, function string, payload []byte) ([]byte, error) {
		if function != dueFunction {
			return next(ctx, function, payload)
		}
		did, err := n.ProcessDue(ctx, maxDue)
		if err != nil {
			return nil, err
		}
		return json.Marshal(did)
	}
}

// catchUp notifies people of the tenant's requests that nobody was told of, and does what came due while no process
// ran.
func (n *notices) catchUp(ctx context.Context, tenant string) error {
	if n == nil {
		return nil
	}
	for cursor := ""; ; {
		asked, next, err := approval.List(ctx, n.Table, tenant, approval.Query{Status: approval.Pending, Cursor: cursor})
		if errors.Is(err, store.ErrDamaged) {
			n.report(err)
		} else if err != nil {
			return err
		}
		for _, a := range asked {
			err := n.serialize(a.Run, func() error {
				_, err := n.EnsureNotified(ctx, a)
				return err
			})
			if err != nil {
				n.report(err)
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	n.schedule(ctx)
	return nil
}

// Close ends what the machine does at a safe point. Runs go on when it is made again over the same table. People are
// told of what waits for them: a process that ends because its run waits may be the last for long.
func (m *Machine) Close() error {
	err := m.Engine.Close()
	if m.notices != nil {
		err = errors.Join(err, m.notices.catchUp(context.Background(), Tenant), m.notices.close())
	}
	return err
}
