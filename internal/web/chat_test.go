package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web"
)

// chunk is one line of a chat's response.
type chunk map[string]any

// chat posts a chat's messages and reads the response.
func (b *bench) chat(messages string, headers ...string) (all []chunk) {
	b.t.Helper()
	got := b.do("POST /v1/chat/payer", body(messages), headers...)
	require.Equal(b.t, http.StatusOK, got.status, got.body)
	require.Equal(b.t, "v1", got.header.Get("X-Vercel-Ai-Ui-Message-Stream"))
	body, ok := strings.CutSuffix(got.body, "data: [DONE]\n\n")
	require.True(b.t, ok, got.body)
	for line := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		var c chunk
		require.NoError(b.t, json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &c))
		all = append(all, c)
	}
	return all
}

// kinds are the types of chunks.
func kinds(all []chunk) string {
	var out []string
	for _, c := range all {
		out = append(out, c["type"].(string))
	}
	return strings.Join(out, " ")
}

// find is the only chunk of a type.
func find(t *testing.T, all []chunk, kind string) chunk {
	t.Helper()
	of := slices.DeleteFunc(slices.Clone(all), func(c chunk) bool { return c["type"] != kind })
	require.Len(t, of, 1, kinds(all))
	return of[0]
}

// body is a chat's body with these messages.
func body(messages string) string {
	return `{"id": "talk", "messages": [` + messages + `], "trigger": "submit-message"}`
}

const chatHello = `{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "pay 5"}]}`

// shown is the assistant's message that a response made, with its call in a state and what the client adds to it.
func shown(t *testing.T, all []chunk, state string, approval map[string]any) string {
	t.Helper()
	asked := find(t, all, "tool-approval-request")
	of := map[string]any{"id": asked["approvalId"], "descriptor": asked["approvalDescriptor"]}
	maps.Copy(of, approval)
	raw, err := json.Marshal(map[string]any{
		"id": find(t, all, "start")["messageId"], "role": "assistant", "metadata": find(t, all, "finish")["messageMetadata"],
		"parts": []any{map[string]any{"type": "dynamic-tool", "toolCallId": "c1", "state": state, "approval": of}},
	})
	require.NoError(t, err)
	return string(raw)
}

func TestChat(t *testing.T) {
	b := newBench(t, pay)
	first := b.chat(chatHello)
	require.Equal(t, "start start-step text-start text-delta text-end tool-input-start tool-input-available finish-step "+
		"tool-approval-request finish", kinds(first))
	asked := find(t, first, "tool-approval-request")
	pending := must(b.client.FindApprovals(t.Context(), approval.Query{}))
	one := pending.Items[0]
	require.Equal(t, one.ID, asked["approvalId"])
	require.Equal(t, one.Digest, asked["approvalDescriptor"].(map[string]any)["digest"])
	require.Equal(t, one.Run, find(t, first, "start")["messageId"])
	require.Equal(t, first, b.chat(chatHello), "a message that is sent twice is said once")

	yes := chatHello + "," + shown(t, first, "approval-responded", map[string]any{"approved": true, "reason": "fine"})
	second := b.chat(yes)
	require.Equal(t, one.Run, find(t, second, "start")["messageId"], "the message goes on")
	require.Equal(t, "start tool-output-available start-step text-start text-delta text-end finish-step finish", kinds(second))
	require.Equal(t, 5, <-b.paid)
	require.Equal(t, second, b.chat(yes), "an answer that is sent twice counts once")
	require.Empty(t, b.paid)
	decided := must(b.client.Approval(t.Context(), one.ID))
	require.Equal(t, "fine", decided.Decisions[0].Note)

	third := b.chat(yes + `, {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "again"}]}`)
	continued := must(b.client.Run(t.Context(), find(t, third, "start")["messageId"].(string)))
	require.Equal(t, one.Run, continued.Continues)
}

