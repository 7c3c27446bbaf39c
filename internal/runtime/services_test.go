package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// busOf is a bus that keeps every event it is given, and fails as often as it is told to.
type busOf struct {
	mu    sync.Mutex
	took  []policy.Outgoing
	fails []error // of the next events, in order; what fails with errLate was taken all the same
}

var errLate = errors.New("connection reset after all was sent")

func (b *busOf) Emit(_ context.Context, e policy.Outgoing) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.fails) > 0 {
		err := b.fails[0]
		b.fails = b.fails[1:]
		if !errors.Is(err, errLate) {
			return err
		}
		b.took = append(b.took, e)
		return err
	}
	b.took = append(b.took, e)
	return nil
}

// ids are those of the events that were taken, in order.
func (b *busOf) ids() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []string{}
	for _, e := range b.took {
		out = append(out, e.ID[strings.IndexAny(e.ID, "/#"):])
	}
	return out
}

// services gives the world a bus, and the agent a service that is asked without asking anybody.
func (w *world) services() *busOf {
	b := &busOf{}
	w.ports.Emit = b
	w.def.Tools = append(w.def.Tools, agent.ToolSpec{
		Name: "weather", Kind: agent.KindService, Description: "Ask.", Effect: run.EffectNonIdempotent, Schema: json.RawMessage(`{"type":"object"}`),
	})
	w.def.Permission.Rules = append(w.def.Permission.Rules, agent.Rule{Tool: "weather", Verdict: agent.VerdictAllow})
	return b
}

func (w *world) answer(content string) error {
	in := &runtime.Inputs{Ports: w.ports, Definitions: w.pinned}
	return in.Answer(w.ctx, runtime.Answer{Tenant: tenant, Run: w.run, Call: "c1", Content: content, By: "service"})
}

// A call that runs is not broken off where a bus or a table fails beside it: nobody could say what became of it.
func TestFailuresBesideACallThatRuns(t *testing.T) {
	for name, fail := range map[string]func(w *world, b *busOf){
		"the bus": func(_ *world, b *busOf) { b.fails = slices.Repeat([]error{errBlown}, 16) },
		"the table": func(w *world, _ *busOf) {
			for range 4 { // the attempts of an invocation
				w.table.Once(failed(entry("call_suspended")))
			}
		},
	} {
		subtest(t, name, func(t *testing.T, w *world) {
			fail(w, w.services())
			w.tool("pay").work = func(ctx context.Context, _ tool.Call) (agent.ToolResultData, error) {
				return agent.ToolResultData{Content: "paid"}, w.ports.Clock.Sleep(ctx, time.Minute)
			}
			w.startRound(calls("weather c0", "pay c1", "weather c2"))
			_, err := w.batch().Run(w.ctx, w.inv(0))
			require.Equal(t, name == "the bus", err != nil, "%v", err)
			require.Equal(t, run.StatusSucceeded, w.call("c1").Status)
			require.Equal(t, 1, w.tool("pay").times())
			_, err = w.batch().Run(w.ctx, w.inv(0))
			require.Equal(t, name == "the bus", err != nil, "%v", err)
			w.batchRun(0)
			require.Equal(t, run.StatusSuspended, w.call("c2").Status)
		})
	}
}

// A zombie that asked and lost its claim says nothing more: who took the claim over has asked, too, and waits.
func TestServiceZombie(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		b := w.services()
		w.startRound(calls("weather c1"))
		w.table.Once(meanwhile(entry("call_suspended"), func() { w.batchRun(0) }))
		require.NoError(t, errOf(w.batch().Run(w.ctx, w.inv(0))))
		require.Equal(t, []string{"/c1", "/c1"}, b.ids())
		require.Equal(t, 1, w.written("call_suspended"))
		require.Equal(t, 1, w.call("c1").Executions)
		require.NoError(t, w.answer("rain"))
		require.Equal(t, runtime.NextDone, w.drive(w.state().WaitSeq).Next)
		require.Equal(t, "rain", w.call("c1").Result.Content)
	})
}

// An event that no bus will take, and one for which there is none, are failed calls that the model hears of.
func TestServiceThatCannotBeAsked(t *testing.T) {
	for name, setUp := range map[string]func(w *world, b *busOf){
		"undeliverable": func(_ *world, b *busOf) {
			b.fails = []error{fmt.Errorf("%w: it has 2000000 bytes", runtime.ErrUndeliverable)}
		},
		"no bus": func(w *world, _ *busOf) { w.ports.Emit = nil },
	} {
		subtest(t, name, func(t *testing.T, w *world) {
			b := w.services()
			setUp(w, b)
			w.startWith(calls("weather c1"))
			require.Equal(t, runtime.NextDone, w.drive(0).Next)
			require.Equal(t, run.StatusFailed, w.call("c1").Status)
			require.Contains(t, w.call("c1").Result.Content, "weather was not asked")
		})
	}
}

