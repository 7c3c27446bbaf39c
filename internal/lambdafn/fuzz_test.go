package lambdafn

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/runtime"
)

// What a service answers is the call's result: a text as it is, anything else as compact JSON. TestBadAnswers has what is refused.
func TestReadAnswer(t *testing.T) {
	text := func(content string) runtime.Answer {
		return runtime.Answer{Tenant: "acme", Run: "r1", Call: "c1", Content: content, By: "service"}
	}
	failed := text("no")
	failed.IsError = true
	for in, want := range map[string]runtime.Answer{
		`"result":"rain"`: text("rain"), `"result":{"n": 1.0}`: text(`{"n":1.0}`), `"result":null`: text("null"),
		`"result":false`: text("false"), `"result":""`: text(""), `"error":"no"`: failed, `"result":1,"more":"of the event"`: text("1"),
	} {
		d, ok := readDelivery([]byte(`{"tenant":"acme","answer":{"run":"r1","call":"c1",` + in + `}}`))
		require.True(t, ok, in)
		got, err := readAnswer(d)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	d, _ := readDelivery([]byte(`{"tenant":"acme","answer":{"run":"r1","call":"c1","result":1,"error":"x"}}`))
	_, err := readAnswer(d)
	requireKind(t, KindInvalid, err)
	require.ErrorContains(t, err, "want exactly one of result and error")
	for _, in := range []string{
		`{"version":"2.0","body":"{\"tenant\":\"acme\",\"answer\":{}}"}`, `{"tenant":"acme"}`, `{"answer":{}}`, `{`, `[]`,
	} {
		_, ok := readDelivery([]byte(in))
		require.False(t, ok, "%s is no answer of the rule's", in)
	}
}

// What is read of the state machine's event can be part of a key, and means the same written again.
func FuzzTask(f *testing.F) {
	for _, seed := range []string{aimed, waiting, byWord, byInput, `{"name":"x","state":{"message":[{"type":"text","text":"y"}]}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		e, err := decode(payload)
		if err != nil {
			requireKind(t, KindInvalid, err)
			return
		}
		require.True(t, e.State.Tenant == "" && e.State.Run == "" || agent.ValidTenant(e.State.Tenant))
		again := must(json.Marshal(e))
		back, err := decode(again)
		require.NoError(t, err, "%s", again)
		back.State.keys, e.State.keys = nil, nil
		want := must(json.Marshal(back))
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
			requireKind(t, KindInvalid, err)
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
