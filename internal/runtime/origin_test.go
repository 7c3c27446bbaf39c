package runtime_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// goOn is a request to continue the world's run.
func (w *world) goOn(text string) runtime.Start {
	r := w.request(text)
	r.Key, r.Continues = "k2", w.run
	return r
}

func (w *world) fork(at int64, key string) (run.AgentState, error) {
	return w.starter().Fork(w.ctx, runtime.Fork{Tenant: tenant, Run: w.run, At: at, Key: key})
}

// seq is the run's newest entry.
func (w *world) seq() int64 {
	s := w.state()
	return s.Seq()
}

// interrupt lets the invocation die within a tool whose call c1 is owed: somebody must say what became of it.
func (w *world) interrupt(tool string, woken int64) {
	w.t.Helper()
	ctx, dies := context.WithCancel(w.ctx)
	w.tool(tool).inside(dies)
	require.Error(w.t, errOf(w.batch().Run(ctx, w.inv(woken))))
	require.Equal(w.t, runtime.NextStep, w.batchRun(0).Next)
	require.Equal(w.t, run.ForOutcome, w.call("c1").Wait.For)
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
		require.ErrorIs(t, errOf(w.fork(2, "f")), runtime.ErrKeyReused)
		_, err := w.starter().Fork(
			w.ctx, runtime.Fork{Tenant: tenant, Run: w.run, At: 1, Key: "f", Model: &agent.ModelSpec{Provider: "demo"}},
		)
		require.ErrorIs(t, err, runtime.ErrKeyReused)
		w.cancel()
		request := w.goOn("Go on.")
		require.NoError(t, errOf(w.starter().Start(w.ctx, request)))
		request.Continues = ""
		_, err = w.starter().Start(w.ctx, request)
		require.ErrorIs(t, err, runtime.ErrKeyReused, "what is continued is part of the body")
	})
}

// Nobody reads another tenant's run by forking or continuing it, and a refusal writes nothing.
func TestForkRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.parkedRun()
		before := w.counts.Counts()
		require.ErrorIs(t, errOf(w.fork(w.seq()+1, "f")), store.ErrNoEntry)
		_, err := w.starter().Fork(w.ctx, runtime.Fork{Tenant: "rival", Run: w.run, At: 0})
		require.ErrorIs(t, err, store.ErrNoRun)
		require.ErrorIs(t, errOf(w.starter().Start(w.ctx, w.goOn("Go on."))), policy.ErrNotFinished)
		other := w.goOn("Go on.")
		other.Tenant = "rival"
		require.ErrorIs(t, errOf(w.starter().Start(w.ctx, other)), store.ErrNoRun)
		after := w.counts.Counts()
		require.Equal(t, before.Writes+before.Transactions, after.Writes+after.Transactions, "nothing is written")
	})
}

// Another model is named by a copy of the definition, in the place of all of its models; the parent's stays as it is.
func TestForkWithAnotherModel(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		theirs := agent.ModelSpec{Provider: "openai", ID: "theirs", Retry: w.def.Model.Retry}
		w.def.Model.Fallbacks = []agent.ModelSpec{theirs}
		w.def.Orchestrator.Planner, w.def.Orchestrator.Router = &theirs, &theirs
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
		def, err := w.pinned(w.ctx, tenant, w.state().Definition)
		require.NoError(t, err)
		require.Empty(t, def.Model.Fallbacks)
		require.Equal(t, agent.Orchestrator{TopK: 15, MaxSteps: 10, Retries: 3}, def.Orchestrator)
		require.Equal(t, "other", def.Below.ID)
		def, err = w.pinned(w.ctx, tenant, parent.Definition)
		require.NoError(t, err)
		require.Equal(t, "demo", def.Model.Provider)
	})
}

