package api_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// noRun and noApproval have the form of ids and are nobody's.
const (
	noRun      = "raaaaaaaaaaaaaaaaaaaaaaaaa"
	noApproval = "aaaaaaaaaaaaaaaaaaaaaaaaaa"
)

func TestRefusals(t *testing.T) {
	b := newBench(t, pay)
	run := b.start("k")
	id := run.Waiting[0].Approval
	for _, c := range []struct {
		request, body string
		headers       []string
		status        int
		kind, detail  string
	}{
		{"GET /v1/nothing", "", nil, 404, "no-such-path", "/v1/nothing"},
		{"POST /slack/interactions", "", nil, 404, "no-such-path", "there is nothing here"},

		{"POST /v1/runs", ``, nil, 415, "unsupported-media-type", "application/json"},
		{"POST /v1/runs", `{"agent":"nobody","message":"x"}`, nil, 400, "unknown-agent", `unknown agent "nobody"; known: payer`},
		{"POST /v1/runs", `{"agent":"payer"}`, nil, 400, "invalid-request", "message or input"},
		{"POST /v1/runs", `{"agent":"payer","message":"x","input":1}`, nil, 400, "invalid-request", "one of them"},
		{"POST /v1/runs", `{"agent":"payer","message":""}`, nil, 400, "invalid-request", "empty"},
		{"POST /v1/runs", `{"agent":"payer","message":[{"type":"tool_result","id":"c1"}]}`, nil, 400, "invalid-request", "/0/id"},
		{"POST /v1/runs", `{"agent":"payer","message":[{"type":"media","mediaType":"image/png","blob":"x"}]}`, nil, 400, "invalid-request", "message[0]: blob: got \"x\", want a SHA-256 in 64 lower-case hex digits"},
		{"POST /v1/runs", `{"agent":"payer","message":"x","key":"a"}`, []string{"Idempotency-Key", "b"}, 400, "invalid-request", "differ"},
		{"POST /v1/runs", `{"agent":"payer","message":"other","key":"k"}`, nil, 409, "key-reused", "another body"},

		{"GET /v1/runs/" + run.ID + "/events?format=sse", "", nil, 400, "invalid-request", "agui, aisdk"},
		{"GET /v1/runs/" + noRun + "/events", "", []string{"Accept", "text/event-stream"}, 404, "run-not-found", noRun},

		{"POST /v1/runs/" + run.ID + "/input", `{}`, nil, 400, "invalid-request", "want messages, decisions or answers"},
		{"POST /v1/runs/" + run.ID + "/input", `{"decisions":[{"target":"c9","action":"resume"}]}`, nil, 404, "call-not-found", "decisions[0]"},
		{"POST /v1/runs/" + run.ID + "/input", `{"decisions":[{"target":"c1","action":"resume","result":1}]}`, nil, 409, "wrong-kind", "a result answers what a tool asks"},
		{"POST /v1/runs/" + run.ID + "/input", `{"decisions":[{"target":"c1","action":"resume"}]}`, []string{"Countersign-As", "user:eve"}, 403, "not-allowed", "user:eve"},
		{"POST /v1/runs/" + run.ID + "/input", `{"answers":[{"call":"c1"}]}`, nil, 400, "invalid-request", "exactly one"},
		{"POST /v1/runs/" + run.ID + "/input", `{"answers":[{"call":"c1","result":1,"rerun":true}]}`, nil, 400, "invalid-request", "exactly one"},
		{"POST /v1/runs/" + run.ID + "/input", `{"answers":[{"call":"c9","result":1}]}`, nil, 404, "call-not-found", "c9"},
		{"POST /v1/runs/" + run.ID + "/input", `{"answers":[{"call":"c1","rerun":true}]}`, nil, 409, "wrong-kind", "has not run"},

		{"POST /v1/approvals/" + id + "/decision", `{"action":"ask"}`, nil, 400, "invalid-request", "1 to 4000 characters"},
		{"POST /v1/approvals/" + id + "/decision", `{"action":"approve","args":{}}`, nil, 400, "invalid-request", "args"},
		{"POST /v1/approvals/" + id + "/decision", `{"action":"edit"}`, nil, 400, "invalid-request", "args"},
		{"POST /v1/approvals/" + id + "/decision", `{"action":"approve"}`, []string{"Countersign-As", "user:eve,group:sales"}, 403, "not-allowed", "user:eve"},
	} {
		t.Run(c.request+" "+c.detail, func(t *testing.T) {
			got := b.do(c.request, c.body, c.headers...)
			require.Equal(t, c.status, got.status, got.body)
			require.Equal(t, "application/problem+json", got.header.Get("Content-Type"))
			var p api.Problem
			require.NoError(t, json.Unmarshal([]byte(got.body), &p))
			require.Equal(t, c.kind, string(p.Type))
			require.Equal(t, c.status, p.Status)
			require.NotEmpty(t, p.Title)
			require.Contains(t, p.Detail, c.detail)
		})
	}
	require.Equal(t, run, b.waitUntilParked(run.ID), "a refusal changes nothing")
	require.Empty(t, b.paid)
}

