package local

import (
	"context"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/audit"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// audits keeps the chain of a laptop up to date: after each park, decision and end of a run, beside what goes on. What
// it does not come to, the sweep of the next start does. Safe for concurrent use.
type audits struct {
	auditor *audit.Auditor
	sweep   *audit.Sweep
	log     *audit.Log
	clock   clock.Clock
	trouble func(function string, err error) // nil = nobody listens

	mu      sync.Mutex
	due     []place // runs, each once
	working bool
	turn    sync.Mutex // held while a run is audited
}

type place struct{ tenant, run string }

// newAudits audits the runs of a machine.
func newAudits(p runtime.Ports, jitter func(time.Duration) time.Duration, trouble func(string, error)) *audits {
	log := &audit.Log{Table: p.Table, Clock: p.Clock, Jitter: jitter}
	a := &audit.Auditor{Table: p.Table, Journal: p.Journal, Log: log}
	return &audits{auditor: a, sweep: &audit.Sweep{Auditor: a, Heads: p.Journal, Clock: p.Clock}, log: log, clock: p.Clock, trouble: trouble}
}

// Committed has a run audited that has parked or ended: a machine's sink.
func (a *audits) Committed(_ context.Context, e run.Entry, s *run.AgentState) {
	for _, event := range e.Events {
		switch event.(type) {
		case run.Parked, run.Finished:
			a.soon(s.Tenant, s.Run)
			return
		}
	}
}

// besides are two sinks, of which the first may be nil.
func besides(first runtime.EventSink, second *audits) runtime.EventSink {
	if first == nil {
		return second
	}
	return runtime.Sinks{first, second}
}

// decided has a run audited in which something was decided: a deployment's Audit.
func (a *audits) decided(_ context.Context, tenant, run string) error {
	a.soon(tenant, run)
	return nil
}

// resume audits what an engine that was killed has left. That it cannot is no reason not to go on.
func (a *audits) resume(ctx context.Context, tenant string) error {
	if a == nil {
		return nil
	}
	if err := a.all(ctx, tenant); err != nil {
		a.warn("audit what was left", err)
	}
	return ctx.Err()
}

// soon has a run audited by whoever is at it, and if nobody is, by a new one.
func (a *audits) soon(tenant, run string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, known := range a.due {
		if known == (place{tenant, run}) {
			return
		}
	}
	a.due = append(a.due, place{tenant, run})
	if !a.working {
		a.working = true
		a.clock.Go(a.work)
	}
}

func (a *audits) work() {
	for a.one(context.Background(), false) {
	}
}

// one audits the run that is due first; false where none is. The worker is one no more then.
func (a *audits) one(ctx context.Context, guest bool) bool {
	a.turn.Lock()
	defer a.turn.Unlock()
	next, ok := a.take(guest)
	if !ok {
		return false
	}
	if err := a.auditor.Run(ctx, next.tenant, next.run); err != nil {
		a.warn("audit a run", err)
	}
	return true
}

func (a *audits) take(guest bool) (place, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.due) == 0 {
		a.working = a.working && guest
		return place{}, false
	}
	next := a.due[0]
	a.due = a.due[1:]
	return next, true
}

// flush audits all that is due, and waits for what is being audited. Nothing is due for nil.
func (a *audits) flush(ctx context.Context) error {
	if a == nil {
		return nil
	}
	for a.one(ctx, true) {
	}
	return ctx.Err()
}

// upToDate audits what nobody has, so that the chain can be read; nil for nil.
func (a *audits) upToDate(tenant string) func(ctx context.Context) error {
	if a == nil {
		return nil
	}
	swept := false
	return func(ctx context.Context) error {
		a.turn.Lock()
		first := !swept
		swept = true
		a.turn.Unlock()
		if first { // an engine that was killed may have left something
			if err := a.all(ctx, tenant); err != nil {
				return err
			}
		}
		return a.flush(ctx)
	}
}

// warn is told of records that could not be kept.
func (a *audits) warn(_ string, err error) {
	if a.trouble != nil {
		a.trouble("audit", err)
	}
}

// all audits what nobody has, as the sweep of a deployment does.
func (a *audits) all(ctx context.Context, tenant string) error {
	swept, err := a.sweep.Run(ctx, []string{tenant})
	for _, f := range swept.Failed {
		a.warn("audit a run", f.Err)
	}
	return err
}
