package linear

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
	"github.com/countersign/countersign/internal/web/api"
)

// initial are the arguments that the model asks with.
const initial = `{"amount":100}`

// office is a world whose run has asked people about several refunds at once.
type office struct {
	*world
	*history
	quorum int
	api    http.Handler
	decide func(ctx context.Context, r approval.DecisionInput) (approval.Approval, error)
	parked runtime.Route
	lags   bool // where people decide, time is never up
}

// variant changes the code that is under test.
type variant struct {
	table  func(store.Table) store.Table
	change func(*office)
}

func newOffice(t *testing.T, plain store.Table, seed int64, v variant) *office {
	m := &model{replies: []agent.Reply{{}}}
	for i := range requests {
		m.replies[0].Calls = append(m.replies[0].Calls, agent.ReplyCall{ID: call(i), Name: "refund", Input: json.RawMessage(initial)})
	}
	quorum := 1 + int(seed%3)
	w := newWorld(t, plain, seed, clerk(t, quorum), m, v.table)
	o := &office{world: w, history: &history{}, quorum: quorum, decide: w.desk.Decide}
	o.api = api.Handler(api.Backend{
		Desk: w.desk, Journal: w.ports.Journal, Table: w.ports.Table, Clock: w.clock, Definitions: w.definition,
		Canceller: o.canceller(),
		Caller: func(r *http.Request) (api.Caller, error) {
			return api.Caller{Tenant: tenant, Principal: person(r.Header.Get("Who"))}, nil
		},
	})
	if seed%4 == 3 {
		o.lag()
	}
	if v.change != nil {
		v.change(o)
	}
	var over bool
	o.parked, over = (&machine{w, plainly}).follow(t.Context(), runtime.Route{Next: runtime.NextStep}, 0)
	require.False(t, over)
	return o
}

// lag lets the clock be slow by which people decide (F10).
func (o *office) lag() { o.desk.Clock, o.lags = clock.System(), true }

// late reports whether time is up where people decide.
func (o *office) late() bool { return o.clock.late() && !o.lags }

func plainly(attempt func() (runtime.Route, error)) (runtime.Route, error) { return attempt() }

func call(i int) string { return fmt.Sprint("c", i) }

func person(name string) policy.Principal {
	return policy.Principal{ID: "user:" + name, Groups: []string{"group:operators"}}
}

func (o *office) id(i int) string { return run.ApprovalID(o.run, call(i), 1) }

func (o *office) canceller() *runtime.Canceller {
	return &runtime.Canceller{Ports: o.ports, Definitions: o.definition}
}

// seen is a request as people are shown it.
func seen(a approval.Approval) request {
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

// look reads a request, and gives its digest for who decides about what they see.
func (o *office) look(who, i int) (r request, digest string) {
	o.do(who, get{i}, func() (any, bool) {
		a, err := approval.Get(o.t.Context(), o.ports.Table, tenant, o.id(i))
		if err != nil {
			return outcome{answer: uncertain}, true
		}
		r, digest = seen(a), a.Digest
		return outcome{shows: r}, false
	})
	return r, digest
}

// lookByAPI is look by the HTTP API.
func (o *office) lookByAPI(who, i int) {
	o.do(who, get{i}, func() (any, bool) {
		var a approval.Approval
		if status := o.http(http.MethodGet, "/v1/approvals/"+o.id(i), "ana", nil, &a); status != http.StatusOK {
			return outcome{answer: uncertain}, true
		}
		return outcome{shows: seen(a)}, false
	})
}

// http makes a request of the API and reads its answer.
func (o *office) http(method, path, who string, body, into any) (status int) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			panic(err)
		}
	}
	q := httptest.NewRequestWithContext(o.t.Context(), method, path, bytes.NewReader(data))
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Who", who)
	w := httptest.NewRecorder()
	o.api.ServeHTTP(w, q)
	text, _ := io.ReadAll(w.Body)
	if w.Code != http.StatusOK {
		return w.Code
	}
	if err := json.Unmarshal(text, into); err != nil {
		o.t.Errorf("%s %s: %v: %s", method, path, err, text)
	}
	return w.Code
}

// say has a person decide, about what they have looked at or about whatever is there.
func (o *office) say(who int, name string, d decide) {
	d.by = name
	digest := ""
	if o.chance(2) == 0 {
		var r request
		if r, digest = o.look(who, d.of); digest == "" {
			return
		}
		d.shown = r.args
	}
	d.late = o.late()
	called := o.now.Add(1)
	var out outcome
	o.do(who, d, func() (any, bool) {
		q := approval.DecisionInput{Tenant: tenant, ID: o.id(d.of), Action: d.action, Digest: digest, By: person(name)}
		if d.action == approval.Edit {
			q.Args = json.RawMessage(d.args)
		}
		a, err := o.decide(o.t.Context(), q)
		out = told(a, err)
		out.late = o.late()
		return out, out.answer == uncertain
	})
	if out.answer == taken || out.answer == beaten { // after a lost answer, they are shown what stands there by then
		o.add(porcupine.Operation{ClientId: who, Input: get{d.of}, Output: outcome{shows: out.shows}, Call: called, Return: o.now.Add(1)}, false)
	}
}

