package runtime

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Who ends a run from outside, by cancelling it or giving it up, has none of the code that is to be run at a run's end.
// It says in the record of the end that cleaning up is owed, and starts an execution of the state machine for that.
// Such an execution owns nothing and writes nothing to the run: what it may do, the record says.

// CleanupName is the name of an execution that cleans up after a run: <run>-cleanup-<n>, n counted from 0. None is used
// twice.
func CleanupName(run string, n int64) string { return fmt.Sprintf("%s-cleanup-%d", run, n) }

// isCleanup reports whether an execution cleans up after the run.
func isCleanup(run, execution string) bool {
	n, ok := strings.CutPrefix(execution, run+"-cleanup-")
	at, err := strconv.ParseInt(n, 10, 64)
	return ok && err == nil && at >= 0
}

// maxCleanups is how many executions are started to clean up after a run. Each may retry.
const maxCleanups = 8

// ErrCleanupFailed says that no execution could clean up after a run. Callers get it until a redriven execution
// succeeds.
var ErrCleanupFailed = fmt.Errorf("%d executions could not clean up after the run: redrive the last one", maxCleanups)

// errCleanupCode says that an agent's code for cleaning up failed.
var errCleanupCode = errors.New("clean up after the run")

// namesCleanup reports whether a definition names code that may run at a run's end. Only a plugin knows whether it has
// something to do then.
func namesCleanup(def *agent.Definition) bool {
	return def.Permission.Backend != "" || len(def.Plugins) > 0
}

// settleEnd does what the record of a run's end owes: it cleans up, announces the end whether that went well or not,
// and takes the record off its list when nothing is owed any more. It may be repeated. Who cleans up are the plugins at
// run_end, whose decisions have no place any more and are dropped, and the permission backend; all are tried, whichever
// fails.
func (p Ports) settleEnd(ctx context.Context, s *run.AgentState, of Definitions) error {
	owed, err := p.owedEnd(ctx, s.Tenant, s.Run)
	if err != nil || !owed.cleaning {
		return err
	}
	def, err := of(ctx, s.Tenant, s.Definition)
	if err != nil {
		return err
	}
	within := p.within(ctx, s)
	ph, failed := p.phases(def)
	if failed == nil {
		_, failed = ph.chain.State(within, run.PhaseRunEnd, def, s)
	}
	// a backend that is not there has nothing to clean up
	if backend, ok := p.Hooks.Backends[def.Permission.Backend]; ok && def.Permission.Backend != "" {
		if err := backend.Cleanup(within, contextOf(s)); err != nil {
			err = fmt.Errorf("permission backend %s: %s", def.Permission.Backend, agent.Bounded(err.Error()))
			failed = errors.Join(failed, err)
		}
	}
	if failed != nil {
		failed = fmt.Errorf("%w: %w", errCleanupCode, failed)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !owed.notified { // the runs around it have been told before anybody was to clean up
		if err := p.notifyBus(ctx, s); err != nil {
			return errors.Join(failed, err)
		}
	}
	if failed == nil {
		return p.clearOwed(ctx, s)
	}
	return errors.Join(failed, p.markNotified(ctx, s))
}

// continueEnd takes an owed cleanup one step further: it starts the execution that was never started, or the next one
// after one that failed.
func (sw *Sweeper) continueEnd(ctx context.Context, s *run.AgentState, owed owedEnd) (Repair, error) {
	name := CleanupName(s.Run, owed.tries)
	status, err := sw.Waiter.Status(ctx, name)
	switch {
	case err != nil || status == ExecutionRunning:
		return RepairNone, err
	case status == ExecutionNone:
		if err := sw.NotifyFamily(ctx, s); err != nil {
			return RepairNone, err
		}
		return sw.startCleanup(ctx, s, name)
	}
	tries := owed.tries + 1
	if !owed.notified { // whoever waits for the end is not to wait for this
		if err := sw.notifyEnd(ctx, s); err != nil {
			return RepairNone, err
		}
		if err := sw.markNotified(ctx, s); err != nil {
			return RepairNone, err
		}
	}
	if tries >= maxCleanups {
		return RepairNone, ErrCleanupFailed
	}
	// The try is counted first, so one that was counted and not started is found like the first. Where it is not counted,
	// the cleanup is done, or another sweep does it.
	counted, err := sw.updateOwed(ctx, s, attrTries, owed.tries, map[string]store.Value{
		attrAt: store.Num(sw.Clock.Now().UnixMilli()), attrTries: store.Num(tries),
	})
	if err != nil || !counted {
		return RepairNone, err
	}
	return sw.startCleanup(ctx, s, CleanupName(s.Run, tries))
}

// startCleanup starts an execution that cleans up after a run.
func (sw *Sweeper) startCleanup(ctx context.Context, s *run.AgentState, name string) (Repair, error) {
	if err := sw.Waiter.Start(ctx, s.Tenant, s.Run, name); err != nil {
		return RepairNone, err
	}
	return sw.record(ctx, s, RepairCleaning, name), nil
}
