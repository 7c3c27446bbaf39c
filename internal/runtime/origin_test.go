package runtime_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

func (w *world) starter() *runtime.Starter { return &runtime.Starter{Ports: w.ports} }

// follow makes s the run that the world acts on.
func (w *world) follow(s run.AgentState, err error) {
	w.t.Helper()
	require.NoError(w.t, err)
	w.run, w.owner = s.Run, s.Owner
}

// goOn is a request to continue the world's run.
func (w *world) goOn(text string) runtime.Start {
	r := w.request(text)
	r.Key, r.Continues = "k2", w.run
	return r
}

func (w *world) fork(at int64, key string) (run.AgentState, error) {
	return w.starter().Fork(w.ctx, runtime.Fork{Tenant: tenant, Run: w.run, At: at, Key: key})
}

// interrupt lets the invocation die within a tool whose call c1 is owed: somebody must say what became of it.
func (w *world) interrupt(tool string, woken int64) {
	w.t.Helper()
	ctx, dies := context.WithCancel(w.ctx)
	w.tool(tool).inside(dies)
	_, err := w.batch().Run(ctx, w.inv(woken))
	require.Error(w.t, err)
	require.Equal(w.t, runtime.NextStep, w.batchRun(0).Next)
	require.Equal(w.t, run.ForOutcome, w.call("c1").Wait.For)
}

func TestContinueRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.parkedRun()
		before := w.counts.Counts()
		_, err := w.starter().Start(w.ctx, w.goOn("Go on."))
		require.ErrorIs(t, err, policy.ErrNotFinished)
		other := w.goOn("Go on.")
		other.Tenant = "rival"
		_, err = w.starter().Start(w.ctx, other)
		require.ErrorIs(t, err, store.ErrNoRun)
		after := w.counts.Counts()
		require.Equal(t, before.Writes+before.Transactions, after.Writes+after.Transactions, "nothing is written")

		w.cancel()
		parent := w.run
		request := w.goOn("Go on.")
		s, err := w.starter().Start(w.ctx, request)
		require.NoError(t, err)
		again, err := w.starter().Start(w.ctx, request)
		require.NoError(t, err)
		require.Equal(t, s.Run, again.Run)
		request.Continues = ""
		_, err = w.starter().Start(w.ctx, request)
		require.ErrorIs(t, err, runtime.ErrKeyReused, "what is continued is part of the body")
		require.Equal(t, parent, again.From.Run)
	})
}

func ptr[T any](v T) *T { return &v }

// Nobody knows what became of the parent's call: a person is asked, not the tool, which would look for the child's
// attempt.
func TestForkInDoubt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.model.replies = []agent.Reply{calls("pay c1"), {Text: "Paid."}}
		w.start()
		w.step(0)
		w.interrupt("pay", 0)
		require.Equal(t, 1, w.tool("pay").times())

		w.model.replies = nil
		w.tool("pay").reconcile = func(tool.Call) (tool.Outcome, agent.ToolResultData, error) {
			t.Error("the tool was asked about an attempt of another run")
			return tool.OutcomeNotDone, agent.ToolResultData{}, nil
		}
		w.follow(w.fork(ptr(w.state()).Seq(), "f"))
		require.Equal(t, runtime.NextWait, w.drive(0).Next)
		id := w.call("c1").Wait.Approval
		a, err := approval.Get(w.ctx, w.table, tenant, id)
		require.NoError(t, err)
		require.Equal(t, []any{approval.KindOutcome, approval.Pending, w.run}, []any{a.Kind, a.Status, a.Run})
		require.Equal(t, 1, w.tool("pay").times())

		_, err = w.desk().Decide(w.ctx, approval.DecisionInput{Tenant: tenant, Run: w.run, Call: "c1", Action: approval.Rerun, By: ana})
		require.NoError(t, err)
		woken := w.state()
		require.Equal(t, runtime.NextDone, w.drive(woken.WaitSeq).Next)
		require.Equal(t, 2, w.tool("pay").times(), "once more, by order")
		require.Equal(t, w.run+"/c1", w.tool("pay").entered[1].Key)
	})
}

