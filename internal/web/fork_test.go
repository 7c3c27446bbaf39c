package web_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/web"
)

func TestFork(t *testing.T) {
	b, parent := newWaiting(t)
	theirs := parent.Waiting[0].Approval
	got := b.ask("POST /v1/runs/"+parent.ID+"/fork", `{"at":2}`, http.StatusAccepted, "Idempotency-Key", "f")
	id := agent.RunID("default", "payer", "f")
	self := "/v1/runs/" + id
	require.Equal(t, self, got.header.Get("Location"))
	require.JSONEq(t, `{"id":"`+id+`","status":"running","links":{"self":"`+self+`","events":"`+self+`/events","input":"`+self+`/input",
		"cancel":"`+self+`/cancel"}}`, got.body)
	r := b.waitUntilParked(id)
	require.Equal(t, parent.ID, r.Parent)
	require.Equal(t, int64(2), *r.ParentSeq)
	require.Empty(t, r.Continues)
	require.Zero(t, r.Inferences)
	require.NotEqual(t, theirs, r.Waiting[0].Approval)

	require.Equal(t, run.RunDone, b.decided(parent, approval.Approve).Status)
	require.Equal(t, run.RunWaiting, b.waitUntilParked(id).Status, "the parent's approval is not the fork's")
	require.Equal(t, 5, <-b.paid)
	require.Empty(t, b.paid)

	again := must(b.client.Fork(t.Context(), parent.ID, web.Fork{At: new(int64(2)), Key: "f"}))
	require.Equal(t, id, again.ID)
	_, err := b.client.Fork(t.Context(), parent.ID, web.Fork{At: new(int64(1)), Key: "f"})
	_ = requireProblem(t, err, web.KeyReused)
	found := must(b.client.Replay(t.Context(), id))
	require.Empty(t, found.Differences)

	b.backend.Local = false
	b.serve()
	_, err = b.client.Fork(t.Context(), parent.ID, web.Fork{At: new(int64(1)), Model: &web.ForkModel{Provider: "demo"}})
	_ = requireProblem(t, err, web.NotAllowed)
}

// A call that is under way is refused by its own type: it will be over.
func TestForkWhileACallRuns(t *testing.T) {
	b := newBench(t, `{"calls": [{"id": "c1", "name": "pay", "input": {"amount": 0}}]}
{"text": "Paid."}`)
	run := b.decided(b.start("k"), approval.Approve)
	claimed := int64(-1)
	require.ErrorIs(t, b.client.Follow(t.Context(), run.ID, "", func(e web.Event) error {
		if e.Type == "call_claimed" {
			claimed = e.Seq
		}
		if e.Type == "call_unknown" {
			return errParked
		}
		return nil
	}), errParked)
	_, err := b.client.Fork(t.Context(), run.ID, web.Fork{At: &claimed})
	p := requireProblem(t, err, web.CallRunning)
	require.Equal(t, http.StatusConflict, p.Status)
	require.Contains(t, p.Detail, "c1")
}

// undoable is a run that is done and has paid 5; paying again is what takes a payment back here.
func undoable(t *testing.T) (*bench, web.Run) {
	t.Helper()
	b := newBench(t, pay, func(d *agent.Definition) {
		d.Tools[0].Undo = &agent.Undo{Tool: "pay", Args: json.RawMessage(`{"amount":{"args":"/amount"}}`)}
		d.Permission.Grants = agent.GrantsStanding
	})
	r := b.decided(b.start("k"), approval.Approve)
	require.Equal(t, run.ReasonNaturalEnd, r.Reason)
	require.Equal(t, 5, <-b.paid)
	return b, r
}