// A message to a run that waits shows its requests again, each by an approval of its own. So does one whose first
// response was lost, and one that comes with a click: perhaps somebody else sends it, and it decides nothing.
func TestChatOfAWaitingRun(t *testing.T) {
	for _, state := range []string{"", "approval-requested", "approval-responded"} {
		b := newBench(t, pay)
		first := b.chat(chatHello)
		before := chatHello
		if state != "" {
			before += "," + shown(t, first, state, map[string]any{"approved": true})
		}
		second := b.chat(before + `, {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "wait"}]}`)
		require.Contains(t, kinds(second), "tool-approval-request finish", state)
		again := find(t, second, "tool-approval-request")
		id := find(t, first, "tool-approval-request")["approvalId"].(string)
		require.Equal(t, state != "", again["approvalId"] == id+".3", state)
		require.Equal(t, find(t, first, "start")["messageId"].(string)+".u2", find(t, second, "start")["messageId"])
		third := b.chat(chatHello + "," + shown(t, second, "approval-responded", map[string]any{"approved": false}))
		require.Equal(t, "start tool-output-denied start-step text-start text-delta text-end finish-step finish",
			kinds(third))
		require.Empty(t, b.paid)
	}
}

// A blocked call has its outcome: only the request about its tool is told again, as one about tools.
func TestChatOfABlockedCall(t *testing.T) {
	b := newBench(t, pay, func(d *agent.Definition) { d.Permission.Mode = agent.ModeBlockAndRetry })
	first := b.chat(chatHello)
	require.Equal(t, "tools", find(t, first, "data-waiting")["data"].(map[string]any)["for"])
	before := must(json.Marshal(map[string]any{"id": find(t, first, "start")["messageId"], "role": "assistant",
		"metadata": find(t, first, "finish")["messageMetadata"], "parts": []any{map[string]string{"type": "step-start"}}}))
	again := b.chat(chatHello + "," + string(before) +
		`, {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "wait"}]}`)
	require.Equal(t, "start data-waiting finish", kinds(again))
	asked := find(t, again, "data-waiting")
	require.Equal(t, find(t, first, "data-waiting")["id"], asked["id"])
	require.Equal(t, "tools", asked["data"].(map[string]any)["for"])
}

// An edited message starts another run. A click in an older message decides where the client names that message.
func TestChatEditedAndClickedLate(t *testing.T) {
	b := newBench(t, pay)
	resume := func() int { return b.do("GET /v1/chat/payer/talk/stream", "").status }
	require.Equal(t, http.StatusNoContent, resume())
	first := b.chat(chatHello)
	require.Equal(t, http.StatusNoContent, resume(), "people are asked")
	edited := b.chat(strings.Replace(chatHello, "pay 5", "pay 6", 1))
	one := find(t, edited, "start")["messageId"].(string)
	require.NotEqual(t, find(t, first, "start")["messageId"], one)
	late := chatHello + "," + shown(t, edited, "approval-responded", map[string]any{"approved": false}) +
		`, {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "held"}]}`
	got := b.do("POST /v1/chat/payer", strings.Replace(body(late), "{", `{"messageId": "`+one+`", `, 1))
	require.Contains(t, got.body, "tool-output-denied")
}

// Who may not decide has nothing to press. An answer of a quorum that is not complete ends the response. What somebody
// has edited is shown to whoever approves it and to whoever has, and is asked about where the answer was about what was
// shown before.
func TestChatWithOthers(t *testing.T) {
	b := newBench(t, pay, func(d *agent.Definition) {
		d.Permission.Rules = []agent.Rule{{
			Tool: "pay", Verdict: agent.VerdictAsk, Approvers: []string{"group:operators"}, Quorum: 3,
		}}
	})
	guest := b.chat(chatHello, web.AsHeader, eve)
	require.Equal(t, "c1", find(t, guest, "data-waiting")["data"].(map[string]any)["call"])
	require.NotContains(t, kinds(guest), "tool-approval-request")
	first := b.chat(chatHello, web.AsHeader, ana)
	approved := func(of []chunk, who string) []chunk {
		return b.chat(shown(t, of, "approval-responded", map[string]any{"approved": true}), web.AsHeader, who)
	}
	half := approved(first, ana)
	require.Equal(t, "start tool-input-available data-waiting finish", kinds(half),
		"the call is not answered any more: else the client sends it again and again")
	require.Equal(t, half, approved(first, ana))

	id := find(t, first, "tool-approval-request")["approvalId"].(string)
	must(b.client.Decide(t.Context(), id, web.Verdict{Action: approval.Edit, Args: json.RawMessage(`{"amount": 6}`)}))
	stale := approved(first, bo)
	require.Equal(t, "start tool-input-available tool-approval-request finish", kinds(stale), "what is approved is shown")
	counted := approved(stale, bo)
	require.Equal(t, "start tool-input-available data-waiting finish", kinds(counted))
	for _, shows := range [][]chunk{stale, counted} {
		require.Equal(t, map[string]any{"amount": 6.0}, find(t, shows, "tool-input-available")["input"])
	}
	require.Empty(t, b.paid)
	require.Contains(t, kinds(approved(stale, cy)), "tool-output-available")
	require.Equal(t, 6, <-b.paid)
}

