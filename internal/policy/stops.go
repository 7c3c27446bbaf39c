package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// moment is when a stop condition is looked at.
type moment int

// The moments, in the order in which Next comes to them. The last one is PlanReply's.
const (
	always    moment = iota // whatever is open or under way
	settled                 // no call can be run or settled
	unawaited               // and nobody is waited for
	asking                  // the model owes a reply
	looping                 // and no plan does; while calls are open, a run ends here only in an error
	replied                 // the model has replied; the run ends once the calls of the reply have finished
)

// look is what stop conditions look at: a run and, when the model has replied, the reply.
type look struct {
	d *agent.Definition
	s *run.AgentState

	inferences int64       // those of the run, with the reply; 0 = the reply is for a plan, and no inference
	streaks    run.Streaks // with the reply; nil for a plan
	at         int64       // when the reply was there, milliseconds since 1970
	tokens     int64       // those of the run, with the reply
	tools      []string    // that the reply calls, by original name
	text       string      // with the pieces that the reply goes on with
}

// stop is a stop condition and the end that it brings where it holds.
type stop struct {
	name  string // when the model has replied, the code of the halt
	when  moment
	holds func(x look) bool
	end   func(x look) run.Finished // nil = the forced summary; of a halt the detail alone, nil = none
}

// The codes of the stop policies (docs/agent-file.md, Limits and ends), behind stopped: in a run's reason.
const (
	StopMaxRounds         = "max_rounds_reached"
	StopTimeout           = "timeout_reached"
	StopTokens            = "token_budget_exceeded"
	StopConsecutiveErrors = "consecutive_errors_exceeded"
	StopOnTool            = "tool_called"     // detail: the tool's original name
	StopContains          = "content_matched" // detail: what was looked for
	StopLoop              = "loop_detected"
	StopContextFull       = "context_exhausted" // a limit: the context's window has no room for another round
)

// stops is every condition that ends a run or its loop. Those of one moment are looked at in this order; the first that
// holds decides. Models that all failed (ModelFailed) and people who cancel a run (CancelRun) end it from outside.
var stops = []stop{
	{"permission failed", always,
		func(x look) bool { return x.s.Permissions.Failed != "" },
		func(x look) run.Finished { return Fail(run.CodePermissionFailed, x.s.Permissions.Failed) }},
	{"plugin failed", settled,
		func(x look) bool { return x.s.Broken != nil },
		func(x look) run.Finished { return Fail(x.s.Broken.Code, x.s.Broken.Message) }},
	{"state conflict", settled,
		func(x look) bool { return conflict(x.s) != nil },
		func(x look) run.Finished { return Fail(run.CodeStateConflict, conflict(x.s).Error()) }},
	{"call taken back", settled,
		func(x look) bool { c, undoes := x.s.Undoing(); return undoes && !c.Open() },
		func(x look) run.Finished { return undoEnd(x.s) }},
	{"end requested", unawaited, // by a stop policy or a plugin
		func(x look) bool { return x.s.Ending != "" },
		func(x look) run.Finished { return requestedEnd(x.d, x.s) }},
	{"last word", unawaited,
		func(x look) bool { return !owesReply(x.s) },
		func(x look) run.Finished { return naturalEnd(x.d, x.s) }},
	{"same mistake", asking, sameMistake,
		func(x look) run.Finished {
			n := mistaken(x.d, x.s, x.s.Streaks).Times(run.SameMistake)
			return Fail(run.CodeBreaker, fmt.Sprintf("the model made the same mistake %d times in a row", n))
		}},
	{"limit, summed up", looping,
		func(x look) bool { return quotaUsed(x.d, x.s) && x.d.Limits.OnLimit == agent.OnLimitSummarise }, nil},
	{"limit", looping, func(x look) bool { return quotaUsed(x.d, x.s) }, limitEnd},
	{"empty replies", looping,
		func(x look) bool { return x.s.Correction != nil && x.s.Correction.Lifecycle == run.LifecycleSummary }, nil},
	{"duplicate calls", looping, onlyRepeats, nil},
	{StopMaxRounds, replied,
		func(x look) bool { return x.d.Stop.Rounds > 0 && x.inferences >= int64(x.d.Stop.Rounds) }, nil},
	{StopTimeout, replied, func(x look) bool { return timedOut(x.d, x.s, x.at) }, nil},
	{StopTokens, replied, func(x look) bool { return x.d.Stop.Tokens > 0 && x.tokens >= x.d.Stop.Tokens }, nil},
	{StopConsecutiveErrors, replied, func(x look) bool { return tooOften(x.d, x.streaks, errorRounds) }, nil},
	{StopOnTool, replied,
		func(x look) bool { return stopTool(x) != "" },
		func(x look) run.Finished { return run.Finished{Detail: stopTool(x)} }},
	{StopContains, replied,
		func(x look) bool { return x.d.Stop.Contains != "" && strings.Contains(x.text, x.d.Stop.Contains) },
		func(x look) run.Finished { return run.Finished{Detail: x.d.Stop.Contains} }},
	{StopLoop, replied, func(x look) bool { return tooOften(x.d, x.streaks, sameTools) }, nil},
}

// firstStop is the first condition of a moment that holds; nil = none does. It is the one place where they are looked at.
func firstStop(when moment, x look) *stop {
	for i := range stops {
		if c := &stops[i]; c.when == when && c.holds(x) {
			return c
		}
	}
	return nil
}

