package stream_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/stream"
)

// started is how a run begins, maybe as another's call.
func started(by *run.Parent, more ...run.UserBlock) run.Event {
	return run.RunStarted{
		Tenant: "t", Run: "r", Agent: "a", Owner: "o", MaxInteractions: 9, Parent: by,
		Messages: append([]run.UserBlock{{Block: run.Text{Text: "go"}}}, more...),
	}
}

// replied is a reply of the model.
func replied(inference int64, text string, calls ...run.RepliedCall) run.Replied {
	return run.Replied{Inference: inference, Model: "m", Requests: 1, Text: text, Calls: calls}
}

// eventsOf are the events of each of a run's entries, a second apart, and the run behind them.
func eventsOf(t *testing.T, entries ...[]run.Event) (all [][]stream.Event, state run.AgentState) {
	t.Helper()
	for i, facts := range entries {
		entry := run.Entry{Seq: int64(i), Writer: "w", Time: time.Unix(int64(i), 0), Events: facts}
		events, after, err := stream.Events(&agent.Definition{}, state, entry)
		require.NoError(t, err)
		all, state = append(all, events), after
	}
	return all, state
}

// begun is a run whose one call waits, by hand, and what its last entry tells.
func begun(t *testing.T, last ...run.Event) []stream.Event {
	t.Helper()
	expires := time.Unix(1000, 0).UTC()
	all, _ := eventsOf(t,
		[]run.Event{started(nil)},
		[]run.Event{replied(1, "", run.RepliedCall{ID: "c1", Name: "pay", Input: json.RawMessage(`{}`)})},
		[]run.Event{run.CallSuspended{Call: "c1", Approval: "a1", Digest: "d", Expires: expires}, run.Parked{Expires: expires}},
		last,
	)
	return all[3]
}

func settledCall() run.Event {
	return run.CallCancelled{Call: "c1", Reason: run.WhyExpired, Content: "late"}
}

func TestFacts(t *testing.T) {
	resumed := run.Resumed{}
	input := run.InputReceived{Slot: 1, ID: "i", Blocks: []run.UserBlock{{Block: run.Text{Text: "hi"}}}}
	finished := run.Finished{Reason: run.ReasonCancelled, OpenText: "not run"}
	settled := []run.Event{resumed, settledCall()}
	for name, c := range map[string]struct {
		facts []run.Event
		want  []stream.Type
	}{
		"the end of a run that is parked is an attempt": {[]run.Event{finished}, []stream.Type{stream.RunStart, stream.ToolCallDone, stream.RunFinish}},
		"an end that is known is told once":             {[]run.Event{finished, finished}, []stream.Type{stream.RunStart, stream.ToolCallDone, stream.RunFinish}},
		"a new owner is no news":                        {[]run.Event{run.HandedOver{Owner: "p"}}, nil},
		"an expiry is nobody's word":                    {settled, []stream.Type{stream.RunStart, stream.ToolCallDone}},
		"resumed twice":                                 {[]run.Event{resumed, resumed}, []stream.Type{stream.RunStart}},
		"a decision that was overtaken":                 {[]run.Event{resumed, run.Decided{Slot: 1, Call: "c1", Approval: "a9"}}, []stream.Type{stream.RunStart}},
		"an error stands before the end": {
			append(settled, run.Finished{Reason: run.ReasonError, Error: &run.RunError{Code: run.CodeInternal, Message: "it broke"}}),
			[]stream.Type{stream.RunStart, stream.ToolCallDone, stream.Error, stream.RunFinish},
		},
		"input is told once": {
			[]run.Event{resumed, input, input},
			[]stream.Type{stream.RunStart, stream.ActivitySnapshot},
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, types(begun(t, c.facts...))) })
	}
}

