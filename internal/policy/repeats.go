package policy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// This file is the one detector of repetition. It counts how often in a row the same has happened, up to a limit:
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
	sameMistake     = "same_mistake"
	emptyReplies    = "empty_replies"
)

// streak is how often the same thing has happened in a row.
type streak struct {
	Name  string `json:"name"`  // what is counted
	Of    string `json:"of"`    // what has happened; a digest if that is long
	Times int    `json:"times"` // from 1
}

// streakList holds streaks in the order in which they began. It has only streaks for which the definition sets a limit,
// so the number of tools bounds it. It is never changed in place.
type streakList []streak

const streaksMemory = "streaks"

// streaksOf returns the streaks as of the newest reply.
func streaksOf(s *run.AgentState) streakList { return recall[streakList](s, streaksMemory) }

// times returns the length of the streak; 0 = there is none.
func (r streakList) times(name string) int {
	if i := r.find(name); i >= 0 {
		return r[i].Times
	}
	return 0
}

func (r streakList) find(name string) int {
	return slices.IndexFunc(r, func(k streak) bool { return k.Name == name })
}

// next returns the streaks after another observation of one of them. of says what happened; "" ends the streak.
func (r streakList) next(name, of string) streakList {
	if len(of) > 32 {
		of = agent.HashHex([]byte(of))[:32]
	}
	i, next := r.find(name), slices.Clone(r)
	switch {
	case i < 0 && of != "":
		next = append(next, streak{Name: name, Of: of, Times: 1})
	case i < 0:
	case of == "":
		next = slices.Delete(next, i, i+1)
	case next[i].Of == of:
		next[i].Times++
	default:
		next[i].Of, next[i].Times = of, 1
	}
	return next
}

// repeatLimit returns the length at which a streak has consequences; 0 = it is not counted.
func repeatLimit(d *agent.Definition, streak string) int {
	switch {
	case streak == errorRounds:
		return d.Stop.ConsecutiveErrors
	case streak == failedRounds:
		return d.Guards.FailedRounds
	case streak == duplicateRounds && d.Guards.DuplicateCalls, streak == sameTools && d.Stop.LoopWindow > 0:
		return 2
	case streak == sameMistake:
		return d.XML.Breaker
	case streak == emptyReplies && d.Text == agent.TextHeuristic:
		return max(d.Analysis.EmptyReplies, 1)
	case strings.HasPrefix(streak, failingTool):
		return d.Guards.ToolFailures
	default:
		return 0
	}
}

func isOverLimit(d *agent.Definition, r streakList, streak string) bool {
	n := repeatLimit(d, streak)
	return n > 0 && r.times(streak) >= n
}

// ofRounds are the streaks that count rounds in which every call is of a kind.
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

// roundStreaks returns the streaks after the newest round's results. The next request and the reply to it use them.
func roundStreaks(d *agent.Definition, s *run.AgentState) streakList {
	r, round := streaksOf(s), newestRoundCalls(s)
	if s.Round.Inference == s.Prior+s.Inferences && // also in a fork, which has made no inference
		slices.ContainsFunc(modelCalls(s), func(c run.Call) bool { return c.Status == run.StatusSucceeded }) {
		r = r.next(sameMistake, "")
	}
	if len(round) == 0 {
		return r
	}
	for _, k := range ofRounds {
		all := !slices.ContainsFunc(round, func(c run.Call) bool { return !k.is(c) })
		r = countStreak(d, r, k.streak, all)
	}
	counted := map[string]bool{} // a tool counts once in a round: the model made the calls without knowing of each other
	for _, c := range round {
		if c.Status == run.StatusSucceeded {
			counted[c.Tool] = true
			r = countStreak(d, r, failingTool+c.Tool, false)
		}
	}
	for _, c := range round {
		// a call that people, policy or plugins did not let run is no failure of the tool
		broke := c.Reason == run.WhyToolError || c.Reason == run.WhyTimeout || c.Reason == run.WhyInvalidArguments
		if broke && !counted[c.Tool] {
			counted[c.Tool] = true
			r = countStreak(d, r, failingTool+c.Tool, true)
		}
	}
	return r
}

