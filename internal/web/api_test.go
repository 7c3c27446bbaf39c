package web_test

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web"
)

// noRun and noApproval have the form of ids and are nobody's.
const (
	noRun      = "raaaaaaaaaaaaaaaaaaaaaaaaa"
	noApproval = "aaaaaaaaaaaaaaaaaaaaaaaaaa"
)

func TestStartFromInputAndBlocks(t *testing.T) {
	b := newBench(t, `{"text": "ok", "want": {"messages": [{"content": {"text": "{\"n\":10000000000000000001}"}}]}}`)
	a, err := b.client.Start(t.Context(), web.Start{Agent: "payer", Input: json.RawMessage(`{"n": 10000000000000000001}`)})
	require.NoError(t, err)
	require.Equal(t, run.ReasonNaturalEnd, b.waitUntilParked(a.ID).Reason)

	b = newBench(t, `{"text": "ok", "want": {"messages": [{"content": {"type": "media", "name": "a.png"}}, {"content": {"text": "see"}}]}}`)
	a, err = b.client.Start(t.Context(), web.Start{Agent: "payer", Message: json.RawMessage(
		`[{"type":"media","name":"a.png","mediaType":"image/png","data":"` + base64.StdEncoding.EncodeToString([]byte("png")) + `"},{"type":"text","text":"see"}]`)})
	require.NoError(t, err)
	require.Equal(t, run.ReasonNaturalEnd, b.waitUntilParked(a.ID).Reason)
}

func TestInlineSizeIsBounded(t *testing.T) {
	b := newBench(t, pay)
	send := func(n int) error {
		data := base64.StdEncoding.EncodeToString(make([]byte, n))
		_, err := b.client.Start(t.Context(), web.Start{Agent: "payer", Message: json.RawMessage(`[{"type":"media","mediaType":"image/png","data":"` + data + `"}]`)})
		return err
	}
	require.NoError(t, send(web.MaxInline))
	require.ErrorContains(t, send(web.MaxInline+1), "at most 131072 inline")
}

func TestDefinitionComesAlongOnlyLocally(t *testing.T) {
	b := newBench(t, `{"text": "done"}`)
	d := definition(t)
	d.Name = "visitor"
	start := web.Start{Definition: &d, Message: json.RawMessage(`"hello"`)}
	a := must(b.client.Start(t.Context(), start))
	require.Equal(t, "visitor", b.waitUntilParked(a.ID).Agent)

	broken := d
	broken.Limits.Interactions = 0
	_, err := b.client.Start(t.Context(), web.Start{Definition: &broken, Message: start.Message})
	require.ErrorContains(t, err, "limits.interactions")
	ceiled := d
	ceiled.Ceilings = []agent.Permission{d.Permission}
	_, err = b.client.Start(t.Context(), web.Start{Definition: &ceiled, Message: start.Message})
	require.ErrorContains(t, err, "ceilings: got 1, want none")
	unknown := d
	unknown.Tools = []agent.ToolSpec{{Name: "fly", Kind: agent.KindInternal, Description: "Flies.", Schema: json.RawMessage(`{"type":"object"}`), Effect: run.EffectRead}}
	_, err = b.client.Start(t.Context(), web.Start{Definition: &unknown, Message: start.Message})
	require.ErrorContains(t, err, "fly has no code here")
	_, err = b.client.Start(t.Context(), web.Start{Agent: "payer", Definition: &d, Message: start.Message})
	require.ErrorContains(t, err, `got "payer", want "visitor"`)

	b.backend.Local = false
	b.serve()
	_, err = b.client.Start(t.Context(), start)
	_ = requireProblem(t, err, web.NotAllowed)
}

func requireProblem(t *testing.T, err error, kind web.ProblemType) *web.Problem {
	t.Helper()
	var p *web.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, kind, p.Type, p.Detail)
	return p
}

