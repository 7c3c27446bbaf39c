package policy

import (
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// ActionKind says who owes the run its next fact.
type ActionKind string

// The kinds of action.
const (
	ActList     ActionKind = "list"     // the agent's servers have to list their tools
	ActInfer    ActionKind = "infer"    // the model owes a reply
	ActTools    ActionKind = "tools"    // these calls are to be gated, claimed and run
	ActBudget   ActionKind = "budget"   // the call Ask has to ask people for more budget
	ActWait     ActionKind = "wait"     // people or services owe something
	ActContinue ActionKind = "continue" // the execution's history grows long: hand over
	ActEnd      ActionKind = "end"      // End is to be committed
	ActDone     ActionKind = "done"     // the run has ended
)

// Action is what Next derives. It is never stored.
type Action struct {
	Kind      ActionKind
	Calls     []string // ActTools: ids in request order
	Ask       run.BudgetAsked
	Lifecycle run.Lifecycle // ActInfer
	Exhausted bool          // ActInfer: a limit is used up, so this is a grace call or the forced summary
	// ActInfer: the only tools of the agent that the request is narrowed to, by original name; nil = it is not. Next never
	// sets it
	Offered []string
	Expires time.Time    // ActWait: when the first wait expires
	End     run.Finished // ActEnd
}

// Offers reports whether the request offers the tool.
func (a Action) Offers(tool string) bool { return a.Offered == nil || slices.Contains(a.Offered, tool) }

// Next decides what the run needs next, and from whom: the model, its tools, people or services, or nothing. No other
// code decides that.
func Next(d *agent.Definition, s *run.AgentState) Action {
	if s.Status == run.RunDone {
		return Action{Kind: ActDone}
	}
	// before everything else, because rules, plugins, builders and plans need all tools
	if len(d.MCP) > 0 && !s.Listed {
		return Action{Kind: ActList}
	}
	if a, ok := stopAt(always, d, s); ok {
		return a
	}
	if calls := callsBeforeEnd(s, runnable(d, s)); len(calls) > 0 {
		return Action{Kind: ActTools, Calls: calls}
	}
	if a, ok := stopAt(settled, d, s); ok {
		return a
	}
	waits, owed := s.AwaitsAnyone(), owesReply(s)
	if !waits {
		if a, ok := stopAt(unawaited, d, s); ok {
			return a
		}
	}
	if s.HandsOver() {
		return Action{Kind: ActContinue}
	}
	if waits && (!owed || !s.WithPlaceholders() || waitsForDecisions(s) || s.Plan.Active() || mustDelayEnd(d, s)) {
		return Action{Kind: ActWait, Expires: s.EarliestExpiry()}
	}
	if l, ok := planOwes(d, s); ok {
		return Action{Kind: ActInfer, Lifecycle: l}
	}
	if a, ok := stopAt(asking, d, s); ok {
		return a
	}
	if ask, ok := askBudget(d, s); ok {
		return Action{Kind: ActBudget, Ask: ask}
	}
	if a, ok := stopAt(looping, d, s); ok {
		return a
	}
	return requestReply(d, s, lifecycle(s))
}

func owesReply(s *run.AgentState) bool {
	if _, exits := s.Exit(); exits {
		return false
	}
	began := s.Prior+s.Inferences > 0 && !isBuiltOnly(s) || s.Plan.Stage == run.PlanDone
	_, own := unseen(s)
	return s.Plan.Active() || s.Unseen-own > s.Plan.Answered || s.NeedsMessages || s.Correction.IsPending() || !began
}

// isBuiltOnly reports whether the run has its builder's messages, some of which may count as seen, and no reply since
// it began or continued another one.
func isBuiltOnly(s *run.AgentState) bool { return s.Built && s.Inferences == 0 && s.System == "" }

// mustDelayEnd reports whether another reply of the model would now end the run, or sum it up. While calls are open
// only errors end a run (presets 3); any other end waits for the calls. A run whose children have been promised all
// that it has left waits, too.
func mustDelayEnd(d *agent.Definition, s *run.AgentState) bool {
	a, ok := stopAt(looping, d, s)
	return s.Ending != "" || wantsBudget(d, s) || isBudgetPromised(s, d) || ok && a.End.Error == nil
}

// requestReply returns the request for a reply, within the limits (presets 2, Limits).
func requestReply(d *agent.Definition, s *run.AgentState, l run.Lifecycle) Action {
	return Action{Kind: ActInfer, Lifecycle: l, Exhausted: s.Interactions.Current >= s.Interactions.Max || quotaUsed(d, s)}
}

// lifecycle says what the next request is about: a correction first, then tool results, then other input.
func lifecycle(s *run.AgentState) run.Lifecycle {
	if s.Correction.IsPending() {
		return s.Correction.Lifecycle
	}
	if s.Prior+s.Inferences == 0 {
		return run.LifecycleInit
	}
	news, _ := unseen(s)
	if slices.ContainsFunc(news, func(m run.Message) bool { _, ok := m.Block.(run.ToolResult); return ok }) {
		return run.LifecycleToolResult
	}
	return run.LifecycleInput
}

// unseen returns the newest messages, which no inference has carried yet, without what the reply itself added behind
// its turn: why it was refused, or which calls it left out. own counts these, which are no reason to ask the model.
func unseen(s *run.AgentState) (news []run.Message, own int) {
	all := s.Messages.All()
	i := len(all)
	for i > 0 && all[i-1].Seen(s.Inferences) == 0 {
		i--
	}
	for _, m := range all[i:] {
		if i > 0 && m.Source.SameEvent(all[i-1].Source) && !isBuiltOnly(s) {
			own++
		} else {
			news = append(news, m)
		}
	}
	return news, own
}

// runnable lists the calls that can be run or settled now. A sequential executor takes one at a time and none behind a
// suspended one. Under all_suspended it also takes those behind, to skip them (SkipCall).
func runnable(d *agent.Definition, s *run.AgentState) []string {
	held := s.Held(d.Resume)
	var ids []string
	for _, c := range s.Live {
		if c.Status == run.StatusNew || c.Status == run.StatusRunning || c.Status == run.StatusResuming && !held {
			ids = append(ids, c.ID)
		}
		if d.Executor == agent.ExecutorSequential && c.Open() && (len(ids) > 0 || !s.WithPlaceholders()) {
			return ids
		}
	}
	return ids
}

// waitsForDecisions reports whether the model is not asked yet because further decisions are awaited (held). That is so
// only if all unseen messages come from decisions on suspended calls, answers to them, or their expiry. Results of
// other calls and messages of users are not held back.
func waitsForDecisions(s *run.AgentState) bool {
	if !s.Held(s.Resume) || s.Correction.IsPending() {
		return false
	}
	news, _ := unseen(s)
	for i := 0; i < len(news); i = ResultEnd(news, i) {
		r, ok := news[i].Block.(run.ToolResult)
		if !ok {
			return false
		}
		if c, _ := s.Call(r.ID); c.Asks == 0 && c.AskedAt.IsZero() && c.Reason != run.WhySkipped {
			return false
		}
	}
	return true
}

// SkipCall returns the end of a call that a sequential executor does not carry out: a call before it in its round
// waits, and the model is asked without it. ok is false if the call is not skipped.
func SkipCall(d *agent.Definition, s *run.AgentState, c run.Call) (e run.CallCancelled, ok bool) {
	if d.Executor != agent.ExecutorSequential || !s.Skipped(c) {
		return run.CallCancelled{}, false
	}
	return run.CallCancelled{Call: c.ID, Reason: run.WhySkipped, Content: d.Word(agent.WordSkipped, wordingData(c))}, true
}

// planOwes returns the request that the run's plan needs from a model. It is false if the plan needs none.
func planOwes(d *agent.Definition, s *run.AgentState) (run.Lifecycle, bool) {
	if !d.Orchestrator.Enabled || quotaUsed(d, s) || s.Budget.Shared != "" {
		return "", false
	}
	hasInput := s.Unseen > 0 || s.NeedsMessages
	if s.Plan.Stage == "" && s.Inferences == 0 && s.OpenCall() == nil && s.Correction == nil && hasInput {
		return run.LifecyclePlan, true
	}
	l, owed := planLifecycles[s.Plan.Stage]
	return l, owed
}

var planLifecycles = map[run.PlanStage]run.Lifecycle{run.PlanAgain: run.LifecyclePlan,
	run.PlanSteps: run.LifecycleRoute, run.PlanSynthesis: run.LifecycleSynthesis}

// MayLaunch reports whether one more call of a tool may start beside the running calls of the same batch. busy has
// their tools, one entry a call. A call that may not start waits until one of them has ended; waiting calls are tried
// in request order.
func MayLaunch(d *agent.Definition, busy []string, tool string) bool {
	if d.Limits.Parallel > 0 && len(busy) >= d.Limits.Parallel {
		return false
	}
	t, ok := d.Tool(tool)
	if !ok || t.Concurrency == 0 {
		return true
	}
	same := 0
	for _, name := range busy {
		if name == tool {
			same++
		}
	}
	return same < t.Concurrency
}

// TextNeedsProgram says why an agent cannot run in a deployed function.
func TextNeedsProgram(name, server string) string {
	return "agent " + name + " needs a program on this machine (mcp server " + server +
		" has a command) and cannot run in a deployed function"
}
