package agent

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Which errors are asked again, by the words of the definition.
func TestRepeats(t *testing.T) {
	for _, class := range ModelErrorClasses() {
		e := &ModelError{Class: class}
		require.Equal(t, class.Retryable(), Retry{}.Repeats(e), class)
		require.Equal(t, class == ModelServer, Retry{On: []ModelErrorClass{ModelServer}}.Repeats(e), class)
		require.False(t, Retry{On: []ModelErrorClass{}}.Repeats(e), "an empty list has none: %s", class)
		require.False(t, Retry{}.Repeats(&ModelError{Class: class, Lasting: true}), class)
	}
	require.Len(t, ModelErrorClasses(), 8)
	require.False(t, Retry{On: ModelErrorClasses()}.Repeats(&ModelError{Class: ModelAuth}), "what does not pass is not asked again whatever the list says")
}

func TestMovesOn(t *testing.T) {
	cowork := []ModelErrorClass{ModelTimeout, ModelConnection, ModelUnavailable, ModelServer}
	for _, class := range ModelErrorClasses() {
		require.True(t, ModelSpec{}.MovesOn(class), class)
		require.False(t, ModelSpec{MoveOn: []ModelErrorClass{}}.MovesOn(class), class)
		require.Equal(t, slices.Contains(cowork, class), ModelSpec{MoveOn: cowork}.MovesOn(class), class)
	}
}

// A static text stands behind the whole chain; an error that ended the run before the chain did has none.
func TestStaticTextWhereTheClassMovesOn(t *testing.T) {
	d := Definition{Model: ModelSpec{StaticText: "We are closed.", MoveOn: []ModelErrorClass{ModelServer}}}
	require.Equal(t, ReasonNaturalEnd, ModelFailed(&d, &AgentState{}, &ModelError{Class: ModelServer}, 2).Reason)
	end := ModelFailed(&d, &AgentState{}, &ModelError{Class: ModelAuth, Model: "m", Message: "status 401"}, 1)
	require.Equal(t, ReasonError, end.Reason)
	require.Equal(t, CodeModelFailed, end.Error.Code)
	require.Equal(t, 1, end.Requests)
	require.Empty(t, end.Static)
}

// Empty lists say something else than none: they outlive being stored, and a preset does not fill them.
func TestEmptyListsOfClasses(t *testing.T) {
	d := Definition{Model: ModelSpec{MoveOn: []ModelErrorClass{}, Retry: Retry{On: []ModelErrorClass{}}}}
	raw, err := json.Marshal(d)
	require.NoError(t, err)
	var back Definition
	require.NoError(t, json.Unmarshal(raw, &back))
	require.Equal(t, d.Model, back.Model)
	preset := ModelSpec{
		MoveOn: []ModelErrorClass{ModelServer}, Retry: Retry{Attempts: 2, On: []ModelErrorClass{ModelServer}}, CutStream: CutStreamKeep, Repair: RepairOn, Continuations: 3,
	}
	require.Equal(t, ModelSpec{
		MoveOn: []ModelErrorClass{}, Retry: Retry{Attempts: 2, On: []ModelErrorClass{}}, CutStream: CutStreamKeep, Repair: RepairOn, Continuations: 3,
	}, d.Model.or(preset))
	require.Equal(t, preset, ModelSpec{}.or(preset))
	own := ModelSpec{CutStream: CutStreamFail, Repair: RepairOff}.or(preset)
	require.Equal(t, CutStreamFail, own.CutStream)
	require.Equal(t, RepairOff, own.Repair)

	raw, err = json.Marshal(Definition{})
	require.NoError(t, err)
	for _, key := range []string{"moveOn", `"on"`, "cutStream", "repair"} {
		require.NotContains(t, string(raw), key, "what is stored of older definitions stays what it was")
	}
}

