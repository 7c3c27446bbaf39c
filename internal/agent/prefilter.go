package agent

import (
	"cmp"
	"slices"
	"strings"
)

// Prefilter offers a request only the tools that fit what it is about. The zero value offers all.
type Prefilter struct {
	TopK       int        `json:"topK,omitempty"` // of the loop's requests; 0 = all
	Embeddings Embeddings `json:"embeddings,omitzero"`
}

// Embeddings says by what tools are compared with what a request is about, for the loop and for the steps of a plan.
type Embeddings struct {
	Provider EmbeddingProvider `json:"provider,omitempty"` // "" = bm25
	ID       string            `json:"id,omitempty"`       // of the model; "" where none is asked
	BaseURL  string            `json:"baseURL,omitempty"`  // of provider openai; "" = OpenAI's own
	Key      string            `json:"key,omitempty"`      // of provider openai, ${secret:NAME}; "" = as for models
}

// EmbeddingProvider names who compares.
type EmbeddingProvider string

// Words that texts share, weighed, which needs no model; or vectors of a model of an OpenAI-compatible server or of Amazon
// Bedrock.
const (
	EmbeddingsBM25    EmbeddingProvider = "bm25"
	EmbeddingsOpenAI  EmbeddingProvider = "openai"
	EmbeddingsBedrock EmbeddingProvider = "bedrock"
)

// Model reports whether a model has to be asked.
func (e Embeddings) Model() bool { return e.Provider != "" && e.Provider != EmbeddingsBM25 }

func (c *checker) prefilter(at string, p Prefilter) {
	c.that(p.TopK >= 0, at+".topK", "got a number below zero, want zero or more")
	at += ".embeddings"
	oneOf(c, at+".provider", cmp.Or(p.Embeddings.Provider, EmbeddingsBM25), EmbeddingsBM25, EmbeddingsOpenAI, EmbeddingsBedrock)
	server := ModelSpec{BaseURL: p.Embeddings.BaseURL, Key: p.Embeddings.Key}
	openai := p.Embeddings.Provider == EmbeddingsOpenAI
	c.that(openai || server.BaseURL == "", at+".baseURL", "got one, want none: only provider openai has a server")
	c.that(openai || server.Key == "", at+".key", "got one, want none: only provider openai takes a key")
	c.server(at, server)
	c.that(p.Embeddings.Model() || p.Embeddings.ID == "", at+".id", "got a model, want none: bm25 asks nobody")
	c.that(!p.Embeddings.Model() || p.Embeddings.ID != "", at+".id", "got nothing, want the model's id")
}

// ToolWords is what of a tool is compared.
func ToolWords(t ToolSpec) string { return t.Name + ": " + t.Description }

// Narrow chooses the tools of a request: all of the server that is hinted at, then the most similar ones until there are k, each by its
// original name and in order of definition. Similarity is one number a tool, in that order; of equal ones the first wins.
func Narrow(tools []ToolSpec, similarity []float64, server string, k int) []string {
	chosen := map[string]bool{}
	for _, t := range tools {
		if server != "" && ServerOf(t.Name) == server {
			chosen[t.Name] = true
		}
	}
	for len(chosen) < min(k, len(tools)) {
		best := -1
		for i, t := range tools {
			if !chosen[t.Name] && (best < 0 || similarity[i] > similarity[best]) {
				best = i
			}
		}
		chosen[tools[best].Name] = true
	}
	offered := []string{}
	for _, t := range tools {
		if chosen[t.Name] {
			offered = append(offered, t.Name)
		}
	}
	return offered
}

// ServerOf is the server of a tool: what stands before the first dot of its name, "" where there is none.
func ServerOf(tool string) string {
	server, _, dotted := strings.Cut(tool, ".")
	if !dotted {
		return ""
	}
	return server
}

// offers reports whether the request of a is narrowed to other tools.
func (a Action) offers(tool string) bool { return a.Offered == nil || slices.Contains(a.Offered, tool) }

// marked is a call with the word that its tool is one of the agent's and was not offered.
func (a Action) marked(d *Definition, c RepliedCall) RepliedCall {
	if _, own := d.Tool(c.original()); own && !a.offers(c.original()) {
		c.Unoffered = true
	}
	return c
}

// Narrowed is the fact of a reply with what its request was narrowed to, and the calls marked that go beyond.
func (a Action) Narrowed(d *Definition, e Replied) Replied {
	if a.Offered == nil {
		return e
	}
	e.Offered = a.Offered
	e.Calls = slices.Clone(e.Calls)
	for i := range e.Calls {
		e.Calls[i] = a.marked(d, e.Calls[i])
	}
	return e
}
