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
	"github.com/countersign/countersign/internal/plan"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// Embedder makes vectors of texts with the model that a definition names, one each and in order, all of one length. The
// tenant is whose key is used. Safe for concurrent use.
type Embedder interface {
	Embed(ctx context.Context, tenant string, by agent.Embeddings, texts []string) ([][]float32, error)
}

// errIndex says that an agent's tools could not be compared with what a request is about.
var errIndex = errors.New("compare tools")

// narrow narrows the request for a to the tools that fit it. A loop whose tools cannot be compared is offered all of
// them; the error for a step is errIndex, or the context's.
func (p Ports) narrow(ctx context.Context, def *agent.Definition, s *run.AgentState, a *policy.Action) error {
	query, server, k, narrows := plan.Narrowing(def, s, *a)
	if !narrows {
		return nil
	}
	texts := make([]string, len(def.Tools))
	for i, t := range def.Tools {
		texts[i] = plan.ToolWords(t)
	}
	var similarity []float64
	var err error
	switch {
	case !def.Prefilter.Embeddings.Model():
		similarity = plan.BM25(texts, query)
	case p.Index == nil:
		err = errors.New("nobody embeds texts here")
	default:
		limited, cancel := p.Clock.WithTimeout(ctx, embedTimeout)
		defer cancel()
		similarity, err = p.Index.similarity(limited, s, def.Prefilter.Embeddings, texts, query)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		can := policy.Offered(def, s, *a) // a tool that is withdrawn, hidden or disabled takes no place
		var tools []agent.ToolSpec
		var near []float64
		for i, t := range def.Tools {
			if slices.ContainsFunc(can, func(c agent.ToolSpec) bool { return c.Name == t.Name }) {
				tools, near = append(tools, t), append(near, similarity[i])
			}
		}
		a.Offered = plan.Narrow(tools, near, server, k)
		return nil
	case a.Lifecycle == run.LifecycleRoute:
		return fmt.Errorf("%w: %w", errIndex, err)
	default:
		p.warn("narrow the tools of run "+s.Run, err)
		return nil
	}
}

var errDimensions = errors.New("the embedder's vectors differ in length or number")

// embedTimeout is how long texts may take to be embedded (seed 002, ADR-010 there).
const embedTimeout = 30 * time.Second

// maxIndexed is how many definitions' tools an index keeps the vectors of.
const maxIndexed = 64

// ToolIndex keeps the vectors of agents' tools for as long as the process lives, by the digest of the definition. It is
// never a matter of correctness: what a request was narrowed to is part of the reply's fact. Safe for concurrent use.
type ToolIndex struct {
	embedder Embedder

	mu      sync.Mutex
	vectors map[string][][]float32
}

// NewToolIndex makes an index that is empty.
func NewToolIndex(e Embedder) *ToolIndex {
	return &ToolIndex{embedder: e, vectors: map[string][][]float32{}}
}

// similarity is the dot product of each text's vector with the query's, all of length one. The texts are those of the
// run's definition; their vectors are made once for it, or twice at the same time.
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
	asked, err := x.embed(ctx, s.Tenant, by, []string{query})
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

// embed makes the texts' vectors, each of length one. A vector that is all zeros stays so.
func (x *ToolIndex) embed(
	ctx context.Context, tenant string, by agent.Embeddings, texts []string,
) ([][]float32, error) {
	vectors, err := x.embedder.Embed(ctx, tenant, by, texts)
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