func TestInterrupted(t *testing.T) {
	call := func(name, input string) ReplyCall {
		return ReplyCall{ID: name, Name: name, Input: json.RawMessage(input)}
	}
	thought := func(text, calls int) ReplyReasoning {
		return ReplyReasoning{Reasoning: Reasoning{Text: "hm"}, AfterText: text, AfterCalls: calls}
	}
	got := Interrupted(Reply{
		Model: "m", Text: "I ", StopReason: "length", Truncated: true, Usage: Usage{Input: 1},
		Calls:     []ReplyCall{call("a", `{"x":1}`), call("b", `{"x":`), call("c", `[1]`), call("", `{}`), call("d", `{}`)},
		Reasoning: []ReplyReasoning{thought(0, 0), thought(2, 1), thought(2, 3), thought(2, 5)},
	})
	require.Equal(t, &Reply{
		Model: "m", Text: "I ", StopReason: StopInterrupted, Usage: Usage{Input: 1}, Calls: []ReplyCall{call("a", `{"x":1}`), call("d", `{}`)},
		Reasoning: []ReplyReasoning{thought(0, 0), thought(2, 1), thought(2, 1), thought(2, 2)},
	}, got)
	require.Nil(t, Interrupted(Reply{Text: " \n", Calls: []ReplyCall{call("b", `{"x":`)}, Reasoning: []ReplyReasoning{thought(0, 0)}}))

	_, kept := ModelSpec{}.Kept(&ModelError{Partial: got})
	require.False(t, kept, "unless the definition says so, it is a failed request")
	reply, kept := ModelSpec{CutStream: CutStreamKeep}.Kept(&ModelError{Partial: got})
	require.True(t, kept)
	require.Equal(t, *got, reply)
	_, kept = ModelSpec{CutStream: CutStreamKeep}.Kept(&ModelError{})
	require.False(t, kept)
	_, kept = ModelSpec{CutStream: CutStreamKeep}.Kept(nil)
	require.False(t, kept)
}

// Arguments that are not JSON are made JSON where the definition says so, and else quoted, for the gate to refuse.
func TestRepairedArguments(t *testing.T) {
	quoted := func(s string) string { raw, _ := json.Marshal(s); return string(raw) }
	for _, tt := range []struct{ name, raw, off, on string }{
		{"an object", `{"a": 1}`, `{"a":1}`, `{"a":1}`},
		{"nothing", ``, `{}`, `{}`},
		{"no brace", `{"a": 1`, quoted(`{"a": 1`), `{"a":1}`},
		{"an object in a string", `"{\"a\": 1}"`, `"{\"a\": 1}"`, `{"a":1}`},
		{"a broken object in a string", `"{\"a\": 1,"`, `"{\"a\": 1,"`, `{"a":1}`},
		{"a list", `[1]`, `[1]`, `[1]`},
		{"a broken list", `[1`, quoted(`[1`), quoted(`[1`)},
		{"a text", `"pay"`, `"pay"`, `"pay"`},
		{"a key twice", `{"a":1,"a":2}`, quoted(`{"a":1,"a":2}`), quoted(`{"a":1,"a":2}`)},
		{"nothing to be made of it", `{"a": 1.2.3}`, quoted(`{"a": 1.2.3}`), quoted(`{"a": 1.2.3}`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reply := Reply{Calls: []ReplyCall{{Name: "pay", Input: json.RawMessage(tt.raw)}}, StopReason: "stop"}
			planned := func(repair Repair, r Reply) string {
				d := Definition{Model: ModelSpec{Repair: repair}}
				c := PlanReply(&d, &AgentState{}, r, 1, "").Calls[0]
				require.Equal(t, string(c.Input) != tt.off, c.Repaired, "on record is what was made of what the model wrote")
				return string(c.Input)
			}
			require.Equal(t, tt.off, planned("", reply))
			require.Equal(t, tt.off, planned(RepairOff, reply))
			require.Equal(t, tt.on, planned(RepairOn, reply))
			reply.Truncated = true
			require.Equal(t, tt.off, planned(RepairOn, reply), "of what its limit cut nobody knows the end")
		})
	}
}
