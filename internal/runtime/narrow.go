package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/agent"
)

// Embedder makes vectors of texts, one each, all of one length. Safe for concurrent use.
type Embedder interface {
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// Embedders finds the embedder that a definition names; false where there is none.
type Embedders func(agent.Embeddings) (Embedder, bool)

// errIndex says that an agent's tools could not be compared with what a request is about.
type errIndex struct{ cause error }

func (e *errIndex) Error() string { return "compare tools: " + e.cause.Error() }
func (e *errIndex) Unwrap() error { return e.cause }

// narrow narrows the request for a to the tools that fit it. A loop whose tools cannot be compared is offered all of them; the error for a
// step is *errIndex, or the context's.
func (p Ports) narrow(ctx context.Context, def *agent.Definition, s *agent.AgentState, a *agent.Action) error {
	query, server, k, narrows := agent.Narrowing(def, s, *a)
	if !narrows {
		return nil
	}
	similarity, err := p.similarity(ctx, def, s, query)
	if ended := ctx.Err(); err != nil && ended != nil {
		return ended
	}
	switch {
	case err == nil:
		a.Offered = agent.Narrow(def.Tools, similarity, server, k)
		return nil
	case a.Lifecycle == agent.LifecycleRoute:
		return &errIndex{err}
	case p.Warn != nil:
		p.Warn("narrow the tools of run "+s.Run, err)
	}
	return nil
}

// similarity is how well each of the definition's tools fits a query.
func (p Ports) similarity(ctx context.Context, def *agent.Definition, s *agent.AgentState, query string) ([]float64, error) {
	texts := make([]string, len(def.Tools))
	for i, t := range def.Tools {
		texts[i] = agent.ToolWords(t)
	}
	if !def.Prefilter.Embeddings.Model() {
		return agent.BM25(texts, query), nil
	}
	if p.Index == nil {
		return nil, errNoEmbedder
	}
	ctx, cancel := p.Clock.WithTimeout(ctx, embedTimeout)
	defer cancel()
	return p.Index.similarity(ctx, s.Definition, def.Prefilter.Embeddings, texts, query)
}

var (
	errNoEmbedder = errors.New("nobody embeds texts here")
	errDimensions = errors.New("the embedder's vectors differ in length or number")
)

// embedTimeout is how long texts may take to be embedded (seed 002, ADR-010 there).
const embedTimeout = 30 * time.Second

// maxIndexed is how many definitions' tools an index keeps the vectors of.
const maxIndexed = 64

// ToolIndex keeps the vectors of agents' tools for as long as the process lives, by the digest of the definition. It is never a matter of
// correctness: what a request was narrowed to is part of the reply's fact. Safe for concurrent use.
type ToolIndex struct {
	embedders Embedders

	mu      sync.Mutex
	vectors map[string][][]float32
}

// NewToolIndex makes an index that is empty.
func NewToolIndex(e Embedders) *ToolIndex {
	return &ToolIndex{embedders: e, vectors: map[string][][]float32{}}
}

// similarity is the dot product of each text's vector with the query's, all of length one.
func (x *ToolIndex) similarity(ctx context.Context, digest string, by agent.Embeddings, texts []string, query string) ([]float64, error) {
	e, ok := x.embedders(by)
	if !ok {
		return nil, errNoEmbedder
	}
	vectors, err := x.of(ctx, digest, e, texts)
	if err != nil {
		return nil, err
	}
	asked, err := embed(ctx, e, []string{query})
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(vectors))
	for i, v := range vectors {
		if len(v) != len(asked[0]) {
			return nil, errDimensions
		}
		for j := range v {
			out[i] += float64(v[j]) * float64(asked[0][j])
		}
	}
	return out, nil
}

// of is the texts' vectors, made at most once for a definition, or twice at the same time.
func (x *ToolIndex) of(ctx context.Context, digest string, e Embedder, texts []string) ([][]float32, error) {
	x.mu.Lock()
	vectors, ok := x.vectors[digest]
	x.mu.Unlock()
	if ok {
		return vectors, nil
	}
	vectors, err := embed(ctx, e, texts)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.vectors) >= maxIndexed {
		clear(x.vectors)
	}
	x.vectors[digest] = vectors
	return vectors, nil
}

// embed is the texts' vectors, each of length one. One that is all zeros stays so.
func embed(ctx context.Context, e Embedder, texts []string) ([][]float32, error) {
	vectors, err := e.Embed(ctx, texts)
	if err != nil {
		return nil, fmt.Errorf("embed %d texts: %w", len(texts), err)
	}
	if len(vectors) != len(texts) {
		return nil, errDimensions
	}
	out := make([][]float32, len(vectors))
	for i, v := range vectors {
		if len(v) == 0 || len(v) != len(vectors[0]) {
			return nil, errDimensions
		}
		out[i] = unit(v)
	}
	return out, nil
}

func unit(v []float32) []float32 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum == 0 {
		return v
	}
	out, length := make([]float32, len(v)), math.Sqrt(sum)
	for i, x := range v {
		out[i] = float32(float64(x) / length)
	}
	return out
}