func TestStart(t *testing.T) {
	b := newBench(t, pay)
	got := b.do("POST /v1/runs", `{"agent":"payer","message":"pay 5"}`, "Idempotency-Key", "k")
	require.Equal(t, http.StatusAccepted, got.status, got.body)
	id := agent.RunID("default", "payer", "k")
	require.JSONEq(t, `{"id":"`+id+`","status":"running","links":{"self":"/v1/runs/`+id+`","events":"/v1/runs/`+id+`/events",
		"input":"/v1/runs/`+id+`/input","cancel":"/v1/runs/`+id+`/cancel"}}`, got.body)
	require.Equal(t, "/v1/runs/"+id, got.header.Get("Location"))
	b.waitUntilParked(id)
	again := b.do("POST /v1/runs", `{"agent":"payer","message":"pay 5","key":"k"}`)
	require.Equal(t, http.StatusAccepted, again.status)
	require.Contains(t, again.body, id)
}

func TestStartFromInputAndBlocks(t *testing.T) {
	b := newBench(t, `{"text": "ok", "want": {"messages": [{"content": {"text": "{\"n\":10000000000000000001}"}}]}}`)
	a, err := b.client.Start(t.Context(), api.Start{Agent: "payer", Input: json.RawMessage(`{"n": 10000000000000000001}`)})
	require.NoError(t, err)
	require.Equal(t, run.ReasonNaturalEnd, b.waitUntilParked(a.ID).Reason)

	b = newBench(t, `{"text": "ok", "want": {"messages": [{"content": {"type": "media", "name": "a.png"}}, {"content": {"text": "see"}}]}}`)
	a, err = b.client.Start(t.Context(), api.Start{Agent: "payer", Message: json.RawMessage(
		`[{"type":"media","name":"a.png","mediaType":"image/png","data":"` + base64.StdEncoding.EncodeToString([]byte("png")) + `"},{"type":"text","text":"see"}]`)})
	require.NoError(t, err)
	require.Equal(t, run.ReasonNaturalEnd, b.waitUntilParked(a.ID).Reason)
}

func TestInlineSizeIsBounded(t *testing.T) {
	b := newBench(t, pay)
	send := func(n int) error {
		data := base64.StdEncoding.EncodeToString(make([]byte, n))
		_, err := b.client.Start(t.Context(), api.Start{Agent: "payer", Message: json.RawMessage(`[{"type":"media","mediaType":"image/png","data":"` + data + `"}]`)})
		return err
	}
	require.NoError(t, send(api.MaxInline))
	require.ErrorContains(t, send(api.MaxInline+1), "at most 131072 inline")
}

