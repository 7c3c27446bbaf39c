package scenario

import (
	"slices"

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
		s.cast.enter(func() {
			if err := s.insist("settle "+c.ID, s.settle(o)); err != nil {
				s.fail(Failure{Path: "calls", Got: err.Error(), Want: "call " + c.ID + " settled"})
			}
		})
		return true
	}
	return false
}

// foresight is the truth about a call, where it was a crash that made it unknown.
func (s *stage) foresight(c agent.Call) (approval.Outcome, bool) {
	t := s.ledger.tools[c.Tool]
	if !s.crashing || c.Wait.For != agent.ForOutcome || t == nil || t.reconciles {
		return approval.Outcome{}, false
	}
	o := approval.Outcome{Tenant: tenant, Run: s.run, Call: c.ID, ID: c.Wait.Approval, By: localUser}
	switch e := s.ledger.newest(c.Tool, execution{c.ID, c.Executions}); {
	case e == nil || e.void:
		o.Rerun = true
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
