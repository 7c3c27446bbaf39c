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
		Tenant: Tenant, Agent: tidy(t, notes(t)), Message: message("tidy up"),
	})
	require.NoError(t, err)
	s = settled(t, h, s.Run)
	require.Equal(t, run.RunWaiting, s.Status)
	return h, s
}

// tamper changes an item of the store.
func tamper(t *testing.T, h *Home, k store.Key, change func(*store.Item)) {
	t.Helper()
	it, found, err := h.Ports.Table.Get(t.Context(), k)
	require.NoError(t, err)
	require.True(t, found)
	change(&it)
	require.NoError(t, h.Ports.Table.Write(t.Context(), store.Op{Kind: store.Put, Item: it}))
}

// replaced is a change of an item's body.
func replaced(old, replacement string) func(*store.Item) {
	return func(it *store.Item) { it.Body = []byte(strings.Replace(string(it.Body), old, replacement, 1)) }
}

// Whatever is changed behind the runtime's back shows.
func TestReplayFindsWhatWasTamperedWith(t *testing.T) {
	for name, c := range map[string]struct {
		sk     string // of the run, or of its request
		change func(*store.Item)
		path   string
	}{
		"the head's owner":              {"HEAD", func(it *store.Item) { it.Attrs["owner"] = store.Str("somebody") }, "head.owner"},
		"what was said":                 {"J#0000000000", replaced("tidy up", "burn it"), "journal"},
		"an entry that cannot be read":  {"J#0000000001", func(it *store.Item) { it.Body = []byte("?") }, "journal"},
		"an entry that does not follow": {"J#0000000001", replaced(`"n":1`, `"n":7`), "journal"},
		"the digest people approve": {"A", func(it *store.Item) {
			var a approval.Approval
			require.NoError(t, json.Unmarshal(it.Body, &a))
			a.Digest = strings.Repeat("0", 64)
			body, err := json.Marshal(a)
			require.NoError(t, err)
			it.Body = body
		}, "approvals."},
	} {
		t.Run(name, func(t *testing.T) {
			h, s := parked(t)
			defer func() { require.NoError(t, h.Close()) }()
			key := store.Key{PK: "T#default#RUN#" + s.Run, SK: c.sk}
			if c.sk == "A" {
				key.PK = "T#default#APPROVAL#" + s.Waits()[0].Wait.Approval
			}
			tamper(t, h, key, c.change)
			r, err := h.Replay(t.Context(), Tenant, s.Run)
			require.NoError(t, err)
			require.NotEmpty(t, r.Differences)
			require.Contains(t, r.Differences[0].Path, c.path)
		})
	}
}

// Whoever changes what a run began from is found out by the run's own replay, too.
func TestReplayOfAForkFindsItsParentTamperedWith(t *testing.T) {
	h, s := parked(t)
	defer func() { require.NoError(t, h.Close()) }()
	f, err := h.Starter.Fork(t.Context(), runtime.Fork{Tenant: Tenant, Run: s.Run, At: s.Seq(), Key: "f"})
	require.NoError(t, err)
	settled(t, h, f.Run)
	tamper(t, h, store.Key{PK: "T#default#RUN#" + s.Run, SK: "J#0000000000"}, replaced("tidy up", "burn it"))
	r, err := h.Replay(t.Context(), Tenant, f.Run)
	require.NoError(t, err)
	require.NotEmpty(t, r.Differences)
	require.Equal(t, "journal", r.Differences[0].Path)
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
