package stream_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/stream"
)

// begun is a run whose one call waits, by hand, and what its last entry tells.
func begun(t *testing.T, last ...run.Event) []stream.Event {
	t.Helper()
	expires := time.Unix(1000, 0).UTC()
	entries := [][]run.Event{
		{run.RunStarted{Tenant: "t", Run: "r", Agent: "a", Owner: "o", MaxInteractions: 9, Messages: []run.UserBlock{{Block: run.Text{Text: "go"}}}}},
		{run.Replied{
			Inference: 1, Model: "m", Requests: 1, Calls: []run.RepliedCall{{ID: "c1", Name: "pay", Input: json.RawMessage(`{}`)}},
		}},
		{run.CallSuspended{Call: "c1", Approval: "a1", Digest: "d", Expires: expires}, run.Parked{Expires: expires}},
		last,
	}
	var events []stream.Event
	var state run.AgentState
	for i, facts := range entries {
		var err error
		events, state, err = stream.Events(&agent.Definition{}, state, run.Entry{Seq: int64(i), Writer: "w", Time: time.Unix(int64(i), 0), Events: facts})
		require.NoError(t, err)
	}
	return events
}

func TestFacts(t *testing.T) {
	resumed := run.Resumed{}
	input := run.InputReceived{Slot: 1, ID: "i", Blocks: []run.UserBlock{{Block: run.Text{Text: "hi"}}}}
	finished := run.Finished{Reason: run.ReasonCancelled, OpenText: "not run"}
	settled := []run.Event{resumed, run.CallCancelled{Call: "c1", Reason: run.WhyExpired, Content: "late"}}
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
	settled := run.CallCancelled{Call: "c1", Reason: run.WhyExpired, Content: "late"}
	events := begun(t, run.Resumed{}, settled, run.Replied{
		Inference: 2, Model: "m", Requests: 1, Reasoning: []run.RepliedReasoning{{Reasoning: run.Reasoning{Text: "hm"}}, {Reasoning: run.Reasoning{Redacted: []byte("x")}}},
	})
	require.Equal(t, []stream.Type{
		stream.RunStart, stream.ToolCallDone, stream.StepStart, stream.EncryptedThought, stream.InferenceDone, stream.StepEnd,
	}, types(events))
	require.Equal(t, stream.EncryptedThoughtData{Message: "m3.2", Value: []byte("x")}, events[3].Data)
}

// Only a natural end with something said has a result.
func TestResults(t *testing.T) {
	settled := run.CallCancelled{Call: "c1", Reason: run.WhyExpired, Content: "late"}
	said := run.Replied{Inference: 2, Model: "m", Requests: 1, Text: "Done."}
	for output, want := range map[string]map[run.Reason]bool{
		`"Done."`: {run.ReasonNaturalEnd: true, run.ReasonMaxRounds: false, run.ReasonCancelled: false},
		`""`:      {run.ReasonNaturalEnd: false},
		`null`:    {run.ReasonNaturalEnd: false},
		``:        {run.ReasonNaturalEnd: false},
		`{"a":1}`: {run.ReasonNaturalEnd: true},
	} {
		for reason, has := range want {
			events := begun(t, run.Resumed{}, settled, said, run.Finished{Reason: reason, Output: json.RawMessage(output)})
			end, ok := events[len(events)-1].Data.(stream.RunFinishData)
			require.True(t, ok)
			require.Equal(t, reason, end.Termination)
			require.Equal(t, has, end.Result != nil, "%s %s", reason, output)
			if has {
				require.JSONEq(t, output, string(end.Result.Response))
			}
		}
	}
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
			start := run.RunStarted{Tenant: "t", Run: "r", Agent: "a", Owner: "o", MaxInteractions: 9, Messages: []run.UserBlock{{Block: run.Text{Text: "go"}}}, Parent: c.by}
			events, state, err := stream.Events(&agent.Definition{}, run.AgentState{}, run.Entry{Seq: 0, Writer: "w", Time: time.Unix(0, 0), Events: []run.Event{start}})
			require.NoError(t, err)
			data, ok := events[0].Data.(stream.RunStartData)
			require.True(t, ok)
			require.Equal(t, c.want, data.DelegatedBy)
			said, err := json.Marshal(data)
			require.NoError(t, err)
			require.JSONEq(t, c.canonical, string(said))
			require.Contains(t, bodies(t, stream.Canonical, events)[0], `"data":`+string(said))

			later, _, err := stream.Events(&agent.Definition{}, state, run.Entry{Seq: 1, Writer: "w", Time: time.Unix(1, 0), Events: []run.Event{
				run.Replied{Inference: 1, Model: "m", Requests: 1, Text: "done"}, run.Finished{Reason: run.ReasonNaturalEnd, Output: json.RawMessage(`"done"`)},
			}})
			require.NoError(t, err)
			arvo := append(bodies(t, stream.Arvo, events), bodies(t, stream.Arvo, later)...)
			require.NotEmpty(t, arvo)
			for _, body := range arvo {
				require.Contains(t, body, `"initiatorId":"`+c.initiator+`"`)
			}
			piece, err := stream.Arvo.EncodeLive(&state, stream.Delta{Inference: 1, Delta: agent.Delta{Kind: agent.DeltaText, Text: "d"}}, "d", time.Unix(1, 0))
			require.NoError(t, err)
			live, err := json.Marshal(piece.Body)
			require.NoError(t, err)
			require.Contains(t, string(live), `"initiatorId":"`+c.initiator+`"`)
		})
	}
}