// A client puts a call that is told again into its current step. The part in an earlier step is answered no more: else
// the client sends its answer again and again.
func TestChatOfAnEarlierStep(t *testing.T) {
	b := newBench(t, `{"calls": [{"id": "c1", "name": "pay", "input": {"amount": 5}}, `+
		`{"id": "c2", "name": "pay", "input": {"amount": 6}}]}
{"text": "One waits."}
{"text": "Paid."}`, func(d *agent.Definition) {
		d.Wait = run.WaitAllSuspended
		five := []run.Condition{{Path: "/amount", Eq: json.RawMessage("5")}}
		d.Permission.Rules = []agent.Rule{{Tool: "pay", When: five, Verdict: agent.VerdictAsk, Quorum: 2},
			{Tool: "pay", Verdict: agent.VerdictAllow}}
	})
	first := b.chat(chatHello)
	require.Contains(t, kinds(first), "text-end finish-step finish")
	asked := find(t, first, "tool-approval-request")
	part := func(call, state string) map[string]any {
		return map[string]any{"type": "dynamic-tool", "toolCallId": call, "state": state, "approval": map[string]any{
			"id": asked["approvalId"], "descriptor": asked["approvalDescriptor"], "approved": true}}
	}
	step := map[string]any{"type": "step-start"}
	half := b.chat(string(must(json.Marshal(map[string]any{"id": find(t, first, "start")["messageId"], "role": "assistant",
		"metadata": find(t, first, "finish")["messageMetadata"], "parts": []any{step, part("c1", "approval-responded"),
			part("c2", "output-available"), step, map[string]any{"type": "text", "text": "One waits."}}}))))
	require.Equal(t, "start tool-output-error tool-input-available data-waiting finish", kinds(half))
}

// A rule that takes approvals by other channels alone has nothing to press, nor has a number that a browser reads as
// another one.
func TestChatAsksByItsChannel(t *testing.T) {
	slack := newBench(t, pay, func(d *agent.Definition) {
		d.Permission.Rules = []agent.Rule{{Tool: "pay", Verdict: agent.VerdictAsk, Via: []run.Via{agent.ViaSlack}}}
	})
	large := newBench(t, strings.Replace(pay, "5}", "9007199254740993}", 1))
	for _, b := range []*bench{slack, large} {
		require.Equal(t, "start start-step text-start text-delta text-end tool-input-start tool-input-available finish-step data-waiting finish", kinds(b.chat(chatHello)))
	}
}

// The AI SDK ends a stream at a piece with keys that would change an object's prototype. Arguments with such keys are
// sent as text.
func TestChatSendsNoPrototypes(t *testing.T) {
	for _, args := range []string{`{"amount":5,"\u005f_proto__":{"admin":true}}`, `{"amount":5,"of":[{"constructor":{"prototype":1}}]}`} {
		b := newBench(t, strings.Replace(pay, `{"amount": 5}`, args, 1))
		require.Equal(t, args, find(t, b.chat(chatHello), "tool-input-available")["input"])
	}
	plain := newBench(t, strings.Replace(pay, `5}`, `5, "constructor": {"name": "__proto__"}}`, 1)).chat(chatHello)
	require.IsType(t, map[string]any{}, find(t, plain, "tool-input-available")["input"])
}

