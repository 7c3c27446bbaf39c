package local

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// parked is an opened home with a run that waits for an approval.
func parked(t *testing.T) (*Home, run.AgentState) {
	t.Helper()
	h := open(t, t.TempDir())
	s, err := h.Starter.Start(t.Context(), runtime.Start{
		Tenant: Tenant, Agent: tidy(t, notes(t)), Message: []run.UserBlock{{Block: run.Text{Text: "tidy up"}}},
	})
	require.NoError(t, err)
	s = settled(t, h, s.Run)
	require.Equal(t, run.RunWaiting, s.Status)
	return h, s
}

func TestReplayOfAnHonestRecord(t *testing.T) {
	h, s := parked(t)
	defer func() { require.NoError(t, h.Close()) }()
	r, err := h.Replay(t.Context(), Tenant, s.Run)
	require.NoError(t, err)
	require.Empty(t, r.Differences)
	require.Equal(t, int(s.Entries), r.Entries)
	require.Equal(t, "waiting", r.Status)
	_, err = h.Replay(t.Context(), Tenant, "rnone")
	require.ErrorIs(t, err, store.ErrNoRun)
}

// Whatever is changed behind the runtime's back shows.
func TestReplayFindsWhatWasTamperedWith(t *testing.T) {
	runKey := func(s run.AgentState, sk string) store.Key { return store.Key{PK: "T#default#RUN#" + s.Run, SK: sk} }
	rewrite := func(t *testing.T, h *Home, k store.Key, change func(*store.Item)) {
		it, found, err := h.Ports.Table.Get(t.Context(), k)
		require.NoError(t, err)
		require.True(t, found)
		change(&it)
		require.NoError(t, h.Ports.Table.Write(t.Context(), store.Op{Kind: store.Put, Item: it}))
	}
	for name, c := range map[string]struct {
		tamper func(t *testing.T, h *Home, s run.AgentState)
		path   string
	}{
		"the head's owner": {func(t *testing.T, h *Home, s run.AgentState) {
			rewrite(t, h, runKey(s, "HEAD"), func(it *store.Item) { it.Attrs["owner"] = store.Str("somebody") })
		}, "head.owner"},
		"what was said": {func(t *testing.T, h *Home, s run.AgentState) {
			rewrite(t, h, runKey(s, "J#0000000000"), func(it *store.Item) {
				it.Body = []byte(strings.Replace(string(it.Body), "tidy up", "burn it", 1))
			})
		}, "journal"},
		"an entry that cannot be read": {func(t *testing.T, h *Home, s run.AgentState) {
			rewrite(t, h, runKey(s, "J#0000000001"), func(it *store.Item) { it.Body = []byte("?") })
		}, "journal"},
		"an entry that does not follow": {func(t *testing.T, h *Home, s run.AgentState) {
			rewrite(t, h, runKey(s, "J#0000000001"), func(it *store.Item) {
				it.Body = []byte(strings.Replace(string(it.Body), `"n":1`, `"n":7`, 1))
			})
		}, "journal"},
		"the digest people approve": {func(t *testing.T, h *Home, s run.AgentState) {
			id := s.Waits()[0].Wait.Approval
			rewrite(t, h, store.Key{PK: "T#default#APPROVAL#" + id, SK: "A"}, func(it *store.Item) {
				var a approval.Approval
				require.NoError(t, json.Unmarshal(it.Body, &a))
				a.Digest = strings.Repeat("0", 64)
				body, err := json.Marshal(a)
				require.NoError(t, err)
				it.Body = body
			})
		}, "approvals."},
	} {
		t.Run(name, func(t *testing.T) {
			h, s := parked(t)
			defer func() { require.NoError(t, h.Close()) }()
			c.tamper(t, h, s)
			r, err := h.Replay(t.Context(), Tenant, s.Run)
			require.NoError(t, err)
			require.NotEmpty(t, r.Differences)
			require.Contains(t, r.Differences[0].Path, c.path)
		})
	}
}

func TestReplayMissesTheDefinition(t *testing.T) {
	h, s := parked(t)
	require.NoError(t, h.Close())
	removed := 0
	require.NoError(t, filepath.WalkDir(filepath.Join(h.Dir, "blobs"), func(path string, _ os.DirEntry, err error) error {
		if filepath.Base(path) == s.Definition {
			removed++
			return os.Remove(path)
		}
		return err
	}))
	require.Equal(t, 1, removed)
	h = open(t, h.Dir)
	defer func() { require.NoError(t, h.Close()) }()
	r, err := h.Replay(t.Context(), Tenant, s.Run)
	require.NoError(t, err)
	require.Len(t, r.Differences, 1)
	require.Equal(t, "definition", r.Differences[0].Path)
}
