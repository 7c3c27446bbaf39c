package local

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// TestStorm: many runs in one process, each with people who approve, and deny the same payment at once, say the same things twice, cancel, and with a
// fast clock whose time is up meanwhile. Every run comes to its end, and no payment is made twice or without an approval. It is for the race detector.
func TestStorm(t *testing.T) {
	s := stories["approved"]
	agents, err := s.agents()
	require.NoError(t, err)
	agents["clerk"].Permission.Rules = []agent.Rule{
		{Tool: "pay", Verdict: agent.VerdictAsk, Expires: time.Minute}, {Tool: "*", Verdict: agent.VerdictAllow},
	}
	table, k := store.NewMemory(), &marks{of: map[string]int{}}
	books := killable{k, filepath.Join(t.TempDir(), "ledger")}
	system := clock.System()
	c := fast{system, system.Now(), 100}
	m, err := New(Config{
		Table: table, Blobs: store.NewMemoryBlobs(), Model: killableModel{s, k, agents}, Tools: books,
		Agents: func(name string) (*agent.Definition, bool) { d, ok := agents[name]; return d, ok },
		Clock:  c, IDs: ids.System(c), Executions: NewExecutions(table), Warm: 4,
	})
	require.NoError(t, err)
	const runs = 12
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() { weather(t.Context(), t, m, fmt.Sprint("k", i), i) })
	}
	all.Wait()
	require.Eventually(t, func() bool { return len(m.Engine.List(t.Context(), asl.Running)) == 0 }, 2*time.Minute, time.Millisecond)
	require.NoError(t, m.Engine.Close())
	paid := map[string]int{}
	for _, key := range books.books("pay") {
		paid[key]++
	}
	for i := range runs {
		runID := agent.RunID(Tenant, "clerk", fmt.Sprint("k", i))
		l, err := m.Ports.Journal.Load(t.Context(), Tenant, runID)
		require.NoError(t, err)
		require.Equal(t, run.RunDone, l.State.Status)
		require.Empty(t, l.Inbox)
		n := paid[runID+"/c2"]
		require.LessOrEqual(t, n, 1, "run %d paid more than once", i)
		if a, err := approval.Get(t.Context(), table, Tenant, run.ApprovalID(runID, "c2", 1)); n == 1 {
			require.NoError(t, err)
			require.Equal(t, approval.Approved, a.Status)
		}
	}
}

// weather is what people do to a run, all at once.
func weather(ctx context.Context, t *testing.T, m *Machine, key string, i int) {
	def, _ := m.Agents("clerk")
	var people sync.WaitGroup
	for range 2 { // two clients with one key
		people.Go(func() {
			if _, err := m.Starter.Start(ctx, runtime.Start{Tenant: Tenant, Agent: def, Key: key, Message: []run.UserBlock{{Block: run.Text{Text: "Order A-1."}}}}); err != nil {
				t.Error(err)
			}
		})
	}
	people.Wait()
	runID := agent.RunID(Tenant, "clerk", key)
	id := run.ApprovalID(runID, "c2", 1)
	over := func() bool {
		h, err := m.Ports.Journal.Head(ctx, Tenant, runID)
		return err == nil && h.Status == run.RunDone
	}
	for who := range 3 {
		by := policy.Principal{ID: fmt.Sprint("user:u", who), Groups: clerks.Groups}
		action := []approval.Action{approval.Approve, approval.Deny, approval.Approve}[(who+i)%3]
		people.Go(func() {
			for said := 0; !over(); said++ {
				err := m.Inputs.Send(ctx, Tenant, runID, fmt.Sprint("m", said%5), clerks.ID, []run.UserBlock{{Block: run.Text{Text: "Well?"}}})
				if err != nil && !errors.Is(err, runtime.ErrRunFinished) {
					t.Error(err)
				}
				if i%4 != 0 { // else time decides
					_, err = m.Desk.Decide(ctx, approval.DecisionInput{Tenant: Tenant, ID: id, Action: action, By: by})
				}
				if i%6 == 5 && said == 3 {
					_, err = m.Canceller.Cancel(ctx, Tenant, runID, by.ID, "")
				}
				var decided *approval.DecidedError
				if err != nil && !errors.As(err, &decided) && !errors.Is(err, approval.ErrNotFound) && !errors.Is(err, approval.ErrExpired) &&
					!errors.Is(err, approval.ErrFinished) && !errors.Is(err, runtime.ErrRunFinished) {
					t.Error(err)
				}
				if err := clock.System().Sleep(ctx, time.Millisecond); err != nil {
					return
				}
			}
		})
	}
	people.Wait()
}