func TestRunIsTheCoresWithItsInbox(t *testing.T) {
	b, one := newWaiting(t)
	l := must(b.Ports.Journal.Load(t.Context(), "default", one.ID))
	view := must(policy.View(&l.State))
	core := must(json.Marshal(view))
	require.JSONEq(t, string(core), b.do("GET /v1/runs/"+one.ID, "").body)
	require.JSONEq(t, string(core), b.do("GET /v1/runs/"+one.ID[:2], "").body, "there is no other run")
	require.Equal(t, run.RunWaiting, one.Status)
	require.Equal(t, run.ForApproval, one.Waiting[0].For)
	require.True(t, one.Resting())

	bare := b.do("GET /v1/runs/"+one.ID+"?messages=0", "").body
	require.NotContains(t, bare, `"messages"`)
	require.NotContains(t, bare, `"calls"`)
	require.Contains(t, bare, `"waiting":[{`)
	calls := must(b.client.Calls(t.Context(), one.ID, "", 0))
	require.Equal(t, web.Page[web.Call]{Items: one.Calls}, calls)
}

func TestRunsAreListedInPagesAndByAgent(t *testing.T) {
	b := newBench(t, pay)
	var want []string
	for _, key := range []string{"1", "2", "3"} {
		want = append(want, b.start(key).ID)
	}
	must(b.client.Cancel(t.Context(), want[1], "enough"))
	var got []string
	all := everyPage(t, func(cursor string) (web.Page[web.RunHead], error) {
		return b.client.Runs(t.Context(), web.RunQuery{Agent: "payer", Cursor: cursor, Limit: 1})
	})
	for _, r := range all {
		got = append(got, r.ID)
	}
	require.ElementsMatch(t, want, got, "whatever their status")
	newest := func(a, b web.RunHead) int { return b.StartedAt.Compare(a.StartedAt) }
	require.True(t, slices.IsSortedFunc(all, newest), "newest first: %v", all)
	done := must(b.client.Runs(t.Context(), web.RunQuery{Status: "done"}))
	require.Len(t, done.Items, 1)
	require.Equal(t, run.ReasonCancelled, done.Items[0].Reason)
	none := must(b.client.Runs(t.Context(), web.RunQuery{Agent: "other"}))
	require.Equal(t, web.Page[web.RunHead]{Items: []web.RunHead{}}, none)
}

func TestDecisionsAndAnswersToAnApprovalGoThroughTheDesk(t *testing.T) {
	no := "no"
	for name, c := range map[string]struct {
		in   func(approval string) web.Input
		want run.CallStatus
		why  run.CallReason
	}{
		"resume":          {func(string) web.Input { return decision("c1", "resume") }, run.StatusSucceeded, ""},
		"by the approval": {func(id string) web.Input { return decision(id, "resume") }, run.StatusSucceeded, ""},
		"cancel":          {func(string) web.Input { return decision("c1", "cancel") }, run.StatusCancelled, run.WhyCancelled},
		"answer true":     {func(string) web.Input { return result(`true`) }, run.StatusSucceeded, ""},
		"answer empty":    {func(string) web.Input { return result(`""`) }, run.StatusSucceeded, ""},
		"answer no":       {func(string) web.Input { return result(`"No "`) }, run.StatusCancelled, run.WhyDenied},
		"answer number":   {func(string) web.Input { return result(`1`) }, run.StatusCancelled, run.WhyDenied},
		"answer null":     {func(string) web.Input { return result(`null`) }, run.StatusCancelled, run.WhyDenied},
		"answer error":    {func(string) web.Input { return web.Input{Answers: []web.Answer{{Call: "c1", Error: &no}}} }, run.StatusCancelled, run.WhyDenied},
	} {
		t.Run(name, func(t *testing.T) {
			b, one := newWaiting(t)
			in := c.in(one.Waiting[0].Approval)
			a := must(b.client.Input(t.Context(), one.ID, in, ""))
			require.True(t, *a.Applied)
			after := b.waitUntilParked(one.ID)
			require.Equal(t, run.RunDone, after.Status)
			require.Equal(t, c.want, after.Calls[0].Status)
			require.Equal(t, c.why, after.Calls[0].Reason)
			asked := must(b.client.Approval(t.Context(), one.Waiting[0].Approval))
			require.Equal(t, agent.ViaCLI, asked.Decisions[0].Via, "that of the bench")

			a, err := b.client.Input(t.Context(), one.ID, in, "")
			require.NoError(t, err, "to a finished run it is no error")
			require.False(t, *a.Applied)
		})
	}
}