// The end of a run that somebody waits for is announced also by a batch that finds it done, by no stranger, and as one
// event, however often it is sent. One that no bus takes is let go.
func TestEndIsAnnounced(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		b := w.services()
		w.model.replies = []agent.Reply{calls("look c1")}
		w.follow(w.starter().Start(w.ctx, runtime.Start{
			Tenant: tenant, Agent: w.def, Key: "k1", Input: json.RawMessage(`{"parentSubject$$":"parent 3"}`),
		}))
		w.step(0)
		b.fails = []error{errBlown, errBlown, errBlown, errBlown}
		require.ErrorIs(t, cancelBy(w.ctx, w, w.ports), errBlown)
		require.Equal(t, run.RunDone, w.state().Status, "the end does not wait for the bus")
		owner := w.owner
		w.owner = "another"
		require.Equal(t, runtime.NextDone, w.batchRun(0).Next)
		require.Empty(t, b.took)
		w.owner = owner
		for range 2 {
			require.Equal(t, runtime.NextDone, w.batchRun(0).Next)
		}
		require.Len(t, b.took, 2)
		require.Equal(t, b.took[0], b.took[1])
		require.Equal(t, []any{w.run + "#end", "parent 3"}, []any{b.took[0].ID, b.took[0].ParentSubject})
	})
	inBubble(t, func(t *testing.T, w *world) {
		w.services().fails = []error{runtime.ErrUndeliverable}
		var warned []string
		w.ports.Warn = func(what string, _ error) { warned = append(warned, what) }
		w.startFor("order 3")
		require.Equal(t, runtime.NextDone, w.drive(0).Next)
		require.Equal(t, []string{"announce the end of run " + w.run}, warned)
	})
}

// An end that was committed while no execution ran is told by the sweep, once, where whoever committed it died before
// that; one that has been told is not told again.
func TestOwedEndsAreTold(t *testing.T) {
	for name, c := range map[string]struct {
		fails int // of the bus, until the one who ends the run is gone
		told  map[runtime.Repair]int64
	}{
		"told":           {0, map[runtime.Repair]int64{}},
		"died before it": {4, map[runtime.Repair]int64{runtime.RepairAnnounced: 1}},
	} {
		subtest(t, name, func(t *testing.T, w *world) {
			b := w.services()
			w.startFor("order 3")
			w.waiter.ended(w.owner)
			b.fails = slices.Repeat([]error{errBlown}, c.fails)
			_, err := (&runtime.Canceller{Ports: w.ports, Definitions: w.pinned}).Cancel(w.ctx, tenant, w.run, "user:bob", "")
			require.Equal(t, c.fails > 0, err != nil)
			b.fails = nil
			require.Empty(t, w.sweepAll().Repaired, "whoever ended it has a minute")
			before := len(b.took)
			w.sleep(2 * time.Minute)
			require.Equal(t, c.told, w.sweepAll().Repaired)
			require.Len(t, b.took, before+len(c.told))
			require.Equal(t, w.run+"#end", b.took[len(b.took)-1].ID)
			require.Empty(t, w.sweepAll().Repaired)
			require.Len(t, b.took, before+len(c.told))
		})
	}
}

// advised makes the agent's policy advisory: refund wants an approval.
func (w *world) advised() {
	w.services()
	ask, _ := agent.Contract("tool_approval")
	w.def.Tools = append(w.def.Tools, ask)
	w.def.Permission.Mode, w.def.Permission.Default, w.def.Permission.ApprovalTool = agent.ModeAdvisory, agent.DefaultAllow, "tool_approval"
	w.def.Permission.Rules = []agent.Rule{{Tool: "refund", Verdict: agent.VerdictAsk}}
	require.NoError(w.t, w.def.Check())
}

// offered is the description of a tool in the newest request.
func (w *world) offered(name string) string {
	for _, t := range w.model.asked[len(w.model.asked)-1].Tools {
		if t.Name == name {
			return t.Description
		}
	}
	w.t.Fatalf("%s is not offered", name)
	return ""
}

const approvals = `{"approvals":[{"tool":"refund","value":true}]}`

// What was approved in one run is known to the agent's next one; the record is read once an attempt and written at
// once for all tools.
func TestApprovalsOutliveTheRun(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.advised()
		w.startWith(calls(`tool_approval c1 {"message":"m","tools":["refund"]}`), calls("look c2"))
		reads := w.counts.Counts().Queries
		r := w.drive(0)
		require.Contains(t, w.offered("refund"), "approval")
		require.NotContains(t, w.offered("look"), "approval")
		require.NoError(t, w.answer(
			`{"approvals":[{"tool":"refund","value":true},{"tool":"look","value":false},{"tool":"no tool","value":true}]}`,
		))
		w.drive(r.Woken)
		require.Contains(t, w.offered("refund"), "approval", "an answer with a name that is none says nothing")
		require.Less(t, reads, w.counts.Counts().Queries)

		w.another("k2")
		r = w.drive(0)
		require.NoError(t, w.answer(approvals))
		require.Equal(t, runtime.NextDone, w.drive(r.Woken).Next)
		require.Equal(t, "Works.", w.offered("refund"))
		require.Equal(t, 3, w.written("remembered"), "read at its start and at its resumption, and told by the answer")

		w.model.replies = nil
		w.another("k3")
		w.drive(0)
		require.Equal(t, "Works.", w.offered("refund"))

		w.def.Name = "another"
		w.another("k4")
		w.drive(0)
		require.Contains(t, w.offered("refund"), "approval", "the record is the agent's own")
	})
}

