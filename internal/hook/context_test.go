package hook

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
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