// Of several decisions and answers none takes effect if one of them is refused.
func TestAnInputIsCheckedBeforeAnyTakesEffect(t *testing.T) {
	b := newBench(t, `{"calls": [{"id": "c1", "name": "pay", "input": {"amount": 5}}, {"id": "c2", "name": "pay", "input": {"amount": 6}}]}
{"text": "Done."}`, func(d *agent.Definition) {
		d.Permission.Rules = []agent.Rule{{Tool: "pay", Verdict: agent.VerdictAsk, Approvers: []string{"user:cfo"},
			When: []run.Condition{{Path: "/amount", Eq: json.RawMessage("6")}}}}
	})
	one := b.start("k")
	first, second := decision("c1", "resume").Decisions[0], decision("c2", "resume").Decisions[0]
	for _, in := range []web.Input{
		{Decisions: []web.Decision{first, second}},
		{Decisions: []web.Decision{first}, Answers: []web.Answer{{Call: "c2", Result: json.RawMessage("true")}}},
		{Answers: []web.Answer{{Call: "c1", Result: json.RawMessage("true")}, {Call: "c2", Rerun: true}}},
		{Decisions: []web.Decision{first, decision("c1", "cancel").Decisions[0]}},
		{Decisions: []web.Decision{first, decision(one.Waiting[0].Approval, "cancel").Decisions[0]}},
		{Decisions: []web.Decision{first}, Answers: []web.Answer{{Call: "c1", Result: json.RawMessage("false")}}},
	} {
		_, err := b.client.Input(t.Context(), one.ID, in, "")
		require.ErrorContains(t, err, "[")
		require.Equal(t, one, b.waitUntilParked(one.ID), "nothing was done")
	}
	must(b.client.Input(t.Context(), one.ID, web.Input{Decisions: []web.Decision{first, first}}, ""))
}

func decision(target, action string) web.Input {
	return web.Input{Decisions: []web.Decision{{Target: target, ID: "d1", Action: action, Reason: "because"}}}
}

func result(raw string) web.Input {
	return web.Input{Answers: []web.Answer{{Call: "c1", ID: "a1", Result: json.RawMessage(raw)}}}
}