func TestDefinitionComesAlongOnlyLocally(t *testing.T) {
	b := newBench(t, `{"text": "done"}`)
	d := definition(t)
	d.Name = "visitor"
	start := api.Start{Definition: &d, Message: json.RawMessage(`"hello"`)}
	a, err := b.client.Start(t.Context(), start)
	require.NoError(t, err)
	require.Equal(t, "visitor", b.waitUntilParked(a.ID).Agent)

	broken := d
	broken.Limits.Interactions = 0
	_, err = b.client.Start(t.Context(), api.Start{Definition: &broken, Message: start.Message})
	require.ErrorContains(t, err, "limits.interactions")
	unknown := d
	unknown.Tools = []agent.ToolSpec{{Name: "fly", Kind: agent.KindInternal, Description: "Flies.", Schema: json.RawMessage(`{"type":"object"}`), Effect: run.EffectRead}}
	_, err = b.client.Start(t.Context(), api.Start{Definition: &unknown, Message: start.Message})
	require.ErrorContains(t, err, "fly has no code here")
	_, err = b.client.Start(t.Context(), api.Start{Agent: "payer", Definition: &d, Message: start.Message})
	require.ErrorContains(t, err, `got "payer", want "visitor"`)

	b.backend.Local = false
	b.serve()
	_, err = b.client.Start(t.Context(), start)
	_ = requireProblem(t, err, api.NotAllowed)
}

func requireProblem(t *testing.T, err error, kind api.ProblemType) *api.Problem {
	t.Helper()
	var p *api.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, kind, p.Type, p.Detail)
	return p
}

func TestRunIsTheCoresWithItsInbox(t *testing.T) {
	b := newBench(t, pay)
	one := b.start("k")
	l, err := b.Ports.Journal.Load(t.Context(), "default", one.ID)
	require.NoError(t, err)
	view, err := policy.View(&l.State)
	require.NoError(t, err)
	core, err := json.Marshal(view)
	require.NoError(t, err)
	require.JSONEq(t, string(core), b.do("GET /v1/runs/"+one.ID, "").body)
	require.Equal(t, run.RunWaiting, one.Status)
	require.Equal(t, run.ForApproval, one.Waiting[0].For)
	require.True(t, one.Resting())

	bare := b.do("GET /v1/runs/"+one.ID+"?messages=0", "").body
	require.NotContains(t, bare, `"messages"`)
	require.NotContains(t, bare, `"calls"`)
	require.Contains(t, bare, `"waiting":[{`)
}

func TestPagesOfMessagesAndCalls(t *testing.T) {
	b := newBench(t, pay)
	run := b.start("k")
	var all []api.Message
	for cursor := ""; ; {
		p, err := b.client.Messages(t.Context(), run.ID, cursor, 2)
		require.NoError(t, err)
		require.LessOrEqual(t, len(p.Items), 2)
		all = append(all, p.Items...)
		if cursor = p.Cursor; cursor == "" {
			break
		}
	}
	require.Equal(t, run.Messages, all)
	calls, err := b.client.Calls(t.Context(), run.ID, "", 0)
	require.NoError(t, err)
	require.Equal(t, api.Page[api.Call]{Items: run.Calls}, calls)
	behind, err := b.client.Messages(t.Context(), run.ID, "99", 0)
	require.NoError(t, err)
	require.Equal(t, api.Page[api.Message]{Items: []api.Message{}}, behind)
}

func TestRunsAreListedInPagesAndByAgent(t *testing.T) {
	b := newBench(t, pay)
	var want []string
	for _, key := range []string{"1", "2", "3"} {
		want = append(want, b.start(key).ID)
	}
	_, err := b.client.Cancel(t.Context(), want[1], "enough")
	require.NoError(t, err)
	var got []string
	var started []time.Time
	for cursor := ""; ; {
		p, err := b.client.Runs(t.Context(), api.RunQuery{Agent: "payer", Cursor: cursor, Limit: 1})
		require.NoError(t, err)
		for _, r := range p.Items {
			got, started = append(got, r.ID), append(started, r.StartedAt)
		}
		if cursor = p.Cursor; cursor == "" {
			break
		}
	}
	require.ElementsMatch(t, want, got, "whatever their status")
	require.True(t, slices.IsSortedFunc(started, func(a, b time.Time) int { return b.Compare(a) }), "newest first: %v", started)
	done, err := b.client.Runs(t.Context(), api.RunQuery{Status: "done"})
	require.NoError(t, err)
	require.Len(t, done.Items, 1)
	require.Equal(t, run.ReasonCancelled, done.Items[0].Reason)
	none, err := b.client.Runs(t.Context(), api.RunQuery{Agent: "other"})
	require.NoError(t, err)
	require.Equal(t, api.Page[api.RunHead]{Items: []api.RunHead{}}, none)
}