// A record that cannot be written hurts nobody: the run itself knows, and whoever runs this is told.
func TestApprovalsThatCannotBeKept(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.advised()
		var warned []string
		w.ports.Warn = func(what string, err error) {
			require.ErrorIs(t, err, errBlown)
			warned = append(warned, what)
		}
		w.startWith(calls(`tool_approval c1 {"message":"m","tools":["refund"]}`))
		r := w.drive(0)
		require.NoError(t, w.answer(approvals))
		w.table.Once(failed(func(ops []store.Op) bool { return strings.Contains(ops[0].Item.PK, "#ADVICE#") }))
		require.Equal(t, runtime.NextDone, w.drive(r.Woken).Next)
		require.Equal(t, []string{"keep approvals of agent clerk"}, warned)
		require.Equal(t, "Works.", w.offered("refund"), "this run knows")
		w.model.replies = nil
		w.another("k2")
		w.drive(0)
		require.Contains(t, w.offered("refund"), "approval", "the next one does not")
	})
}

// A fork that has an answer which its model has not seen does not record it again: the record may have a newer one.
func TestApprovalsOfAFork(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.advised()
		w.startWith(calls(`tool_approval c1 {"message":"m","tools":["refund"]}`, "weather c2"))
		w.drive(0)
		require.NoError(t, w.answer(approvals))
		w.drive(w.state().WaitSeq)
		parent := w.run
		w.model.replies = []agent.Reply{calls(`tool_approval c1 {"message":"m","tools":["refund"]}`)}
		w.another("k2")
		r := w.drive(0)
		require.NoError(t, w.answer(`{"approvals":[{"tool":"refund","value":false}]}`))
		require.Equal(t, runtime.NextDone, w.drive(r.Woken).Next)
		w.run, w.model.replies = parent, nil
		w.follow(w.fork(w.seq(), "f"))
		r = w.drive(0)
		w.decided(approval.DecisionInput{ID: w.call("c2").Wait.Approval, Action: approval.ReportResult, Content: "rain"})
		require.Equal(t, runtime.NextDone, w.drive(r.Woken).Next)
		w.another("k3")
		w.drive(0)
		require.Contains(t, w.offered("refund"), "approval")
	})
}

// A service that was asked may answer while people are asked whether to ask it again, as its tool's rule has become
// stricter: the answer settles the call, and nobody has to decide any more.
func TestAnswerWhilePeopleAreAskedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		b := w.services()
		w.def.Permission.Rules = []agent.Rule{{Tool: "weather", Verdict: agent.VerdictAsk}}
		w.startWith(calls("weather c1"))
		woken := w.drive(0).Woken
		w.decide("c1")
		for range 4 { // the function dies behind the event
			w.table.Once(failed(entry("call_suspended")))
		}
		w.step(woken)
		require.Error(t, errOf(w.batch().Run(w.ctx, w.inv(woken))))
		require.Equal(t, []string{"/c1"}, b.ids())
		now := *w.def
		now.Permission.Rules = []agent.Rule{{Tool: "weather", Verdict: agent.VerdictAsk, Approvers: []string{"user:cfo"}}}
		w.pinned = runtime.WithCurrentPolicy(w.pinned, func(string) (*agent.Definition, bool) { return &now, true })
		woken = w.drive(0).Woken
		asked := w.call("c1").Wait.Approval
		require.Equal(t, approval.Pending, w.approval(asked).Status)
		_, err := w.desk().Decide(w.ctx, approval.DecisionInput{
			Tenant: tenant, ID: asked, Action: approval.Edit, Args: json.RawMessage(`{"of":"Rome"}`), By: policy.Principal{ID: "user:cfo", Groups: ana.Groups},
		})
		require.ErrorContains(t, err, "may have been asked", "an edit would change nothing of the event that is out")
		require.NoError(t, w.answer("rain"))
		require.Equal(t, runtime.NextDone, w.drive(woken).Next)
		require.Equal(t, "rain", w.call("c1").Result.Content)
		require.Equal(t, approval.Voided, w.approval(asked).Status)
		require.Equal(t, []string{"/c1"}, b.ids())
	})
}

// An answer that comes while a model is told that nobody has answered counts for nothing, and the service is told so.
func TestServiceAnswersWhileItsExpiryIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.services()
		w.startWith(calls("weather c1"))
		r := w.drive(0)
		w.model.replies = append(w.model.replies, agent.Reply{Text: "Nobody knows."})
		w.model.during = func(agent.Request) error {
			require.ErrorIs(t, w.answer("rain"), runtime.ErrNotAwaited)
			return nil
		}
		w.sleep(24 * time.Hour)
		require.Equal(t, runtime.NextDone, w.step(r.Woken).Next)
		require.Equal(t, run.WhyExpired, w.call("c1").Reason)
	})
}