// A call that runs out of time leaves open what became of it; an answer is data then, and settles it once.
func TestAnswersToAnUnknownOutcome(t *testing.T) {
	lost := `{"calls": [{"id": "c1", "name": "pay", "input": {"amount": 0}}]}
{"text": "Done."}`
	declined := "declined"
	for name, c := range map[string]struct {
		answer  web.Answer
		status  run.CallStatus
		content string
	}{
		"text":  {web.Answer{Call: "c1", Result: json.RawMessage(`"paid"`)}, run.StatusSucceeded, "paid"},
		"json":  {web.Answer{Call: "c1", Result: json.RawMessage(`{"paid": 0}`)}, run.StatusSucceeded, `{"paid":0}`},
		"false": {web.Answer{Call: "c1", Result: json.RawMessage(`false`)}, run.StatusSucceeded, "false"},
		"null":  {web.Answer{Call: "c1", Result: json.RawMessage(`null`)}, run.StatusSucceeded, "null"},
		"error": {web.Answer{Call: "c1", Error: &declined}, run.StatusFailed, "declined"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, lost)
			one := b.decided(b.start("k"), approval.Approve)
			require.Equal(t, run.ForOutcome, one.Waiting[0].For)
			_, err := b.client.Decide(t.Context(), one.Waiting[0].Approval, web.Verdict{Action: approval.Approve})
			_ = requireProblem(t, err, web.WrongKind)

			a := must(b.client.Input(t.Context(), one.ID, web.Input{Answers: []web.Answer{c.answer}}, ""))
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
	_, err := b.client.Input(t.Context(), run.ID, web.Input{Answers: []web.Answer{{Call: "c0", Rerun: true}}}, "")
	_ = requireProblem(t, err, web.NothingWaits)
	_, err = b.client.Input(t.Context(), run.ID, decision("c0", "resume"), "")
	_ = requireProblem(t, err, web.NothingWaits)
}

func TestMessages(t *testing.T) {
	b, one := newWaiting(t)
	in := web.Input{Messages: []json.RawMessage{json.RawMessage(`"and thanks"`), json.RawMessage(`[{"type":"text","text":"bye"}]`)}}
	for range 2 { // the second time is a repetition under the same key
		must(b.client.Input(t.Context(), one.ID, in, "m1"))
	}
	b.waitUntilParked(one.ID)
	after := b.decided(one, approval.Approve)
	require.Equal(t, run.RunDone, after.Status)
	said := 0
	for _, m := range after.Messages {
		if s := string(m.Content); strings.Contains(s, "and thanks") || strings.Contains(s, "bye") {
			said++
		}
	}
	require.Equal(t, 2, said)
	_, err := b.client.Input(t.Context(), one.ID, in, "")
	_ = requireProblem(t, err, web.RunFinished)
	_, err = b.client.Input(t.Context(), one.ID, web.Input{Messages: in.Messages[:1], Decisions: decision("c1", "resume").Decisions}, "")
	_ = requireProblem(t, err, web.RunFinished)
}

func TestNobodyAnswers(t *testing.T) {
	b := newBench(t, pay)
	b.server.Close()
	_, err := b.client.Run(t.Context(), noRun)
	require.ErrorIs(t, err, web.ErrUnreachable)
	err = b.client.Follow(t.Context(), noRun, "", func(web.Event) error { return nil })
	require.ErrorIs(t, err, web.ErrUnreachable)
}

const payFromWhere = `{"calls": [{"id": "c1", "name": "pay", "input": {"amount": 7}}]}
{"text": "Paid."}`

// A tool's question is in sight, in the run and among the approvals, whole; it is answered under the suspension's id, by one who may, with
// what fits, once; and what comes behind the end changes nothing.
func TestTicket(t *testing.T) {
	b := newBench(t, payFromWhere)
	one := b.start("k")
	input := "POST /v1/runs/" + one.ID + "/input"
	require.Equal(t, 202, b.do(input, `{"decisions":[{"target":"fc_c1","action":"resume"}]}`).status, "the approval's pending call")
	r := b.waitUntilParked(one.ID)
	for r.Status == run.RunWaiting && r.Waiting[0].For == run.ForApproval {
		r = b.waitUntilParked(one.ID)
	}
	require.Equal(t, run.RunWaiting, r.Status)
	w := r.Waiting[0]
	require.Equal(t, run.ForInput, w.For)
	require.Equal(t, run.Ticket{
		ID: "from-where", Action: "tool:pay", Message: "From where?", Parameters: json.RawMessage(`{"amount":7}`), ResponseSchema: json.RawMessage(`{"type":"string"}`),
		Mode: run.TicketReplay, Pending: run.Pending{ID: "c1", Name: "pay", Arguments: json.RawMessage(`{"amount":7}`)},
	}, *w.Ticket)
	var page web.Page[approval.Approval]
	require.NoError(t, json.Unmarshal([]byte(b.do("GET /v1/approvals", "").body), &page))
	require.Equal(t, approval.KindInput, page.Items[0].Kind)
	require.Equal(t, "From where?", page.Items[0].Ticket.Message)

	decide := "POST /v1/approvals/" + w.Approval + "/decision"
	require.Contains(t, problemIn(t, b.do(decide, `{"action":"approve","result":7}`), 400, web.AnswerRefused).Detail, "does not fit the response schema of call c1")
	problemIn(t, b.do(decide, `{"action":"approve"}`), 400, web.AnswerRefused)
	problemIn(t, b.do(decide, `{"action":"deny","result":"x"}`), 400, web.InvalidRequest)
	problemIn(t, b.do(decide, `{"action":"edit","args":{"amount":8}}`), 409, web.WrongKind)
	problemIn(t, b.do(input, `{"decisions":[{"target":"from-where","action":"resume","result":"savings"}]}`, web.AsHeader, "user:eve"), 403, web.NotAllowed)
	problemIn(t, b.do(input, `{"decisions":[{"target":"from-where","action":"cancel","result":"savings"}]}`), 400, web.InvalidRequest)
	problemIn(t, b.do(input, `{"decisions":[{"target":"from","action":"resume"}]}`), 404, web.CallNotFound)
	problemIn(t, b.do(input, `{"answers":[{"call":"c1","rerun":true}]}`), 409, web.WrongKind)
	for range 2 {
		b.ask(input, `{"decisions":[{"target":"from-where","id":"d1","action":"resume","result":"savings"}]}`, 202)
	}
	for r = b.waitUntilParked(one.ID); r.Status != run.RunDone; {
		r = b.waitUntilParked(one.ID)
	}
	require.Equal(t, run.StatusSucceeded, r.Calls[0].Status)
	require.Equal(t, 2, r.Calls[0].Executions)
	require.Len(t, b.paid, 1)
	for _, body := range []string{
		`{"decisions":[{"target":"from-where","action":"cancel"}]}`, `{"decisions":[{"target":"nobody","action":"resume"}]}`, `{"answers":[{"call":"c1","result":"x"}]}`,
	} {
		got := b.ask(input, body, 202)
		require.Contains(t, got.body, `"applied":false`)
	}
}

// A page has fewer elements than it may where they would be more than a function's answer holds.
func TestPagesFitAnAnswer(t *testing.T) {
	b := newBench(t, pay)
	id := agent.RunID("default", "payer", "large")
	long := []run.UserBlock{{Block: run.Text{Text: strings.Repeat("x", 280_000)}}}
	s := run.AgentState{}
	for i := range 20 {
		var fact run.Event = run.InputReceived{Slot: int64(i), ID: "m" + strconv.Itoa(i), Blocks: long}
		if i == 0 {
			fact = run.RunStarted{Tenant: "default", Run: id, Agent: "payer", Definition: "d", Owner: "x", MaxInteractions: 9, Messages: long}
		}
		d := run.NewDraft(s, "w", time.Unix(int64(i), 0))
		require.NoError(t, d.Add(fact))
		require.NoError(t, b.Ports.Journal.Append(t.Context(), s, d))
		s = d.Committed()
	}
	require.Len(t, everyPage(t, func(cursor string) (web.Page[web.Message], error) {
		p, err := b.client.Messages(t.Context(), id, cursor, 0)
		require.LessOrEqual(t, len(p.Items), 14)
		return p, err
	}), 20)
}

// What has left the conversation is in the pages of its messages, marked, and not in the run.
func TestEvictedMessagesArePaged(t *testing.T) {
	b := newBench(t, pay)
	id := agent.RunID("default", "payer", "evicted")
	s := run.AgentState{}
	for i, events := range [][]run.Event{
		{run.RunStarted{Tenant: "default", Run: id, Agent: "payer", Definition: "d", Owner: "x", MaxInteractions: 9, Messages: []run.UserBlock{{Block: run.Text{Text: "Hello."}}}}},
		{run.Replied{Inference: 1, Model: "m", Requests: 1, Text: "Hello yourself."}},
		{
			run.InputReceived{Slot: 1, ID: "m1", Blocks: []run.UserBlock{{Block: run.Text{Text: "And?"}}}},
			run.Evicted{Total: 1, Summary: "- user: Hello.", Files: []string{"a.txt"}}, run.Replied{Inference: 2, Model: "m", Requests: 1, Text: "Nothing."},
		},
	} {
		d := run.NewDraft(s, "w", time.Unix(int64(i), 0))
		require.NoError(t, d.Add(events...))
		require.NoError(t, b.Ports.Journal.Append(t.Context(), s, d))
		s = d.Committed()
	}
	run := must(b.client.Run(t.Context(), id))
	require.Len(t, run.Messages, 3)
	require.Equal(t, "- user: Hello.\nFiles: a.txt", run.Summary)
	all := everyPage(t, func(cursor string) (web.Page[web.Message], error) {
		return b.client.Messages(t.Context(), id, cursor, 1)
	})
	require.Len(t, all, 4)
	require.True(t, all[0].Evicted)
	require.EqualValues(t, 1, all[0].SeenCount, "the second inference did not have it")
	require.JSONEq(t, `{"type":"text","text":"Hello."}`, string(all[0].Content))
	require.Equal(t, run.Messages, all[1:])
	behind := must(b.client.Messages(t.Context(), id, "99", 0))
	require.Equal(t, web.Page[web.Message]{Items: []web.Message{}}, behind)
}