func TestApproveDenyAndEdit(t *testing.T) {
	for _, c := range []struct {
		name   string
		say    api.Verdict
		status approval.Status
		call   run.CallStatus
		paid   []int
	}{
		{"approve", api.Verdict{Action: approval.Approve, Note: "fine"}, approval.Approved, run.StatusSucceeded, []int{5}},
		{"deny", api.Verdict{Action: approval.Deny, Note: "too much"}, approval.Denied, run.StatusCancelled, nil},
		{"edit", api.Verdict{Action: approval.Edit, Args: json.RawMessage(`{"amount": 3}`)}, approval.Approved, run.StatusSucceeded, []int{3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, pay)
			one := b.start("k")
			pending, err := b.client.Approvals(t.Context(), "", "", 0)
			require.NoError(t, err)
			require.Len(t, pending.Items, 1)
			id := pending.Items[0].ID
			require.Equal(t, one.Waiting[0].Approval, id)
			require.JSONEq(t, `{"amount":5}`, string(pending.Items[0].Args))

			a, err := b.client.Decide(t.Context(), id, c.say)
			require.NoError(t, err)
			require.Equal(t, c.status, a.Status)
			require.Equal(t, "user:local", a.Decisions[0].By)
			after := b.waitUntilParked(one.ID)
			require.Equal(t, run.ReasonNaturalEnd, after.Reason)
			require.Equal(t, c.call, after.Calls[0].Status)
			for _, amount := range c.paid {
				require.Equal(t, amount, <-b.paid)
			}
			require.Empty(t, b.paid)

			again, err := b.client.Decide(t.Context(), id, c.say)
			require.NoError(t, err, "the same decision again has the same answer")
			require.Equal(t, a, again)
			other := api.Verdict{Action: approval.Deny}
			if c.say.Action == approval.Deny {
				other.Action = approval.Approve
			}
			_, err = b.client.Decide(t.Context(), id, other)
			p := requireProblem(t, err, api.AlreadyDecided)
			require.Equal(t, a.ID, p.Approval.ID, "the winner is named")
			require.Contains(t, p.Detail, "user:local")
			listed, err := b.client.Approvals(t.Context(), c.status, "", 0)
			require.NoError(t, err)
			require.Len(t, listed.Items, 1)
		})
	}
}

func TestDecisionsAndAnswersToAnApprovalGoThroughTheDesk(t *testing.T) {
	no := "no"
	for name, c := range map[string]struct {
		in   func(approval string) api.Input
		want run.CallStatus
		why  run.CallReason
	}{
		"resume":          {func(string) api.Input { return decision("c1", "resume") }, run.StatusSucceeded, ""},
		"by the approval": {func(id string) api.Input { return decision(id, "resume") }, run.StatusSucceeded, ""},
		"cancel":          {func(string) api.Input { return decision("c1", "cancel") }, run.StatusCancelled, run.WhyCancelled},
		"answer true":     {func(string) api.Input { return result(`true`) }, run.StatusSucceeded, ""},
		"answer empty":    {func(string) api.Input { return result(`""`) }, run.StatusSucceeded, ""},
		"answer no":       {func(string) api.Input { return result(`"No "`) }, run.StatusCancelled, run.WhyDenied},
		"answer number":   {func(string) api.Input { return result(`1`) }, run.StatusCancelled, run.WhyDenied},
		"answer null":     {func(string) api.Input { return result(`null`) }, run.StatusCancelled, run.WhyDenied},
		"answer error":    {func(string) api.Input { return api.Input{Answers: []api.Answer{{Call: "c1", Error: &no}}} }, run.StatusCancelled, run.WhyDenied},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, pay)
			one := b.start("k")
			in := c.in(one.Waiting[0].Approval)
			a, err := b.client.Input(t.Context(), one.ID, in, "")
			require.NoError(t, err)
			require.True(t, *a.Applied)
			after := b.waitUntilParked(one.ID)
			require.Equal(t, run.RunDone, after.Status)
			require.Equal(t, c.want, after.Calls[0].Status)
			require.Equal(t, c.why, after.Calls[0].Reason)

			a, err = b.client.Input(t.Context(), one.ID, in, "")
			require.NoError(t, err, "to a finished run it is no error")
			require.False(t, *a.Applied)
		})
	}
}

