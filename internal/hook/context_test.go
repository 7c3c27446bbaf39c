package hook

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestContext(t *testing.T) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	s := Set{Contexts: map[string]ContextSource{
		"ok":     func(_ context.Context, in ContextInput) (string, error) { return in.Run + "\xff", nil },
		"most":   func(context.Context, ContextInput) (string, error) { return strings.Repeat("x", MaxContext), nil },
		"more":   func(context.Context, ContextInput) (string, error) { return strings.Repeat("x", MaxContext+1), nil },
		"fails":  func(context.Context, ContextInput) (string, error) { return "half", errors.New("no\xff index") },
		"panics": func(context.Context, ContextInput) (string, error) { panic("secret") },
		"late":   func(ctx context.Context, _ ContextInput) (string, error) { return "", ctx.Err() },
		"nil":    nil,
	}}
	text, err := s.Context(context.Background(), "ok", ContextInput{Run: "r1"})
	require.NoError(t, err)
	require.Equal(t, "r1\uFFFD", text)
	text, err = s.Context(context.Background(), "most", ContextInput{})
	require.NoError(t, err)
	require.Len(t, text, MaxContext)
	for name, want := range map[string]string{
		"fails": "context source fails: no\uFFFD index", "panics": "context source panics: it panicked", "nil": "context source nil: it panicked",
		"none": "context source none: this deployment does not have it", "more": "context source more: got 65537 bytes, want at most 65536",
	} {
		text, err := s.Context(context.Background(), name, ContextInput{})
		require.ErrorIs(t, err, ErrContext)
		require.EqualError(t, err, want)
		require.Empty(t, text)
	}
	_, err = s.Context(gone, "late", ContextInput{})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrContext, "who ran out of time is asked again")
}
