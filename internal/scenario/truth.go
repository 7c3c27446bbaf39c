package scenario

import (
	"context"
	"slices"
	"strings"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/approval"
)

// truth settles what no line of the scenario could foresee: a crash has left open what became of a call whose tool does not
// reconcile, and people are asked. Somebody who knows says what happened, and the question counts as not asked.
func (s *stage) truth(waits []agent.Call) bool {
	for _, c := range waits {
		o, known := s.foresight(c)
		if !known {
			continue
		}
		s.unforeseen = append(s.unforeseen, o.ID)
		if o.Rerun {
			s.ledger.again(c.Tool, execution{c.ID, c.Executions})
		}
		s.cast.enter(func() { s.tell(o) })
		return true
	}
	return false
}

// tell says what happened. Who is not heard would be asked again for ever, so that is the end.
func (s *stage) tell(o approval.Outcome) {
	a, err := approval.Get(context.Background(), s.table, tenant, o.ID)
	if err == nil {
		o.By = oneOf(a.Approvers)
		o.By.Groups = slices.Concat(o.By.Groups, slices.Concat(a.Above...))
		err = s.insist("settle "+o.Call, s.settle(o))
	}
	if err != nil {
		s.fail(Failure{Path: "calls", Got: err.Error(), Want: "call " + o.Call + " settled"})
		s.curtain.Notify()
	}
}

// oneOf is somebody who may decide: running a call again that was approved takes an approver.
func oneOf(approvers []string) agent.Principal {
	for _, name := range approvers {
		if strings.HasPrefix(name, "user:") {
			return agent.Principal{ID: name}
		}
	}
	return agent.Principal{ID: localUser.ID, Groups: approvers}
}

// foresight is the truth about a call, where it was a crash that made it unknown.
func (s *stage) foresight(c agent.Call) (approval.Outcome, bool) {
	t := s.ledger.tools[c.Tool]
	if !s.crashing || c.Wait.For != agent.ForOutcome || t == nil || t.reconciles {
		return approval.Outcome{}, false
	}
	o := approval.Outcome{Tenant: tenant, Run: s.run, Call: c.ID, ID: c.Wait.Approval}
	switch e := s.ledger.newest(c.Tool, execution{c.ID, c.Executions}); {
	case e == nil || e.void:
		o.Rerun = true
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
func (l *ledger) newest(name string, x execution) *entry {
	entries := l.entries[name]
	for _, e := range slices.Backward(entries) {
		if e.execution == x {
			return e
		}
	}
	return nil
}
