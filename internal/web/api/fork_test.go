package api_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/web/api"
)

// prefixProblem prefixes a problem's detail with its place in the body.
func prefixProblem(n int64) *int64 { return &n }

// finished is a run that is done: its one call was denied.
func (b *bench) finished(key string) api.Run {
	b.t.Helper()
	r := b.start(key)
	_, err := b.client.Decide(b.t.Context(), r.Waiting[0].Approval, api.Verdict{Action: "deny"})
	require.NoError(b.t, err)
	r = b.waitUntilParked(r.ID)
	require.Equal(b.t, run.RunDone, r.Status)
	return r
}

func TestContinues(t *testing.T) {
	b := newBench(t, pay)
	first := b.finished("k")
	got := b.do("POST /v1/runs", `{"agent":"payer","message":"pay after all","continues":"`+first.ID+`","key":"k2"}`)
	require.Equal(t, http.StatusAccepted, got.status, got.body)
	r := b.waitUntilParked(agent.RunID("default", "payer", "k2"))
	require.Equal(t, first.ID, r.Continues)
	require.Empty(t, r.Parent)
	require.EqualValues(t, 1, r.Inferences)
	require.Equal(t, 1, r.Interactions.Current)
	n := len(first.Messages)
	for i, m := range first.Messages {
		require.Equal(t, string(m.Content), string(r.Messages[i].Content))
		require.Equal(t, m.SeenCount+1, r.Messages[i].SeenCount, "kept, and seen once more")
	}
	require.JSONEq(t, `{"type":"text","text":"pay after all"}`, string(r.Messages[n].Content))
	require.Len(t, r.Calls, 2)

	page, err := b.client.Messages(t.Context(), r.ID, "", 200)
	require.NoError(t, err)
	require.Len(t, page.Items, len(r.Messages))
	events, err := b.client.Events(t.Context(), r.ID, "", 200)
	require.NoError(t, err)
	require.Equal(t, "run_started", events.Items[0].Type, "its own events")
	require.Contains(t, string(events.Items[0].Data), `"from":{"kind":"continues","run":"`+first.ID+`"`)
	found, err := b.client.Replay(t.Context(), r.ID)
	require.NoError(t, err)
	require.Empty(t, found.Differences)
}

func TestFork(t *testing.T) {
	b := newBench(t, pay)
	parent := b.start("k")
	theirs := parent.Waiting[0].Approval
	got := b.do("POST /v1/runs/"+parent.ID+"/fork", `{"at":2}`, "Idempotency-Key", "f")
	require.Equal(t, http.StatusAccepted, got.status, got.body)
	id := agent.RunID("default", "payer", "f")
	require.Equal(t, "/v1/runs/"+id, got.header.Get("Location"))
	r := b.waitUntilParked(id)
	require.Equal(t, parent.ID, r.Parent)
	require.Equal(t, int64(2), *r.ParentSeq)
	require.Empty(t, r.Continues)
	require.Zero(t, r.Inferences)
	require.NotEqual(t, theirs, r.Waiting[0].Approval)

	_, err := b.client.Decide(t.Context(), theirs, api.Verdict{Action: "approve"})
	require.NoError(t, err)
	require.Equal(t, run.RunDone, b.waitUntilParked(parent.ID).Status)
	require.Equal(t, run.RunWaiting, b.waitUntilParked(id).Status, "the parent's approval is not the fork's")
	require.Equal(t, 5, <-b.paid)
	require.Empty(t, b.paid)

	again, err := b.client.Fork(t.Context(), parent.ID, api.Fork{At: prefixProblem(2), Key: "f"})
	require.NoError(t, err)
	require.Equal(t, id, again.ID)
	_, err = b.client.Fork(t.Context(), parent.ID, api.Fork{At: prefixProblem(1), Key: "f"})
	_ = requireProblem(t, err, api.KeyReused)
	found, err := b.client.Replay(t.Context(), id)
	require.NoError(t, err)
	require.Empty(t, found.Differences)
}

