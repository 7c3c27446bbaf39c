package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// shortQuestion is the length, in bytes, below which a text with a question mark always counts as a question.
const shortQuestion = 300

// The findings of TextHeuristic (presets 7).
const (
	KindIncomplete run.CorrectionKind = "incomplete" // it says that work is left
	KindDeflection run.CorrectionKind = "deflection" // it asks back, offers, narrates or refuses
	KindEmpty      run.CorrectionKind = "empty"      // neither text nor calls
)

// The faults of a reply that the breaker counts: no call at all under TextRequireTool; in DialectXML tool tags without
// a valid call, or a call without the name of its server or tool.
const (
	KindNoToolCall   run.CorrectionKind = "no_tool_call"
	KindMalformed    run.CorrectionKind = "malformed"
	KindMissingField run.CorrectionKind = "missing_field"
)

// ClassifyText classifies a text that came without calls. "" means that it is a final answer. It looks for unfinished
// work first, then, only if suspected, for deflections. A text that says that the work is complete is neither (presets
// 7).
func ClassifyText(a agent.Analysis, text string, suspected bool) run.CorrectionKind {
	text = agent.FoldCase(text)
	switch {
	case len(a.Completion) == 0 && saysCompleted(text) || containsPhrase(text, a.Completion):
		return ""
	case containsPhrase(text, ownOr(a.Incomplete, incompletePhrases)):
		return KindIncomplete
	case !suspected:
		return ""
	}
	asks := strings.Contains(text, "?")
	switch {
	case !asks && containsPhrase(text, presentingPhrases) && !containsPhrase(text, deferringPhrases):
		return "" // it shows results and leaves it at that
	case asks && len(text) < shortQuestion, containsPhrase(text, ownOr(a.Deflection, deflectionPhrases)):
		return KindDeflection
	default:
		return ""
	}
}

// tally is what the text heuristic remembers of a run.
type tally struct {
	// calls whose tool was entered, of each round as it stood when the model answered it
	Entered     int `json:"entered,omitempty"`
	Deflections int `json:"deflected,omitempty"` // how often a deflection was sent back
}

const tallyMemory = "tally"

// nextTally returns the tally after a reply to s.
func nextTally(s *run.AgentState) tally {
	t := recall[tally](s, tallyMemory)
	for _, c := range newestRoundCalls(s) {
		if c.Executions > 0 {
			t.Entered++
		}
	}
	return t
}

// newestRoundCalls returns the calls that the newest inference asked for; nil if it asked for none.
func newestRoundCalls(s *run.AgentState) []run.Call {
	if s.Inferences == 0 || s.Round.Inference != s.Prior+s.Inferences {
		return nil
	}
	return modelCalls(s)
}

// modelCalls returns the calls of the newest round without those with which the run asked for more budget, which no
// model made or is told about.
func modelCalls(s *run.AgentState) []run.Call {
	all, forBudget := s.Newest(), func(c run.Call) bool { return c.Budget }
	if slices.ContainsFunc(all, forBudget) {
		all = slices.DeleteFunc(slices.Clone(all), forBudget)
	}
	return all
}

// isAnalysed reports whether the text heuristic judges a planned reply to s. It judges none after which the run stops
// or parks.
func isAnalysed(s *run.AgentState, e run.Replied) bool {
	return !e.Summary && e.Halt == nil && s.OpenCall() == nil
}

// judgeEmptyReply answers an empty reply with a nudge, which only the next request contains. The conversation keeps
// neither. After too many empty replies in a row the run leaves its loop.
func judgeEmptyReply(d *agent.Definition, s *run.AgentState, e run.Replied) run.Replied {
	if !isAnalysed(s, e) || strings.TrimSpace(spoken(d, s, e)) != "" {
		return e
	}
	e.Text, e.Reasoning = "", nil
	e.Correction = &run.Correction{Lifecycle: run.LifecycleNudge, Ephemeral: true, Kind: KindEmpty,
		Text: d.Word(agent.WordEmptyFirst, nil)}
	r := streaksAfter(d, s, e)
	switch {
	case isOverLimit(d, r, emptyReplies):
		e.Correction.Lifecycle = run.LifecycleSummary
		e.Correction.Text = fmt.Sprintf("%d empty replies in a row", r.times(emptyReplies))
	case nextTally(s).Entered > 0:
		e.Correction.Text = d.Word(agent.WordEmptyAfterTools, nil)
	}
	return withMemory(d, s, e)
}

