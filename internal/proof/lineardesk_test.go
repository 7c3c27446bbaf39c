package proof

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// initial is the arguments of the model's calls.
const initial = `{"amount":100}`

// deskFixture is a world whose run waits for approval of several refunds.
type deskFixture struct {
	*world
	*history
	quorum int
	decide func(ctx context.Context, r approval.DecisionInput) (approval.Approval, error)
	parked runtime.Route
	lags   bool // the desk's clock is slow, so requests never expire for a decision
}

// variant changes the code under test.
type variant struct {
	table  func(store.Table) store.Table
	change func(*deskFixture)
}

func newDeskFixture(t *testing.T, plain store.Table, seed int64, v variant) *deskFixture {
	m := &model{replies: []agent.Reply{{}}}
	for i := range requests {
		m.replies[0].Calls = append(m.replies[0].Calls, agent.ReplyCall{ID: call(i), Name: "refund", Input: json.RawMessage(initial)})
	}
	quorum := 1 + int(seed%3)
	w := newWorld(t, plain, seed, refundAgent(t, quorum), m, v.table)
	o := &deskFixture{world: w, history: &history{}, quorum: quorum, decide: w.desk.Decide}
	if seed%4 == 3 {
		o.slowDownClock()
	}
	if v.change != nil {
		v.change(o)
	}
	var over bool
	o.parked, over = (&fakeMachine{w, attemptDirectly}).follow(t.Context(), runtime.Route{Next: runtime.NextStep}, 0)
	require.False(t, over)
	return o
}

// slowDownClock makes the desk's clock slow (fault F10).
func (o *deskFixture) slowDownClock() { o.desk.Clock, o.lags = clock.System(), true }

// isExpired reports whether the requests have expired by the desk's clock.
func (o *deskFixture) isExpired() bool { return o.clock.isExpired() && !o.lags }

func attemptDirectly(attempt func() (runtime.Route, error)) (runtime.Route, error) { return attempt() }

func call(i int) string { return fmt.Sprint("c", i) }

func (o *deskFixture) id(i int) string { return run.ApprovalID(o.run, call(i), 1) }

// shownRequest returns a request as people are shown it.
func shownRequest(a approval.Approval) request {
	r := request{status: a.Status, args: string(a.Args)}
	for _, d := range a.Decisions {
		args := ""
		if d.Action == approval.Edit {
			args = string(d.Args)
		}
		r.said += strings.TrimPrefix(d.By, "user:") + ":" + string(d.Action) + ":" + args + ";"
	}
	return r
}

// readRequest reads a request, and returns its digest for a decision.
func (o *deskFixture) readRequest(who, i int) (r request, digest string) {
	o.do(who, get{i}, func() (any, bool) {
		a, err := approval.Get(o.t.Context(), o.ports.Table, tenant, o.id(i))
		if err != nil {
			return outcome{answer: uncertain}, true
		}
		r, digest = shownRequest(a), a.Digest
		return outcome{shows: r}, false
	})
	return r, digest
}

// submitDecision has a person decide the request that they have read, or the current one.
func (o *deskFixture) submitDecision(who int, name string, d decide) {
	d.by = name
	digest := ""
	if o.drawN(2) == 0 {
		var r request
		if r, digest = o.readRequest(who, d.of); digest == "" {
			return
		}
		d.shown = r.args
	}
	d.late = o.isExpired()
	called := o.now.Add(1)
	var out outcome
	o.do(who, d, func() (any, bool) {
		q := approval.DecisionInput{
			Tenant: tenant, ID: o.id(d.of), Action: d.action, Digest: digest,
			By: policy.Principal{ID: "user:" + name, Groups: []string{"group:operators"}},
		}
		if d.action == approval.Edit {
			q.Args = json.RawMessage(d.args)
		}
		a, err := o.decide(o.t.Context(), q)
		out = outcomeOf(a, err)
		out.late = o.isExpired()
		return out, out.answer == uncertain
	})
	if out.answer == taken || out.answer == beaten { // after a lost answer, they are shown what stands there by then
		o.add(porcupine.Operation{ClientId: who, Input: get{d.of}, Output: outcome{shows: out.shows}, Call: called, Return: o.now.Add(1)}, false)
	}
}

// outcomeOf returns the outcome of a decision.
func outcomeOf(a approval.Approval, err error) outcome {
	var decided *approval.DecidedError
	var other *approval.StaleError
	switch {
	case err == nil:
		return outcome{answer: taken, shows: shownRequest(a)}
	case errors.As(err, &decided):
		return outcome{answer: beaten, shows: shownRequest(decided.Approval)}
	case errors.As(err, &other):
		return outcome{answer: stale, shows: shownRequest(other.Approval)}
	case errors.Is(err, approval.ErrExpired):
		return outcome{answer: tooLate}
	case errors.Is(err, approval.ErrFinished):
		return outcome{answer: finished}
	default:
		return outcome{answer: uncertain}
	}
}