func TestUndo(t *testing.T) {
	b, one := undoable(t)
	require.Equal(t, &policy.CallUndo{Tool: "pay", Input: json.RawMessage(`{"amount":5}`)}, one.Calls[0].Undo)

	first := must(b.client.Undo(t.Context(), one.ID, "c1"))
	require.False(t, first.Already)
	require.Equal(t, "pay", first.Tool)
	waits := b.waitUntilParked(first.ID)
	require.Equal(t, run.RunWaiting, waits.Status, "the standing grant of the same call lets nothing be taken back")
	require.Equal(t, one.ID, waits.Continues)

	again := must(b.client.Undo(t.Context(), one.ID, "c1"))
	require.True(t, again.Already)
	require.Equal(t, first.ID, again.ID)
	require.Equal(t, run.StatusSuspended, again.State)

	grants := must(b.client.Grants(t.Context(), "", "", 200))
	done := b.decided(waits, approval.Approve)
	require.Equal(t, run.ReasonNaturalEnd, done.Reason)
	require.JSONEq(t, `"paid"`, string(done.Output))
	require.Zero(t, done.ModelCalls)
	require.Equal(t, 5, <-b.paid)
	after := must(b.client.Grants(t.Context(), "", "", 200))
	require.Equal(t, grants, after, "a word on it grants nothing beside it")

	over := must(b.client.Undo(t.Context(), one.ID, "c1"))
	require.Equal(t, []any{true, run.RunDone, run.ReasonNaturalEnd, run.StatusSucceeded}, []any{over.Already, over.Status, over.Reason, over.State})
	require.Empty(t, b.paid, "at most once")
	shown := must(b.client.Run(t.Context(), one.ID))
	require.Equal(t, &policy.CallUndo{Tool: "pay", Input: json.RawMessage(`{"amount":5}`), Run: first.ID, Status: run.RunDone, Ended: run.ReasonNaturalEnd}, shown.Calls[0].Undo)
	found := must(b.client.Replay(t.Context(), first.ID))
	require.Empty(t, found.Differences)
}

// A run that took a call back is continued like any other, and its own call can be taken back in turn; what it inherited cannot, there.
func TestUndoOfAnUndo(t *testing.T) {
	b, one := undoable(t)
	u := must(b.client.Undo(t.Context(), one.ID, "c1"))
	waits := b.waitUntilParked(u.ID)
	got := b.do("POST /v1/runs/"+u.ID+"/fork", `{"at":0}`)
	require.Equal(t, http.StatusConflict, got.status, "a branch would take it back a second time: %s", got.body)
	b.decided(waits, approval.Approve)
	got = b.ask("POST /v1/runs/"+u.ID+"/calls/c1/undo", "", http.StatusConflict)
	require.Contains(t, got.body, `"type":"not-undoable"`)
	redo := must(b.client.Undo(t.Context(), u.ID, u.Call))
	require.Equal(t, run.RunWaiting, b.waitUntilParked(redo.ID).Status)
	next := b.do("POST /v1/runs", `{"agent":"payer","message":"pay after all","continues":"`+u.ID+`","key":"k2"}`)
	require.Equal(t, http.StatusAccepted, next.status, next.body)
	r := b.waitUntilParked(agent.RunID("default", "payer", "k2"))
	require.Positive(t, r.Inferences, "the model is asked, and nothing ends by what was taken back before")
}

// A start, a continuation and a fork of a tenant with as many running runs as it may have are put off, and nothing else
// is. A start that was accepted before is accepted again.
func TestTooManyRuns(t *testing.T) {
	b := newBench(t, pay)
	done, waits := b.finished("done"), b.start("waits")
	b.backend.Starter = &runtime.Starter{Ports: b.Ports, MaxRunning: 1}
	b.serve()
	const body = `{"agent":"payer","message":"pay 5","key":"k"}`
	id := agent.RunID(local.Tenant, "payer", "k")
	_, err := b.backend.Starter.Create(t.Context(), runtime.Start{
		Tenant: local.Tenant, Agent: b.agent(), Key: "k", Message: []run.UserBlock{{Block: run.Text{Text: "pay 5"}}},
	}, id, runtime.ExecutionName(id, 0))
	require.NoError(t, err)
	for _, c := range [][2]string{
		{"POST /v1/runs", `{"agent":"payer","message":"pay 5","key":"k2"}`},
		{"POST /v1/runs", `{"agent":"payer","message":"more","continues":"` + done.ID + `"}`},
		{"POST /v1/runs/" + waits.ID + "/fork", `{"at":0}`},
	} {
		got := b.ask(c[0], c[1], http.StatusTooManyRequests)
		require.Equal(t, "30", got.header.Get("Retry-After"))
		require.Contains(t, got.body, `"type":"too-many-runs"`)
		require.Contains(t, got.body, "as many running runs as it may have")
	}
	require.Equal(t, http.StatusAccepted, b.do("POST /v1/runs/"+waits.ID+"/cancel", "").status)
	require.Equal(t, http.StatusAccepted, b.do("POST /v1/runs", body).status, "again")
	require.Equal(t, run.RunWaiting, b.waitUntilParked(id).Status)
	require.Equal(t, http.StatusAccepted, b.do("POST /v1/runs", `{"agent":"payer","message":"pay 5","key":"k2"}`).status)
}
