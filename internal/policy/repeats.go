package policy

import (
	"bytes"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// This file is the one detector of repetition. It counts how often in a row the same has happened and compares the
// count with a limit:
//
//	| streak           | counts                              | what ends it              | limit                    |
//	| error_rounds     | rounds of nothing but errors        | another round             | stop.consecutiveErrors   |
//	| failed_rounds    | rounds of nothing but own failures  | another round, the hint   | guards.failedRounds      |
//	| duplicate_rounds | rounds of nothing but duplicates    | another round, a summary  | guards.duplicateCalls: 2 |
//	| failing:TOOL     | rounds in which the tool failed     | a round where it succeeds | guards.toolFailures      |
//	| same_tools       | replies that call the same tools    | a call of other tools     | stop.loopWindow: 2       |
//	| same_mistake     | equal reminders                     | a call that succeeds      | xml.breaker              |
//	| empty_replies    | replies with neither text nor calls | another reply             | analysis.emptyReplies    |
//
// The first pair of same_tools stops the run, whatever the size of the window.
const (
	errorRounds     = "error_rounds"
	failedRounds    = "failed_rounds"
	duplicateRounds = "duplicate_rounds"
	failingTool     = "failing:" // and the tool's original name
	sameTools       = "same_tools"
	emptyReplies    = "empty_replies"
)

// repeatLimit is how long a streak may get before something is done about it; 0 = it is not counted.
func repeatLimit(d *agent.Definition, streak string) int {
	switch {
	case streak == errorRounds:
		return d.Stop.ConsecutiveErrors
	case streak == failedRounds:
		return d.Guards.FailedRounds
	case streak == duplicateRounds && d.Guards.DuplicateCalls, streak == sameTools && d.Stop.LoopWindow > 0:
		return 2
	case streak == run.SameMistake:
		return d.XML.Breaker
	case streak == emptyReplies && d.Text == agent.TextHeuristic:
		return max(d.Analysis.EmptyReplies, 1)
	case strings.HasPrefix(streak, failingTool):
		return d.Guards.ToolFailures
	default:
		return 0
	}
}

// isOverLimit reports whether a streak has reached its limit.
func isOverLimit(d *agent.Definition, r run.Streaks, streak string) bool {
	n := repeatLimit(d, streak)
	return n > 0 && r.Times(streak) >= n
}

// ofRounds are the kinds of calls that are counted by rounds which hold nothing else.
var ofRounds = []struct {
	streak string
	is     func(c run.Call) bool
}{
	{errorRounds, func(c run.Call) bool { return c.Result != nil && c.Result.IsError }},
	{failedRounds, func(c run.Call) bool { // not one that was put off, or that somebody else cancelled
		return c.Result != nil && c.Result.IsError &&
			!slices.Contains([]run.CallReason{run.WhySkipped, run.WhyAwaiting, run.WhyDuplicate, run.WhyCancelled}, c.Reason)
	}},
	{duplicateRounds, func(c run.Call) bool { return c.Reason == run.WhyDuplicate }},
}

// roundStreaks are the streaks once the newest round has come back: the next request is made with them, and the reply
// to it is planned.
func roundStreaks(d *agent.Definition, s *run.AgentState) run.Streaks {
	r, round := s.Streaks, newestRoundCalls(s)
	if len(round) == 0 {
		return r
	}
	for _, k := range ofRounds {
		all := !slices.ContainsFunc(round, func(c run.Call) bool { return !k.is(c) })
		r = countStreak(d, r, k.streak, all)
	}
	succeeded := map[string]bool{}
	for _, c := range round {
		if c.Status == run.StatusSucceeded {
			succeeded[c.Tool] = true
			r = countStreak(d, r, failingTool+c.Tool, false)
		}
	}
	failed := map[string]bool{} // calls of one round count once: the model made them without knowing of each other
	for _, c := range round {
		if c.Broke() && !succeeded[c.Tool] && !failed[c.Tool] {
			failed[c.Tool] = true
			r = countStreak(d, r, failingTool+c.Tool, true)
		}
	}
	return r
}

// countStreak adds one to a streak that has a limit, or ends it.
func countStreak(d *agent.Definition, r run.Streaks, streak string, again bool) run.Streaks {
	if !again || repeatLimit(d, streak) == 0 {
		return r.Next(streak, "")
	}
	return r.Next(streak, "again")
}

// streaks are the streaks behind a planned reply to s. What the request has told the model is counted from anew.
func streaks(d *agent.Definition, s *run.AgentState, e run.Replied) run.Streaks {
	r := roundStreaks(d, s)
	if isOverLimit(d, r, failedRounds) {
		r = r.Next(failedRounds, "")
	}
	if e.Summary {
		r = r.Next(duplicateRounds, "")
	}
	if len(e.Calls) > 0 && repeatLimit(d, sameTools) > 0 {
		r = r.Next(sameTools, toolsOf(e.Calls))
	}
	r = countMistake(d, s, r)
	if e.Correction.Recovers() && repeatLimit(d, run.SameMistake) > 0 {
		r = r.Next(run.SameMistake, e.Correction.Text)
	}
	return countStreak(d, r, emptyReplies, e.Correction != nil && e.Correction.Kind == run.KindEmpty)
}

// countMistake counts the mistake that the model is about to be told of.
func countMistake(d *agent.Definition, s *run.AgentState, r run.Streaks) run.Streaks {
	if repeatLimit(d, run.SameMistake) == 0 {
		return r
	}
	if text := Reminder(d, s); text != "" {
		return r.Next(run.SameMistake, text)
	}
	return r
}

// toolsOf tells apart which tools a reply calls, how often each, in whatever order.
func toolsOf(calls []run.RepliedCall) string {
	names := make([]string, len(calls))
	for i, c := range calls {
		names[i] = c.Original()
	}
	slices.Sort(names)
	return strings.Join(names, "\n")
}

// withMemory puts the policies' memory into a planned reply to s, if it has changed.
func withMemory(d *agent.Definition, s *run.AgentState, e run.Replied) run.Replied {
	if d.Text == agent.TextHeuristic {
		e = nextTally(s).Remember(s, e)
	}
	r := streaks(d, s, e)
	if e.Streaks = nil; !slices.Equal(r, s.Streaks) {
		e.Streaks = append(run.Streaks{}, r...)
	}
	return e
}

// markRepeats notes of a reply's calls what they repeat, where every one of them does: a model that also does
// something new is not going in circles. What people say in between is a reason to do a thing again.
func markRepeats(d *agent.Definition, s *run.AgentState, calls []run.RepliedCall) {
	if !d.Guards.DuplicateCalls || hasNewInput(s) {
		return
	}
	found := make([]string, len(calls))
	for i, c := range calls {
		if found[i] = repeated(s, c); found[i] == "" {
			return
		}
	}
	for i := range calls {
		calls[i].Repeats = found[i]
	}
}

// repeated is the call that a planned one repeats, "" where it repeats none: the same tool with the same arguments in
// the round directly before, which succeeded, or was refused as a duplicate itself, and beside which nothing else was
// done. A call that failed may be tried again, and one that looks may look again after something was done; who asks
// without any argument asks how things stand now, the time or what is new, and may do so as often as it likes. Calls
// of one reply do not repeat each other: the model had the result of none.
func repeated(s *run.AgentState, c run.RepliedCall) string {
	if string(c.Input) == "{}" && (c.Effect == run.EffectRead || c.Effect == run.EffectIdempotent) {
		return ""
	}
	same := func(b run.Call) bool {
		return b.Tool == c.Original() && b.Name == c.Name &&
			(bytes.Equal(b.Input, c.Input) || jsonx.CanonicalText(b.Input) == jsonx.CanonicalText(c.Input))
	}
	found := ""
	for _, b := range newestRoundCalls(s) {
		switch {
		case b.Reason == run.WhyDuplicate && same(b):
			found = b.Repeats
		case b.Status == run.StatusSucceeded && same(b) && found == "":
			found = b.ID
		case b.Status == run.StatusSucceeded && !same(b) && b.Effect != run.EffectRead:
			return ""
		}
	}
	return found
}

// hasNewInput reports whether a person or plugin has added a message that no inference has carried.
func hasNewInput(s *run.AgentState) bool {
	all := s.Messages.All()
	for i := len(all) - 1; i >= 0 && all[i].Seen(s.Inferences) == 0; i-- {
		if _, said := all[i].Block.(run.Text); said {
			return true
		}
	}
	return false
}
