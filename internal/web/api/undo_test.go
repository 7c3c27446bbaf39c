package api_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// undoable is a run that is done and has paid 5; paying again is what takes a payment back here.
func undoable(t *testing.T) (*bench, api.Run) {
	t.Helper()
	b := newBench(t, pay, func(d *agent.Definition) {
		d.Tools[0].Undo = &agent.Undo{Tool: "pay", Args: json.RawMessage(`{"amount":{"args":"/amount"}}`)}
		d.Permission.Grants = agent.GrantsStanding
	})
	r := b.start("k")
	_, err := b.client.Decide(t.Context(), r.Waiting[0].Approval, api.Verdict{Action: "approve"})
	require.NoError(t, err)
	r = b.waitUntilParked(r.ID)
	require.Equal(t, run.ReasonNaturalEnd, r.Reason)
	require.Equal(t, 5, <-b.paid)
	return b, r
}

func TestUndo(t *testing.T) {
	b, one := undoable(t)
	require.Equal(t, &policy.CallUndo{Tool: "pay", Input: json.RawMessage(`{"amount":5}`)}, one.Calls[0].Undo)

	first, err := b.client.Undo(t.Context(), one.ID, "c1")
	require.NoError(t, err)
	require.False(t, first.Already)
	require.Equal(t, "pay", first.Tool)
	waits := b.waitUntilParked(first.ID)
	require.Equal(t, run.RunWaiting, waits.Status, "the standing grant of the same call lets nothing be taken back")
	require.Equal(t, one.ID, waits.Continues)

	again, err := b.client.Undo(t.Context(), one.ID, "c1")
	require.NoError(t, err)
	require.True(t, again.Already)
	require.Equal(t, first.ID, again.ID)
	require.Equal(t, run.StatusSuspended, again.State)

	grants, err := b.client.Grants(t.Context(), "", "", 200)
	require.NoError(t, err)
	_, err = b.client.Decide(t.Context(), waits.Waiting[0].Approval, api.Verdict{Action: "approve"})
	require.NoError(t, err)
	done := b.waitUntilParked(first.ID)
	require.Equal(t, run.ReasonNaturalEnd, done.Reason)
	require.JSONEq(t, `"paid"`, string(done.Output))
	require.Zero(t, done.ModelCalls)
	require.Equal(t, 5, <-b.paid)
	after, err := b.client.Grants(t.Context(), "", "", 200)
	require.NoError(t, err)
	require.Equal(t, grants, after, "a word on it grants nothing beside it")

	over, err := b.client.Undo(t.Context(), one.ID, "c1")
	require.NoError(t, err)
	require.Equal(t, []any{true, run.RunDone, run.ReasonNaturalEnd, run.StatusSucceeded}, []any{over.Already, over.Status, over.Reason, over.State})
	require.Empty(t, b.paid, "at most once")
	shown, err := b.client.Run(t.Context(), one.ID)
	require.NoError(t, err)
	require.Equal(t, &policy.CallUndo{Tool: "pay", Input: json.RawMessage(`{"amount":5}`), Run: first.ID, Status: run.RunDone, Ended: run.ReasonNaturalEnd}, shown.Calls[0].Undo)
	found, err := b.client.Replay(t.Context(), first.ID)
	require.NoError(t, err)
	require.Empty(t, found.Differences)
}

// A run that took a call back is continued like any other, and its own call can be taken back in turn; what it inherited cannot, there.
func TestUndoOfAnUndo(t *testing.T) {
	b, one := undoable(t)
	u, err := b.client.Undo(t.Context(), one.ID, "c1")
	require.NoError(t, err)
	waits := b.waitUntilParked(u.ID)
	got := b.do("POST /v1/runs/"+u.ID+"/fork", `{"at":0}`)
	require.Equal(t, http.StatusConflict, got.status, "a branch would take it back a second time: %s", got.body)
	_, err = b.client.Decide(t.Context(), waits.Waiting[0].Approval, api.Verdict{Action: "approve"})
	require.NoError(t, err)
	b.waitUntilParked(u.ID)
	got = b.do("POST /v1/runs/"+u.ID+"/calls/c1/undo", "")
	require.Equal(t, http.StatusConflict, got.status)
	require.Contains(t, got.body, `"type":"not-undoable"`)
	redo, err := b.client.Undo(t.Context(), u.ID, u.Call)
	require.NoError(t, err)
	require.Equal(t, run.RunWaiting, b.waitUntilParked(redo.ID).Status)
	next := b.do("POST /v1/runs", `{"agent":"payer","message":"pay after all","continues":"`+u.ID+`","key":"k2"}`)
	require.Equal(t, http.StatusAccepted, next.status, next.body)
	r := b.waitUntilParked(agent.RunID("default", "payer", "k2"))
	require.Positive(t, r.Inferences, "the model is asked, and nothing ends by what was taken back before")
}

func TestUndoRefusals(t *testing.T) {
	b := newBench(t, pay)
	waits := b.start("k")
	for _, c := range []struct {
		path   string
		status int
		kind   string
	}{
		{"/v1/runs/" + waits.ID + "/calls/c1/undo", http.StatusConflict, "run-not-finished"},
		{"/v1/runs/" + noRun + "/calls/c1/undo", http.StatusNotFound, "run-not-found"},
		{"/v1/runs/x/calls/c1/undo", http.StatusNotFound, "run-not-found"},
		{"/v1/runs/" + waits.ID + "/calls/c1/undo?x=1", http.StatusBadRequest, "invalid-request"},
	} {
		got := b.do("POST "+c.path, "")
		require.Equal(t, c.status, got.status, got.body)
		require.Contains(t, got.body, `"type":"`+c.kind+`"`)
	}
	done := b.finished("k2")
	for call, kind := range map[string]string{"c1": "not-undoable", "c9": "call-not-found"} {
		got := b.do("POST /v1/runs/"+done.ID+"/calls/"+call+"/undo", "")
		require.Contains(t, got.body, `"type":"`+kind+`"`, call)
	}
}
