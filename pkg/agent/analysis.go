package agent

import "fmt"

// TextPolicy says what a reply without calls is worth.
type TextPolicy string

// The last word; the last word unless it reads as unfinished, as a deflection, or says nothing (seed 002); or never the last word, because
// only a loop-breaking tool ends the run (seed 004). "" = final.
const (
	TextFinal       TextPolicy = "final"
	TextHeuristic   TextPolicy = "heuristic"
	TextRequireTool TextPolicy = "require_tool"
)

// Analysis tunes TextHeuristic. Lists hold phrases that are looked for without regard to case; nil or empty = the built-in ones. The
// zero value of a number is its preset's.
type Analysis struct {
	Incomplete []string `json:"incomplete,omitempty"` // a text that says so is gone on with
	Completion []string `json:"completion,omitempty"` // a text that says so is finished, whatever else it says
	Deflection []string `json:"deflection,omitempty"` // a text that says so asks back, offers, narrates or refuses

	DeflectionRetries int `json:"deflectionRetries,omitempty"` // how often a run sends a deflection back; then it is accepted
	EmptyReplies      int `json:"emptyReplies,omitempty"`      // so many in a row force the summary
	TrustGate         int `json:"trustGate,omitempty"`         // from so many calls on, no text is taken for a deflection
}

// or is a with q's numbers where it has none.
func (a Analysis) or(q Analysis) Analysis {
	if a.DeflectionRetries == 0 {
		a.DeflectionRetries = q.DeflectionRetries
	}
	if a.EmptyReplies == 0 {
		a.EmptyReplies = q.EmptyReplies
	}
	if a.TrustGate == 0 {
		a.TrustGate = q.TrustGate
	}
	return a
}

func defaultAnalysis() Analysis { return Analysis{DeflectionRetries: 3, EmptyReplies: 2, TrustGate: 3} }

func (c *checker) analysis(at string, a Analysis) {
	for _, n := range []struct {
		key string
		got int
	}{{"deflectionRetries", a.DeflectionRetries}, {"emptyReplies", a.EmptyReplies}, {"trustGate", a.TrustGate}} {
		c.that(n.got >= 0, at+"."+n.key, fmt.Sprintf("got %d, want zero or more", n.got))
	}
	for _, l := range []struct {
		key  string
		list []string
	}{{"incomplete", a.Incomplete}, {"completion", a.Completion}, {"deflection", a.Deflection}} {
		for i, phrase := range l.list {
			c.that(phrase != "", fmt.Sprintf("%s.%s[%d]", at, l.key, i), "got nothing, want a phrase")
		}
	}
}
