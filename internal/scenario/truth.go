package scenario

import (
	"context"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// truth settles what no line of the scenario could foresee: a crash has left open what became of a call whose tool does not
// reconcile, and people are asked. Somebody who knows says what happened, and the question counts as not asked.
func (p *part) truth(waits []run.Call) bool {
	for _, c := range waits {
		o, known := p.foresight(c)
		if !known {
			continue
		}
		p.stage.unforeseen = append(p.stage.unforeseen, o.ID)
		if o.Rerun {
			p.ledger.again(c.Tool, execution{c.ID, c.Executions})
		}
		p.stage.cast.enter(func() { p.tell(o) })
		return true
	}
	return false
}

// tell says what happened. Who is not heard would be asked again for ever, so that is the end.
func (p *part) tell(o approval.Outcome) {
	a, err := approval.Get(context.Background(), p.stage.table, tenant, o.ID)
	if err == nil {
		o.By = oneOf(a.Approvers)
		o.By.Groups = slices.Concat(o.By.Groups, slices.Concat(a.Above...))
		err = p.stage.insist("settle "+o.Call, p.settle(o))
	}
	if err != nil {
		p.stage.fail(Failure{Path: "calls", Got: err.Error(), Want: "call " + o.Call + " settled"})
		p.stage.curtain.Notify()
	}
}

// oneOf is somebody who may decide: running a call again that was approved takes an approver.
func oneOf(approvers []string) policy.Principal {
	for _, name := range approvers {
		if strings.HasPrefix(name, "user:") {
			return policy.Principal{ID: name}
		}
	}
	return policy.Principal{ID: localUser.ID, Groups: approvers}
}

// foresight is the truth about a call, where it was a crash that made it unknown.
func (p *part) foresight(c run.Call) (approval.Outcome, bool) {
	t := p.ledger.tools[c.Tool]
	if !p.stage.crashing || c.Wait.For != run.ForOutcome || t == nil || t.reconciles {
		return approval.Outcome{}, false
	}
	o := approval.Outcome{Tenant: tenant, Run: p.run, Call: c.ID, ID: c.Wait.Approval}
	switch e := p.ledger.newest(p.run, c.Tool, execution{c.ID, c.Executions}); {
	case e == nil || e.void:
		o.Rerun = true
	case e.lost: // it would be unknown without a crash, too
		return approval.Outcome{}, false
	case e.done && (e.result.data.Suspend != nil || e.result.fails != nil): // it asked for input, or could not be carried out, and will again
		e.void, o.Rerun = true, true
	case e.done:
		o.Content, o.IsError = e.result.data.Content, e.result.data.IsError
	default: // it ran out of time, as the scenario meant it
		return approval.Outcome{}, false
	}
	return o, true
}

// newest is the last entry of an execution; nil where its tool was not entered.
func (l *ledger) newest(run, name string, x execution) *entry {
	entries := l.entries[name]
	for _, e := range slices.Backward(entries) {
		if e.run == run && e.execution == x {
			return e
		}
	}
	return nil
}
