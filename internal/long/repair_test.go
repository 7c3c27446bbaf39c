package long

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/workload"
)

// gone is an engine whose executions have all ended, but for the one that was never started: the owner's successor.
type gone struct {
	started []string
	next    string
}

func (*gone) Success(context.Context, string) error { return runtime.ErrSettled }
func (g *gone) Start(_ context.Context, _, _, name string) error {
	g.started = append(g.started, name)
	return nil
}
func (*gone) Stop(context.Context, string, string) error { return nil }
func (g *gone) Status(_ context.Context, name string) (runtime.ExecutionStatus, error) {
	if name == g.next {
		return runtime.ExecutionNone, nil
	}
	return runtime.ExecutionEnded, nil
}

// TestAnOldRunIsRepaired: an execution that handed over is none that ended before its run did. After a hundred of these, the run is given up.
func TestAnOldRunIsRepaired(t *testing.T) {
	for _, c := range []struct {
		name    string
		entries int // that every owner has written
		want    runtime.Repair
	}{
		{"a hundred owners, of whom two may have handed over", 15, runtime.RepairTookOver},
		{"a hundred owners, none of whom had written its share", 3, runtime.RepairFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, setup{table: stores["memory"](t), model: workload.Model{}, define: small, warm: 1})
			g := &gone{}
			l.Starter.Waiter, l.Sweeper.Waiter = g, g
			runID := l.start(t, "old").Run
			s := l.state(t, runID)
			slot := int64(0)
			for owner := range int64(101) {
				for i := range c.entries {
					slot++
					in := run.InputReceived{Slot: slot, ID: fmt.Sprint(owner, "-", i), Blocks: []run.UserBlock{{Block: run.Text{Text: "On."}}}}
					s = l.append(t, s, in)
				}
				s = l.append(t, s, run.HandedOver{Owner: runtime.ExecutionName(runID, owner+1)})
			}
			require.EqualValues(t, 101, s.Generation)
			g.next = runtime.ExecutionName(runID, s.Generation+1)
			did, err := l.Sweeper.Repair(t.Context(), local.Tenant, runID)
			require.NoError(t, err)
			require.Equal(t, c.want, did)
			require.NoError(t, l.Engine.Close())
		})
	}
}

// append writes an entry of its own into a run's journal.
func (l *lab) append(t *testing.T, s run.AgentState, facts ...run.Event) run.AgentState {
	t.Helper()
	d := run.NewDraft(s, "w", s.UpdatedAt)
	require.NoError(t, d.Add(facts...))
	require.NoError(t, store.NewJournal(l.items.Table, 0).Append(t.Context(), s, d))
	return d.Committed()
}
