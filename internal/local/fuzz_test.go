package local

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/pkg/agent/store"
)

// FuzzReadExecution: a record is read as what is written again, or refused as damaged.
func FuzzReadExecution(f *testing.F) {
	good, err := json.Marshal(asl.Record{Name: "r1-0", Status: asl.Running, Input: json.RawMessage("{}"), State: "Step"})
	require.NoError(f, err)
	f.Add(good)
	f.Add([]byte(`{"Name":"r1-0","Status":"RUNNING","Wait":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := readExecution(store.Item{Key: store.Key{PK: openExecutions, SK: "r1-0"}, Body: body})
		if err != nil {
			require.ErrorIs(t, err, store.ErrDamaged)
			return
		}
		require.Equal(t, "r1-0", r.Name)
		require.Equal(t, asl.Running, r.Status)
	})
}
