package audit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/audit"
	"github.com/countersign/countersign/internal/store/memory"
)

// FuzzParseLine: a line is read as it is written, to the byte, or it is none; no other line has the hash of one.
func FuzzParseLine(f *testing.F) {
	table := memory.New()
	require.NoError(f, newLog(table).Record(f.Context(), "acme", audit.Record{ID: "a", Kind: "decided", Actor: "user:ana", At: time.UnixMilli(5)}))
	lines, err := newLog(table).Lines(f.Context(), "acme", 0, 10)
	require.NoError(f, err)
	good := string(lines[0])
	f.Add(lines[0])
	f.Add([]byte(`{"hash":"","prev":"","record":{},"seq":1,"tenant":"acme"}`))
	f.Add([]byte(`{"hash":"","prev":"","record":null,"seq":9223372036854775807,"tenant":""}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := audit.ParseLine(text)
		if err != nil {
			return
		}
		again, err := audit.ParseLine(text)
		require.NoError(t, err)
		require.Equal(t, l, again)
		v := audit.Verifier{}
		if string(text) != good && v.Add(text) == nil {
			require.NotEqual(t, good[9:73], l.Hash, "two lines of one hash")
		}
	})
}
