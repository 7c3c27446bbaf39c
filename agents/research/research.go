// Package research is the tools of the agents that look things up: search in a small corpus, and read one of its
// documents. The documents are the notes of a shop that is made up; put your own in their place.
package research

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/countersign/countersign/pkg/agent"
)

//go:embed corpus/*.md
var notes embed.FS

// document is a note. Its first line is its title.
type document struct {
	name, title, text string
	words             map[string]bool
}

// corpus is the documents, by name.
type corpus []document

func read() (corpus, error) {
	files, err := notes.ReadDir("corpus")
	if err != nil {
		return nil, err
	}
	var c corpus
	for _, f := range files {
		text, err := notes.ReadFile("corpus/" + f.Name())
		if err != nil {
			return nil, err
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
		c = append(c, document{strings.TrimSuffix(f.Name(), ".md"), title, string(text), words(string(text))})
	}
	return c, nil
}

// Tools are corpus.search and corpus.read.
func Tools() ([]agent.Tool, error) {
	c, err := read()
	if err != nil {
		return nil, fmt.Errorf("make research tools: read the corpus: %w", err)
	}
	search, noSearch := agent.NewTool("corpus.search",
		"Finds the documents that fit a question best, with how each begins.", agent.EffectRead, c.search, nil)
	one, noRead := agent.NewTool("corpus.read", "Returns a whole document.", agent.EffectRead, c.read, nil)
	if err := errors.Join(noSearch, noRead); err != nil {
		return nil, fmt.Errorf("make research tools: %w", err)
	}
	return []agent.Tool{search, one}, nil
}

type searchInput struct {
	Query string `json:"query" jsonschema:"minLength=1" jsonschema_description:"a few words"`
	Limit int    `json:"limit,omitempty" jsonschema:"minimum=1,maximum=10,description=how many; 3 where it is left out"`
}

type readInput struct {
	Document string `json:"document" jsonschema_description:"its name, as corpus_search gives it"`
}

// usualHits is how many documents corpus.search gives where the model does not say, beginning the characters of each
// that it shows.
const (
	usualHits = 3
	beginning = 160
)

type hit struct {
	Document string `json:"document"`
	Title    string `json:"title"`
	Begins   string `json:"begins"`
	score    float64
}

// words are the distinct words of a text.
func words(text string) map[string]bool {
	all := map[string]bool{}
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		all[w] = true
	}
	return all
}

// search ranks documents by the words that they share with the query: one that few documents have counts for more. A
// document that shares no word is none of the hits.
func (c corpus) search(_ context.Context, _ agent.Call, in searchInput) (agent.Result, error) {
	scores := make([]float64, len(c))
	for _, word := range slices.Sorted(maps.Keys(words(in.Query))) { // sums of floats depend on the order
		var in []int // documents
		for i, d := range c {
			if d.words[word] {
				in = append(in, i)
			}
		}
		for _, i := range in {
			scores[i] += 1 / float64(len(in))
		}
	}
	hits := []hit{}
	for i, score := range scores {
		if score > 0 {
			hits = append(hits, hit{c[i].name, c[i].title, begins(c[i].text), score})
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(b.score, a.score) })
	return agent.JSONResult(hits[:min(cmp.Or(in.Limit, usualHits), len(hits))])
}

// begins is how a document begins behind its title, on one line.
func begins(text string) string {
	_, body, _ := strings.Cut(text, "\n")
	r := []rune(strings.Join(strings.Fields(body), " "))
	if len(r) <= beginning {
		return string(r)
	}
	return string(r[:beginning]) + "…"
}

func (c corpus) read(_ context.Context, _ agent.Call, in readInput) (agent.Result, error) {
	i := slices.IndexFunc(c, func(d document) bool { return d.name == in.Document })
	if i < 0 {
		return agent.Result{}, agent.Refuse("There is no document %s.", in.Document)
	}
	return agent.TextResult(c[i].text), nil
}
