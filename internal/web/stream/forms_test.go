package stream_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/stream"
)

// encodeAs is what a format makes of events: type and data, a line each.
func encodeAs(t *testing.T, f stream.Format, events ...stream.Event) []string {
	t.Helper()
	encoded, err := f.Encode(events)
	require.NoError(t, err)
	var out []string
	for _, e := range encoded {
		body, err := jsonx.MarshalVerbatim(e.Body)
		require.NoError(t, err)
		var named struct {
			Type string
			Data json.RawMessage
		}
		require.NoError(t, json.Unmarshal(body, &named))
		require.Equal(t, e.Type, named.Type)
		out = append(out, e.Type+" "+string(named.Data))
	}
	return out
}

// Text that was shown is taken back where it is not the answer, and only there.
func TestCoworkClears(t *testing.T) {
	correction := func(l run.Lifecycle) *run.Correction { return &run.Correction{Lifecycle: l, Text: "no"} }
	for name, c := range map[string]struct {
		reply run.Replied
		want  string
	}{
		"dropped":    {run.Replied{TextDropped: true, Calls: []run.RepliedCall{{ID: "c2", Name: "x"}}}, "tool_calls"},
		"sent back":  {run.Replied{Text: "hm", Correction: correction(run.LifecycleOutputError)}, "sent_back"},
		"empty":      {run.Replied{Correction: correction(run.LifecycleOutputError)}, ""},
		"goes on":    {run.Replied{Text: "hm", Correction: correction(run.LifecycleNudge)}, ""},
		"unfinished": {run.Replied{Text: "hm", Correction: &run.Correction{Lifecycle: run.LifecycleNudge, Text: "no", Kind: policy.KindIncomplete}}, "sent_back"},
		"kept":       {run.Replied{Text: "hm", Calls: []run.RepliedCall{{ID: "c2", Name: "x"}}}, ""},
		"the answer": {run.Replied{Text: "hm"}, ""},
	} {
		c.reply.Inference, c.reply.Model, c.reply.Requests = 2, "m", 1
		told := encodeAs(t, stream.Cowork, begun(t, run.Resumed{}, settledCall(), c.reply)...)
		cleared := ""
		for _, line := range told {
			if rest, ok := strings.CutPrefix(line, `stream-clear {"reason":"`); ok {
				cleared = strings.TrimSuffix(rest, `"}`)
			}
		}
		require.Equal(t, c.want, cleared, name)
	}
	dropped := replied(2, "", run.RepliedCall{ID: "c2", Name: "x", Input: json.RawMessage(`{}`)})
	dropped.TextDropped = true
	told := encodeAs(t, stream.Cowork, begun(t, run.Resumed{}, settledCall(), dropped)...)
	require.Equal(t, []string{`stream-clear {"reason":"tool_calls"}`, `tool-call {"id":"c2","name":"x","arguments":{}}`}, told[1:])
}

// How an attempt ended is told by its own name.
func TestCoworkEnds(t *testing.T) {
	for reason, want := range map[run.Reason]string{
		run.ReasonCancelled: `stream-cancelled {"reason":"cancelled"}`,
		run.ReasonMaxRounds: `stream-complete {"role":"assistant","content":""}`,
	} {
		told := encodeAs(t, stream.Cowork, begun(t, run.Finished{Reason: reason, OpenText: "not run"})...)
		require.Equal(t, want, told[len(told)-1])
	}
}

// A reply that is sent back is told as what was found in it: one without a call, and one whose call cannot be read, as no call and as an
// error; one whose call lacks a name, as an error.
func TestForgeNoToolCall(t *testing.T) {
	for kind, want := range map[run.CorrectionKind][]string{
		policy.KindNoToolCall:   {`no_tool_call {"code":"no_tool_call","message":"Call a tool."}`, `error {"code":"no_tool_call","message":"Call a tool."}`},
		policy.KindMalformed:    {`no_tool_call {"code":"malformed","message":"Call a tool."}`, `error {"code":"parse","message":"not JSON"}`},
		policy.KindMissingField: {`error {"code":"missing_field","message":"not JSON"}`},
		"":                      {`error {"code":"output","message":"Call a tool."}`},
	} {
		refused := &run.Correction{Lifecycle: run.LifecycleOutputError, Text: "Call a tool.", Kind: kind}
		if kind != policy.KindNoToolCall && kind != "" {
			refused.Detail = "not JSON"
		}
		told := encodeAs(t, stream.Forge, begun(t,
			run.Resumed{}, settledCall(),
			run.Replied{Inference: 2, Model: "m", Requests: 1, Text: "hm", Correction: refused})...)
		require.Equal(t, want, told[len(told)-len(want):])
	}
}

// What people say is told by the name of what they said.
func TestForgeDecisions(t *testing.T) {
	for action, want := range map[run.DecisionAction]string{
		run.ActionApprove: "tool_approval_granted ", run.ActionDeny: "tool_approval_rejected ", run.ActionCancel: "tool_approval_rejected ",
	} {
		told := encodeAs(t, stream.Forge, begun(t, run.Resumed{}, run.Decided{
			Slot: 1, Call: "c1", Approval: "a1", Action: action, By: "user:ana", Digest: "d", Text: "no", Note: "so be it",
		})...)
		said := ""
		for _, line := range told {
			if strings.HasPrefix(line, want) {
				said = line
			}
		}
		require.Contains(t, said, `"by":"user:ana","note":"so be it"`, action)
	}
}

func TestForgeSummary(t *testing.T) {
	evicted := run.Evicted{Total: 1, Summary: "They said go."}
	all, _ := eventsOf(t, []run.Event{started(nil), replied(1, "one")}, []run.Event{evicted})
	require.Equal(t, []string{`context_summarization {"summary":"They said go."}`}, encodeAs(t, stream.Forge, all[1]...))
}
