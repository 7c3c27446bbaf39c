package local

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// A fork is carried on by another process over the same store, and replay folds it with what it began from.
func TestForkIsCarriedOnByAnotherProcess(t *testing.T) {
	h, s := parked(t)
	f, err := h.Starter.Fork(t.Context(), runtime.Fork{Tenant: Tenant, Run: s.Run, At: s.Seq(), Key: "f"})
	require.NoError(t, err)
	forked := settled(t, h, f.Run)
	dir := h.Dir
	require.NoError(t, h.Close())
	h = open(t, dir)
	defer func() { require.NoError(t, h.Close()) }()
	for forked.Status != run.RunDone {
		_, err := h.Desk.Decide(t.Context(), approval.DecisionInput{
			Tenant: Tenant, ID: forked.Waits()[0].Wait.Approval, Action: approval.Approve,
			By: policy.Principal{ID: "user:local", Groups: []string{"group:operators"}},
		})
		require.NoError(t, err)
		forked = settled(t, h, f.Run)
	}
	require.Equal(t, run.ReasonNaturalEnd, forked.Reason)
	folder := strings.TrimSuffix(forkedRoot(t, h, &forked), "/")
	require.FileExists(t, filepath.Join(folder, "team_meeting.txt"))
	require.Equal(t, run.RunWaiting, settled(t, h, s.Run).Status, "the parent still waits")
	r, err := h.Replay(t.Context(), Tenant, f.Run)
	require.NoError(t, err)
	require.Empty(t, r.Differences)
	require.Equal(t, int(forked.Entries), r.Entries, "its own entries")
}

func forkedRoot(t *testing.T, h *Home, s *run.AgentState) string {
	t.Helper()
	def, err := h.Definitions(t.Context(), Tenant, s.Definition)
	require.NoError(t, err)
	return def.Tools[0].Root
}

// Whoever changes what a run began from is found out by the run's own replay, too.
func TestReplayOfAForkFindsItsParentTamperedWith(t *testing.T) {
	h, s := parked(t)
	defer func() { require.NoError(t, h.Close()) }()
	f, err := h.Starter.Fork(t.Context(), runtime.Fork{Tenant: Tenant, Run: s.Run, At: s.Seq(), Key: "f"})
	require.NoError(t, err)
	settled(t, h, f.Run)
	key := store.Key{PK: "T#default#RUN#" + s.Run, SK: "J#0000000000"}
	it, _, err := h.Ports.Table.Get(t.Context(), key)
	require.NoError(t, err)
	it.Body = []byte(strings.Replace(string(it.Body), "tidy up", "burn it", 1))
	require.NoError(t, h.Ports.Table.Write(t.Context(), store.Op{Kind: store.Put, Item: it}))
	r, err := h.Replay(t.Context(), Tenant, f.Run)
	require.NoError(t, err)
	require.NotEmpty(t, r.Differences)
	require.Equal(t, "journal", r.Differences[0].Path)
}
