package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

// Embedder returns one vector for each text, in order and all of one length, from the model that a definition names. It
// uses the tenant's key. Safe for concurrent use.
type Embedder interface {
	Embed(ctx context.Context, tenant string, by agent.Embeddings, texts []string) ([][]float32, error)
}

// errIndex says that an agent's tools could not be compared with the subject of a request.
var errIndex = errors.New("compare tools")

// narrow limits the request of action a to the tools that fit its subject. If the tools cannot be compared, the loop
// offers all of them. For a step of a plan, the error is errIndex or the context's.
func (p Ports) narrow(ctx context.Context, def *agent.Definition, s *run.AgentState, a *policy.Action) error {
	query, server, k, narrows := prompt.Narrowing(def, s, *a)
	if !narrows {
		return nil
	}
	texts := run.Map(def.Tools, prompt.ToolWords)
	var similarity []float64
	var err error
	switch {
	case !def.Prefilter.Embeddings.Model():
		similarity = prompt.BM25(texts, query)
	case p.Index == nil:
		err = errors.New("this process has no embedder")
	default:
		limited, cancel := p.Clock.WithTimeout(ctx, embedTimeout)
		defer cancel()
		similarity, err = p.Index.similarity(limited, s, def.Prefilter.Embeddings, texts, query)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		offered := policy.Offered(def, s, *a) // withdrawn, hidden and disabled tools take no place
		var tools []agent.ToolSpec
		var near []float64
		for i, t := range def.Tools {
			if slices.ContainsFunc(offered, func(c agent.ToolSpec) bool { return c.Name == t.Name }) {
				tools, near = append(tools, t), append(near, similarity[i])
			}
		}
		a.Offered = prompt.Narrow(tools, near, server, k)
		return nil
	case a.Lifecycle == run.LifecycleRoute:
		return fmt.Errorf("%w: %w", errIndex, err)
	default:
		p.warn("narrow the tools of run "+s.Run, err)
		return nil
	}
}

var errDimensions = errors.New("the embedder's vectors differ in length or number")

// embedTimeout is how long embedding texts, or counting tokens, may take (seed 002, its ADR-010).
const embedTimeout = 30 * time.Second

// maxIndexed is how many definitions' vectors an index keeps.
const maxIndexed = 64

// maxEmbedded is how many bytes of a text are embedded: many models refuse more than 512 tokens.
const maxEmbedded = 2000

// ToolIndex caches the vectors of agents' tools in memory, by the digest of the definition. Correctness never depends
// on it, because the reply's fact records which tools were offered. Safe for concurrent use.
type ToolIndex struct {
	embedder Embedder

	mu      sync.Mutex
	vectors map[string][][]float32
}

// NewToolIndex returns an empty index.
func NewToolIndex(e Embedder) *ToolIndex {
	return &ToolIndex{embedder: e, vectors: map[string][][]float32{}}
}

// similarity returns the dot product of each text's vector with the query's, all of length one. The texts are those of
// the run's definition, whose vectors are computed once, or twice if two requests come at the same time.
func (x *ToolIndex) similarity(
	ctx context.Context, s *run.AgentState, by agent.Embeddings, texts []string, query string,
) ([]float64, error) {
	x.mu.Lock()
	vectors, ok := x.vectors[s.Definition]
	x.mu.Unlock()
	if !ok {
		var err error
		if vectors, err = x.embed(ctx, s.Tenant, by, texts); err != nil {
			return nil, err
		}
		x.mu.Lock()
		if len(x.vectors) >= maxIndexed {
			clear(x.vectors)
		}
		x.vectors[s.Definition] = vectors
		x.mu.Unlock()
	}
	target, err := x.embed(ctx, s.Tenant, by, []string{query})
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(vectors))
	for i, v := range vectors {
		if len(v) != len(target[0]) {
			return nil, errDimensions
		}
		for j := range v {
			out[i] += float64(v[j]) * float64(target[0][j])
		}
	}
	return out, nil
}

// embed returns the texts' vectors, each scaled to length one. A zero vector stays zero.
func (x *ToolIndex) embed(
	ctx context.Context, tenant string, by agent.Embeddings, texts []string,
) ([][]float32, error) {
	beginning := func(text string) string { return text[:policy.RuneStart(text, maxEmbedded)] }
	vectors, err := x.embedder.Embed(ctx, tenant, by, run.Map(texts, beginning))
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
		sum := 0.0
		for _, n := range v {
			sum += float64(n) * float64(n)
		}
		out[i] = make([]float32, len(v))
		for j, n := range v {
			out[i][j] = float32(float64(n) / cmp.Or(math.Sqrt(sum), 1))
		}
	}
	return out, nil
}
