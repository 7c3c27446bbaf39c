package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

type stopPoint int

// The points, in the order in which Next comes to them. The last one is PlanReply's.
const (
	always    stopPoint = iota // whatever is open or under way
	settled                    // no call can be run or settled
	unawaited                  // and nobody is waited for
	asking                     // the model owes a reply
	looping                    // and no plan does; while calls are open, a run ends here only in an error
	replied                    // the model has replied; the run ends once the calls of the reply have finished
)

// stopInput is what stop conditions look at: a run and, once the model has replied, the reply.
type stopInput struct {
	d *agent.Definition
	s *run.AgentState

	inferences int64      // those of the run, with the reply; 0 = the reply is for a plan, and no inference
	streaks    streakList // with the reply; nil for a plan
	at         int64      // when the reply was there, milliseconds since 1970
	tokens     int64      // those of the run, with the reply
	tools      []string   // that the reply calls, by original name
	text       string     // with the pieces that the reply goes on with
}

// stopCondition is a condition and how the run ends if it holds.
type stopCondition struct {
	name  string // when the model has replied, the code of the halt
	when  stopPoint
	holds func(x stopInput) bool
	end   func(x stopInput) run.Finished // nil = the forced summary; of a halt the detail alone, nil = none
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

// stops has every condition that ends a run or its loop. Conditions of one point are checked in this order, and the
// first that holds decides. Two ends come from outside: all models failed (ModelFailed), and people cancelled the run
// (CancelRun).
var stops = []stopCondition{
	{"permission failed", always, func(x stopInput) bool { return x.s.Permissions.Failed != "" },
		func(x stopInput) run.Finished { return Fail(run.CodePermissionFailed, x.s.Permissions.Failed) }},
	{"plugin failed", settled, func(x stopInput) bool { return x.s.Broken != nil },
		func(x stopInput) run.Finished { return Fail(x.s.Broken.Code, x.s.Broken.Message) }},
	{"state conflict", settled, func(x stopInput) bool { return conflict(x.s) != nil },
		func(x stopInput) run.Finished { return Fail(run.CodeStateConflict, conflict(x.s).Error()) }},
	{"call undone", settled, func(x stopInput) bool { c, undoes := x.s.Undoing(); return undoes && !c.Open() },
		func(x stopInput) run.Finished { return undoEnd(x.s) }},
	{"end requested", unawaited, // by a stop policy or a plugin
		func(x stopInput) bool { return x.s.Ending != "" },
		func(x stopInput) run.Finished { return requestedEnd(x.d, x.s) }},
	{"last word", unawaited, func(x stopInput) bool { return !owesReply(x.s) },
		func(x stopInput) run.Finished { return naturalEnd(x.d, x.s) }},
	{"same mistake", asking, repeatsMistake,
		func(x stopInput) run.Finished {
			n := countMistake(x.d, x.s, roundStreaks(x.d, x.s)).times(sameMistake)
			return Fail(run.CodeBreaker, fmt.Sprintf("the model made the same mistake %d times in a row", n))
		}},
	{"shared budget refused", looping, func(x stopInput) bool { return x.s.Budget.Shared != "" },
		func(x stopInput) run.Finished { return endWithReason(run.Stopped(string(x.s.Budget.Shared))) }},
	{"budget refused", looping, func(x stopInput) bool { return isBudgetGate(x.d, x.s) && x.s.Budget.Refused },
		func(x stopInput) run.Finished { return endWithReason(limits[exhaustedLimit(x.d, x.s)].reason) }},
	{"limit, summed up", looping,
		func(x stopInput) bool { return quotaUsed(x.d, x.s) && x.d.Limits.OnLimit == agent.OnLimitSummarise }, nil},
	{"limit", looping, func(x stopInput) bool { return quotaUsed(x.d, x.s) }, limitEnd},
	{"empty replies", looping,
		func(x stopInput) bool {
			return x.s.Correction != nil && x.s.Correction.Lifecycle == run.LifecycleSummary
		}, nil},
	{"duplicate calls", looping, onlyRepeats, nil},
	{StopMaxRounds, replied,
		func(x stopInput) bool { return x.d.Stop.Rounds > 0 && x.inferences >= int64(x.d.Stop.Rounds) }, nil},
	{StopTimeout, replied, func(x stopInput) bool { return TimeLeft(x.d, x.s, time.UnixMilli(x.at)) <= 0 }, nil},
	{StopTokens, replied, func(x stopInput) bool { return x.d.Stop.Tokens > 0 && x.tokens >= x.d.Stop.Tokens }, nil},
	{StopConsecutiveErrors, replied, func(x stopInput) bool { return isOverLimit(x.d, x.streaks, errorRounds) }, nil},
	{StopOnTool, replied, func(x stopInput) bool { return stopTool(x) != "" },
		func(x stopInput) run.Finished { return run.Finished{Detail: stopTool(x)} }},
	{StopContains, replied,
		func(x stopInput) bool { return x.d.Stop.Contains != "" && strings.Contains(x.text, x.d.Stop.Contains) },
		func(x stopInput) run.Finished { return run.Finished{Detail: x.d.Stop.Contains} }},
	{StopLoop, replied, func(x stopInput) bool { return isOverLimit(x.d, x.streaks, sameTools) }, nil},
}

// firstStop returns the first condition of a point that holds. No other code checks the conditions.
func firstStop(when stopPoint, x stopInput) (c stopCondition, holds bool) {
	return run.First(stops, func(c stopCondition) bool { return c.when == when && c.holds(x) })
}

// stopAt returns the action of the first condition of a point that holds; false if none does. The forced summary asks
// the model without tools. It is not an interaction and is not analysed.
func stopAt(when stopPoint, d *agent.Definition, s *run.AgentState) (Action, bool) {
	x := stopInput{d: d, s: s}
	switch c, holds := firstStop(when, x); {
	case !holds:
		return Action{}, false
	case c.end == nil:
		return requestReply(d, s, run.LifecycleSummary), true
	default:
		return Action{Kind: ActEnd, End: c.end(x)}, true
	}
}

// isForcedSummary reports whether the next inference is the forced summary.
func isForcedSummary(d *agent.Definition, s *run.AgentState) bool {
	c, holds := firstStop(looping, stopInput{d: d, s: s})
	return holds && c.end == nil
}

// firstHalt returns the halt of the first stop policy that holds after a reply; nil = none holds.
func firstHalt(x stopInput) *run.Halt {
	c, holds := firstStop(replied, x)
	if !holds {
		return nil
	}
	h := &run.Halt{Code: c.name}
	if c.end != nil {
		h.Detail = c.end(x).Detail
	}
	return h
}

// haltAfterReply checks the stop policies for a planned reply to s. A forced summary ends the run anyway.
func haltAfterReply(d *agent.Definition, s *run.AgentState, e run.Replied) *run.Halt {
	if e.Summary {
		return nil
	}
	return firstHalt(stopInput{
		d: d, s: s, inferences: s.Inferences + 1, streaks: streaksAfter(d, s, e), at: e.At,
		tokens: s.Usage.Add(e.Usage).Total(), tools: run.Map(e.Calls, run.RepliedCall.Original), text: spoken(d, s, e),
	})
}

// HaltInPlan checks the stop policies for a reply that belongs to a plan. tool is the original name of the tool that
// it calls, "" if none. Policies about inferences and rounds do not apply.
func HaltInPlan(d *agent.Definition, s *run.AgentState, took run.PlanFact, tool, text string) *run.Halt {
	tokens := s.Usage.Add(took.Usage).Total()
	return firstHalt(stopInput{d: d, s: s, at: took.At, tokens: tokens, tools: []string{tool}, text: text})
}

// repeatsMistake reports whether the next request would repeat a reminder too often.
func repeatsMistake(x stopInput) bool {
	refused := x.s.Correction.IsPending() && isMistake(x.s.Correction)
	return (refused || Reminder(x.d, x.s) != "") &&
		isOverLimit(x.d, countMistake(x.d, x.s, roundStreaks(x.d, x.s)), sameMistake)
}

// onlyRepeats reports whether the model only repeats calls, with no new message that could be the reason.
func onlyRepeats(x stopInput) bool {
	return len(newestRoundCalls(x.s)) > 0 && isOverLimit(x.d, roundStreaks(x.d, x.s), duplicateRounds) && !hasNewInput(x.s)
}

// stopTool returns the first tool of a reply that stops the run; "" if there is none.
func stopTool(x stopInput) string {
	if i := slices.IndexFunc(x.tools, func(t string) bool { return slices.Contains(x.d.Stop.OnTool, t) }); i >= 0 {
		return x.tools[i]
	}
	return ""
}

// TimeLeft returns what the run has left of its time, a year if it has no limit. Time that the run waited does not
// count.
func TimeLeft(d *agent.Definition, s *run.AgentState, at time.Time) time.Duration {
	if d.Stop.Timeout <= 0 {
		return 365 * 24 * time.Hour
	}
	return d.Stop.Timeout + s.Waited - at.Sub(s.StartedAt)
}

type limit struct {
	code   run.ErrorCode
	reason run.Reason // under onLimit: stop
	used   func(x stopInput) bool
	text   func(x stopInput) string
}

// limits are the limits that end a run, or leave it only a forced summary. All usage is known before the next request,
// because every reply is committed with its usage and cost. Only interactions have a grace.
var limits = []limit{
	{run.CodeInteractionsExhausted, run.ReasonMaxRounds,
		func(x stopInput) bool { return x.s.Interactions.Current >= x.s.Interactions.Max+x.d.Limits.Grace },
		func(x stopInput) string {
			return fmt.Sprintf("the run used all of its %d interactions", x.s.Interactions.Max)
		}},
	{run.CodeTokensExhausted, run.Stopped(string(run.CodeTokensExhausted)),
		func(x stopInput) bool { return isUsed(budgetOf(x.d, x.s).Tokens, x.s.Usage.Total()) },
		func(x stopInput) string {
			return fmt.Sprintf("the run used %d tokens and had %d", x.s.Usage.Total(), budgetOf(x.d, x.s).Tokens)
		}},
	{run.CodeUSDExhausted, run.Stopped(string(run.CodeUSDExhausted)),
		func(x stopInput) bool { return isUsed(budgetOf(x.d, x.s).USD, x.s.Cost) },
		func(x stopInput) string {
			return fmt.Sprintf("the run cost %s USD and had %s", x.s.Cost, budgetOf(x.d, x.s).USD)
		}},
	{run.CodeTokensExhausted, run.Stopped(StopContextFull), // the closed set of codes has none for the window
		func(x stopInput) bool { return x.s.Full.IsFull() },
		func(x stopInput) string {
			return fmt.Sprintf("the context's window of %d tokens has %d left, and a round takes %d",
				x.s.Full.Of, x.s.Full.Left, x.d.Context.RoundMinimum)
		}},
}

// exhaustedLimit returns the index of the first limit that is used up, -1 if none is.
func exhaustedLimit(d *agent.Definition, s *run.AgentState) int {
	return slices.IndexFunc(limits, func(l limit) bool { return l.used(stopInput{d: d, s: s}) })
}

func quotaUsed(d *agent.Definition, s *run.AgentState) bool { return exhaustedLimit(d, s) >= 0 }

// limitEnd ends a run that has used up a limit and is not summed up.
func limitEnd(x stopInput) run.Finished {
	l := limits[exhaustedLimit(x.d, x.s)]
	if x.d.Limits.OnLimit == agent.OnLimitStop {
		return endWithReason(l.reason)
	}
	return Fail(l.code, l.text(x))
}

// budgetOf returns the run's budget, including what people have added; 0 = no limit.
func budgetOf(d *agent.Definition, s *run.AgentState) (b Spending) {
	if d.Limits.Tokens != 0 {
		b.Tokens = d.Limits.Tokens + s.Budget.Tokens
	}
	if d.Limits.USD != 0 {
		b.USD = d.Limits.USD.Add(s.Budget.USD)
	}
	return b
}

func isUsed[T int64 | run.USD](budget, used T) bool { return budget > 0 && used >= budget }

// wantsBudget reports whether the run must ask people for more budget, or waits for their answer.
func wantsBudget(d *agent.Definition, s *run.AgentState) bool {
	return isBudgetGate(d, s) && !s.Budget.Refused
}

// isBudgetGate reports whether only the budget stops the run, and people are to be asked about it. A run that has also
// used up its interactions or its context does not ask: more budget would not let it continue.
func isBudgetGate(d *agent.Definition, s *run.AgentState) bool {
	if d.Limits.OnBudget != agent.OnBudgetAsk {
		return false
	}
	i := exhaustedLimit(d, s)
	return i >= 0 && (limits[i].code == run.CodeTokensExhausted || limits[i].code == run.CodeUSDExhausted) &&
		!s.Full.IsFull()
}

// askBudget returns the call that asks people to add the definition's limit again for what is used up.
func askBudget(d *agent.Definition, s *run.AgentState) (run.BudgetAsked, bool) {
	if !wantsBudget(d, s) {
		return run.BudgetAsked{}, false
	}
	var raise run.Raise
	if isUsed(budgetOf(d, s).Tokens, s.Usage.Total()) {
		raise.Tokens = d.Limits.Tokens
	}
	if isUsed(budgetOf(d, s).USD, s.Cost) {
		raise.USD = new(d.Limits.USD)
	}
	return raiseBudget(s, "", raise), true
}

// SharedBudget is a budget of many runs, and its use in the current period.
type SharedBudget struct {
	Tool   string // the tool whose call asks people for more
	Runs   string // the runs that share it, for an error: all runs of agent a
	Budget agent.PeriodBudget
	Raised Spending // by people
	Used   Spending
}

// Spending is an amount that runs may use, or have used. The zero value is nothing.
type Spending struct {
	Tokens int64
	USD    run.USD
}

// Exhausted returns what happens to a run that needs a model while its shared budget is used up: it asks people, or
// ends. ok is false if something is left.
func (b SharedBudget) Exhausted(
	d *agent.Definition, s *run.AgentState,
) (ask run.BudgetAsked, end run.Finished, ok bool) {
	var raise run.Raise
	var text string
	if budget := b.Budget.Tokens + b.Raised.Tokens; b.Budget.Tokens > 0 && isUsed(budget, b.Used.Tokens) {
		raise.Tokens = b.Budget.Tokens
		text = fmt.Sprintf("%s used %d tokens this %s and had %d", b.Runs, b.Used.Tokens, b.Budget.Every, budget)
	}
	if budget := b.Budget.USD.Add(b.Raised.USD); b.Budget.USD > 0 && isUsed(budget, b.Used.USD) {
		raise.USD = &b.Budget.USD
		text = fmt.Sprintf("%s cost %s USD this %s and had %s", b.Runs, b.Used.USD, b.Budget.Every, budget)
	}
	switch code := raise.UsedUp(); {
	case text == "":
		return ask, end, false
	case d.Limits.OnBudget == agent.OnBudgetAsk:
		return raiseBudget(s, b.Tool, raise), end, true
	case d.Limits.OnLimit == agent.OnLimitStop:
		return ask, endWithReason(run.Stopped(string(code))), true
	default:
		return ask, Fail(code, text), true
	}
}

// raiseBudget returns the call that asks people for this raise.
func raiseBudget(s *run.AgentState, tool string, raise run.Raise) run.BudgetAsked {
	input, _ := json.Marshal(raise) // numbers always marshal
	for n := s.Budget.Asked + 1; ; n++ {
		id := fmt.Sprintf("budget-%d", n)
		if _, used := s.Call(id); !used && !slices.Contains(s.Named, id) { // a state from a snapshot lacks settled calls
			return run.BudgetAsked{Call: id, Tool: tool, Input: input}
		}
	}
}
