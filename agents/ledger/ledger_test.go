package ledger_test

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/agents/ledger"
)

// However many keep something under a key at once, one of them does, nothing half-written is left, and all of them find the same.
func TestOneKeepsUnderAKey(t *testing.T) {
	l := ledger.Ledger{Dir: filepath.Join(t.TempDir(), "made", "when needed")}
	var got int
	found, err := l.Find("r1/c1", &got)
	require.NoError(t, err)
	require.False(t, found)
	var kept atomic.Int64
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			first, err := l.Keep("r1/c1", n)
			require.NoError(t, err)
			if first {
				kept.Add(int64(n) + 1)
			}
		})
	}
	all.Wait()
	found, err = l.Find("r1/c1", &got)
	require.NoError(t, err)
	require.True(t, found)
	require.EqualValues(t, kept.Load(), got+1, "the one that was told so is the one that is there")
	files, err := os.ReadDir(l.Dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Equal(t, "r1%2Fc1.json", files[0].Name(), "a key is one name, whatever is in it")
}

func TestBrokenLedger(t *testing.T) {
	l := ledger.Ledger{Dir: t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(l.Dir, "k.json"), []byte("{"), 0o600))
	_, err := l.Find("k", &struct{}{})
	require.ErrorContains(t, err, "find k: ")
	_, err = l.Keep("c", make(chan int))
	require.ErrorContains(t, err, "keep c: ")
	file := filepath.Join(l.Dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = ledger.Ledger{Dir: filepath.Join(file, "under it")}.Keep("k", 1)
	require.ErrorContains(t, err, "keep k: ")
}
