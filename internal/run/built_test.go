package run_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

func TestModelFacing(t *testing.T) {
	for in, want := range map[string]string{
		`{"type":"object"}`: `{"type":"object"}`,
		`{"properties":{"b":{"maximum":1.50},"parentSubject$$":{"type":"string"},"a":{"enum":["<"]}},"required":["parentSubject$$","b"],"type":"object"}`: `{"properties":{"b":{"maximum":1.50},"a":{"enum":["<"]}},"required":["b"],"type":"object"}`,
		`{"required":["parentSubject$$"],"properties":{"parentSubject\u0024$":{}}}`:                                                                       `{"properties":{}}`,
		`{"required":[],"description":"parentSubject"}`:                                                                                                   `{"required":[],"description":"parentSubject"}`,
		`{"properties":{"x":{"properties":{"parentSubject$$":{}}}}}`:                                                                                      `{"properties":{"x":{"properties":{"parentSubject$$":{}}}}}`,
		`{"properties":true,"required":"parentSubject$$"}`:                                                                                                `{"properties":true,"required":"parentSubject$$"}`,
		"{ \"properties\" : { \"parentSubject$$\" : { } } , \"type\": \"object\" }":                                                                       `{"properties":{},"type":"object"}`,
	} {
		spec := agent.ToolSpec{Name: "t", Schema: rawJSON(in)}
		require.Equal(t, want, string(spec.ModelFacing().Schema), in)
		require.Equal(t, in, string(spec.Schema))
	}
}

// Two tools of one model-facing name are refused, whatever their kinds, and so is a name over 64 characters.
func TestNamesCollide(t *testing.T) {
	object := rawJSON(`{"type":"object"}`)
	tool := func(name string) agent.ToolSpec {
		return agent.ToolSpec{Name: name, Kind: agent.KindInternal, Effect: run.EffectRead, Schema: object}
	}
	require.ErrorContains(t, agent.CheckTools([]agent.ToolSpec{tool("a.b_c"), tool("a_b.c")}), "tools[1].name: a.b_c and a_b.c are both a_b_c to the model")
	require.ErrorContains(t, agent.CheckTools([]agent.ToolSpec{tool("a.b"), tool("a.b")}), "tools[1].name: got a tool a second time")
	require.NoError(t, agent.CheckTools([]agent.ToolSpec{tool(strings.Repeat("a", 62) + ".b")}))
	require.ErrorContains(t, agent.CheckTools([]agent.ToolSpec{tool(strings.Repeat("a", 63) + ".b")}), "got 65 characters, want at most 64")
}

// A context comes once, before the first inference and before what was said to the run, and a repeated fact changes nothing.
func TestContextIsBuiltOnce(t *testing.T) {
	d := worldDefinition(func(d *agent.Definition) { d.Builder = "b" })
	s := commit(t, run.AgentState{}, "api", (&world{def: d}).start())
	saying := func(text string, seen int64) run.BuiltMessage {
		return run.BuiltMessage{Content: run.UserBlock{Block: run.Text{Text: text}}, Seen: seen}
	}
	require.True(t, prompt.NeedsBuilder(&d, &s))
	e, err := prompt.Built(&s, []run.BuiltMessage{saying("seen", 3), saying("new", 0)})
	require.NoError(t, err)
	heard := commit(t, s, "w1", said(1, "And?"), e)
	require.False(t, prompt.NeedsBuilder(&d, &heard))
	require.Equal(t, 2, heard.Unseen)
	require.Equal(t, run.Text{Text: "And?"}, heard.Messages.At(2).Block)
	again := commit(t, heard, "w1", run.ContextBuilt{Messages: []run.BuiltMessage{saying("other", 0)}})
	require.Equal(t, 3, again.Messages.Len())
	_, err = run.Apply(commit(t, s, "w1", called(1)), e)
	require.ErrorContains(t, err, "the run has made an inference")
}

// The text of the first inference is that of all, unless the agent's is built for every inference.
func TestKeptSystem(t *testing.T) {
	d := worldDefinition()
	s := started(t)
	_, _, ok := prompt.KeptSystem(&d, &s)
	require.False(t, ok, "nothing is built yet")
	s = commit(t, s, "w1", prompt.KeepSystem(&d, run.Replied{Inference: 1, Requests: 1, System: prompt.SystemDigest("It is now.")}, "It is now."))
	text, inBlob, ok := prompt.KeptSystem(&d, &s)
	require.Equal(t, []any{"It is now.", false, true}, []any{text, inBlob, ok})
	d.SystemPrompt = agent.SystemEveryInference
	_, _, ok = prompt.KeptSystem(&d, &s)
	require.False(t, ok)
}
