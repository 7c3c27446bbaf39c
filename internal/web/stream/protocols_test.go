package stream_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/web/stream"
)

// bodies is what a format makes of events, as JSON.
func bodies(t *testing.T, f stream.Format, events []stream.Event) []string {
	t.Helper()
	encoded, err := f.Encode(events)
	require.NoError(t, err)
	var out []string
	for _, e := range encoded {
		body, err := agent.MarshalVerbatim(e.Body)
		require.NoError(t, err)
		out = append(out, strings.TrimSpace(string(body)))
	}
	return out
}

// How an attempt ends, in the words of both protocols.
func TestProtocolEnds(t *testing.T) {
	broke := &agent.RunError{Code: agent.CodeInternal, Message: "it broke"}
	for reason, want := range map[agent.Reason][2]string{
		agent.ReasonCancelled:                            {`{"type":"RUN_ERROR","timestamp":3000,"message":"the run was cancelled","code":"CANCELLED"}`, `{"type":"abort","reason":"the run was cancelled"}`},
		agent.ReasonError:                                {`{"type":"RUN_ERROR","timestamp":3000,"message":"it broke","code":"ERROR"}`, `{"type":"finish","finishReason":"error"}`},
		agent.ReasonMaxRounds:                            {`{"type":"RUN_FINISHED","timestamp":3000,"threadId":"r","runId":"r","outcome":{"type":"success"}}`, `{"type":"finish","finishReason":"length"}`},
		agent.Stopped(agent.StopTimeout):                 {"", `{"type":"finish","finishReason":"length"}`},
		agent.Stopped(agent.StopTokens):                  {"", `{"type":"finish","finishReason":"length"}`},
		agent.Stopped(agent.StopOnTool):                  {"", `{"type":"finish","finishReason":"tool-calls"}`},
		agent.Stopped(agent.StopContains):                {"", `{"type":"finish","finishReason":"stop"}`},
		agent.Stopped(agent.StopConsecutiveErrors):       {"", `{"type":"finish","finishReason":"error"}`},
		agent.Stopped(agent.StopLoop):                    {"", `{"type":"finish","finishReason":"error"}`},
		agent.Stopped("whatever"):                        {"", `{"type":"finish","finishReason":"other"}`},
		agent.ReasonPluginRequested:                      {"", `{"type":"finish","finishReason":"other"}`},
		agent.ReasonNaturalEnd:                           {"", `{"type":"finish","finishReason":"stop"}`},
		agent.Stopped(string(agent.CodeTokensExhausted)): {"", `{"type":"finish","finishReason":"length"}`},
	} {
		end := agent.Finished{Reason: reason, OpenText: "not run"}
		if reason == agent.ReasonError {
			end.Error = broke
		}
		events := begun(t, agent.Resumed{}, settledCall(), agent.Replied{Inference: 2, Model: "m", Requests: 1, Text: "Done."}, end)
		if want[0] != "" {
			told := bodies(t, stream.Agui, events)
			require.Equal(t, want[0], told[len(told)-1])
		}
		told := bodies(t, stream.Aisdk, events)
		require.Equal(t, want[1], told[len(told)-1])
		require.Equal(t, reason == agent.ReasonError, slices.Contains(told, `{"type":"error","errorText":"it broke"}`))
	}
}

// What people say closes the call that asked them.
func TestAisdkDecisions(t *testing.T) {
	decided := func(a agent.DecisionAction) agent.Event {
		return agent.Decided{Slot: 1, Call: "c1", Approval: "a1", Action: a, By: "user:ana", Digest: "d", Text: "no"}
	}
	for action, want := range map[agent.DecisionAction]string{
		agent.ActionApprove: `{"type":"tool-output-available","toolCallId":"fc_c1","dynamic":true,"output":{"action":"approve","by":"user:ana","approval":"a1"}}`,
		agent.ActionDeny:    `{"type":"tool-output-denied","toolCallId":"fc_c1"}`,
		agent.ActionCancel:  `{"type":"tool-output-denied","toolCallId":"fc_c1"}`,
	} {
		require.Contains(t, bodies(t, stream.Aisdk, begun(t, agent.Resumed{}, decided(action))), want)
	}
}

