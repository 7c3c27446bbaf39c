package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/store"
)

// quarantined is the draft that quarantines a run as it is loaded: it parks, and waits by an execution of a new epoch.
func (p Ports) quarantined(l store.Loaded, why agent.QuarantineReason, copied time.Time) (*agent.Draft, error) {
	d := agent.NewDraft(l.State, p.IDs.Writer(), p.Clock.Now())
	if l.State.Status == agent.RunWaiting {
		if err := d.Add(resumed(&l.State, d.Entry.Time)); err != nil {
			return nil, err
		}
	}
	epoch := agent.NextEpoch(l.State.Generation, d.Entry.Time)
	err := d.Add(agent.Quarantined{
		Why: why, Owner: ExecutionName(l.State.Run, epoch), Generation: epoch, Copied: copied, Expires: d.Entry.Time.Add(agent.QuarantineExpiry),
	})
	if err == nil {
		err = park(d)
	}
	return d, err
}

// quarantine stops a run that an older copy of the table holds, as this invocation knows of more than is in there. The state machine starts the
// execution that waits for a person, as at any hand-over.
func (st *Stepper) quarantine(ctx context.Context, inv Invocation, l store.Loaded) (Route, error) {
	def, err := st.Definitions(ctx, inv.Tenant, l.State.Definition)
	if err != nil {
		return Route{}, err
	}
	why := agent.QuarantineAhead
	if inv.Execution != l.State.Owner {
		why = agent.QuarantineSuccessor
	}
	d, err := st.quarantined(l, why, time.Time{})
	if err != nil {
		return Route{}, err
	}
	if err := st.commit(st.within(ctx, &d.State), l.State, d, def); err != nil {
		return Route{}, err
	}
	after := d.Committed()
	return routeAfter(inv, def, &after, st.Clock.Now()), nil
}

// hold drains what has come for a run in quarantine and parks it again, or ends it where its time is up. Where a person's word that it may go on is
// among what has come, it is committed by itself, and the run read again.
func (st *Stepper) hold(ctx context.Context, inv Invocation, def *agent.Definition, l store.Loaded) (Route, error) {
	if err := st.makeRoom(ctx, inv, l, def); err != nil {
		return Route{}, err
	}
	d, err := st.draft(inv, l)
	if err != nil {
		return Route{}, err
	}
	released := d.State.Quarantine == nil
	if !released {
		err = holdOn(d)
	}
	if err != nil {
		return Route{}, err
	}
	if err := st.commit(st.within(ctx, &d.State), l.State, d, def); err != nil {
		return Route{}, err
	}
	if released {
		return Route{}, errDrained
	}
	after := d.Committed()
	return st.leave(ctx, inv, &after, routeAfter(inv, def, &after, st.Clock.Now()))
}

// holdOn parks a run in quarantine again, less what people were asked in vain; or ends it.
func holdOn(d *agent.Draft) error {
	if err := expire(d); err != nil {
		return err
	}
	if q := d.State.Quarantine; !d.Entry.Time.Before(q.Expires) {
		return end(d, agent.QuarantineEnd(*q))
	}
	return park(d)
}

// evidence says whether what became of executions shows that a run's journal is an older copy than what happened, and how. They live in
// another service, which nobody restores. Status is that of the owner's.
func (sw *Sweeper) evidence(ctx context.Context, s *agent.AgentState, status ExecutionStatus) (why agent.QuarantineReason, err error) {
	switch status {
	case ExecutionSucceeded: // it does so at the run's end, and when another owns the run
		return agent.QuarantineFinished, nil
	case ExecutionNone:
		if s.Seq() > s.OwnedSince { // that it wrote
			return agent.QuarantineVanished, nil
		}
		return "", nil
	case ExecutionEnded, ExecutionThrottled:
		next, err := sw.Waiter.Status(ctx, ExecutionName(s.Run, s.Generation+1))
		if err == nil && next != ExecutionNone { // an entry names it before it is started
			why = agent.QuarantineSuccessor
		}
		return why, err
	default:
		return "", nil
	}
}

// quarantine parks a run on a person, conditional on the sequence, starts the execution that waits for that and stops the old one.
func (sw *Sweeper) quarantine(ctx context.Context, l store.Loaded, why agent.QuarantineReason, copied time.Time) (Repair, error) {
	s := &l.State
	def, err := sw.Definitions(ctx, s.Tenant, s.Definition)
	if err != nil {
		return RepairNone, err
	}
	d, err := sw.quarantined(l, why, copied)
	if err != nil {
		return RepairNone, err
	}
	if err := sw.commit(ctx, *s, d, def, sw.recordOp(s, RepairQuarantined, string(why))); err != nil {
		return RepairNone, err
	}
	if err := sw.Waiter.Start(ctx, s.Tenant, s.Run, d.State.Owner); err != nil {
		return RepairNone, err
	}
	return RepairQuarantined, sw.Waiter.Stop(ctx, s.Owner, "quarantined after a restore")
}

// ErrNotQuarantined says that a run is not in quarantine, or not any more.
var ErrNotQuarantined = errors.New("the run is not in quarantine")

// Releaser lets runs out of quarantine. Safe for concurrent use.
type Releaser struct {
	Ports
	Waits       *Waits
	Definitions Definitions
}

// ErrMayNotRelease says that somebody may not release a run: only who may approve calls of its agent.
var ErrMayNotRelease = errors.New("only those who may approve calls of the run's agent may release it")

// Release has a run in quarantine go on from where its journal is, once, on the word of somebody who may approve calls of its agent. What it did in
// what was lost it may then do again.
func (r *Releaser) Release(ctx context.Context, tenant, run string, by agent.Principal, note string) error {
	l, err := r.Journal.Load(ctx, tenant, run)
	if err != nil {
		return fmt.Errorf("release run %s: %w", run, err)
	}
	q := l.State.Quarantine
	if q == nil {
		return fmt.Errorf("release run %s: %w", run, ErrNotQuarantined)
	}
	def, err := r.Definitions(ctx, tenant, l.State.Definition)
	if err != nil {
		return fmt.Errorf("release run %s: %w", run, err)
	}
	if !agent.MayRelease(def, by) {
		return fmt.Errorf("release run %s: %w", run, ErrMayNotRelease)
	}
	got, err := r.Journal.Accept(ctx, tenant, run, fmt.Sprintf("release/%d", q.Seq), agent.Released{Seq: q.Seq, By: by.ID, Note: note})
	switch {
	case errors.Is(err, store.ErrOtherInput): // somebody was first
	case err != nil:
		return fmt.Errorf("release run %s: %w", run, err)
	case got.Closed:
		return fmt.Errorf("release run %s: %w", run, ErrRunFinished)
	}
	return r.Waits.Wake(ctx, tenant, run)
}
