package agent

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// SignalCategory is what a phrase in a model's text gives away.
type SignalCategory string

// The categories (semantics 4.3): three of unfinished work, three of finished work, the four of a deflection, and what is there to see.
const (
	SignalRemaining  SignalCategory = "remaining"  // something is left to do
	SignalNext       SignalCategory = "next"       // the next thing is named and not done
	SignalContinuing SignalCategory = "continuing" // it says that it goes on, and does not
	SignalAll        SignalCategory = "all"        // all of it has been done
	SignalFinished   SignalCategory = "finished"
	SignalReport     SignalCategory = "report" // what was done is summed up
	SignalAsking     SignalCategory = "asking"
	SignalOffering   SignalCategory = "offering"
	SignalNarration  SignalCategory = "narration" // what is there is described, and nothing done with it
	SignalRefusal    SignalCategory = "refusal"
	SignalPresenting SignalCategory = "presenting" // results are shown
)

// Signal is a phrase that texts are looked through for, whatever their case. A * between two of its words stands for any words there, up to
// eight, of one sentence.
type Signal struct {
	Phrase   string
	Category SignalCategory
}

// The built-in lists of semantics 4.3, in an order that means nothing. A definition may have its own in place of the first three.
var (
	incompleteSignals = signals(map[SignalCategory][]string{
		SignalRemaining: {
			"remaining", "left to process", "left to do", "files left", "items left", "more files", "more items", "not yet processed",
			"still need to", "need to rename", "yet to be processed", "not all * have been", "not every * has been", "not all done",
		},
		SignalNext:       {"next file", "next screenshot", "next item", "next step is"},
		SignalContinuing: {"continue with", "let me continue", "i'll continue", "i will continue", "will process", "proceeding to", "moving on to"},
	})
	completionSignals = signals(map[SignalCategory][]string{
		SignalAll: {
			"all * have been", "every * has been", "each * has been", "have all been", "completed all", "processed all",
		},
		SignalFinished: {
			"finished processing", "all done", "no more files", "no files remaining", "nothing remaining", "nothing left to", "task complete",
			"that's all", "i have completed", "i've completed",
		},
		SignalReport: {"here is a summary", "here's a summary", "here's what i did", "here is what i did", "here is what was done", "here's what was done", "summary of changes"},
	})
	deflectionSignals = signals(map[SignalCategory][]string{
		SignalAsking: {
			"what would you like", "how would you like", "how should i", "what should i", "would you like me to", "shall i",
			"do you want me to", "should i proceed", "what do you think", "which one", "which files", "could you clarify",
		},
		SignalOffering:  {"let me know", "i can help", "i can assist", "here are some options", "feel free to ask", "happy to help"},
		SignalNarration: {"i see the files", "i see the following", "i notice"},
		SignalRefusal: {
			"i can't do that", "i cannot do that", "i'm unable to", "i am unable to", "i don't have access", "i do not have access",
			"i'm not able to", "i am not able to",
		},
	})
	presentingSignals = signals(map[SignalCategory][]string{
		SignalPresenting: {
			"here are the results", "here is the result", "here's the result", "here are the contents", "here is the content", "here's what i found",
			"here is what i found", "the results are", "the result is", "i found the following", "the output shows",
		},
	})
)

func signals(by map[SignalCategory][]string) []Signal {
	var all []Signal
	for _, c := range slices.Sorted(maps.Keys(by)) {
		for _, phrase := range by[c] {
			all = append(all, Signal{phrase, c})
		}
	}
	return all
}

// IncompleteSignals are the built-in phrases of a text that says that work is left.
func IncompleteSignals() []Signal { return slices.Clone(incompleteSignals) }

// CompletionSignals are the built-in phrases of a text that says that the work is done, whatever else it says.
func CompletionSignals() []Signal { return slices.Clone(completionSignals) }

// DeflectionSignals are the built-in phrases of a text that asks back, offers, narrates or refuses in place of going on.
func DeflectionSignals() []Signal { return slices.Clone(deflectionSignals) }

// PresentingSignals are the phrases of a text that shows results, which is none of a deflection.
func PresentingSignals() []Signal { return slices.Clone(presentingSignals) }

// deferring is what hands the turn back to the user, and so is no presentation.
func (s Signal) deferring() bool { return s.Category == SignalAsking || s.Category == SignalOffering }

// phrasesOf is a definition's own list, or the built-in one where it has none.
func phrasesOf(own []string, builtin []Signal) []string {
	if len(own) > 0 {
		return own
	}
	return phrases(builtin, func(Signal) bool { return true })
}

func phrases(all []Signal, which func(Signal) bool) []string {
	var out []string
	for _, s := range all {
		if which(s) {
			out = append(out, s.Phrase)
		}
	}
	return out
}

// folded is text as phrases are looked for in it: without regard to case, as strings.EqualFold has it, and with one kind of apostrophe.
func folded(text string) string { return strings.Map(foldRune, text) }

// foldRune is caseFold, and one kind of apostrophe.
func foldRune(r rune) rune {
	switch {
	case r == '’' || r == 'ʼ':
		return '\''
	case r < 'A': // digits, spaces and most of what stands between words have no case
		return r
	}
	return caseFold(r)
}

// caseFold is the smallest of the runes that are r in another case, as strings.EqualFold has it.
func caseFold(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	return least
}

// says reports whether one of the phrases stands in a folded text.
func says(text string, list []string) bool {
	return slices.ContainsFunc(list, func(phrase string) bool { return pattern(phrase).MatchString(text) })
}

// anyWords is what * stands for in a phrase: up to eight words, none of which ends a sentence.
const anyWords = `(?:\S*[^\s.!?;:]\s+){0,8}`

// pattern finds a phrase in a folded text: a plain one wherever its characters stand, one with * where its first word begins.
func pattern(phrase string) *regexp.Regexp {
	parts := strings.Split(folded(phrase), " * ")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	re := strings.Join(parts, `\s+`+anyWords)
	if len(parts) > 1 {
		re = `\b` + re
	}
	return regexp.MustCompile(re) // quoted text always compiles
}

// Words that make a built-in phrase of completion no such thing: before it, and in the place of its *.
var (
	withholds = regexp.MustCompile(`(?i)(?:\b(?:not|cannot|never|nearly|almost|until|till|unless|before|once|when|if|after)|n't)(?:\s+(?:yet|quite))?\s+$`)
	restricts = regexp.MustCompile(`(?i)\b(?:not|that|which)\b`)
)

// completed reports whether a folded text says by a built-in phrase that the work is done, and does not take that back: "not all of them have
// been renamed", "until all files have been renamed", "all files that have been renamed".
func completed(text string) bool {
	for _, s := range completionSignals {
		for _, at := range pattern(s.Phrase).FindAllStringIndex(text, -1) {
			said := text[at[0]:at[1]]
			restricted := strings.Contains(s.Phrase, "*") && restricts.MatchString(said)
			if !restricted && !withholds.MatchString(text[:at[0]]) {
				return true
			}
		}
	}
	return false
}
