package scenario

import (
	"context"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// settleUnknownOutcome settles what no line of the scenario could foresee: a crash has left open what became of a call whose tool does not
// reconcile, and people are asked. Somebody who knows says what happened, and the question counts as not asked.
func (sr *scriptedRun) settleUnknownOutcome(waits []run.Call) bool {
	for _, c := range waits {
		o, known := sr.knownOutcome(c)
		if !known {
			continue
		}
		sr.sim.crashRequests = append(sr.sim.crashRequests, o.ID)
		if o.Rerun {
			sr.effects.reuseResult(c.Tool, executionKey{c.ID, c.Executions})
		}
		sr.sim.people.act(func() { sr.settleOutcome(o) })
		return true
	}
	return false
}

// settleOutcome says what happened. Who is not heard would be asked again for ever, so that is the end.
func (sr *scriptedRun) settleOutcome(o approval.Outcome) {
	a, err := approval.Get(context.Background(), sr.sim.table, tenant, o.ID)
	if err == nil {
		o.By = anyApprover(a.Approvers)
		o.By.Groups = slices.Concat(o.By.Groups, slices.Concat(a.Above...))
		err = sr.sim.retry("settle "+o.Call, sr.settleAction(o))
	}
	if err != nil {
		sr.sim.addFailure(Failure{Path: "calls", Got: err.Error(), Want: "call " + o.Call + " settled"})
		sr.sim.endSignal.Notify()
	}
}

// anyApprover is somebody who may decide: running a call again that was approved takes an approver.
func anyApprover(approvers []string) policy.Principal {
	for _, name := range approvers {
		if strings.HasPrefix(name, "user:") {
			return policy.Principal{ID: name}
		}
	}
	return policy.Principal{ID: localUser.ID, Groups: approvers}
}

// knownOutcome is the truth about a call, where it was a crash that made it unknown.
func (sr *scriptedRun) knownOutcome(c run.Call) (approval.Outcome, bool) {
	t := sr.effects.tools[c.Tool]
	if !sr.sim.crashing || c.Wait.For != run.ForOutcome || t == nil || t.reconciles {
		return approval.Outcome{}, false
	}
	o := approval.Outcome{Tenant: tenant, Run: sr.run, Call: c.ID, ID: c.Wait.Approval}
	switch e := sr.effects.newestExecution(sr.run, c.Tool, executionKey{c.ID, c.Executions}); {
	case e == nil || e.void:
		o.Rerun = true
	case e.resultLost: // it would be unknown without a crash, too
		return approval.Outcome{}, false
	case e.finished && (e.result.data.Suspend != nil || e.result.failure != nil): // it asked for input, or could not be carried out, and will again
		e.void, o.Rerun = true, true
	case e.finished:
		o.Content, o.IsError = e.result.data.Content, e.result.data.IsError
	default: // it ran out of time, as the scenario meant it
		return approval.Outcome{}, false
	}
	return o, true
}

// newestExecution is the last entry of an execution; nil where its tool was not entered.
func (l *effectLog) newestExecution(run, name string, x executionKey) *toolExecution {
	entries := l.executions[name]
	for _, e := range slices.Backward(entries) {
		if e.run == run && e.key == x {
			return e
		}
	}
	return nil
}
