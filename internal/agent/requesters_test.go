package agent

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRequestersOutliveASnapshot(t *testing.T) {
	s, err := Apply(AgentState{}, RunStarted{Tenant: "t", Run: "r", Owner: "r-0", MaxInteractions: 3, By: []string{"user:ana"}, Heard: []string{"user:eve"}})
	require.NoError(t, err)
	for _, e := range []Event{
		InputReceived{Slot: 1, ID: "1", By: "user:bo", Blocks: []UserBlock{{Block: Text{Text: "Go on."}}}},
		InputReceived{Slot: 2, ID: "2", By: "user:cy", Starts: true},
		InputReceived{Slot: 3, ID: "3", By: "billing-service"},
	} {
		raw, err := MarshalEvent(e)
		require.NoError(t, err)
		stored, err := UnmarshalEvent(raw)
		require.NoError(t, err)
		s, err = Apply(s, stored)
		require.NoError(t, err)
	}
	want := []string{"user:ana", "user:cy", "user:eve", "user:bo"}
	require.Equal(t, want, s.Requesters())
	form := s.snapshot(s.UpdatedAt)
	raw, err := json.Marshal(form)
	require.NoError(t, err)
	var back snapshotForm
	require.NoError(t, json.Unmarshal(raw, &back))
	require.Equal(t, []any{form.Start.By, form.Again, form.Heard}, []any{back.Start.By, back.Again, back.Heard})
	require.Equal(t, want, (&AgentState{By: back.Start.By, Again: back.Again, Heard: back.Heard}).Requesters())
}

func TestCaseKeys(t *testing.T) {
	for args, want := range map[string]bool{
		`{}`: false, `{"a":1,"b":{"a":1}}`: false, `[{"a":1},{"A":1}]`: false, `{"a":"A"}`: false,
		`{"a":1,"A":1}`: true, `{"x":[1,{"ab":1,"aB":2}]}`: true, `{"k":1,"` + "\u212a" + `":2}`: true, `{"s":1,"` + "\u017f" + `":2}`: true,
		`{"straße":1,"STRASSE":2}`: false, `{"a":1,"\u0041":2}`: true,
	} {
		require.Equal(t, want, hasCaseKeys(json.RawMessage(args)), args)
	}
}