// What somebody else has decided meanwhile is told with the rest.
func TestChatTellsOthersDecisions(t *testing.T) {
	b := newBench(t, `{"calls": [{"id": "c1", "name": "pay", "input": {"amount": 5}}, `+
		`{"id": "c2", "name": "pay", "input": {"amount": 6}}]}
{"text": "Paid."}`)
	parts, start := []any{}, b.chat(chatHello)
	for _, c := range start {
		if c["type"] == "tool-approval-request" {
			state, of := "approval-requested", map[string]any{"id": c["approvalId"], "descriptor": c["approvalDescriptor"]}
			if c["toolCallId"] == "c1" {
				state, of["approved"] = "approval-responded", true
			} else {
				_, err := b.client.Decide(t.Context(), c["approvalId"].(string), web.Verdict{Action: approval.Deny, Note: "not that"})
				require.NoError(t, err)
			}
			parts = append(parts, map[string]any{"type": "dynamic-tool", "toolCallId": c["toolCallId"], "state": state, "approval": of})
		}
	}
	raw, err := json.Marshal(map[string]any{"id": find(t, start, "start")["messageId"], "role": "assistant", "parts": parts,
		"metadata": find(t, start, "finish")["messageMetadata"]})
	require.NoError(t, err)
	all := b.chat(string(raw))
	require.Equal(t, "c2", find(t, all, "tool-output-denied")["toolCallId"])
	require.Equal(t, "c1", find(t, all, "tool-output-available")["toolCallId"])
}

// A response goes on while the run waits for no person, for five minutes or as long as its function has, and says where
// it ended. One that a gateway holds back is whole, too. Who lost it is given all of it again. One that is not held back
// has something every ten seconds, for proxies that end what is silent.
func TestChatWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newUnserved(t, shops, addShop)
		for _, limit := range []time.Duration{time.Hour, 28 * time.Second} {
			for _, line := range []string{"POST /v1/chat/payer", "GET /v1/chat/payer/talk/stream"} {
				begin := time.Now()
				sent := httptest.NewRecorder()
				got := b.chatFor(line, limit, struct{ http.ResponseWriter }{sent}, sent)
				require.Equal(t, min(limit, 5*time.Minute), time.Since(begin))
				require.Contains(t, got.body, `"tool-input-available"`)
				require.Contains(t, got.body, `{"type":"finish","finishReason":"other","messageMetadata":{"next":4}}`+"\n\ndata: [DONE]\n\n")
			}
		}
		sent := httptest.NewRecorder()
		require.Contains(t, b.chatFor("GET /v1/chat/payer/talk/stream", 28*time.Second, sent, sent).body, "}\n\n:\n\n:\n\ndata: {")
		require.Equal(t, "no", sent.Header().Get("X-Accel-Buffering"))
	})
}

// shops calls the service that addShop gives an agent.
const shops = `{"calls": [{"id": "c1", "name": "shop", "input": {}}]}`

func addShop(d *agent.Definition) {
	d.Tools = append(d.Tools, agent.ToolSpec{Name: "shop", Kind: agent.KindService, Description: "Asks.", Effect: run.EffectRead,
		Schema: json.RawMessage(`{"type": "object"}`)})
}

// chatFor asks for a chat's response, which goes to w, is recorded and has so much time.
func (b *bench) chatFor(line string, limit time.Duration, w http.ResponseWriter, sent *httptest.ResponseRecorder) answer {
	method, path, _ := strings.Cut(line, " ")
	ctx, cancel := context.WithTimeout(b.t.Context(), limit)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body(chatHello)))
	r.Header.Set("Content-Type", "application/json")
	web.APIHandler(b.backend).ServeHTTP(w, r)
	return answer{sent.Code, sent.Header(), sent.Body.String()}
}