// A conversation in the protocol's messages: a reply is one, under the id it was told with.
func TestAguiConversation(t *testing.T) {
	entries := [][]agent.Event{
		{agent.RunStarted{Tenant: "t", Run: "r", Agent: "a", Owner: "o", MaxInteractions: 9, Messages: []agent.UserBlock{
			{Block: agent.Text{Text: "go"}}, {Block: agent.Media{Name: "a.png", MediaType: "image/png", Data: "eA=="}},
		}}},
		{agent.Replied{
			Inference: 1, Model: "m", Requests: 1, Text: "I look.", Reasoning: []agent.RepliedReasoning{{Text: "hm"}},
			Calls: []agent.RepliedCall{{ID: "c1", Name: "look", Input: json.RawMessage(`{"a":1}`), Effect: agent.EffectRead}, {ID: "c2", Name: "look", Input: json.RawMessage(`{}`), Effect: agent.EffectRead}},
		}},
		{agent.CallFinished{Call: "c1", Ran: true, Content: "seen"}, agent.CallFinished{Call: "c2", Ran: true, Content: "dark", IsError: true}},
		{agent.Replied{Inference: 2, Model: "m", Requests: 1, Text: "Done."}},
		{agent.Evicted{Total: 1, Summary: "They said go."}},
	}
	var events []stream.Event
	var state agent.AgentState
	told := map[string]bool{}
	for i, facts := range entries {
		var err error
		events, state, err = stream.Of(nil, state, agent.Entry{Seq: int64(i), Writer: "w", Time: time.Unix(int64(i), 0), Events: facts})
		require.NoError(t, err)
		for _, body := range bodies(t, stream.Agui, events) {
			var e struct{ MessageID string }
			require.NoError(t, json.Unmarshal([]byte(body), &e))
			if e.MessageID != "" {
				told[e.MessageID] = true
			}
		}
	}
	snapshot := bodies(t, stream.Agui, events)
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

func TestWire(t *testing.T) {
	for _, name := range stream.Formats() {
		want := stream.Wire{}
		if name == "aisdk" {
			want = stream.Wire{Header: "x-vercel-ai-ui-message-stream", Value: "v1", Last: "[DONE]"}
		}
		require.Equal(t, want, stream.Format(name).Wire())
	}
}

// What tools change of the state they share is told as a JSON Patch in both protocols.
func TestProtocolState(t *testing.T) {
	var events []stream.Event
	var state agent.AgentState
	for i, facts := range [][]agent.Event{
		{agent.RunStarted{Tenant: "t", Run: "r", Agent: "a", Owner: "o", MaxInteractions: 9, Messages: []agent.UserBlock{{Block: agent.Text{Text: "go"}}}}},
		{agent.Replied{
			Inference: 1, Model: "m", Requests: 1,
			Calls: []agent.RepliedCall{{ID: "c1", Name: "look", Input: json.RawMessage(`{}`), Effect: agent.EffectRead}},
		}},
		{agent.CallFinished{Call: "c1", Ran: true, Content: "seen", Patch: []agent.Patch{{Path: "/a~1b", Value: json.RawMessage(`3`)}}}},
	} {
		var err error
		events, state, err = stream.Of(nil, state, agent.Entry{Seq: int64(i), Writer: "w", Events: facts})
		require.NoError(t, err)
	}
	const patch = `[{"op":"add","path":"/a~1b","value":3}]`
	told := strings.Join(bodies(t, stream.Agui, events), "\n")
	require.Contains(t, told, `{"type":"STATE_DELTA",`)
	require.Contains(t, told, `"delta":`+patch+`}`)
	require.Contains(t, bodies(t, stream.Aisdk, events), `{"type":"data-state-delta","data":{"delta":`+patch+`}}`)
}