// judgeText sends back a text that reads as unfinished or as a deflection, and the conversation goes on. Only the run's
// limits bound how often that happens. If they leave no further request, the text is the final answer.
func judgeText(d *agent.Definition, s *run.AgentState, e run.Replied) run.Replied {
	if !isAnalysed(s, e) || isLastInference(d, s, e) && d.Limits.OnLimit != agent.OnLimitSummarise {
		return e
	}
	t := nextTally(s)
	suspected := t.Entered > 0 && t.Entered < d.Analysis.TrustGate && t.Deflections < d.Analysis.DeflectionRetries
	key := agent.WordIncomplete
	why := ClassifyText(d.Analysis, spoken(d, s, e), suspected)
	switch why {
	case "":
		return e
	case KindDeflection:
		t.Deflections++
		key = agent.WordDeflection
	}
	e.Correction = &run.Correction{
		Lifecycle: run.LifecycleNudge, Text: d.Word(key, nil), Ephemeral: d.Corrections == agent.CorrectionsEphemeral,
		Kind: why,
	}
	return remember(e, tallyMemory, t)
}

// The built-in phrases (presets 7) that a text is searched for, whatever its case. A * between two words stands for up
// to eight words of one sentence. A definition may replace the phrases for unfinished work, finished work and
// deflections.
var (
	// work is left, the next thing is named and not done, or it says that it goes on, and does not
	incompletePhrases = []string{
		"remaining", "left to process", "left to do", "files left", "items left", "more files", "more items",
		"not yet processed", "still need to", "need to rename", "yet to be processed", "not all * have been",
		"not every * has been", "not all done", "next file", "next screenshot", "next item", "next step is",
		"continue with", "let me continue", "i'll continue", "i will continue", "will process", "proceeding to",
		"moving on to",
	}
	// all of it has been done, or what was done is summed up
	completionPhrases = []string{
		"all * have been", "every * has been", "each * has been", "have all been", "completed all", "processed all",
		"finished processing", "all done", "no more files", "no files remaining", "nothing remaining",
		"nothing left to", "task complete", "that's all", "i have completed", "i've completed", "here is a summary",
		"here's a summary", "here's what i did", "here is what i did", "here is what was done",
		"here's what was done", "summary of changes",
	}
	// it hands the turn back to the user: it asks or offers
	deferringPhrases = []string{
		"what would you like", "how would you like", "how should i", "what should i", "would you like me to",
		"shall i", "do you want me to", "should i proceed", "what do you think", "which one", "which files",
		"could you clarify", "let me know", "i can help", "i can assist", "here are some options",
		"feel free to ask", "happy to help",
	}
	// it asks, offers, describes what is there and does nothing with it, or refuses
	deflectionPhrases = slices.Concat(deferringPhrases, []string{
		"i see the files", "i see the following", "i notice", "i can't do that", "i cannot do that", "i'm unable to",
		"i am unable to", "i don't have access", "i do not have access", "i'm not able to", "i am not able to",
	})
	// results are shown
	presentingPhrases = []string{
		"here are the results", "here is the result", "here's the result", "here are the contents",
		"here is the content", "here's what i found", "here is what i found", "the results are", "the result is",
		"i found the following", "the output shows",
	}
)

// ownOr returns a definition's own list, or the built-in one if it has none.
func ownOr(own, builtin []string) []string {
	if len(own) > 0 {
		return own
	}
	return builtin
}

// containsPhrase reports whether a case-folded text contains one of the phrases.
func containsPhrase(text string, list []string) bool {
	return slices.ContainsFunc(list, func(phrase string) bool { return pattern(phrase).MatchString(text) })
}

// anyWords is the pattern for * in a phrase: up to eight words, none of which ends a sentence.
const anyWords = `(?:\S*[^\s.!?;:]\s+){0,8}`

// pattern returns the expression that finds a phrase in a case-folded text: a plain phrase anywhere, one with * at the
// start of a word.
func pattern(phrase string) *regexp.Regexp {
	parts := run.Map(strings.Split(agent.FoldCase(phrase), " * "), regexp.QuoteMeta)
	re := strings.Join(parts, `\s+`+anyWords)
	if len(parts) > 1 {
		re = `\b` + re
	}
	return regexp.MustCompile(re) // quoted text always compiles
}

// Words that negate a built-in completion phrase: withholds matches before the phrase, restricts in place of its *.
var (
	withholds = regexp.MustCompile(`(?i)(?:\b(?:not|cannot|never|nearly|almost|until|till|unless|before|once|when|if|` +
		`after)|n't)(?:\s+(?:yet|quite))?\s+$`)
	restricts = regexp.MustCompile(`(?i)\b(?:not|that|which)\b`)
)

// longestWithheld is how many bytes before a phrase are searched for withholds.
const longestWithheld = 64

// saysCompleted reports whether a case-folded text says with a built-in phrase that the work is done, without taking it
// back: "not all of them have been renamed", "until all files have been renamed", "all files that have been renamed".
func saysCompleted(text string) bool {
	for _, phrase := range completionPhrases {
		for _, at := range pattern(phrase).FindAllStringIndex(text, -1) {
			said := text[at[0]:at[1]]
			restricted := strings.Contains(phrase, "*") && restricts.MatchString(said)
			before := text[max(0, at[0]-longestWithheld):at[0]] // bounded, because a model may repeat the phrase very often
			if !restricted && !withholds.MatchString(before) {
				return true
			}
		}
	}
	return false
}
