package agent

import "time"

// ActionKind says who owes the run its next fact.
type ActionKind string

// The kinds of action.
const (
	ActList     ActionKind = "list"     // the agent's servers are to be asked for their tools
	ActInfer    ActionKind = "infer"    // the model owes a reply
	ActTools    ActionKind = "tools"    // these calls are to be gated, claimed and run
	ActWait     ActionKind = "wait"     // people or services owe something
	ActContinue ActionKind = "continue" // the execution's history grows long: hand over
	ActEnd      ActionKind = "end"      // End is to be committed
	ActDone     ActionKind = "done"     // the run has ended
)

// Action is what Next derives. It is never stored.
type Action struct {
	Kind      ActionKind
	Calls     []string  // ActTools: ids in request order
	Lifecycle Lifecycle // ActInfer
	Exhausted bool      // ActInfer: the quota is used up, this is a grace call
	Offered   []string  // ActInfer: the only tools of the agent that the request is narrowed to, by original name; nil = it is not. Next never sets it
	Expires   time.Time // ActWait: when the first wait expires
	End       Finished  // ActEnd
}

// entriesPerExecution bounds how many entries one execution may own before it hands over, so that its history stays below 10,000 events, of the
// 25,000 that end an execution (R10). A plain iteration is two entries and twelve events. The most that an entry takes is thirteen: Step, its
// choice, and a wait that ends, where every wake parks the run again.
const entriesPerExecution = 750

// longestOwner is how old an execution may be before it hands over, a wait included. Step Functions ends one after a year, which nothing in it can
// catch; the days between are for clocks, retries and pauses of whoever runs it.
const longestOwner = 360 * 24 * time.Hour

// HandsOverAt is when the run's owner is so old that another execution has to go on.
func (s *AgentState) HandsOverAt() time.Time { return s.ownedAt.Add(longestOwner) }

// handsOver reports whether the owner has written so much, or is so old as of the newest fact, that another execution has to go on.
func (s *AgentState) handsOver() bool {
	return s.Entries-s.OwnedSince >= entriesPerExecution || !s.head.time.Before(s.HandsOverAt())
}

// TakeOvers is how many of the run's owners ended without having handed over, at least: whoever hands over has written its share of entries, but
// for one that was parked for a year.
func (s *AgentState) TakeOvers() int64 {
	return max(0, s.Generation-s.Entries/entriesPerExecution)
}

// Next says who owes the run its next fact. It is the only place where that is decided.
func Next(d *Definition, s *AgentState) Action {
	if s.Status == RunDone {
		return Action{Kind: ActDone}
	}
	if s.lists(d) {
		return Action{Kind: ActList}
	}
	if s.Permissions.Failed != "" {
		return Action{Kind: ActEnd, End: Fail(CodePermissionFailed, s.Permissions.Failed)}
	}
	if s.Broken != nil {
		return brokenEnd(s)
	}
	calls := runnable(d, s)
	if s.Ending != "" {
		calls = unended(s, calls)
	}
	if len(calls) > 0 {
		return Action{Kind: ActTools, Calls: calls}
	}
	if end, over := endWith(s); over {
		return Action{Kind: ActEnd, End: end}
	}
	_, exits := s.exit()
	waits, owed := s.AwaitsAnyone(), !exits && s.owes()
	if s.Ending != "" && !waits {
		return Action{Kind: ActEnd, End: requestedEnd(d, s)}
	}
	if !waits && !owed {
		return Action{Kind: ActEnd, End: naturalEnd(d, s)}
	}
	if s.handsOver() {
		return Action{Kind: ActContinue}
	}
	if waits && (!owed || !s.withPlaceholders() || s.holdsBack() || s.Plan.active() || endWaits(d, s)) {
		return Action{Kind: ActWait, Expires: s.EarliestExpiry()}
	}
	return infer(d, s)
}

// endWith is the end that the calls bring about, whoever waits: a conflict over shared state, or an undo that has come to its own.
func endWith(s *AgentState) (Finished, bool) {
	if end, conflict := stateEnd(s); conflict {
		return end, true
	}
	return undoEnd(s)
}

// endWaits reports whether the run would end, or be summed up, if the model were owed another reply now. With calls open only errors end
// a run (semantics 3.4): any other end waits for them, that of a stop policy too. So does a run whose children have been promised all that it has left.
func endWaits(d *Definition, s *AgentState) bool {
	return s.Ending != "" || s.spokenFor(d) || summarises(d, s) || quotaUsed(d, s) && d.Limits.OnLimit != OnLimitError
}

// infer asks the model, as far as the limits go (semantics 6.1, counting).
func infer(d *Definition, s *AgentState) Action {
	if l, ok := planOwes(d, s); ok {
		return Action{Kind: ActInfer, Lifecycle: l}
	}
	exhausted := s.Interactions.Current >= s.Interactions.Max || quotaUsed(d, s)
	if end, broken := tripped(d, s); broken {
		return Action{Kind: ActEnd, End: end}
	}
	switch {
	case summarises(d, s):
		return Action{Kind: ActInfer, Lifecycle: LifecycleSummary, Exhausted: exhausted}
	case quotaUsed(d, s):
		return Action{Kind: ActEnd, End: quotaEnd(d, s)}
	}
	return Action{Kind: ActInfer, Lifecycle: lifecycle(s), Exhausted: exhausted}
}

// lifecycle looks at what the model has not seen: a correction comes first, results mean tool_result, anything else said is input.
func lifecycle(s *AgentState) Lifecycle {
	if s.Correction.owed() {
		return s.Correction.Lifecycle
	}
	if s.Prior+s.Inferences == 0 {
		return LifecycleInit
	}
	all := s.Messages.All()
	for i := len(all) - 1; i >= 0 && all[i].Seen(s.Inferences) == 0; i-- {
		if _, ok := all[i].Block.(ToolResult); ok {
			return LifecycleToolResult
		}
	}
	return LifecycleInput
}

// runnable lists the calls that are to be run or settled now. A sequential executor takes one at a time and none behind a
// suspended one; under all_suspended it takes those, too, to skip them (Skip).
func runnable(d *Definition, s *AgentState) []string {
	held := s.held(d.Resume)
	var ids []string
	for _, c := range s.Live {
		switch c.Status {
		case StatusNew, StatusRunning:
			ids = append(ids, c.ID)
		case StatusResuming:
			if !held {
				ids = append(ids, c.ID)
			}
		}
		if d.Executor == ExecutorSequential && c.Open() && (len(ids) > 0 || !s.withPlaceholders()) {
			return ids
		}
	}
	return ids
}
