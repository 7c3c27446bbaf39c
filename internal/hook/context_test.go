package hook

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// Whoever ran out of time is asked again; what has no function has failed. Scenarios have the rest (testdata/builders and prompts).
func TestCodeOfAPrompt(t *testing.T) {
	s := Set{
		Builders: map[string]Builder{"nil": nil, "late": func(ctx context.Context, _ BuildInput) (Built, error) { return Built{}, ctx.Err() }},
		Contexts: map[string]ContextSource{"nil": nil, "late": func(ctx context.Context, _ ContextInput) (string, error) { return "", ctx.Err() }},
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for what, ask := range map[error]func(ctx context.Context, name string) error{
		ErrBuilder: func(ctx context.Context, name string) error { _, err := s.Build(ctx, name, BuildInput{}); return err },
		ErrContext: func(ctx context.Context, name string) error {
			_, err := s.Context(ctx, name, ContextInput{})
			return err
		},
	} {
		require.ErrorIs(t, ask(gone, "late"), context.Canceled)
		require.NotErrorIs(t, ask(gone, "late"), what)
		for name, want := range map[string]string{"nil": "nil: it panicked", "none": "none: this deployment does not have it"} {
			require.ErrorIs(t, ask(t.Context(), name), what)
			require.ErrorContains(t, ask(t.Context(), name), want)
		}
	}
}

// Code that changes in place what it is given spoils nothing of the run, of its definition or of other runs.
func TestCodeGetsCopies(t *testing.T) {
	spoil := func(texts ...json.RawMessage) {
		for _, text := range texts {
			copy(text, "spoilt")
		}
	}
	s := Set{
		Builders: map[string]Builder{"c": func(_ context.Context, in BuildInput) (Built, error) {
			spoil(in.Input)
			in.Tools[0].Name = "spoilt"
			return Built{}, nil
		}},
		Contexts: map[string]ContextSource{"c": func(_ context.Context, in ContextInput) (string, error) {
			spoil(in.Input)
			in.Tools[0].Name, in.Messages[0].Role = "spoilt", "spoilt"
			return "", nil
		}},
		Outputs: map[string]CheckOutput{"c": func(_ context.Context, in OutputInput) (string, error) {
			spoil(in.Input, in.State, in.Output)
			return "", nil
		}},
		Plugins: map[string]Factory{"c": func(json.RawMessage) (Plugin, error) {
			return Plugin{
				BeforeTool: func(_ context.Context, m *BeforeTool) error { spoil(m.Call().Input); return nil },
				AfterTool:  func(_ context.Context, m *AfterTool) error { spoil(m.Call().Input); return nil },
			}, nil
		}},
	}
	input := func() json.RawMessage { return json.RawMessage(`{"amount":5}`) }
	of, output, call := &run.AgentState{Input: input()}, input(), run.Call{Input: input()}
	tools, messages := []agent.ToolSpec{{Name: "pay"}}, []run.Message{{Role: run.RoleUser}}
	_, err := s.Build(t.Context(), "c", BuildInput{Input: of.Input, Tools: tools})
	require.NoError(t, err)
	_, err = s.Context(t.Context(), "c", ContextInput{Input: of.Input, Tools: tools, Messages: messages})
	require.NoError(t, err)
	_, err = s.Checked(t.Context(), "c", of, output)
	require.NoError(t, err)
	c, err := s.Chain([]agent.PluginSpec{{Name: "c"}})
	require.NoError(t, err)
	_, _, err = c.BeforeTool(t.Context(), &agent.Definition{}, of, call, nil)
	require.NoError(t, err)
	_, err = c.AfterTool(t.Context(), &agent.Definition{}, of, call)
	require.NoError(t, err)
	for _, text := range []json.RawMessage{of.Input, output, call.Input} {
		require.JSONEq(t, string(input()), string(text))
	}
	require.Equal(t, "{}", string(of.SharedState()))
	require.Equal(t, []any{"pay", run.RoleUser}, []any{tools[0].Name, messages[0].Role})
}

// An agent in Go that names code which is not there, or has no function, is refused.
func TestCheck(t *testing.T) {
	s := Set{
		Builders: map[string]Builder{"b": func(context.Context, BuildInput) (Built, error) { return Built{}, nil }, "a": nil},
		Contexts: map[string]ContextSource{"a": nil, "b": func(context.Context, ContextInput) (string, error) { return "", nil }},
	}
	require.NoError(t, s.Check(&agent.Definition{}))
	require.NoError(t, s.Check(&agent.Definition{Builder: "b", Prompt: agent.Prompt{Planning: "b", RAG: "b"}}))
	require.EqualError(t, s.Check(&agent.Definition{Builder: "c"}), `builder: got "c", want a registered context builder: a, b`)
	require.Error(t, s.Check(&agent.Definition{Builder: "a"}))
	require.EqualError(t, Set{}.Check(&agent.Definition{Builder: "c"}), `builder: got "c", want a registered context builder: there is none`)
	require.EqualError(t, s.Check(&agent.Definition{Prompt: agent.Prompt{Planning: "c", RAG: "a"}}),
		`prompt.planning: got "c", want a registered context source: a, b`+"\n"+`prompt.rag: got "a", want a registered context source: a, b`)
}
