package prompt

import (
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// ToolWords returns the text of a tool that a query is compared with.
func ToolWords(t agent.ToolSpec) string { return t.Name + ": " + t.Description }

// newestWords returns the newest text of a user. Reminders of plugins, answers about tools, and corrections of replies
// are skipped: a correction belongs to the same event as the model's turn before it.
func newestWords(all []run.Message) string {
	for _, m := range slices.Backward(all) {
		t, ok := m.Block.(run.Text)
		if !ok || m.Role != run.RoleUser || run.IsFromSystem(t.Text) || policy.IsPermissionText(t.Text) {
			continue
		}
		first := slices.IndexFunc(all, func(b run.Message) bool { return b.Source.SameEvent(m.Source) })
		if all[first].Role == run.RoleUser && all[first].Source.Part == 0 { // a context builder begins with a user
			return t.Text
		}
	}
	return ""
}

// Narrow chooses the tools of a request: all tools of the hinted server, then the most similar ones until there are k.
// It returns original names in order of definition. similarity has one number a tool; of equal ones the first wins.
func Narrow(tools []agent.ToolSpec, similarity []float64, server string, k int) []string {
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

// ServerOf returns the server of a tool: the part of its name before the first dot, "" if there is none.
func ServerOf(tool string) string {
	server, _, dotted := strings.Cut(tool, ".")
	if !dotted {
		return ""
	}
	return server
}

// marked returns a call, marked as not offered if it is of an agent's tool that the request did not offer. Built-in
// tools are offered to every request, except those that end the loop to a plan.
func marked(a policy.Action, d *agent.Definition, c run.RepliedCall) run.RepliedCall {
	own := slices.ContainsFunc(d.Tools, func(t agent.ToolSpec) bool { return t.Name == c.Original() })
	if (own || c.Breaks && a.Lifecycle == run.LifecycleRoute) && !a.Offers(c.Original()) {
		c.Unoffered = true
	}
	return c
}

// Narrowed adds to the event of a reply which tools its request offered, and marks calls of others.
func Narrowed(a policy.Action, d *agent.Definition, e run.Replied) run.Replied {
	if a.Offered == nil {
		return e
	}
	e.Offered = a.Offered
	e.Calls = slices.Clone(e.Calls)
	for i := range e.Calls {
		e.Calls[i] = marked(a, d, e.Calls[i])
	}
	return e
}

// BM25 (Robertson and Zaragoza, 2009) with its usual parameters.
const (
	bm25K1 = 1.2
	bm25B  = 0.75
)

// BM25 scores how well each text fits a query by the words that they share. A rare word weighs more than a common one,
// and a short text more than a long one. The score is 0 if they share no word. Equal input gives equal scores.
func BM25(texts []string, query string) []float64 {
	counts, lengths, having, total := make([]map[string]int, len(texts)), make([]int, len(texts)), map[string]int{}, 0
	for i, text := range texts {
		counts[i] = map[string]int{}
		for _, w := range searchWords(text) {
			if counts[i][w]++; counts[i][w] == 1 {
				having[w]++
			}
			lengths[i]++
		}
		total += lengths[i]
	}
	mean := float64(max(1, total)) / float64(max(1, len(texts)))
	scores := make([]float64, len(texts))
	asked := map[string]bool{}
	for _, w := range searchWords(query) { // in order, so that sums are the same to the bit
		if asked[w] || having[w] == 0 {
			continue
		}
		asked[w] = true
		n := float64(having[w])
		weight := math.Log(1 + (float64(len(texts))-n+0.5)/(n+0.5))
		for i := range texts {
			f := float64(counts[i][w])
			scores[i] += weight * f * (bm25K1 + 1) / (f + bm25K1*(1-bm25B+bm25B*float64(lengths[i])/mean))
		}
	}
	return scores
}

// searchWords returns the words of a text in lower case, without common English endings. Compound names are split at
// punctuation and capitals, and also kept whole.
func searchWords(text string) []string {
	var words []string
	for _, name := range strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		parts := humps(name)
		for _, p := range parts {
			words = append(words, stem(strings.ToLower(p)))
		}
		if len(parts) > 1 {
			words = append(words, stem(strings.ToLower(name)))
		}
	}
	return words
}

// humps splits a name at its capitals: readFile, HTTPServer.
func humps(name string) []string {
	var parts []string
	runes, from := []rune(name), 0
	for i := 1; i < len(runes); i++ {
		rises := unicode.IsUpper(runes[i]) && !unicode.IsUpper(runes[i-1])
		ends := i+1 < len(runes) && unicode.IsUpper(runes[i-1]) && unicode.IsUpper(runes[i]) && unicode.IsLower(runes[i+1])
		if rises || ends {
			parts, from = append(parts, string(runes[from:i])), i
		}
	}
	return append(parts, string(runes[from:]))
}

// stem removes the ending of a word that is long enough: files and file, listed and list, reading and read.
func stem(word string) string {
	for _, ending := range []string{"ing", "ies", "es", "ed", "s", "e"} {
		if rest, ok := strings.CutSuffix(word, ending); ok && len(rest) >= 3 {
			return rest
		}
	}
	return word
}
