package runtime

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// embedder gives texts the vectors that it knows, and counts requests.
type embedder struct {
	vectors map[string][]float32
	asked   int
	err     error
}

func (e *embedder) Embed(_ context.Context, _ string, _ agent.Embeddings, texts []string) ([][]float32, error) {
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
	x := NewToolIndex(e)
	ask := func(digest, query string, texts ...string) ([]float64, error) {
		return x.similarity(t.Context(), &run.AgentState{Definition: digest}, by, texts, query)
	}
	got, err := ask("d1", "a", "a", "b", "zero")
	require.NoError(t, err)
	require.Equal(t, []float64{1, 0, 0}, got)
	got, err = ask("d1", "q", "a", "b", "zero")
	require.NoError(t, err)
	require.InDelta(t, got[0], got[1], 1e-9, "length does not count")
	require.Equal(t, 3, e.asked, "an agent's tools are embedded once, a query every time")
	for _, texts := range [][]string{
		{"d1", "long", "a", "b", "zero"}, {"d2", "q", "a", "long"}, {"d2", "q", "a", "unknown"},
	} {
		_, err = ask(texts[0], texts[1], texts[2:]...)
		require.ErrorIs(t, err, errDimensions)
	}
	e.err = errors.New("no answer")
	_, err = ask("d2", "q", "a")
	require.ErrorIs(t, err, e.err)
	e.err = nil // a failure is not kept
	for i := range maxIndexed + 1 {
		_, err := ask(string(rune('a'+i)), "q", "a")
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(x.vectors), maxIndexed)
	e.vectors[strings.Repeat("é", maxEmbedded/2)] = []float32{1, 0}
	got, err = ask("d3", strings.Repeat("é", maxEmbedded), "a", strings.Repeat("é", maxEmbedded))
	require.NoError(t, err, "of a long text the beginning is compared: models refuse what is too long for them")
	require.Equal(t, []float64{1, 1}, got)
}

// silent is a service that takes texts and never answers.
type silent struct{}

func (silent) Embed(ctx context.Context, _ string, _ agent.Embeddings, _ []string) ([][]float32, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Nobody waits longer than half a minute for texts to be embedded: the loop is offered all tools then.
func TestEmbeddingOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		by := agent.Embeddings{Provider: agent.EmbeddingsBedrock, ID: "m"}
		var warned error
		p := Ports{
			Clock: clock.System(), Index: NewToolIndex(silent{}),
			Warn: func(_ string, err error) { warned = err },
		}
		d := &agent.Definition{Tools: []agent.ToolSpec{{Name: "a"}, {Name: "b"}}, Prefilter: agent.Prefilter{TopK: 1, Embeddings: by}}
		s := &run.AgentState{}
		s.Messages = s.Messages.Append(run.Message{Role: run.RoleUser, Block: run.Text{Text: "go"}})
		a, began := policy.Action{}, time.Now()
		require.NoError(t, p.narrow(t.Context(), d, s, &a))
		require.ErrorIs(t, warned, context.DeadlineExceeded)
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Nil(t, a.Offered)
	})
}
