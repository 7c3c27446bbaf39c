package lambdafn

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
)

// requireInvalid asks for the one error that a text which cannot be read gives.
func requireInvalid(t *testing.T, err error) {
	t.Helper()
	var known *Error
	require.True(t, errors.As(err, &known), "%v", err)
	require.Equal(t, KindInvalid, known.Kind)
}

// What is read of the state machine's event can be part of a key, and means the same written again.
func FuzzTask(f *testing.F) {
	for _, seed := range []string{aimed, waiting, byWord, byInput, `{"name":"x","state":{"message":[{"type":"text","text":"y"}]}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		e, err := decode(payload)
		if err != nil {
			requireInvalid(t, err)
			return
		}
		require.True(t, e.State.Tenant == "" && e.State.Run == "" || agent.ValidTenant(e.State.Tenant))
		again, err := json.Marshal(e)
		require.NoError(t, err)
		back, err := decode(again)
		require.NoError(t, err, "%s", again)
		back.State.keys, e.State.keys = nil, nil
		want, err := json.Marshal(back)
		require.NoError(t, err)
		require.Equal(t, string(want), string(again))
	})
}

// What is read of an answer is of one tenant, one run and one call.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"tenant":"acme","answer":{"run":"r1","call":"c1","result":{"n":1.0}}}`, `{"tenant":"acme","answer":{"run":"r1","call":"c1","error":"no"}}`,
		`{"tenant":"acme","Tenant":"globex","answer":{"run":"r1","call":"c1","result":1}}`, `{"tenant":"a","answer":{"run":"r","call":"c","result":1,"more":2}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		d, ok := readDelivery(payload)
		if !ok {
			return
		}
		a, err := readAnswer(d)
		if err != nil {
			requireInvalid(t, err)
			return
		}
		require.True(t, agent.ValidTenant(a.Tenant) && a.Run != "" && a.Call != "")
		var all map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(payload, &all))
		var tenant string
		require.NoError(t, json.Unmarshal(all["tenant"], &tenant), "the key as it is spelled decides")
		require.Equal(t, tenant, a.Tenant)
	})
}
