package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/match"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/tool"
)

// effectLog is the world outside: what tools were entered, and what came of it. No crash of an invocation reaches it.
type effectLog struct {
	*scriptedRun  // whose run has these tools
	tools         map[string]*toolScript
	usedResults   map[string]int              // by tool: results given out
	resultIndex   map[executionKey]int        // which result an execution gets; a repeated one gets the same
	executions    map[string][]*toolExecution // by tool
	newestEffects map[string]*toolExecution   // by run and call: the newest that took effect
	reruns        map[string]int              // by call: how often people, or the tool itself, had it run again
	fences        map[string]fence            // by run and call
	invokes       []recordedInvoke            // functions that answer later, each key once
	events        []policy.Outgoing           // in the order in which they first went out, each id once
}

// executionKey is the n-th of a call, as the journal counts.
type executionKey struct {
	call string
	n    int
}

// toolExecution is one entering of a tool.
type toolExecution struct {
	ctx             context.Context // of the invocation that entered it
	run             string
	key             executionKey
	args            json.RawMessage
	result          result
	finished        bool // it took effect
	returned        bool // its tool has returned, or its invocation is dead
	void            bool // it had no effect and never will: its invocation died, or the same execution was begun again
	resultLost      bool // nobody hears its result, crash or not: its server dies before it answers
	repeatable      bool // its tool is
	resultDelivered bool // the invocation that made it has ended well while the run was open: its result is on record
}

func newEffectLog(sr *scriptedRun, tools []toolScript) *effectLog {
	l := &effectLog{
		scriptedRun: sr, tools: map[string]*toolScript{}, usedResults: map[string]int{}, resultIndex: map[executionKey]int{}, executions: map[string][]*toolExecution{}, newestEffects: map[string]*toolExecution{}, reruns: map[string]int{},
		fences: map[string]fence{},
	}
	for i := range tools {
		if name := tools[i].spec.Name; l.tools[name] == nil { // a server's tool never stands for one of the agent's own
			l.tools[name] = &tools[i]
		}
	}
	return l
}

// Emit takes an event of the run. A bus that sees an id again has the same event again.
func (l *effectLog) Emit(_ context.Context, e policy.Outgoing) error {
	for _, seen := range l.events {
		if seen.ID != e.ID {
			continue
		}
		if !reflect.DeepEqual(seen, e) {
			l.sim.addFailure(Failure{Path: "emitted", Got: fmt.Sprintf("%s again, and not the same", e.ID), Want: "one event for each id"})
		}
		return nil
	}
	l.events = append(l.events, e)
	if e.Call != "" {
		l.sim.actAt(trigger{"executing", e.Call, l.agentName})
	}
	return nil
}

// executionCounts counts the enterings of each tool that was entered, less those that a crash undid, and what services and functions that answer later were asked.
func (l *effectLog) executionCounts() map[string]int {
	counts := map[string]int{}
	for _, e := range l.events {
		if c, ok := l.loadCall(e.Call); ok {
			counts[c.Tool]++
		}
	}
	for _, i := range l.invokes {
		if c, ok := l.loadCall(i.call); ok {
			counts[c.Tool]++
		}
	}
	l.countChildren(counts)
	for name, entries := range l.executions {
		n := 0
		for _, e := range entries {
			if !e.void {
				n++
			}
		}
		if n > 0 {
			counts[name] = n
		}
	}
	return counts
}

// countChildren counts the runs that calls are and that have begun.
func (l *effectLog) countChildren(counts map[string]int) {
	run, err := l.sim.journal.Load(context.Background(), tenant, l.run)
	if err != nil {
		return
	}
	for _, c := range run.State.Calls() {
		if _, err := l.sim.journal.Head(context.Background(), tenant, c.Child); c.Child != "" && err == nil {
			counts[c.Tool]++
		}
	}
}

// emitted are the events that went out.
func (l *effectLog) emitted() []policy.Outgoing { return append([]policy.Outgoing{}, l.events...) }

// unusedResults says which lists of results were not used up.
func (l *effectLog) unusedResults() []Failure {
	var list []Failure
	for _, c := range l.scenario.tools {
		if n := len(c.results); n > 1 && l.usedResults[c.spec.Name] < n {
			got := fmt.Sprintf("%d of %d results used", l.usedResults[c.spec.Name], n)
			list = append(list, Failure{Path: fmt.Sprintf("%s:%d: %s", l.scenario.archive, c.resultsLine, c.spec.Name), Got: got, Want: "all"})
		}
	}
	return list
}

// fence is what a tool keeps of having said that a call did not happen and never will by the attempts of before: of the invocations that had begun
// by then, only the one that it was said to may still make it.
type fence struct{ invocation, started int }

func (f fence) excludes(invocation int) bool {
	return invocation <= f.started && invocation != f.invocation
}

// isUnderWay reports whether somebody is still at it, and may yet bring about its effect.
func (e *toolExecution) isUnderWay() bool {
	return !e.finished && !e.returned && !e.void && !fault.Crashed(e.ctx)
}

// recordExecution records that a tool is entered.
func (l *effectLog) recordExecution(ctx context.Context, c *toolScript, x executionKey, of tool.Call) *toolExecution {
	name := c.spec.Name
	if before := l.newestExecution(of.Run, name, x); before != nil && !before.finished {
		if !l.isRepeatable(name) && before.isUnderWay() {
			l.sim.addViolation("effects", "call "+x.call+" was entered while it was under way", "once")
		}
		before.void = true
	}
	e := &toolExecution{ctx: ctx, run: of.Run, key: x, args: of.Args, result: l.choose(c, x), repeatable: l.isRepeatable(name)}
	l.sim.toolExecutions = append(l.sim.toolExecutions, e)
	l.executions[name] = append(l.executions[name], e)
	return e
}

