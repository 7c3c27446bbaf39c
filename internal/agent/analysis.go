package agent

import (
	"fmt"
	"strings"
)

// TextPolicy says what a reply without calls is worth.
type TextPolicy string

// The last word; the last word unless it reads as unfinished, as a deflection, or says nothing (seed 002); or never the last word, because
// only a loop-breaking tool ends the run (seed 004). "" = final.
const (
	TextFinal       TextPolicy = "final"
	TextHeuristic   TextPolicy = "heuristic"
	TextRequireTool TextPolicy = "require_tool"
)

// Analysis tunes TextHeuristic. Lists hold phrases that are looked for without regard to case, with * between two words for up to eight others
// of one sentence; nil or empty = the built-in ones. The zero value of a number is its preset's.
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
			c.that(len(phrase) <= maxPhrase, fmt.Sprintf("%s.%s[%d]", at, l.key, i),
				fmt.Sprintf("got %d bytes, want at most %d: a phrase is a few words that stand in a text", len(phrase), maxPhrase))
		}
	}
}

// maxPhrase bounds a phrase of a definition, in bytes, and with it the expression that finds it.
const maxPhrase = 200

// CorrectionKind is what a policy found in a reply that is not the last word, for who shows it. "" = it was cut short, or is no output.
type CorrectionKind string

// The findings of TextHeuristic (semantics 4.2, 4.3).
const (
	KindIncomplete CorrectionKind = "incomplete" // it says that work is left
	KindDeflection CorrectionKind = "deflection" // it asks back, offers, narrates or refuses
	KindEmpty      CorrectionKind = "empty"      // neither text nor calls
)

// shortQuestion is how long, in bytes, a text with a question mark is that is taken for a question by that alone.
const shortQuestion = 300

// Read says what a text is taken for that came without calls; "" = a last word. It looks for what is incomplete first, then for
// deflections, and for these only where they are suspected; a text that says that the work is complete is neither (semantics 4.3).
func (a Analysis) Read(text string, suspected bool) CorrectionKind {
	text = folded(text)
	switch {
	case len(a.Completion) == 0 && completed(text) || says(text, a.Completion):
		return ""
	case says(text, phrasesOf(a.Incomplete, incompleteSignals)):
		return KindIncomplete
	case suspected && !presents(text) && a.deflects(text):
		return KindDeflection
	default:
		return ""
	}
}

// deflects reports whether a folded text asks back, offers, narrates or refuses, or is a short question of whatever words.
func (a Analysis) deflects(text string) bool {
	return says(text, phrasesOf(a.Deflection, deflectionSignals)) || len(text) < shortQuestion && strings.Contains(text, "?")
}

// presents reports whether a folded text shows results and leaves it at that.
func presents(text string) bool {
	return says(text, phrases(presentingSignals, func(Signal) bool { return true })) && !strings.Contains(text, "?") &&
		!says(text, phrases(deflectionSignals, Signal.deferring))
}

// Tally is what TextHeuristic remembers of a run. It is committed with the replies that change it.
type Tally struct {
	Entered     int `json:"entered,omitempty"`   // calls whose tool was entered, of each round as it stood when the model answered it
	Deflections int `json:"deflected,omitempty"` // how often one was sent back
	Empty       int `json:"empty,omitempty"`     // empty replies in a row, the newest included
}

// tallied is the tally of a reply to s that says something: the round before it has come back.
func tallied(s *AgentState) Tally {
	t := s.Tally
	t.Empty = 0
	for _, c := range s.returned() {
		if c.Executions > 0 {
			t.Entered++
		}
	}
	return t
}

// remember puts the tally into the fact, where it is another than s has.
func (t Tally) remember(s *AgentState, e Replied) Replied {
	e.Tally = nil
	if t != s.Tally {
		e.Tally = &t
	}
	return e
}

// returned are the calls of the round that the newest inference asked for, nil where it asked for none.
func (s *AgentState) returned() []Call {
	if s.Inferences == 0 || s.Round.Inference != s.Prior+s.Inferences {
		return nil
	}
	return s.newest()
}

// analysed reports whether the heuristic has a say about a planned reply to s. Nobody asks to go on who is about to stop, or to park.
func analysed(s *AgentState, e Replied) bool {
	return !e.Summary && e.Halt == nil && s.openCall() == nil
}

// judgeEmpty has an empty reply answered with a nudge that stands in the next request alone, as the reply stands nowhere; so many of them
// in a row leave the loop.
func judgeEmpty(d *Definition, s *AgentState, e Replied) Replied {
	if !analysed(s, e) || strings.TrimSpace(stitched(s, e.Text)) != "" {
		return e
	}
	t := tallied(s)
	t.Empty = s.Tally.Empty + 1
	e.Text, e.Reasoning = "", nil
	e.Correction = &Correction{Lifecycle: LifecycleNudge, Ephemeral: true, Kind: KindEmpty, Text: d.word(wordEmptyFirst, nil)}
	switch {
	case t.Empty >= d.Analysis.EmptyReplies:
		e.Correction.Lifecycle, e.Correction.Text = LifecycleSummary, fmt.Sprintf("%d empty replies in a row", t.Empty)
	case t.Entered > 0:
		e.Correction.Text = d.word(wordEmptyAfterTools, nil)
	}
	return t.remember(s, e)
}

// judgeText sends back a text that reads as unfinished or as a deflection, with the conversation going on behind it. There is no cap of its
// own on how often the model is told to go on: the limits are. Where they leave no request to tell it in, what was said is the last word.
func judgeText(d *Definition, s *AgentState, e Replied) Replied {
	if !analysed(s, e) || noneLeft(d, s, e) && d.Limits.OnLimit != OnLimitSummarise {
		return e
	}
	t := tallied(s)
	suspected := t.Entered > 0 && t.Entered < d.Analysis.TrustGate && t.Deflections < d.Analysis.DeflectionRetries
	key := wordIncomplete
	why := d.Analysis.Read(stitched(s, e.Text), suspected)
	switch why {
	case "":
		return e
	case KindDeflection:
		t.Deflections++
		key = wordDeflection
	}
	e.Correction = &Correction{
		Lifecycle: LifecycleNudge, Text: d.word(key, nil), Ephemeral: d.Corrections == CorrectionsEphemeral, Kind: why,
	}
	return t.remember(s, e)
}

// The wordings of the heuristic.
const (
	wordIncomplete      = "incomplete"
	wordDeflection      = "deflection"
	wordEmptyFirst      = "emptyFirst"
	wordEmptyAfterTools = "emptyAfterTools"
)

// wordingsOfAnalysis are what a model is told of replies that read as no last word.
var wordingsOfAnalysis = []Wording{
	{
		Key: wordIncomplete, About: "to a model whose text says that work is left",
		Text:    "You stopped before finishing. Continue processing the remaining items.",
		Presets: map[Preset]string{PresetCowork: "You stopped before finishing. Continue processing the remaining files."},
	},
	{
		Key: wordDeflection, About: "to a model that asks, offers, narrates or refuses in place of going on",
		Text: "Do not ask questions. Continue executing the task.",
	},
	{
		Key: wordEmptyFirst, About: "to a model that said nothing before any tool had run",
		Text: "You said nothing. Begin with the task: call the tools it needs, or answer it.",
	},
	{
		Key: wordEmptyAfterTools, About: "to a model that said nothing after tools had run",
		Text: "You said nothing. Go on from the results above: call the next tool, or say what was done.",
	},
}
