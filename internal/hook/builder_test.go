package hook

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
)

func TestBuild(t *testing.T) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	s := Set{Builders: map[string]Builder{
		"ok": func(_ context.Context, in BuildInput) (Built, error) { return Built{System: in.Run}, nil },
		"fails": func(context.Context, BuildInput) (Built, error) {
			return Built{System: "half"}, errors.New("no\xff order")
		},
		"long": func(context.Context, BuildInput) (Built, error) {
			return Built{}, errors.New(strings.Repeat("é", 2000))
		},
		"panics": func(context.Context, BuildInput) (Built, error) { panic("secret") },
		"late":   func(ctx context.Context, _ BuildInput) (Built, error) { return Built{}, ctx.Err() },
		"nil":    nil,
	}}
	out, err := s.Build(context.Background(), "ok", BuildInput{Run: "r1"})
	require.NoError(t, err)
	require.Equal(t, "r1", out.System)
	for name, want := range map[string]string{
		"fails": "context builder fails: no\uFFFD order", "long": "context builder long: " + strings.Repeat("é", 1000),
		"panics": "context builder panics: it panicked", "none": "context builder none: this deployment does not have it", "nil": "context builder nil: it panicked",
	} {
		out, err := s.Build(context.Background(), name, BuildInput{})
		require.ErrorIs(t, err, ErrBuilder)
		require.EqualError(t, err, want)
		require.Equal(t, Built{}, out)
	}
	_, err = s.Build(gone, "late", BuildInput{})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrBuilder, "who ran out of time is asked again")
}

// An agent in Go that names code which is not there, or is no function, is refused.
func TestCheck(t *testing.T) {
	s := Set{
		Builders: map[string]Builder{"a": nil, "b": func(context.Context, BuildInput) (Built, error) { return Built{}, nil }},
		Contexts: map[string]ContextSource{"a": nil, "b": func(context.Context, ContextInput) (string, error) { return "", nil }},
	}
	require.NoError(t, s.Check(&agent.Definition{}))
	require.NoError(t, s.Check(&agent.Definition{Builder: "b", Prompt: agent.Prompt{Planning: "b", RAG: "b"}}))
	require.Error(t, s.Check(&agent.Definition{Builder: "a"}))
	require.EqualError(t, s.Check(&agent.Definition{Builder: "c", Prompt: agent.Prompt{Planning: "c", RAG: "a"}}),
		`builder: got "c", want a registered context builder: a, b`+"\n"+
			`prompt.planning: got "c", want a registered context source: a, b`+"\n"+
			`prompt.rag: got "a", want a registered context source: a, b`)
	require.EqualError(t, Set{}.Check(&agent.Definition{Builder: "c"}),
		`builder: got "c", want a registered context builder: there is none`)
}