// Reasoning that only its provider can read is told as it is; other reasoning is in the conversation.
func TestReasoning(t *testing.T) {
	reply := replied(2, "")
	reply.Reasoning = []run.RepliedReasoning{
		{Reasoning: run.Reasoning{Text: "hm"}}, {Reasoning: run.Reasoning{Redacted: []byte("x")}},
	}
	events := begun(t, run.Resumed{}, settledCall(), reply)
	require.Equal(t, []stream.Type{
		stream.RunStart, stream.ToolCallDone, stream.StepStart, stream.EncryptedThought, stream.InferenceDone, stream.StepEnd,
	}, types(events))
	require.Equal(t, stream.EncryptedThoughtData{Message: "m3.2", Value: []byte("x")}, events[3].Data)
}

// TestDelegatedRunsSaySo: a run that is the call of another one tells whose, in every form that has a place for it.
func TestDelegatedRunsSaySo(t *testing.T) {
	by := &run.Parent{Run: "p", Call: "c7", Root: "r0", Depth: 2, Agents: []string{"desk", "researcher"}}
	delegator := &stream.DelegatorData{Agent: "researcher", Run: "p", Call: "c7", Root: "r0"}
	for name, c := range map[string]struct {
		by        *run.Parent
		want      *stream.DelegatorData
		canonical string
		initiator string
	}{
		"delegated": {by, delegator, `{"agent":"a","delegated_by":{"agent":"researcher","run_id":"p","call_id":"c7","root_run_id":"r0"}}`, "p"},
		"by nobody": {nil, nil, `{"agent":"a"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			all, state := eventsOf(t, []run.Event{started(c.by)}, []run.Event{
				replied(1, "done"), run.Finished{Reason: run.ReasonNaturalEnd, Output: json.RawMessage(`"done"`)},
			})
			events := all[0]
			data, ok := events[0].Data.(stream.RunStartData)
			require.True(t, ok)
			require.Equal(t, c.want, data.DelegatedBy)
			said, err := json.Marshal(data)
			require.NoError(t, err)
			require.JSONEq(t, c.canonical, string(said))
			require.Contains(t, bodies(t, stream.Canonical, events)[0], `"data":`+string(said))

			arvo := append(bodies(t, stream.Arvo, events), bodies(t, stream.Arvo, all[1])...)
			require.NotEmpty(t, arvo)
			for _, body := range arvo {
				require.Contains(t, body, `"initiatorId":"`+c.initiator+`"`)
			}
			piece := stream.Arvo.EncodeLive(&state, stream.Delta{Inference: 1, Delta: agent.Delta{Kind: agent.DeltaText, Text: "d"}}, "d", time.Unix(1, 0))
			live, err := json.Marshal(piece.Body)
			require.NoError(t, err)
			require.Contains(t, string(live), `"initiatorId":"`+c.initiator+`"`)
		})
	}
}

// bodies is what a format makes of events, as JSON.
func bodies(t *testing.T, f stream.Format, events []stream.Event) []string {
	t.Helper()
	encoded, err := f.Encode(events)
	require.NoError(t, err)
	var out []string
	for _, e := range encoded {
		body, err := jsonx.MarshalVerbatim(e.Body)
		require.NoError(t, err)
		out = append(out, strings.TrimSpace(string(body)))
	}
	return out
}

// How an attempt ends, in the words of both protocols.
func TestProtocolEnds(t *testing.T) {
	broke := &run.RunError{Code: run.CodeInternal, Message: "it broke"}
	for reason, want := range map[run.Reason][2]string{
		run.ReasonCancelled:                          {`{"type":"RUN_ERROR","timestamp":3000,"message":"the run was cancelled","code":"CANCELLED"}`, `{"type":"abort","reason":"the run was cancelled"}`},
		run.ReasonError:                              {`{"type":"RUN_ERROR","timestamp":3000,"message":"it broke","code":"ERROR"}`, `{"type":"finish","finishReason":"error"}`},
		run.ReasonMaxRounds:                          {`{"type":"RUN_FINISHED","timestamp":3000,"threadId":"r","runId":"r","outcome":{"type":"success"}}`, `{"type":"finish","finishReason":"length"}`},
		run.Stopped(policy.StopTimeout):              {"", `{"type":"finish","finishReason":"length"}`},
		run.Stopped(policy.StopTokens):               {"", `{"type":"finish","finishReason":"length"}`},
		run.Stopped(policy.StopOnTool):               {"", `{"type":"finish","finishReason":"tool-calls"}`},
		run.Stopped(policy.StopContains):             {"", `{"type":"finish","finishReason":"stop"}`},
		run.Stopped(policy.StopConsecutiveErrors):    {"", `{"type":"finish","finishReason":"error"}`},
		run.Stopped(policy.StopLoop):                 {"", `{"type":"finish","finishReason":"error"}`},
		run.Stopped("whatever"):                      {"", `{"type":"finish","finishReason":"other"}`},
		run.ReasonPluginRequested:                    {"", `{"type":"finish","finishReason":"other"}`},
		run.ReasonNaturalEnd:                         {"", `{"type":"finish","finishReason":"stop"}`},
		run.Stopped(string(run.CodeTokensExhausted)): {"", `{"type":"finish","finishReason":"length"}`},
	} {
		end := run.Finished{Reason: reason, OpenText: "not run"}
		if reason == run.ReasonError {
			end.Error = broke
		}
		events := begun(t, run.Resumed{}, settledCall(), replied(2, "Done."), end)
		if want[0] != "" {
			told := bodies(t, stream.Agui, events)
			require.Equal(t, want[0], told[len(told)-1])
		}
		told := bodies(t, stream.Aisdk, events)
		require.Equal(t, want[1], told[len(told)-1])
		require.Equal(t, reason == run.ReasonError, slices.Contains(told, `{"type":"error","errorText":"it broke"}`))
	}
}

// The prompt's tokens are counted with those of a provider's cache.
func TestPromptTokens(t *testing.T) {
	reply := replied(1, "", run.RepliedCall{ID: "c1", Name: "pay", Input: json.RawMessage(`{}`)})
	reply.Usage = run.Usage{Input: 1, Output: 2, CacheRead: 4, CacheWrite: 8}
	all, _ := eventsOf(t, []run.Event{started(nil)}, []run.Event{reply})
	require.Contains(t, strings.Join(bodies(t, stream.Arvo, all[1]), "\n"), `"tokens":{"prompt":13,"completion":2}`)
	require.Contains(t, strings.Join(bodies(t, stream.Forge, all[1]), "\n"), `"prompt_tokens":13,"completion_tokens":2`)
}

// What people say closes the call that asked them.
func TestAisdkDecisions(t *testing.T) {
	decided := func(a run.DecisionAction) run.Event {
		return run.Decided{Slot: 1, Call: "c1", Approval: "a1", Action: a, By: "user:ana", Digest: "d", Text: "no"}
	}
	for action, want := range map[run.DecisionAction]string{
		run.ActionApprove: `{"type":"tool-output-available","toolCallId":"fc_c1","dynamic":true,"output":{"action":"approve","by":"user:ana","approval":"a1"}}`,
		run.ActionDeny:    `{"type":"tool-output-denied","toolCallId":"fc_c1"}`,
		run.ActionCancel:  `{"type":"tool-output-denied","toolCallId":"fc_c1"}`,
	} {
		require.Contains(t, bodies(t, stream.Aisdk, begun(t, run.Resumed{}, decided(action))), want)
	}
}

// A request that nobody has decided about ends with its call.
func TestAisdkExpiry(t *testing.T) {
	told := bodies(t, stream.Aisdk, begun(t, run.Resumed{}, settledCall()))
	require.Equal(t, []string{
		`{"type":"tool-output-error","toolCallId":"fc_c1","dynamic":true,"errorText":"late"}`,
		`{"type":"tool-output-error","toolCallId":"c1","dynamic":true,"errorText":"late"}`,
	}, told[len(told)-2:])
}

// A client takes no outcome of a call that its message does not have: a fork begins with its open calls.
func TestAisdkFork(t *testing.T) {
	_, parent := eventsOf(t, []run.Event{started(nil)},
		[]run.Event{replied(1, "", run.RepliedCall{ID: "c1", Name: "pay", Input: json.RawMessage(`{"amount":5}`)})})
	fork := run.RunStarted{Tenant: "t", Run: "f", Agent: "a", Owner: "o", MaxInteractions: 9,
		From: &run.Origin{Kind: run.OriginFork, Run: "r", Seq: 1}}
	events, _, err := stream.Events(&agent.Definition{}, run.Seed(parent),
		run.Entry{Writer: "w", Time: time.Unix(2, 0), Events: []run.Event{fork}})
	require.NoError(t, err)
	require.Contains(t, bodies(t, stream.Aisdk, events),
		`{"type":"tool-input-available","toolCallId":"c1","toolName":"pay","dynamic":true,"input":{"amount":5}}`)
}

// A conversation in the protocol's messages: a reply is one, under the id it was told with.
func TestAguiConversation(t *testing.T) {
	reply := replied(1, "I look.",
		run.RepliedCall{ID: "c1", Name: "look", Input: json.RawMessage(`{"a":1}`), Effect: run.EffectRead},
		run.RepliedCall{ID: "c2", Name: "look", Input: json.RawMessage(`{}`), Effect: run.EffectRead})
	reply.Reasoning = []run.RepliedReasoning{{Reasoning: run.Reasoning{Text: "hm"}}}
	all, _ := eventsOf(t,
		[]run.Event{started(nil, run.UserBlock{Block: run.Media{Name: "a.png", MediaType: "image/png", Data: "eA=="}})},
		[]run.Event{reply},
		[]run.Event{
			run.CallFinished{Call: "c1", Ran: true, Content: "seen"},
			run.CallFinished{Call: "c2", Ran: true, Content: "dark", IsError: true},
		},
		[]run.Event{replied(2, "Done.")}, []run.Event{run.Evicted{Total: 1, Summary: "They said go."}},
	)
	told := map[string]bool{}
	for _, events := range all {
		for _, body := range bodies(t, stream.Agui, events) {
			var e struct{ MessageID string }
			require.NoError(t, json.Unmarshal([]byte(body), &e))
			if e.MessageID != "" {
				told[e.MessageID] = true
			}
		}
	}
	snapshot := bodies(t, stream.Agui, all[4])
	require.Equal(t, []string{`{"type":"MESSAGES_SNAPSHOT","timestamp":4000,"messages":[` +
		`{"id":"m0.0_1","role":"user","content":"[image/png a.png]"},` +
		`{"id":"m1.0_r0","role":"reasoning","content":"hm"},` +
		`{"id":"m1.0","role":"assistant","content":"I look.","toolCalls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{\"a\":1}"}},` +
		`{"id":"c2","type":"function","function":{"name":"look","arguments":"{}"}}]},` +
		`{"id":"result_c1","role":"tool","content":"seen","toolCallId":"c1"},` +
		`{"id":"result_c2","role":"tool","content":"dark","toolCallId":"c2","error":"dark"},` +
		`{"id":"m3.0","role":"assistant","content":"Done."}]}`}, snapshot)
	require.Equal(t, map[string]bool{"m1.0_r0": true, "m1.0": true, "result_c1": true, "result_c2": true, "m3.0": true}, told,
		"what was told has the ids that the conversation has")
}

// What tools change of the state they share is told as a JSON Patch in both protocols.
func TestProtocolState(t *testing.T) {
	all, _ := eventsOf(t,
		[]run.Event{started(nil)}, []run.Event{replied(1, "", run.RepliedCall{
			ID: "c1", Name: "look", Input: json.RawMessage(`{}`), Effect: run.EffectRead,
		})},
		[]run.Event{run.CallFinished{
			Call: "c1", Ran: true, Content: "seen", Patch: []run.Patch{{Path: "/a~1b", Value: json.RawMessage(`3`)}},
		}},
	)
	events := all[2]
	const patch = `[{"op":"add","path":"/a~1b","value":3}]`
	told := strings.Join(bodies(t, stream.Agui, events), "\n")
	require.Contains(t, told, `{"type":"STATE_DELTA",`)
	require.Contains(t, told, `"delta":`+patch+`}`)
	require.Contains(t, bodies(t, stream.Aisdk, events), `{"type":"data-state-delta","data":{"delta":`+patch+`}}`)
}
