package runtime

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
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
	if !ok {
		return false
	}
	at, err := strconv.ParseInt(n, 10, 64)
	return err == nil && at >= 0
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

// cleanUp runs the code that a run names for its end, behind that end: plugins at run_end, and the permission backend.
// What plugins decide there has no place any more and is dropped. All are tried, whichever fails.
func (p Ports) cleanUp(ctx context.Context, s *run.AgentState, def *agent.Definition) error {
	ctx = p.within(ctx, s)
	ph, err := p.phases(def)
	if err == nil {
		_, err = ph.chain.State(ctx, run.PhaseRunEnd, def, s)
	}
	if backend, ok := p.backend(def); ok {
		if failed := backend.Cleanup(ctx, contextOf(s)); failed != nil {
			failed = fmt.Errorf("permission backend %s: %s", def.Permission.Backend, agent.Bounded(failed.Error()))
			err = errors.Join(err, failed)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errCleanupCode, err)
	}
	return nil
}

// backend is the permission backend of a definition. Code that is not there has nothing to clean up.
func (p Ports) backend(def *agent.Definition) (hook.PermissionBackend, bool) {
	if def.Permission.Backend == "" {
		return nil, false
	}
	b, ok := p.Hooks.Backends[def.Permission.Backend]
	return b, ok
}

// settleEnd does what the record of a run's end owes: it cleans up, announces the end whether that went well or not,
// and takes the record off its list when nothing is owed any more. It may be repeated.
func (p Ports) settleEnd(ctx context.Context, s *run.AgentState, of Definitions) error {
	owed, err := p.owedEnd(ctx, s.Tenant, s.Run)
	if err != nil || !owed.cleaning {
		return err
	}
	def, err := of(ctx, s.Tenant, s.Definition)
	if err != nil {
		return err
	}
	failed := p.cleanUp(ctx, s, def)
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

// isCleaner reports whether a refused invocation belongs to an execution that is to clean up after the run.
func isCleaner(inv Invocation, s *run.AgentState) bool {
	return s.Status == run.RunDone && s.Owner != inv.Execution && s.FormerOwner != inv.Execution &&
		isCleanup(s.Run, inv.Execution)
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
	if !owed.notified { // whoever waits for the end is not to wait for this
		if err := sw.notifyEnd(ctx, s); err != nil {
			return RepairNone, err
		}
		if err := sw.markNotified(ctx, s); err != nil {
			return RepairNone, err
		}
	}
	if owed.tries+1 >= maxCleanups {
		return RepairNone, ErrCleanupFailed
	}
	return sw.retryCleanup(ctx, s, owed.tries)
}

// retryCleanup starts the next cleanup execution after so many tries, unless the cleanup is done or another sweep does
// it. The try is counted first, so one that was counted and not started is found like the first.
func (sw *Sweeper) retryCleanup(ctx context.Context, s *run.AgentState, tries int64) (Repair, error) {
	counted, err := sw.updateOwed(ctx, s, attrTries, tries, map[string]store.Value{
		attrAt: store.Num(sw.Clock.Now().UnixMilli()), attrTries: store.Num(tries + 1),
	})
	if err != nil || !counted {
		return RepairNone, err
	}
	return sw.startCleanup(ctx, s, CleanupName(s.Run, tries+1))
}

// startCleanup starts an execution that cleans up after a run.
func (sw *Sweeper) startCleanup(ctx context.Context, s *run.AgentState, name string) (Repair, error) {
	if err := sw.Waiter.Start(ctx, s.Tenant, s.Run, name); err != nil {
		return RepairNone, err
	}
	return sw.record(ctx, s, RepairCleaning, name)
}
