package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// defaultWord is a wording as countersign says it, about no tool.
func defaultWord(key string) string {
	return (&Definition{}).word(key, map[string]any{"Tool": ""})
}

// Every default, of every preset, can be said with its fields; keys are there once.
func TestWordingsCanBeSaid(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range Wordings() {
		require.False(t, seen[w.Key], w.Key)
		seen[w.Key] = true
		require.NotEmpty(t, w.About, w.Key)
		require.NoError(t, w.check(w.Text), w.Key)
		for p, text := range w.Presets {
			require.NoError(t, w.check(text), "%s of %s", w.Key, p)
		}
	}
}

// A definition's own wording replaces the default, wherever that is said, and what a person wrote follows it as before.
func TestOwnWordings(t *testing.T) {
	d := validDefinition(t, PresetCountersign)
	d.Permission.Rules = []Rule{{Tool: "orders.get", Verdict: VerdictDeny, Note: "ask me"}}
	d.Wording = map[string]string{"deniedByRule": "No {{.Tool}} today."}
	require.NoError(t, d.Check())
	g := GateCall(&d, &AgentState{}, Call{ID: "c1", Tool: "orders.get", Name: "orders_get", Input: rawJSON(`{}`)}, nil, worldEpoch)
	require.Equal(t, `No orders_get today. Note: "ask me"`, g.Refuse.Content)
}

func TestWordingsAreChecked(t *testing.T) {
	for wording, want := range map[string]string{
		"nobody":       "wording.nobody: got an unknown wording, want one of ",
		"deniedByRule": `wording.deniedByRule: template: deniedByRule:1:2: executing "deniedByRule" at <.Name>: map has no entry for key "Name"; the fields are Tool`,
	} {
		d := validDefinition(t, PresetCountersign)
		d.Wording = map[string]string{wording: "{{.Name}}"}
		require.ErrorContains(t, d.Check(), want)
	}
	d := validDefinition(t, PresetCountersign)
	d.Wording = map[string]string{"goOn": " "}
	require.EqualError(t, d.Check(), "wording.goOn: got nothing, want a text")
}