// countStreak adds one to a streak that has a limit, or ends it.
func countStreak(d *agent.Definition, r streakList, streak string, again bool) streakList {
	if !again || repeatLimit(d, streak) == 0 {
		return r.next(streak, "")
	}
	return r.next(streak, "again")
}

// streaksAfter returns the streaks after a planned reply to s. It restarts streaks that the request reminded of.
func streaksAfter(d *agent.Definition, s *run.AgentState, e run.Replied) streakList {
	r := roundStreaks(d, s)
	if isOverLimit(d, r, failedRounds) {
		r = r.next(failedRounds, "")
	}
	if e.Summary {
		r = r.next(duplicateRounds, "")
	}
	if len(e.Calls) > 0 && repeatLimit(d, sameTools) > 0 { // each as often as it is called, in whatever order
		names := run.Map(e.Calls, run.RepliedCall.Original)
		slices.Sort(names)
		r = r.next(sameTools, strings.Join(names, "\n"))
	}
	r = countMistake(d, s, r)
	if isMistake(e.Correction) && repeatLimit(d, sameMistake) > 0 {
		r = r.next(sameMistake, e.Correction.Text)
	}
	return countStreak(d, r, emptyReplies, e.Correction != nil && e.Correction.Kind == KindEmpty)
}

// isMistake reports whether a correction is one that the breaker counts.
func isMistake(c *run.Correction) bool {
	return c != nil &&
		slices.Contains([]run.CorrectionKind{KindNoToolCall, KindMalformed, KindMissingField}, c.Kind)
}

// countMistake counts the mistake that the next request reminds the model of.
func countMistake(d *agent.Definition, s *run.AgentState, r streakList) streakList {
	if text := Reminder(d, s); text != "" && repeatLimit(d, sameMistake) > 0 {
		return r.next(sameMistake, text)
	}
	return r
}

// withMemory puts the policies' memory into a planned reply to s, if it has changed.
func withMemory(d *agent.Definition, s *run.AgentState, e run.Replied) run.Replied {
	e.Memory = nil
	if t := nextTally(s); d.Text == agent.TextHeuristic && t != recall[tally](s, tallyMemory) {
		e = remember(e, tallyMemory, t)
	}
	if r := streaksAfter(d, s, e); !slices.Equal(r, streaksOf(s)) {
		e = remember(e, streaksMemory, append(streakList{}, r...))
	}
	return e
}

// remember puts what a policy remembers into a planned reply.
func remember(e run.Replied, policy string, v any) run.Replied {
	memory := map[string]json.RawMessage{}
	maps.Copy(memory, e.Memory)
	memory[policy] = run.Remember(policy, v).Value
	e.Memory = memory
	return e
}

// recall returns what a policy remembers of a run. It is the zero value if that cannot be read.
func recall[T any](s *run.AgentState, policy string) (v T) {
	if json.Unmarshal(s.Memory[policy].Value, &v) != nil {
		return *new(T)
	}
	return v
}

// markRepeats marks the calls of a reply as repeats if every one of them is one: a model that also does something new
// is not going in circles. A new message of a user is a reason to do a thing again.
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

// repeated returns the call that a planned one repeats, "" if none: the same tool with the same arguments in the round
// directly before, which succeeded, or was itself refused as a duplicate, with no other effect beside it. A failed call
// may be tried again, and a read may be repeated after another effect. A read without arguments may always be repeated:
// it asks for the current state. Calls of one reply do not repeat each other, because the model had no result of
// either.
func repeated(s *run.AgentState, c run.RepliedCall) string {
	if string(c.Input) == "{}" && (c.Effect == run.EffectRead || c.Effect == run.EffectIdempotent) {
		return ""
	}
	same := func(b run.Call) bool {
		return b.Tool == c.Original() && b.Name == c.Name && jsonx.CanonicalText(b.Input) == jsonx.CanonicalText(c.Input)
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

// hasNewInput reports whether a person or a plugin has added a message that no inference has carried.
func hasNewInput(s *run.AgentState) bool {
	news, _ := unseen(s)
	return slices.ContainsFunc(news, func(m run.Message) bool { _, said := m.Block.(run.Text); return said })
}