// choose is the result of an execution.
func (l *effectLog) choose(c *toolScript, x executionKey) result {
	return c.results[min(l.reserveResult(c.spec.Name, x), len(c.results)-1)]
}

// reserveResult is the place of an execution among its tool's results. Executions of the call before it that never came to be
// entered have theirs.
func (l *effectLog) reserveResult(name string, x executionKey) int {
	for i := 1; i <= x.n; i++ {
		before := executionKey{x.call, i}
		if _, ok := l.resultIndex[before]; !ok {
			l.resultIndex[before] = l.usedResults[name]
			l.usedResults[name]++
		}
	}
	return l.resultIndex[x]
}

// reuseResult makes the execution after x stand for x.
func (l *effectLog) reuseResult(name string, x executionKey) {
	l.resultIndex[executionKey{x.call, x.n + 1}] = l.reserveResult(name, x)
}

// fakeTool is a tool as the runtime sees it.
type fakeTool struct {
	ledger *effectLog
	canned *toolScript
}

var _ tool.Reconciler = (*fakeTool)(nil)

func (t *fakeTool) Spec() agent.ToolSpec { return t.canned.spec }

// Call enters the tool: people who wait for that act, time passes, and then it takes effect.
func (t *fakeTool) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	l := t.ledger
	entered := c.Args
	n, err := l.executionNumber(c.ID)
	if err != nil {
		return agent.ToolResultData{}, err
	}
	if len(t.canned.results) == 0 {
		l.sim.addFailure(Failure{Path: t.canned.spec.Name, Got: "entered", Want: "never entered: it has no results"})
		return tool.Errorf("%s has no results", t.canned.spec.Name), nil
	}
	if l.fences[c.Run+"/"+c.ID].excludes(fault.Number(ctx)) {
		l.sim.diverged = true // it may be first to say that nothing came of the call
		return agent.ToolResultData{}, errAttemptFenced
	}
	e := l.recordExecution(ctx, t.canned, executionKey{c.ID, n + c.Attempt - 1}, c)
	defer func() { e.returned = true }()
	if c, ok := l.loadCall(c.ID); ok {
		l.checkAuthorized(c, entered)
	}
	l.checkToolInput(t.canned.spec.Name+".input", e.result.input, c.Args)
	l.checkToolInput(t.canned.spec.Name+".resume", e.result.resume, c.Resume)
	l.checkToolInput(t.canned.spec.Name+".state", e.result.state, c.State)
	l.sim.actAt(trigger{"executing", c.ID, l.agentName})
	if err := l.sim.clock.Sleep(ctx, e.result.sleep); err != nil {
		e.void = fault.Crashed(ctx)
		return agent.ToolResultData{}, err
	}
	if fault.Crashed(ctx) {
		e.void = true
		return agent.ToolResultData{}, fault.ErrExit
	}
	if e.result.failure != nil {
		e.finished = true
		return agent.ToolResultData{}, e.result.failure
	}
	if e.finished = true; e.result.data.Suspend == nil { // who asks for input has done nothing yet
		l.newestEffects[c.Run+"/"+c.ID] = e
	}
	return e.result.data, nil
}

// errAttemptFenced is what a tool says to an attempt of which it has said before that it will never happen.
var errAttemptFenced = errors.New("this attempt was called off")

// markResultLost notes that nobody hears what the tool's last entry for a call gives.
func (l *effectLog) markResultLost(name, call string) {
	for _, e := range slices.Backward(l.executions[name]) {
		if e.key.call == call {
			e.resultLost = true
			return
		}
	}
}

// Reconcile tells what became of a call, truthfully or not at all. Where the lost execution asked for input, it says what. Of one that did not
// happen it sees to it that it never will.
func (t *fakeTool) Reconcile(ctx context.Context, c tool.Call) (tool.Outcome, agent.ToolResultData, error) {
	outcome, data, err := t.findOutcome(c)
	if outcome == tool.OutcomeNotDone {
		t.ledger.fences[c.Run+"/"+c.ID] = fence{fault.Number(ctx), t.ledger.sim.faults.Started()}
	}
	return outcome, data, err
}

// findOutcome is what Reconcile finds.
func (t *fakeTool) findOutcome(c tool.Call) (tool.Outcome, agent.ToolResultData, error) {
	if !t.canned.reconciles {
		return tool.OutcomeUnknown, agent.ToolResultData{}, nil
	}
	if e := t.ledger.newestEffects[c.Run+"/"+c.ID]; e != nil {
		return tool.OutcomeDone, e.result.data, nil
	}
	n, err := t.ledger.executionNumber(c.ID)
	if err != nil {
		return "", agent.ToolResultData{}, err
	}
	e := t.ledger.newestExecution(c.Run, t.canned.spec.Name, executionKey{c.ID, n})
	if e != nil && e.isUnderWay() {
		return tool.OutcomeUnknown, agent.ToolResultData{}, nil
	}
	if e != nil && e.finished {
		if e.result.failure != nil { // it was never carried out, and will not be
			e.void = true
			return tool.OutcomeNotDone, agent.ToolResultData{}, nil
		}
		return tool.OutcomeDone, e.result.data, nil
	}
	return tool.OutcomeNotDone, agent.ToolResultData{}, nil
}

// checkToolInput compares what a tool is entered with.
func (sr *scriptedRun) checkToolInput(path string, want, got json.RawMessage) {
	if want == nil {
		return
	}
	for _, m := range match.Match(want, got) {
		f := Failure{Path: match.Join(path, m.Path), Got: m.Got, Want: m.Want}
		if !slices.Contains(sr.sim.failures, f) {
			sr.sim.addFailure(f)
		}
	}
}