// told is what a person hears.
func told(a approval.Approval, err error) outcome {
	var decided *approval.DecidedError
	var other *approval.StaleError
	switch {
	case err == nil:
		return outcome{answer: taken, shows: seen(a)}
	case errors.As(err, &decided):
		return outcome{answer: beaten, shows: seen(decided.Approval)}
	case errors.As(err, &other):
		return outcome{answer: stale, shows: seen(other.Approval)}
	case errors.Is(err, approval.ErrExpired):
		return outcome{answer: tooLate}
	case errors.Is(err, approval.ErrFinished):
		return outcome{answer: finished}
	default:
		return outcome{answer: uncertain}
	}
}

// callOff cancels the run, by the API or past it.
func (o *office) callOff(who int) {
	o.do(who, cancel{}, func() (any, bool) {
		s, err := o.canceller().Cancel(o.t.Context(), tenant, o.run, "user:boss", "enough")
		if err != nil {
			return outcome{answer: uncertain}, true
		}
		if s.Reason == run.ReasonCancelled {
			return outcome{over: "cancelled"}, false
		}
		return outcome{over: "ended"}, false
	})
}

// recorded makes an attempt of the run's own. It may let the requests expire, and may end the run.
func (o *office) recorded(who int) func(func() (runtime.Route, error)) (runtime.Route, error) {
	return func(attempt func() (runtime.Route, error)) (runtime.Route, error) {
		called := o.now.Add(1)
		r, err := attempt()
		late, returned := o.clock.late(), o.now.Add(1)
		if late {
			o.add(porcupine.Operation{ClientId: who, Input: work{}, Output: outcome{late: true}, Call: called, Return: returned}, err != nil)
		}
		if err != nil || r.Next == runtime.NextDone || r.Next == runtime.NextFailed {
			o.add(porcupine.Operation{ClientId: who, Input: finish{}, Output: outcome{}, Call: called, Return: returned}, err != nil)
		}
		return r, err
	}
}

// storm is a rush after which the run is carried to its end.
func (o *office) storm() {
	last := o.rush()
	o.settle(last)
}

// rush is everybody at once: people, readers, the run itself, time, and who calls it off.
func (o *office) rush() runtime.Route {
	o.faulty.fine.Store(false)
	ctx, stop := context.WithCancel(o.t.Context())
	var people, carried sync.WaitGroup
	last := o.parked
	carried.Go(func() { last, _ = (&machine{o.world, o.recorded(0)}).follow(ctx, o.parked, time.Minute) })
	for who, name := range []string{"ana", "ben", "cem", "dan"} {
		people.Go(func() {
			for range 4 {
				pause(time.Duration(o.chance(3)) * time.Millisecond)
				o.say(who+1, name, o.word())
			}
		})
	}
	for who := 5; who < 7; who++ {
		people.Go(func() {
			for range 6 {
				pause(time.Duration(o.chance(2)) * time.Millisecond)
				if who == 5 {
					o.look(who, o.chance(requests))
				} else {
					o.lookByAPI(who, o.chance(requests))
				}
			}
		})
	}
	if o.chance(2) == 0 {
		people.Go(func() {
			pause(time.Duration(o.chance(8)) * time.Millisecond)
			o.clock.jump()
		})
	}
	if o.chance(3) == 0 {
		people.Go(func() {
			pause(time.Duration(o.chance(8)) * time.Millisecond)
			o.callOff(7)
		})
	}
	people.Wait()
	stop()
	carried.Wait()
	o.calm()
	for i := range requests {
		o.look(8, i)
	}
	return last
}

// word draws what somebody says.
func (o *office) word() decide {
	d := decide{of: o.chance(requests), action: approval.Approve}
	switch o.chance(10) {
	case 0, 1:
		d.action = approval.Deny
	case 2, 3, 4:
		d.action, d.args = approval.Edit, fmt.Sprintf(`{"amount":%d}`, 1+o.chance(2))
	case 5:
		d.action = approval.Cancel
	}
	return d
}

// settle lets the run come to its end when the day is fine again, and the time of whatever nobody has decided is up.
func (o *office) settle(last runtime.Route) {
	m := &machine{o.world, o.recorded(0)}
	if last.Next != runtime.NextWait { // somebody was in the middle of something
		last = runtime.Route{Next: runtime.NextStep, Woken: last.Woken}
	}
	over := false
	for range 6 { // what was approved too late is asked again
		if last, over = m.follow(o.t.Context(), last, 20*time.Millisecond); over {
			break
		}
		o.clock.jump()
	}
	o.calm()
	require.True(o.t, over, "the run has not come to its end: %+v", last)
	for i := range requests {
		o.look(8, i)
	}
	o.wholeAndOnce()
}

// wholeAndOnce checks what the run has done against what people have said.
func (o *office) wholeAndOnce() {
	for i := range requests {
		a, err := approval.Get(o.t.Context(), o.plain, tenant, o.id(i))
		require.NoError(o.t, err)
		require.NotEqual(o.t, approval.Pending, a.Status)
		paid := o.paid[call(i)]
		require.LessOrEqual(o.t, len(paid), 1, "call %d was paid more than once", i)
		if len(paid) == 1 {
			require.Equal(o.t, approval.Approved, a.Status)
			require.Equal(o.t, string(a.Args), paid[0], "what was paid is what was approved")
		}
	}
}

// TestDeskIsLinearizable: decide, expire, cancel and get by many at once, over each table.
func TestDeskIsLinearizable(t *testing.T) {
	for _, table := range tables {
		t.Run(table.name, func(t *testing.T) {
			open := table.open(t)
			for seed := range int64(histories(t, table.few)) {
				o := newOffice(t, open(), seed, variant{})
				o.storm()
				o.require(t, deskModel(o.quorum, initial), seed)
			}
		})
	}
}