// stopAt is what the first condition of a moment that holds brings to a run; false where none does. The forced summary
// asks the model, which has not said its last word, for it, without tools; it is no interaction and is not analysed.
func stopAt(when moment, d *agent.Definition, s *run.AgentState) (run.Action, bool) {
	x := look{d: d, s: s}
	switch c := firstStop(when, x); {
	case c == nil:
		return run.Action{}, false
	case c.end == nil:
		return asks(d, s, run.LifecycleSummary), true
	default:
		return run.Action{Kind: run.ActEnd, End: c.end(x)}, true
	}
}

// summarises reports whether the next inference is the forced summary.
func summarises(d *agent.Definition, s *run.AgentState) bool {
	c := firstStop(looping, look{d: d, s: s})
	return c != nil && c.end == nil
}

// halted is what the first stop policy that holds behind a reply brings; nil = none does.
func halted(x look) *run.Halt {
	c := firstStop(replied, x)
	switch {
	case c == nil:
		return nil
	case c.end == nil:
		return &run.Halt{Code: c.name}
	default:
		return &run.Halt{Code: c.name, Detail: c.end(x).Detail}
	}
}

// haltedBehind asks the stop policies about a planned reply to s. A forced summary ends the run anyway.
func haltedBehind(d *agent.Definition, s *run.AgentState, e run.Replied) *run.Halt {
	if e.Summary {
		return nil
	}
	x := look{
		d: d, s: s, inferences: s.Inferences + 1, streaks: streaks(d, s, e), at: e.At,
		tokens: s.Usage.Add(e.Usage).Total(), text: stitched(s, e.Text),
	}
	for _, c := range e.Calls {
		x.tools = append(x.tools, c.Original())
	}
	return halted(x)
}

// HaltedInPlan asks the stop policies about a reply for a plan, which calls a tool, by original name, or none, and says
// a text. Policies about inferences and rounds do not look at it.
func HaltedInPlan(d *agent.Definition, s *run.AgentState, took run.PlanFact, tool, text string) *run.Halt {
	tokens := s.Usage.Add(took.Usage).Total()
	return halted(look{d: d, s: s, at: took.At, tokens: tokens, tools: []string{tool}, text: text})
}

// sameMistake reports whether the model would be told once more what it was told too often.
func sameMistake(x look) bool {
	refused := x.s.Correction.Owed() && x.s.Correction.Recovers()
	return (refused || Reminder(x.d, x.s) != "") &&
		tooOften(x.d, mistaken(x.d, x.s, x.s.Streaks), run.SameMistake)
}

// onlyRepeats reports whether the model does nothing but repeat calls. Whoever has spoken to it since has given it a
// reason to.
func onlyRepeats(x look) bool {
	return len(returned(x.s)) > 0 && tooOften(x.d, roundStreaks(x.d, x.s), duplicateRounds) && !spokenTo(x.s)
}

// stopTool is the first tool that a reply calls and that stops the run, "" where there is none.
func stopTool(x look) string {
	if i := slices.IndexFunc(x.tools, func(t string) bool { return slices.Contains(x.d.Stop.OnTool, t) }); i >= 0 {
		return x.tools[i]
	}
	return ""
}

// timedOut reports whether the run has run for as long as it may, at a time in milliseconds since 1970.
func timedOut(d *agent.Definition, s *run.AgentState, at int64) bool {
	ran := time.UnixMilli(at).Sub(s.StartedAt) - s.Waited
	return d.Stop.Timeout > 0 && ran >= d.Stop.Timeout
}

// limits are what may leave a run no further inference but a forced summary. What is spent is known before the next
// request is made: every reply is committed with its usage and its cost. Only interactions have a grace.
var limits = []struct {
	code   run.ErrorCode
	reason run.Reason // under onLimit: stop
	used   func(x look) bool
	text   func(x look) string
}{
	{run.CodeInteractionsExhausted, run.ReasonMaxRounds,
		func(x look) bool { return x.s.Interactions.Current >= x.s.Interactions.Max+x.d.Limits.Grace },
		func(x look) string {
			return fmt.Sprintf("the run used all of its %d interactions", x.s.Interactions.Max)
		}},
	{run.CodeTokensExhausted, run.Stopped(string(run.CodeTokensExhausted)),
		func(x look) bool { return x.d.Limits.Tokens > 0 && x.s.Usage.Total() >= x.d.Limits.Tokens },
		func(x look) string {
			return fmt.Sprintf("the run used %d tokens and had %d", x.s.Usage.Total(), x.d.Limits.Tokens)
		}},
	{run.CodeUSDExhausted, run.Stopped(string(run.CodeUSDExhausted)),
		func(x look) bool { return x.d.Limits.USD > 0 && x.s.Cost >= x.d.Limits.USD },
		func(x look) string { return fmt.Sprintf("the run cost %s USD and had %s", x.s.Cost, x.d.Limits.USD) }},
	{run.CodeTokensExhausted, run.Stopped(StopContextFull), // those of the window; the codes are closed
		func(x look) bool { return x.s.Full.Said() },
		func(x look) string {
			return fmt.Sprintf("the context's window of %d tokens has %d left, and a round takes %d",
				x.s.Full.Of, x.s.Full.Left, x.d.Context.RoundMinimum)
		}},
}

// usedUp is the place of the first limit that is used up, -1 where none is.
func usedUp(d *agent.Definition, s *run.AgentState) int {
	for i, l := range limits {
		if l.used(look{d: d, s: s}) {
			return i
		}
	}
	return -1
}

func quotaUsed(d *agent.Definition, s *run.AgentState) bool { return usedUp(d, s) >= 0 }

// limitEnd ends a run that has used up one of its limits and is not summed up.
func limitEnd(x look) run.Finished {
	l := limits[usedUp(x.d, x.s)]
	if x.d.Limits.OnLimit == agent.OnLimitStop {
		return endFor(l.reason)
	}
	return Fail(l.code, l.text(x))
}
