package runtime

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/pkg/agent"
)

// embedder gives texts the vectors that it knows, and counts requests.
type embedder struct {
	vectors map[string][]float32
	asked   int
	err     error
}

func (e *embedder) Embed(_ context.Context, texts []string) ([][]float32, error) {
	e.asked++
	var out [][]float32
	for _, t := range texts {
		if v := e.vectors[t]; v != nil {
			out = append(out, v)
		}
	}
	return out, e.err
}

func TestToolIndex(t *testing.T) {
	by := agent.Embeddings{Provider: agent.EmbeddingsBedrock, ID: "m"}
	e := &embedder{vectors: map[string][]float32{"a": {3, 0}, "b": {0, 9}, "zero": {0, 0}, "q": {2, 2}, "long": {1, 2, 3}}}
	x := NewToolIndex(func(got agent.Embeddings) (Embedder, bool) { return e, got == by })
	ask := func(digest, query string, texts ...string) ([]float64, error) {
		return x.similarity(t.Context(), digest, by, texts, query)
	}
	got, err := ask("d1", "a", "a", "b", "zero")
	require.NoError(t, err)
	require.Equal(t, []float64{1, 0, 0}, got)
	got, err = ask("d1", "q", "a", "b", "zero")
	require.NoError(t, err)
	require.InDelta(t, got[0], got[1], 1e-9, "length does not count")
	require.Equal(t, 3, e.asked, "an agent's tools are embedded once, a query every time")
	_, err = ask("d1", "long", "a", "b", "zero")
	require.ErrorIs(t, err, errDimensions)
	_, err = ask("d2", "q", "a", "long")
	require.ErrorIs(t, err, errDimensions)
	_, err = ask("d2", "q", "a", "unknown")
	require.ErrorIs(t, err, errDimensions)
	e.err = errors.New("no answer")
	_, err = ask("d2", "q", "a")
	require.ErrorIs(t, err, e.err)
	e.err = nil
	_, err = ask("d2", "q", "a")
	require.NoError(t, err, "a failure is not kept")
	_, err = x.similarity(t.Context(), "d3", agent.Embeddings{Provider: "other"}, nil, "q")
	require.ErrorIs(t, err, errNoEmbedder)
	for i := range maxIndexed + 1 {
		_, err := ask(string(rune('a'+i)), "q", "a")
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(x.vectors), maxIndexed)
}
