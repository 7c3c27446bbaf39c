package local

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

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