func decision(target, action string) api.Input {
	return api.Input{Decisions: []api.Decision{{Target: target, ID: "d1", Action: action, Reason: "because"}}}
}

func result(raw string) api.Input {
	return api.Input{Answers: []api.Answer{{Call: "c1", ID: "a1", Result: json.RawMessage(raw)}}}
}

// A call that runs out of time leaves open what became of it; an answer is data then, and settles it once.
func TestAnswersToAnUnknownOutcome(t *testing.T) {
	lost := `{"calls": [{"id": "c1", "name": "pay", "input": {"amount": 0}}]}
{"text": "Done."}`
	declined := "declined"
	for name, c := range map[string]struct {
		answer  api.Answer
		status  run.CallStatus
		content string
	}{
		"text":  {api.Answer{Call: "c1", Result: json.RawMessage(`"paid"`)}, run.StatusSucceeded, "paid"},
		"json":  {api.Answer{Call: "c1", Result: json.RawMessage(`{"paid": 0}`)}, run.StatusSucceeded, `{"paid":0}`},
		"false": {api.Answer{Call: "c1", Result: json.RawMessage(`false`)}, run.StatusSucceeded, "false"},
		"null":  {api.Answer{Call: "c1", Result: json.RawMessage(`null`)}, run.StatusSucceeded, "null"},
		"error": {api.Answer{Call: "c1", Error: &declined}, run.StatusFailed, "declined"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, lost)
			one := b.start("k")
			_, err := b.client.Decide(t.Context(), one.Waiting[0].Approval, api.Verdict{Action: approval.Approve})
			require.NoError(t, err)
			one = b.waitUntilParked(one.ID)
			require.Equal(t, run.ForOutcome, one.Waiting[0].For)
			_, err = b.client.Decide(t.Context(), one.Waiting[0].Approval, api.Verdict{Action: approval.Approve})
			_ = requireProblem(t, err, api.WrongKind)

			a, err := b.client.Input(t.Context(), one.ID, api.Input{Answers: []api.Answer{c.answer}}, "")
			require.NoError(t, err)
			require.True(t, *a.Applied)
			after := b.waitUntilParked(one.ID)
			require.Equal(t, c.status, after.Calls[0].Status)
			require.Contains(t, string(after.Messages[len(after.Messages)-2].Content), strings.ReplaceAll(c.content, `"`, `\"`))
			require.Equal(t, run.ReasonNaturalEnd, after.Reason)
		})
	}
}

func TestAnswerToACallThatWaitsForNobody(t *testing.T) {
	b := newBench(t, `{"calls": [{"id": "c0", "name": "fly"}, {"id": "c1", "name": "pay", "input": {"amount": 5}}]}
{"text": "Done."}`)
	run := b.start("k")
	_, err := b.client.Input(t.Context(), run.ID, api.Input{Answers: []api.Answer{{Call: "c0", Rerun: true}}}, "")
	_ = requireProblem(t, err, api.NothingWaits)
	_, err = b.client.Input(t.Context(), run.ID, decision("c0", "resume"), "")
	_ = requireProblem(t, err, api.NothingWaits)
}

