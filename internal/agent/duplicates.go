package agent

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
)

// closestNames bounds how many tools are suggested for one that does not exist.
const closestNames = 3

// longestName bounds, in runes, what is compared of a name that a model made up. Tools' own are shorter.
const longestName = 64

// Closest are the names most like one that no tool has, best first (semantics 4.2): the same but for case and separators, then the same
// but for a prefix, then those of which at most half would have to be changed. A tool never runs under a name that is not its own: rules,
// approvals and the journal go by names.
func Closest(asked string, names []string) []string {
	type match struct {
		name  string
		score float64
	}
	var found []match
	for _, name := range names {
		if score := alike(asked, name); score >= 0.5 {
			found = append(found, match{name, score})
		}
	}
	slices.SortStableFunc(found, func(a, b match) int { return cmp.Compare(b.score, a.score) })
	out := make([]string, 0, closestNames)
	for _, m := range found[:min(len(found), closestNames)] {
		out = append(out, m.name)
	}
	return out
}

// alike is how much two names have in common: 3 where they differ in case and separators alone, 2 where one is the other behind a prefix,
// and else from 0 to 1 the share of the longer one that need not be changed.
func alike(asked, name string) float64 {
	a, b := bare(asked), bare(name)
	switch {
	case len(a) == 0 || len(b) == 0:
		return 0
	case slices.Equal(a, b):
		return 3
	case strings.HasSuffix(string(b), "_"+string(a)) || strings.HasSuffix(string(a), "_"+string(b)):
		return 2
	default:
		return 1 - float64(distance(a, b))/float64(max(len(a), len(b)))
	}
}

// bare is a name without regard to case and to what separates its words, bounded.
func bare(name string) []rune {
	r := []rune(Folded(name))
	r = r[:min(len(r), longestName)]
	for i, c := range r {
		if strings.ContainsRune(".-/: ", c) {
			r[i] = '_'
		}
	}
	return r
}

// distance is how many runes have to be changed, added or taken away to make b of a (Levenshtein).
func distance(a, b []rune) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i, ca := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j, cb := range b {
			change := diagonal
			if ca != cb {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// textClosest suggests names, "" where there are none.
func textClosest(d *Definition, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " " + d.Word(wordClosestTool, map[string]any{"Names": strings.Join(names, " or ")})
}

// The bounds of delegation where a definition says none, and how many runs the calls of one run may be in all.
const (
	MaxChildren = 64
)

// AgentNamed is nil where there is no such agent.
func AgentNamed(find func(name string) (*Definition, bool), name string) *Definition {
	if find == nil {
		return nil
	}
	if d, ok := find(name); ok {
		return d
	}
	return nil
}

// Priced reports whether it is known what each of the agent's models costs.
func (d *Definition) Priced() bool {
	unpriced := func(m ModelSpec) bool { return m.Price == nil }
	return !slices.ContainsFunc(d.Model.Chain(), unpriced) && !slices.ContainsFunc(d.Orchestrator.models(), func(m planModel) bool { return unpriced(*m.spec) })
}

// Throughout is the agent with the provider, id, base URL and file of m in place of its models', and of those of every agent below it.
// What its own model costs and its settings stay.
func (d Definition) Throughout(m ModelSpec) Definition {
	d.Model.Provider, d.Model.ID, d.Model.BaseURL, d.Model.File, d.Model.Fallbacks = m.Provider, m.ID, m.BaseURL, m.File, nil
	d.Orchestrator.Planner, d.Orchestrator.Router = nil, nil
	d.Below = &m
	return d
}

// Within is the agent whose tools are confined to a folder, an absolute path, and whose programs start there, and so of every agent below it.
func (d Definition) Within(folder string) Definition {
	d.Folder, d.Tools, d.MCP = folder, slices.Clone(d.Tools), slices.Clone(d.MCP)
	for i := range d.Tools {
		d.Tools[i].Root = folder
	}
	for i := range d.MCP {
		if len(d.MCP[i].Command) > 0 {
			d.MCP[i].Dir = folder
		}
	}
	return d
}

// Folded is text as phrases are looked for in it: without regard to case, as strings.EqualFold has it, and with one kind of apostrophe.
func Folded(text string) string { return strings.Map(foldRune, text) }

// foldRune is caseFold, and one kind of apostrophe.
func foldRune(r rune) rune {
	switch {
	case r == '’' || r == 'ʼ':
		return '\''
	case r < 'A': // digits, spaces and most of what stands between words have no case
		return r
	}
	return CaseFold(r)
}

// CaseFold is the smallest of the runes that are r in another case, as strings.EqualFold has it.
func CaseFold(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	return least
}
