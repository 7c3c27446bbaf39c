package dynamo_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/standin"
	"github.com/countersign/countersign/internal/store"
)

// TestForkAndContinue: a fork of a run that waits is asked for anew and moves its file; what continues it is read from three journals by
// three Queries, cold, and nothing else.
func TestForkAndContinue(t *testing.T) {
	d := deploy(t)
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "a.txt"), []byte("Team meeting\nTuesday"), 0o600))
	m := d.machine(standin.DemoModel{}, 0)
	s, err := d.start(m, "k")
	require.NoError(t, err)
	parent := d.settled(s.Run)
	require.Len(t, parent.Waits(), 1)

	f, err := m.Starter.Fork(t.Context(), runtime.Fork{Tenant: tenant, Run: s.Run, At: parent.Seq(), Key: "f"})
	require.NoError(t, err)
	forked := d.settled(f.Run)
	require.NotEqual(t, parent.Waits()[0].Wait.Approval, forked.Waits()[0].Wait.Approval)
	_, err = m.Desk.Decide(t.Context(), approval.DecisionInput{
		Tenant: tenant, ID: forked.Waits()[0].Wait.Approval, Action: approval.Approve, By: policy.Principal{ID: "user:local", Groups: []string{"group:operators"}},
	})
	require.NoError(t, err)
	forked = d.settled(f.Run)
	require.Equal(t, run.ReasonNaturalEnd, forked.Reason)
	require.FileExists(t, filepath.Join(d.dir, "team_meeting.txt"))
	require.Equal(t, run.RunWaiting, d.settled(s.Run).Status)

	c, err := m.Starter.Start(t.Context(), runtime.Start{
		Tenant: tenant, Agent: d.def, Key: "c", Continues: f.Run, Message: []run.UserBlock{{Block: run.Text{Text: "Thanks."}}},
	})
	require.NoError(t, err)
	continued := d.settled(c.Run)
	require.NoError(t, m.Engine.Close())
	require.Equal(t, run.RunDone, continued.Status)
	require.Equal(t, f.Run, continued.From.Run)

	before := d.meter.snapshot()
	l, err := store.NewJournal(d.table, 0).Load(t.Context(), tenant, c.Run)
	require.NoError(t, err)
	require.EqualValues(t, 3, d.meter.snapshot()["Query"]-before["Query"])
	require.Equal(t, continued.Messages.All(), l.State.Messages.All())
	require.Greater(t, l.State.Messages.Len(), parent.Messages.Len())
}