func TestForkAndContinueRefuse(t *testing.T) {
	b := newBench(t, pay)
	run := b.start("k")
	for _, c := range []struct {
		request, body string
		status        int
		kind, detail  string
	}{
		{"POST /v1/runs", `{"agent":"payer","message":"x","continues":"r"}`, 404, "run-not-found", `"r"`},
		{"POST /v1/runs", `{"agent":"payer","message":"x","continues":"` + noRun + `"}`, 404, "run-not-found", noRun},
		{"POST /v1/runs", `{"agent":"payer","message":"x","continues":"` + run.ID + `"}`, 409, "run-not-finished", "waiting"},
		{"POST /v1/runs", `{"agent":"payer","continues":"` + run.ID + `"}`, 400, "invalid-request", "message or input"},
		{"POST /v1/runs/x/fork", `{"at":0}`, 404, "run-not-found", `"x"`},
		{"POST /v1/runs/" + noRun + "/fork", `{"at":0}`, 404, "run-not-found", noRun},
		{"POST /v1/runs/" + run.ID + "/fork", ``, 415, "unsupported-media-type", "application/json"},
		{"POST /v1/runs/" + run.ID + "/fork", `{}`, 400, "invalid-request", "at: got nothing"},
		{"POST /v1/runs/" + run.ID + "/fork", `{"at":-1}`, 400, "invalid-request", "got -1"},
		{"POST /v1/runs/" + run.ID + "/fork", `{"at":99}`, 400, "invalid-request", "entries 0 to 2"},
		{"POST /v1/runs/" + run.ID + "/fork", `{"at":"1"}`, 400, "invalid-request", "at"},
		{"POST /v1/runs/" + run.ID + "/fork", `{"at":1,"model":{"provider":"oracle"}}`, 400, "invalid-request", "model.provider"},
		{"GET /v1/runs/" + run.ID + "/fork", ``, 405, "method-not-allowed", "POST"},
	} {
		t.Run(c.request+" "+c.detail, func(t *testing.T) {
			got := b.do(c.request, c.body)
			require.Equal(t, c.status, got.status, got.body)
			var p api.Problem
			require.NoError(t, json.Unmarshal([]byte(got.body), &p))
			require.Equal(t, c.kind, string(p.Type))
			require.Contains(t, p.Detail, c.detail)
		})
	}
	list, err := b.client.Runs(t.Context(), api.RunQuery{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1, "nothing was started")

	b.backend.Local = false
	b.serve()
	_, err = b.client.Fork(t.Context(), run.ID, api.Fork{At: prefixProblem(1), Model: &api.ForkModel{Provider: "demo"}})
	_ = requireProblem(t, err, api.NotAllowed)
}

// A call that is under way is refused by its own type: it will be over.
func TestForkWhileACallRuns(t *testing.T) {
	b := newBench(t, `{"calls": [{"id": "c1", "name": "pay", "input": {"amount": 0}}]}
{"text": "Paid."}`)
	run := b.start("k")
	_, err := b.client.Decide(t.Context(), run.Waiting[0].Approval, api.Verdict{Action: "approve"})
	require.NoError(t, err)
	b.waitUntilParked(run.ID)
	claimed := int64(-1)
	require.ErrorIs(t, b.client.Follow(t.Context(), run.ID, "", func(e api.Event) error {
		if e.Type == "call_claimed" {
			claimed = e.Seq
		}
		if e.Type == "call_unknown" {
			return errParked
		}
		return nil
	}), errParked)
	_, err = b.client.Fork(t.Context(), run.ID, api.Fork{At: &claimed})
	p := requireProblem(t, err, api.CallRunning)
	require.Equal(t, http.StatusConflict, p.Status)
	require.Contains(t, p.Detail, "c1")
}

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

// A start, a continuation and a fork of a tenant with as many running runs as it may have are put off, and nothing else
// is. A start that was accepted before is accepted again.
func TestTooManyRuns(t *testing.T) {
	b := newBench(t, pay)
	d := readDocument(t)
	done, waits := b.finished("done"), b.start("waits")
	b.backend.Starter = &runtime.Starter{Ports: b.Ports, MaxRunning: 1}
	b.serve()
	const body = `{"agent":"payer","message":"pay 5","key":"k"}`
	id := agent.RunID(local.Tenant, "payer", "k")
	_, err := b.backend.Starter.Create(t.Context(), runtime.Start{
		Tenant: local.Tenant, Agent: b.agent(), Key: "k", Message: []run.UserBlock{{Block: run.Text{Text: "pay 5"}}},
	}, id, runtime.ExecutionName(id, 0))
	require.NoError(t, err)
	for _, c := range []struct{ op, line, body string }{
		{"POST /v1/runs", "POST /v1/runs", `{"agent":"payer","message":"pay 5","key":"k2"}`},
		{"POST /v1/runs", "POST /v1/runs", `{"agent":"payer","message":"more","continues":"` + done.ID + `"}`},
		{"POST /v1/runs/{id}/fork", "POST /v1/runs/" + waits.ID + "/fork", `{"at":0}`},
	} {
		got := b.do(c.line, c.body)
		require.Equal(t, http.StatusTooManyRequests, got.status, got.body)
		require.Equal(t, "30", got.header.Get("Retry-After"))
		require.Contains(t, got.body, `"type":"too-many-runs"`)
		require.Contains(t, got.body, "as many running runs as it may have")
		d.check(t, c.op, got)
	}
	require.Equal(t, http.StatusAccepted, b.do("POST /v1/runs/"+waits.ID+"/cancel", "").status)
	require.Equal(t, http.StatusAccepted, b.do("POST /v1/runs", body).status, "again")
	require.Equal(t, run.RunWaiting, b.waitUntilParked(id).Status)
	require.Equal(t, http.StatusAccepted, b.do("POST /v1/runs", `{"agent":"payer","message":"pay 5","key":"k2"}`).status)
}