func TestMessages(t *testing.T) {
	b := newBench(t, pay)
	one := b.start("k")
	in := api.Input{Messages: []json.RawMessage{json.RawMessage(`"and thanks"`), json.RawMessage(`[{"type":"text","text":"bye"}]`)}}
	for range 2 { // the second time is a repetition under the same key
		_, err := b.client.Input(t.Context(), one.ID, in, "m1")
		require.NoError(t, err)
	}
	b.waitUntilParked(one.ID)
	_, err := b.client.Decide(t.Context(), one.Waiting[0].Approval, api.Verdict{Action: approval.Approve})
	require.NoError(t, err)
	after := b.waitUntilParked(one.ID)
	require.Equal(t, run.RunDone, after.Status)
	said := 0
	for _, m := range after.Messages {
		if s := string(m.Content); strings.Contains(s, "and thanks") || strings.Contains(s, "bye") {
			said++
		}
	}
	require.Equal(t, 2, said)
	_, err = b.client.Input(t.Context(), one.ID, in, "")
	_ = requireProblem(t, err, api.RunFinished)
	_, err = b.client.Input(t.Context(), one.ID, api.Input{Messages: in.Messages[:1], Decisions: decision("c1", "resume").Decisions}, "")
	_ = requireProblem(t, err, api.RunFinished)
}

func TestCancel(t *testing.T) {
	b := newBench(t, pay)
	one := b.start("k")
	for range 2 {
		a, err := b.client.Cancel(t.Context(), one.ID, "enough")
		require.NoError(t, err)
		require.Equal(t, run.RunDone, a.Status)
	}
	require.Equal(t, http.StatusAccepted, b.do("POST /v1/runs/"+one.ID+"/cancel", "").status, "the body may be left out")
	require.Equal(t, run.ReasonCancelled, b.waitUntilParked(one.ID).Reason)
	a, err := b.client.Approval(t.Context(), one.Waiting[0].Approval)
	require.NoError(t, err)
	require.Equal(t, approval.Cancelled, a.Status)
	_, err = b.client.Decide(t.Context(), a.ID, api.Verdict{Action: approval.Approve})
	_ = requireProblem(t, err, api.AlreadyDecided)
}

func TestReplayFindsNoDifference(t *testing.T) {
	b := newBench(t, pay)
	run := b.start("k")
	for range 2 {
		r, err := b.client.Replay(t.Context(), run.ID)
		require.NoError(t, err)
		require.Empty(t, r.Differences)
		require.Positive(t, r.Entries)
		_, err = b.client.Decide(t.Context(), run.Waiting[0].Approval, api.Verdict{Action: approval.Approve})
		require.NoError(t, err)
		b.waitUntilParked(run.ID)
	}
}

func TestActsWaitUntilTheBackendIsReady(t *testing.T) {
	b := newBench(t, pay)
	run := b.start("k")
	b.backend.Ready = func(context.Context) error { return errors.New("disk full") }
	b.serve()
	_, err := b.client.Run(t.Context(), run.ID)
	require.NoError(t, err, "looking needs nothing")
	_, err = b.client.Decide(t.Context(), run.Waiting[0].Approval, api.Verdict{Action: approval.Approve})
	p := requireProblem(t, err, api.Internal)
	require.Equal(t, "disk full", p.Detail)
}

func TestInternalErrorsStayInside(t *testing.T) {
	b := newBench(t, pay)
	var logged strings.Builder
	b.backend.Local, b.backend.Log = false, slog.New(slog.NewTextHandler(&logged, nil))
	b.backend.Ready = func(context.Context) error { return errors.New("secret of the disk") }
	b.serve()
	got := b.do("POST /v1/runs", `{"agent":"payer","message":"x"}`)
	require.Equal(t, http.StatusInternalServerError, got.status)
	require.NotContains(t, got.body, "secret")
	require.Contains(t, logged.String(), "secret of the disk")
}

func TestNobodyAnswers(t *testing.T) {
	b := newBench(t, pay)
	b.server.Close()
	_, err := b.client.Run(t.Context(), noRun)
	require.ErrorIs(t, err, api.ErrUnreachable)
	err = b.client.Follow(t.Context(), noRun, "", func(api.Event) error { return nil })
	require.ErrorIs(t, err, api.ErrUnreachable)
}
