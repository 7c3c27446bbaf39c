package tool_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

type noteIn struct {
	Note string `json:"note"`
}

// A tool reads what the calls before it left, and says what it changes beside its result.
func TestAToolReadsAndChangesTheState(t *testing.T) {
	note := tool.Must(tool.New("note", "Notes something.", run.EffectIdempotent,
		func(_ context.Context, c tool.Call, in noteIn) (agent.ToolResultData, error) {
			visits, _, err := tool.State[int](c, "/visits")
			if err != nil {
				return agent.ToolResultData{}, err
			}
			return tool.Patched(tool.Text("noted"), tool.SetState("/visits", visits+1), tool.SetState("/log/-", in.Note), tool.UnsetState("/draft"))
		}, nil))

	state := json.RawMessage(nil)
	for range 2 {
		res, err := note.Call(context.Background(), tool.Call{Args: json.RawMessage(`{"note":"a < b & c"}`), State: state})
		require.NoError(t, err)
		require.Equal(t, "noted", res.Content)
		require.NoError(t, policy.CheckPatch(state, res.Patch))
		state, err = run.ApplyPatches(state, res.Patch)
		require.NoError(t, err)
	}
	require.Equal(t, `{"log":["a < b & c","a < b & c"],"visits":2}`, string(state))
}

func TestStateOfACall(t *testing.T) {
	c := tool.Call{State: json.RawMessage(`{"n":100.10,"who":{"name":"ana"},"none":null}`)}
	n := json.Number("100.10")
	requireState[any](t, c, "/n", n, true)
	requireState(t, c, "/who", struct{ Name string }{"ana"}, true)
	requireState[*int](t, c, "/none", nil, true) // null is a value
	requireState(t, c, "/who/age", 0, false)
	requireState(t, c, "", map[string]any{"n": n, "who": map[string]any{"name": "ana"}, "none": nil}, true)
	_, _, err := tool.State[int](c, "/who")
	require.EqualError(t, err, `read "/who" of the run's state: it is no int`)
	require.NotContains(t, err.Error(), "ana")
	_, _, err = tool.State[int](c, "who")
	require.ErrorContains(t, err, "want a leading slash")
}

func requireState[T any](t *testing.T, c tool.Call, pointer string, want T, there bool) {
	t.Helper()
	got, found, err := tool.State[T](c, pointer)
	require.NoError(t, err)
	require.Equal(t, []any{want, there}, []any{got, found}, pointer)
}

func TestPatchedRefusesWhatHasNoJSONForm(t *testing.T) {
	_, err := tool.Patched(tool.Text("x"), tool.SetState("/a", 1), tool.SetState("/b", func() {}))
	require.EqualError(t, err, `set "/b" of the run's state: func() has no JSON form`)
	res, err := tool.Patched(tool.Text("x"), tool.SetState("/a", nil))
	require.NoError(t, err)
	require.Equal(t, []run.Patch{{Path: "/a", Value: json.RawMessage("null")}}, res.Patch)
}
