package local

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// Runs that share a budget go on when people have raised it for one of them, and when a new period has begun. Their own
// requests are void; a run that finds the budget used up again asks by another call.
func TestRunsGoOnWhenTheirBudgetHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &pager{}
		o := newOfficeOf(t, Config{
			Table: store.NewMemory(), Blobs: store.NewMemoryBlobs(), Executions: NewExecutions(store.NewMemory()),
			Model:  replying{{Model: "m", Text: "Done.", Usage: run.Usage{Input: 9, Output: 3}}},
			Notify: onlyAna(t, d),
		})
		o.def.Limits.Period = &agent.PeriodBudget{Every: agent.EveryDay, Tokens: 10}
		o.def.Limits.OnBudget = agent.OnBudgetAsk
		o.def.Permission.Rules = []agent.Rule{{Tool: run.ToolAgentBudget, Verdict: agent.VerdictAsk, Expires: 72 * time.Hour}}
		defer func() { require.NoError(t, o.Close()) }()
		start := func(key string) string {
			s, err := o.Starter.Start(t.Context(), runtime.Start{Tenant: Tenant, Agent: &o.def, Key: key, Message: message("Go.")})
			require.NoError(t, err)
			synctest.Wait()
			return s.Run
		}
		state := func(id string) *run.AgentState {
			l, err := o.Ports.Journal.Load(t.Context(), Tenant, id)
			require.NoError(t, err)
			return &l.State
		}
		pending := func() (runs []string) {
			open, _, err := approval.List(t.Context(), o.Ports.Table, Tenant, approval.Query{Status: approval.Pending})
			require.NoError(t, err)
			for _, a := range open {
				runs = append(runs, a.Run)
			}
			return runs
		}
		require.Equal(t, run.ReasonNaturalEnd, state(start("1")).Reason)
		second, third := start("2"), start("3")
		require.ElementsMatch(t, []string{second, third}, pending())

		_, err := o.Desk.Decide(t.Context(), approval.DecisionInput{
			Tenant: Tenant, ID: state(second).Waits()[0].Wait.Approval, Action: approval.Edit, Args: []byte(`{"tokens":20}`),
			By: policy.Principal{ID: "user:ana", Groups: []string{"group:operators"}},
		})
		require.NoError(t, err)
		synctest.Wait()
		for _, id := range []string{second, third} {
			s := state(id)
			require.Equal(t, run.ReasonNaturalEnd, s.Reason, "%+v", s.Error)
			require.EqualValues(t, 1, s.ModelCalls)
		}
		require.Equal(t, run.WhyVoided, state(third).Calls()[0].Reason)
		require.Contains(t, d.said(), string(approval.Voided), "whoever was told of the request sees that it is void")

		fourth := start("4") // 36 of 30 are used
		require.NoError(t, o.Resume(t.Context(), Tenant, ""))
		synctest.Wait()
		require.Equal(t, []string{fourth}, pending())
		time.Sleep(24 * time.Hour)
		require.NoError(t, o.Resume(t.Context(), Tenant, ""))
		synctest.Wait()
		require.Equal(t, run.ReasonNaturalEnd, state(fourth).Reason)
		require.Empty(t, pending())
	})
}
