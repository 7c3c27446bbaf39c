package run_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// FuzzReadStored: what is taken has no key that is not known, and none twice; written again, it is read as the same.
func FuzzReadStored(f *testing.F) {
	f.Add([]byte(`{"name":"clerk","system":"Hi.","model":{"provider":"demo"},"tools":[{"name":"x","schema":{"type":"object"}}]}`))
	f.Add([]byte(`{"name":"clerk","name":"other"}`))
	f.Add([]byte(`{"Name":"clerk"}`))
	f.Add([]byte(`{"permission":{"rules":[{"tool":"*","when":[{"path":"/a","eq":1e400}]}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var d agent.Definition
		if jsonx.ReadStored("definition", raw, &d) != nil {
			return
		}
		once, err := jsonx.MarshalVerbatim(d)
		require.NoError(t, err)
		var again agent.Definition
		require.NoError(t, jsonx.ReadStored("definition", once, &again))
		twice, err := jsonx.MarshalVerbatim(again)
		require.NoError(t, err)
		require.Equal(t, string(once), string(twice))
	})
}

// FuzzRestore: a snapshot is restored to a state that can be shown, or it is none, or an error; it never panics, whatever it says.
func FuzzRestore(f *testing.F) {
	snapshots := 0
	for _, e := range sampleEntries() {
		if e.Snapshot != nil {
			f.Add([]byte(e.Snapshot))
			snapshots++
		}
	}
	require.Positive(f, snapshots)
	f.Add([]byte(`{"start":{"tenant":"t","run":"r","agent":"a","definition":"","owner":"o","msgs":null,"max":1},"status":"running","times":[0,0],"infer":1,"msgs":[{"r":"user","b":0,"f":{}}]}`))
	f.Fuzz(func(t *testing.T, snapshot []byte) {
		if !json.Valid(snapshot) {
			return
		}
		s, ok, err := run.Restore([]run.Entry{{Seq: 7, Writer: "w", Snapshot: snapshot}, {Seq: 8, Writer: "w", Events: []run.Event{run.HandedOver{Owner: "x"}}}})
		if err != nil || !ok {
			return
		}
		if _, err := policy.View(&s); err != nil {
			var bad *json.MarshalerError
			require.True(t, errors.As(err, &bad), "%v", err)
		}
	})
}