func TestForkIsIdempotent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.parkedRun()
		w.table.Once(lost(entry("run_started")))
		var wg sync.WaitGroup
		runs := make([]run.AgentState, 50)
		for i := range runs {
			wg.Go(func() {
				s, err := w.fork(1, "f")
				if err != nil {
					t.Error(err)
				}
				runs[i] = s
			})
		}
		wg.Wait()
		for _, s := range runs {
			require.Equal(t, runs[0].Run, s.Run)
			require.Equal(t, runs[0].StartedAt, s.StartedAt)
		}
		_, err := w.fork(2, "f")
		require.ErrorIs(t, err, runtime.ErrKeyReused)
		_, err = w.starter().Fork(
			w.ctx, runtime.Fork{Tenant: tenant, Run: w.run, At: 1, Key: "f", Model: &agent.ModelSpec{Provider: "demo"}},
		)
		require.ErrorIs(t, err, runtime.ErrKeyReused)
		other, err := w.fork(1, "g")
		require.NoError(t, err)
		require.NotEqual(t, runs[0].Run, other.Run)
	})
}

func TestForkRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.parkedRun()
		before := w.counts.Counts()
		newest := ptr(w.state()).Seq()
		_, err := w.fork(newest+1, "f")
		require.ErrorIs(t, err, store.ErrNoEntry)
		var bad *runtime.BadFork
		_, err = w.fork(-1, "f")
		require.ErrorAs(t, err, &bad)
		_, err = w.starter().Fork(w.ctx, runtime.Fork{Tenant: "rival", Run: w.run, At: 0})
		require.ErrorIs(t, err, store.ErrNoRun)
		_, err = w.starter().Fork(
			w.ctx, runtime.Fork{Tenant: tenant, Run: w.run, At: 0, Model: &agent.ModelSpec{Provider: "oracle"}},
		)
		require.ErrorAs(t, err, &bad)
		require.ErrorContains(t, err, "model.provider")
		after := w.counts.Counts()
		require.Equal(t, before.Writes+before.Transactions, after.Writes+after.Transactions, "nothing is written")
	})
}

// Another model is named by a copy of the definition; the parent's stays as it is.
func TestForkWithAnotherModel(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.start()
		w.drive(0)
		parent := w.state()
		w.def.System = "Something newer."
		w.follow(w.starter().Fork(w.ctx, runtime.Fork{
			Tenant: tenant, Run: w.run, At: 0, Key: "f", Model: &agent.ModelSpec{Provider: "openai", ID: "other"},
		}))
		w.drive(0)
		asked := w.model.asked[len(w.model.asked)-1]
		require.Equal(
			t, []any{
				"openai", "other", w.def.Model.Retry.Attempts, "You work.",
			}, []any{asked.Model.Provider, asked.Model.ID, asked.Model.Retry.Attempts, asked.System},
		)
		require.NotEqual(t, parent.Definition, w.state().Definition)
		def, err := w.pinned(w.ctx, tenant, parent.Definition)
		require.NoError(t, err)
		require.Equal(t, "demo", def.Model.Provider)
	})
}

// A8: a person changed what was lost in the parent. What runs again in the fork is what that person made of it, and
// the model, whose own words say something else, is told so; also where the fork's own approval changes nothing.
func TestForkInDoubtOfAnEditedCall(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		parked := w.parkedRun()
		_, err := w.desk().Decide(w.ctx, approval.DecisionInput{
			Tenant: tenant, ID: w.call("c1").Wait.Approval, Action: approval.Edit, Args: []byte(`{"amount":5}`), By: ana,
		})
		require.NoError(t, err)
		w.interrupt("refund", parked.Woken)

		w.model.replies = nil
		for _, key := range []string{"fork", "fork of the fork"} {
			w.follow(w.fork(ptr(w.state()).Seq(), key))
			require.Equal(t, runtime.NextWait, w.drive(0).Next)
		}
		waiting := w.state()
		_, err = w.desk().Decide(w.ctx, approval.DecisionInput{Tenant: tenant, Run: w.run, Call: "c1", Action: approval.Rerun, By: ana})
		require.NoError(t, err)
		r := w.drive(waiting.WaitSeq)
		require.Equal(t, runtime.NextWait, r.Next)
		a, err := approval.Get(w.ctx, w.table, tenant, w.call("c1").Wait.Approval)
		require.NoError(t, err)
		require.JSONEq(t, `{"amount":5}`, string(a.Args), "people see what would run")
		_, err = w.decide("c1")
		require.NoError(t, err)
		require.Equal(t, runtime.NextDone, w.drive(r.Woken).Next)
		require.JSONEq(t, `{"amount":5}`, string(w.tool("refund").entered[1].Args))
		require.Contains(t, w.call("c1").Result.Content, agent.TextEdited("user:ana", `{"amount":5}`))
	})
}