// cancel cancels the run.
func (o *deskFixture) cancel(who int) {
	o.do(who, cancel{}, func() (any, bool) {
		c := &runtime.Canceller{Ports: o.ports, Definitions: o.definition}
		s, err := c.Cancel(o.t.Context(), tenant, o.run, "user:boss", "enough")
		if err != nil {
			return outcome{answer: uncertain}, true
		}
		if s.Reason == run.ReasonCancelled {
			return outcome{over: "cancelled"}, false
		}
		return outcome{over: "ended"}, false
	})
}

// recordAttempt records an attempt of the run itself, which may expire requests and end the run.
func (o *deskFixture) recordAttempt(who int) func(func() (runtime.Route, error)) (runtime.Route, error) {
	return func(attempt func() (runtime.Route, error)) (runtime.Route, error) {
		called := o.now.Add(1)
		r, err := attempt()
		late, returned := o.clock.isExpired(), o.now.Add(1)
		if late {
			o.add(porcupine.Operation{ClientId: who, Input: work{}, Output: outcome{late: true}, Call: called, Return: returned}, err != nil)
		}
		if err != nil || r.Next == runtime.NextDone || r.Next == runtime.NextFailed {
			o.add(porcupine.Operation{ClientId: who, Input: finish{}, Output: outcome{}, Call: called, Return: returned}, err != nil)
		}
		return r, err
	}
}

// runConcurrently runs decisions, reads, the run itself, expiry and a cancel concurrently.
func (o *deskFixture) runConcurrently() runtime.Route {
	var people sync.WaitGroup
	halt := (&fakeMachine{o.world, o.recordAttempt(0)}).start(o.parked)
	for who, name := range []string{"ana", "ben", "cem", "dan"} {
		people.Go(func() {
			for range 4 {
				pause(time.Duration(o.drawN(3)) * time.Millisecond)
				o.submitDecision(who+1, name, o.drawDecision())
			}
		})
	}
	for who := 5; who < 7; who++ {
		people.Go(func() {
			for range 6 {
				pause(time.Duration(o.drawN(2)) * time.Millisecond)
				o.readRequest(who, o.drawN(requests))
			}
		})
	}
	if o.drawN(2) == 0 {
		people.Go(func() {
			pause(time.Duration(o.drawN(8)) * time.Millisecond)
			o.clock.expire()
		})
	}
	if o.drawN(3) == 0 {
		people.Go(func() {
			pause(time.Duration(o.drawN(8)) * time.Millisecond)
			o.cancel(7)
		})
	}
	people.Wait()
	last := halt()
	for i := range requests {
		o.readRequest(8, i)
	}
	return last
}

// drawDecision draws a decision.
func (o *deskFixture) drawDecision() decide {
	d := decide{of: o.drawN(requests), action: approval.Approve}
	switch o.drawN(10) {
	case 0, 1:
		d.action = approval.Deny
	case 2, 3, 4:
		d.action, d.args = approval.Edit, fmt.Sprintf(`{"amount":%d}`, 1+o.drawN(2))
	case 5:
		d.action = approval.Cancel
	}
	return d
}

// runToEnd runs all operations concurrently, and then the run to its end.
func (o *deskFixture) runToEnd() {
	(&fakeMachine{o.world, o.recordAttempt(0)}).finish(o.runConcurrently())
	for i := range requests {
		o.readRequest(8, i)
	}
	o.requireEffectsMatch()
}

// requireEffectsMatch compares the run's effects with the decisions.
func (o *deskFixture) requireEffectsMatch() {
	for i := range requests {
		a, err := approval.Get(o.t.Context(), o.plain, tenant, o.id(i))
		require.NoError(o.t, err)
		require.NotEqual(o.t, approval.Pending, a.Status)
		paid := o.refunds[call(i)]
		require.LessOrEqual(o.t, len(paid), 1, "call %d was paid more than once", i)
		if len(paid) == 1 {
			require.Equal(o.t, approval.Approved, a.Status)
			require.Equal(o.t, string(a.Args), paid[0], "what was paid is what was approved")
		}
	}
}

// TestDeskIsLinearizable: concurrent decide, expire, cancel and get are linearizable over each table.
func TestDeskIsLinearizable(t *testing.T) {
	for _, table := range tables {
		t.Run(table.name, func(t *testing.T) {
			open := table.open(t)
			for seed := range int64(histories(t, table.few)) {
				o := newDeskFixture(t, open(), seed, variant{})
				o.runToEnd()
				o.require(t, deskModel(o.quorum, initial), seed)
			}
		})
	}
}
