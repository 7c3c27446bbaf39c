package agent

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// maxDuplicates is how many replies in a row may do nothing but repeat calls before the loop is left (semantics 4.2).
const maxDuplicates = 2

// circles reports whether the model does nothing but repeat calls. Who has spoken to it since has broken the circle.
func circles(d *Definition, s *AgentState) bool {
	return d.Guards.DuplicateCalls && len(s.returned()) > 0 && newestWatch(d, s).Duplicates >= maxDuplicates && !s.spokenTo()
}

// markRepeats notes of a reply's calls what they repeat, where every one of them does: a model that also does something new is not going
// in circles. What people say in between is a reason to do a thing again.
func markRepeats(d *Definition, s *AgentState, calls []RepliedCall) {
	if !d.Guards.DuplicateCalls || s.spokenTo() {
		return
	}
	found := make([]string, len(calls))
	for i, c := range calls {
		if found[i] = s.repeated(c); found[i] == "" {
			return
		}
	}
	for i := range calls {
		calls[i].Repeats = found[i]
	}
}

// repeated is the call that a planned one repeats, "" where it repeats none: the same tool with the same arguments in the round directly
// before, which succeeded, or was refused as a duplicate itself, and beside which nothing else was done. A call that failed may be tried
// again, and one that looks may look again after something was done; who asks without any argument asks how things stand now, the time or
// what is new, and may do so as often as it likes. Calls of one reply do not repeat each other: the model had the result of none.
func (s *AgentState) repeated(c RepliedCall) string {
	if string(c.Input) == "{}" && (c.Effect == EffectRead || c.Effect == EffectIdempotent) {
		return ""
	}
	same := func(b Call) bool {
		return b.Tool == c.original() && b.Name == c.Name && (bytes.Equal(b.Input, c.Input) || canonicalText(b.Input) == canonicalText(c.Input))
	}
	found := ""
	for _, b := range s.returned() {
		switch {
		case b.Reason == WhyDuplicate && same(b):
			found = b.Repeats
		case b.Status == StatusSucceeded && same(b) && found == "":
			found = b.ID
		case b.Status == StatusSucceeded && !same(b) && b.Effect != EffectRead:
			return ""
		}
	}
	return found
}

// spokenTo reports whether anybody but tools has said something that no inference has carried.
func (s *AgentState) spokenTo() bool {
	all := s.Messages.All()
	for i := len(all) - 1; i >= 0 && all[i].Seen(s.Inferences) == 0; i-- {
		if _, said := all[i].Block.(Text); said {
			return true
		}
	}
	return false
}

// closestNames bounds how many tools are suggested for one that does not exist.
const closestNames = 3

// longestName bounds, in runes, what is compared of a name that a model made up. Tools' own are shorter.
const longestName = 64

// closest are the names most like one that no tool has, best first (semantics 4.2): the same but for case and separators, then the same
// but for a prefix, then those of which at most half would have to be changed. A tool never runs under a name that is not its own: rules,
// approvals and the journal go by names.
func closest(asked string, names []string) []string {
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

// Closest are the names, at most three, that are most like what somebody has written, best first; none where none is.
func Closest(written string, names []string) []string { return closest(written, names) }

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
	r := []rune(folded(name))
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
	return " " + d.word(wordClosestTool, map[string]any{"Names": strings.Join(names, " or ")})
}