// A body that is no chat's, and what belongs to another run or agent, is refused by name, and nothing is done.
func TestChatRefuses(t *testing.T) {
	b, other := newWaiting(t)
	first := b.chat(chatHello)
	one := find(t, first, "start")["messageId"].(string)
	yes := func(run, id string) string {
		return fmt.Sprintf(`{"id": %q, "role": "assistant", "parts": [{"type": "dynamic-tool", "toolCallId": "c1", "state": "approval-responded",
			"approval": {"id": %q, "approved": true}}]}`, run, id)
	}
	user := func(parts string) string { return body(`{"id": "u", "role": "user", "parts": [` + parts + `]}`) }
	for sent, want := range map[string]string{
		`{"messages": [` + chatHello + `], "trigger": "submit-message"}`:                "id: got nothing",
		`{"id": "t", "messages": [` + chatHello + `]}`:                                  "want submit-message",
		`{"id": "t", "messages": [` + chatHello + `], "trigger": "regenerate-message"}`: "want submit-message",
		`{"id": "t", "trigger": "submit-message"}`:                                      "messages: got nothing",
		body(""):  "messages: got nothing",
		body("1"): "messages[0]: ",
		strings.Replace(body(chatHello), "}", `}, "model": 1`, 1):          "",
		body(`{"role": "user", "parts": [{"type": "text", "text": "x"}]}`): "messages[0].id",
		body(`{"id": "u", "role": "user", "parts": 7}`):                    "messages[0].parts: want a list",
		user("7"): "messages[0].parts[0]: ",
		user(""):  "messages[0].parts",
		user(`{"type": "file", "mediaType": "text/plain", "url": "https://example.com"}`):      "messages[0].parts[0].url",
		user(`{"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,?"}`): "messages[0].parts[0]",
		user(strings.Repeat(`{"type": "text"},`, 10_000) + `{"type": "text"}`):                 "messages[0].parts: got 10001, want at most 10000",
		user(`{"type": "source-url"}`):                                  "messages[0].parts[0].type",
		body(`{"id": "u", "role": "system", "parts": []}`):              "messages[0]: want a user's message",
		body(`{"id": "` + one + `", "role": "assistant", "parts": []}`): "messages[0]: want a user's message, or an answer",
		body(yes(one, "x")):                                             "messages[0].parts[0].approval.id",
		body(yes(one, other.Waiting[0].Approval)):                       "messages[0].parts[0].approval.id",
		strings.Replace(body(yes(one, find(t, first, "tool-approval-request")["approvalId"].(string))), `, "approved": true`, "", 1): "messages[0].parts[0].approval.approved: want true or false",
		body(yes("raaaaaaaaaaaaaaaaaaaaaaaaa", other.Waiting[0].Approval)):                                                           "messages[0].id",
		body(`{"id": "raaaaaaaaaaaaaaaaaaaaaaaaa", "role": "assistant", "parts": []}, ` + chatHello):                                 "messages[0].id",
	} {
		got := b.do("POST /v1/chat/payer", sent)
		require.Contains(t, got.body, want, sent)
		require.GreaterOrEqual(t, got.status, 400)
		require.Less(t, got.status, 500)
	}
	problemIn(t, b.do("POST /v1/chat/nobody", body(chatHello)), http.StatusNotFound, web.NoSuchPath)
	large := `{"id": "u", "role": "user", "parts": [{"type": "text", "text": "` + strings.Repeat("x", 300<<10) + `"}]}`
	problemIn(t, b.do("POST /v1/chat/payer", body(large)), http.StatusRequestEntityTooLarge, web.TooLarge)
	problemIn(t, b.do("POST /v1/chat/payer", body(large+strings.Repeat(","+large, 20))), http.StatusRequestEntityTooLarge, web.TooLarge)
	got := b.do("POST /v1/chat/payer", body(large+","+chatHello))
	require.Equal(t, http.StatusOK, got.status, "a long conversation: %s", got.body)
	require.Empty(t, b.paid)
	now := must(b.client.Run(t.Context(), one))
	require.Equal(t, run.RunWaiting, now.Status)
}