// A8: a person changed what was lost in the parent. What runs again in the fork is what that person made of it, and
// the model, whose own words say something else, is told so; also where the fork's own approval changes nothing. What
// became of it, a person is asked, and not the tool, which would look for the fork's attempt.
func TestForkInDoubtOfAnEditedCall(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		parked := w.parkedRun()
		w.decided(approval.DecisionInput{
			ID: w.call("c1").Wait.Approval, Action: approval.Edit, Args: []byte(`{"amount":5}`),
		})
		w.interrupt("refund", parked.Woken)

		w.model.replies = nil
		synctest.Wait() // the interrupted invocation may still ask the tool
		w.tool("refund").reconcile = func(tool.Call) (tool.Outcome, agent.ToolResultData, error) {
			t.Error("the tool was asked about an attempt of another run")
			return tool.OutcomeNotDone, agent.ToolResultData{}, nil
		}
		for _, key := range []string{"fork", "fork of the fork"} {
			w.follow(w.fork(w.seq(), key))
			require.Equal(t, runtime.NextWait, w.drive(0).Next)
		}
		waiting := w.state()
		a := w.approval(w.call("c1").Wait.Approval)
		require.Equal(t, []any{approval.KindOutcome, approval.Pending, w.run}, []any{a.Kind, a.Status, a.Run})
		w.decided(approval.DecisionInput{Action: approval.Rerun})
		r := w.drive(waiting.WaitSeq)
		require.Equal(t, runtime.NextWait, r.Next)
		a = w.approval(w.call("c1").Wait.Approval)
		require.JSONEq(t, `{"amount":5}`, string(a.Args), "people see what would run")
		w.decide("c1")
		require.Equal(t, runtime.NextDone, w.drive(r.Woken).Next)
		require.Equal(t, 2, w.tool("refund").times(), "once more, by order")
		require.JSONEq(t, `{"amount":5}`, string(w.tool("refund").entered[1].Args))
		require.Equal(t, w.run+"/c1", w.tool("refund").entered[1].Key)
		require.Contains(t, w.call("c1").Result.Content, agent.TextEdited("user:ana", `{"amount":5}`))
	})
}

// onePerPage is a table whose pages are full with one item.
type onePerPage struct{ store.Table }

func (t onePerPage) Query(ctx context.Context, r store.Range) (store.Page, error) {
	if r.Index {
		r.Limit = 1
	}
	return t.Table.Query(ctx, r)
}

// TestMaxRunning: a tenant with as many running runs as it may have, in whatever shards they are listed, starts and
// forks no other, and nothing is written; how many another tenant has is all the same.
func TestMaxRunning(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		waits := w.parked("waits")
		st := &runtime.Starter{Ports: w.ports, MaxRunning: 3}
		st.Journal = store.NewJournal(onePerPage{w.table}, 0)
		start := func(tenant, key, text string) error {
			r := w.request(text)
			r.Tenant, r.Key = tenant, key
			return errOf(st.Start(w.ctx, r))
		}
		for _, key := range []string{"a", "b", "c"} {
			require.NoError(t, start(tenant, key, "Work."))
		}
		before := w.counts.Counts()
		require.ErrorIs(t, start(tenant, "d", "Work."), runtime.ErrTooManyRuns)
		require.ErrorIs(t, errOf(st.Fork(w.ctx, runtime.Fork{Tenant: tenant, Run: waits})), runtime.ErrTooManyRuns)
		cost := w.counts.Counts().Sub(before)
		require.Zero(t, cost.Writes+cost.Transactions)
		require.LessOrEqual(t, cost.Queries, int64(2*(8+3)+1), "a page each and one of each shard, the run and its parent")
		require.ErrorIs(t, start(tenant, "a", "Other work."), runtime.ErrKeyReused)
		require.NoError(t, start("globex", "d", "Work."))
	})
}

// However many runs are running, a call can be taken back.
func TestUndoNeedsNoRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.paid()
		st := &runtime.Starter{Ports: w.ports, MaxRunning: 1}
		r := w.request("Work.")
		r.Key = "other"
		require.NoError(t, errOf(st.Start(w.ctx, r)))
		r.Key = "another"
		require.ErrorIs(t, errOf(st.Start(w.ctx, r)), runtime.ErrTooManyRuns)
		_, again, err := st.Undo(w.ctx, runtime.Undo{Tenant: tenant, Run: w.run, Call: "c1", By: "user:bob"})
		require.NoError(t, err)
		require.False(t, again)
	})
}

// Whoever goes on with a run that nobody is known to have started does not become its only starter: four eyes still
// take two approvers, in the runs that it delegates, too, as one of them may be the one who is not known.
func TestNobodyKnownStartedWhatARunBeganFrom(t *testing.T) {
	for name, begin := range map[string]func(w *world) (run.AgentState, error){
		"continued": func(w *world) (run.AgentState, error) {
			r := w.goOn("Go on.")
			r.By = []string{"user:eve"}
			return w.starter().Start(w.ctx, r)
		},
		"forked": func(w *world) (run.AgentState, error) {
			return w.starter().Fork(w.ctx, runtime.Fork{Tenant: tenant, Run: w.run, At: 0, By: "user:eve"})
		},
	} {
		subtest(t, name, func(t *testing.T, w *world) {
			w.def.Permission.Rules = []agent.Rule{{Tool: "refund", Verdict: agent.VerdictAsk, FourEyes: true}}
			w.start()
			w.drive(0)
			w.model.replies = []agent.Reply{calls("refund c1")}
			w.follow(begin(w))
			require.Equal(t, runtime.NextWait, w.drive(0).Next)
			w.decide("c1")
			require.Equal(t, 2, w.approval(w.call("c1").Wait.Approval).Quorum)
		})
	}
}
