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
	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/tool"
)

// effectLog records the effects of a run outside the product: tool executions, events and invoked functions. No crash
// changes it.
type effectLog struct {
	*scriptedRun  // the run of the tools
	tools         map[string]*toolScript
	usedResults   map[string]int              // by tool: how many results were given
	resultIndex   map[executionKey]int        // the index of an execution's result; a repetition gets the same result
	executions    map[string][]*toolExecution // by tool
	newestEffects map[string]*toolExecution   // by run and call: the newest execution that took effect
	reruns        map[string]int              // by call: how often people had it run again
	fences        map[string]fence            // by run and call
	invokes       []recordedInvoke            // of functions that answer later, each key once
	events        []policy.Outgoing           // in the order of their first delivery, each id once
}

// executionKey is the n-th execution of a call, as the journal counts them.
type executionKey struct {
	call string
	n    int
}

// toolExecution is one execution of a tool.
type toolExecution struct {
	ctx             context.Context // of the invocation that started it
	run             string
	key             executionKey
	args            json.RawMessage
	result          result
	finished        bool // the tool has done its work
	returned        bool // the tool has returned, or the invocation is dead
	void            bool // without an effect for ever: the invocation died, or the execution was started again
	resultLost      bool // the server dies before it answers
	repeatable      bool // a crash may repeat the tool
	resultDelivered bool // its invocation ended without an error while the run was open, so the journal must have the result
}

// Emit records an event. A repeated id must have the same event.
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

// executionCounts counts by tool the executions that a crash did not void, the calls of services and functions, and the
// runs of delegates.
func (l *effectLog) executionCounts() map[string]int {
	counts := map[string]int{}
	for _, e := range l.events {
		if c, ok := l.sim.loadCall(l.run, e.Call); ok {
			counts[c.Tool]++
		}
	}
	for _, i := range l.invokes {
		if c, ok := l.sim.loadCall(l.run, i.call); ok {
			counts[c.Tool]++
		}
	}
	if run, err := l.sim.journal.Load(context.Background(), tenant, l.run); err == nil {
		for _, c := range run.State.Calls() {
			if _, err := l.sim.journal.Head(context.Background(), tenant, c.Child); c.Child != "" && err == nil {
				counts[c.Tool]++
			}
		}
	}
	for name, executions := range l.executions {
		n := 0
		for _, e := range executions {
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

// unusedResults reports the tools whose results were not all used.
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

// fence is set when a tool reports that a call did not happen. Of the invocations that had started by then, only the
// one that asked may still execute the call.
type fence struct{ invocation, started int }

// isUnderWay reports whether the execution may still take effect.
func (e *toolExecution) isUnderWay() bool {
	return !e.finished && !e.returned && !e.void && !fault.HasCrashed(e.ctx)
}

// recordExecution records that a tool is called. An unfinished earlier attempt becomes void.
func (l *effectLog) recordExecution(ctx context.Context, c *toolScript, x executionKey, of tool.Call) *toolExecution {
	name := c.spec.Name
	if before := l.newestExecution(of.Run, name, x); before != nil && !before.finished {
		if !l.isRepeatable(name) && before.isUnderWay() {
			l.sim.addViolation("effects", "call "+x.call+" was entered while it was under way", "once")
		}
		before.void = true
	}
	e := &toolExecution{ctx: ctx, run: of.Run, key: x, args: of.Args, repeatable: l.isRepeatable(name)}
	e.result = c.results[min(l.reserveResult(name, x), len(c.results)-1)]
	l.sim.toolExecutions = append(l.sim.toolExecutions, e)
	l.executions[name] = append(l.executions[name], e)
	return e
}

// reserveResult returns the index of an execution's result. Earlier executions of the call have results, too, even if
// they never reached the tool.
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

// fakeTool is a scripted tool as the runtime sees it.
type fakeTool struct {
	log    *effectLog
	script *toolScript
}

var _ tool.Reconciler = (*fakeTool)(nil)

func (t *fakeTool) Spec() agent.ToolSpec { return t.script.spec }

// Call executes the tool: people with this trigger act, the scripted time passes, and then the tool takes effect.
func (t *fakeTool) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	l := t.log
	n, err := l.executionNumber(c.ID)
	if err != nil {
		return agent.ToolResultData{}, err
	}
	if len(t.script.results) == 0 {
		l.sim.addFailure(Failure{Path: t.script.spec.Name, Got: "entered", Want: "never entered: it has no results"})
		return tool.Errorf("%s has no results", t.script.spec.Name), nil
	}
	if f, now := l.fences[c.Run+"/"+c.ID], fault.InvocationNumber(ctx); now <= f.started && now != f.invocation {
		l.sim.diverged = true // this attempt may be the first to report the call as failed
		return agent.ToolResultData{}, errAttemptFenced
	}
	e := l.recordExecution(ctx, t.script, executionKey{c.ID, n + c.Attempt - 1}, c)
	defer func() { e.returned = true }()
	if call, ok := l.sim.loadCall(l.run, c.ID); ok {
		l.checkAuthorized(call, c.Args)
	}
	l.checkToolInput(t.script.spec.Name+".input", e.result.input, c.Args)
	l.checkToolInput(t.script.spec.Name+".resume", e.result.resume, c.Resume)
	l.checkToolInput(t.script.spec.Name+".state", e.result.state, c.State)
	l.sim.actAt(trigger{"executing", c.ID, l.agentName})
	if err := l.sim.clock.Sleep(ctx, e.result.sleep); err != nil {
		e.void = fault.HasCrashed(ctx)
		return agent.ToolResultData{}, err
	}
	if fault.HasCrashed(ctx) {
		e.void = true
		return agent.ToolResultData{}, fault.ErrExit
	}
	if e.result.failure != nil {
		e.finished = true
		return agent.ToolResultData{}, e.result.failure
	}
	if e.finished = true; e.result.data.Suspend == nil { // a tool that asks for input has no effect yet
		l.newestEffects[c.Run+"/"+c.ID] = e
	}
	return e.result.data, nil
}

// errAttemptFenced refuses an attempt that a fence excludes.
var errAttemptFenced = errors.New("this attempt was called off")

// Reconcile reports what became of a call. It fences a call that did not happen.
func (t *fakeTool) Reconcile(ctx context.Context, c tool.Call) (tool.Outcome, agent.ToolResultData, error) {
	outcome, data, err := t.findOutcome(c)
	if outcome == tool.OutcomeNotDone {
		t.log.fences[c.Run+"/"+c.ID] = fence{fault.InvocationNumber(ctx), t.log.sim.faults.StartedInvocations()}
	}
	return outcome, data, err
}

// findOutcome returns what the log has of a call. The outcome is unknown for a tool with reconcile: false and for a
// call that is under way.
func (t *fakeTool) findOutcome(c tool.Call) (tool.Outcome, agent.ToolResultData, error) {
	if !t.script.reconciles {
		return tool.OutcomeUnknown, agent.ToolResultData{}, nil
	}
	if e := t.log.newestEffects[c.Run+"/"+c.ID]; e != nil {
		return tool.OutcomeDone, e.result.data, nil
	}
	n, err := t.log.executionNumber(c.ID)
	if err != nil {
		return "", agent.ToolResultData{}, err
	}
	e := t.log.newestExecution(c.Run, t.script.spec.Name, executionKey{c.ID, n})
	if e != nil && e.isUnderWay() {
		return tool.OutcomeUnknown, agent.ToolResultData{}, nil
	}
	if e != nil && e.finished {
		if e.result.failure != nil { // the execution failed without an effect
			e.void = true
			return tool.OutcomeNotDone, agent.ToolResultData{}, nil
		}
		return tool.OutcomeDone, e.result.data, nil
	}
	return tool.OutcomeNotDone, agent.ToolResultData{}, nil
}

// checkToolInput compares what a tool is called with.
func (sr *scriptedRun) checkToolInput(path string, want, got json.RawMessage) {
	if want == nil {
		return
	}
	for _, m := range script.Match(want, got) {
		f := Failure{Path: script.Join(path, m.Path), Got: m.Got, Want: m.Want}
		if !slices.Contains(sr.sim.failures, f) {
			sr.sim.addFailure(f)
		}
	}
}

// newestExecution returns the last attempt of an execution; nil if none reached the tool.
func (l *effectLog) newestExecution(run, name string, x executionKey) *toolExecution {
	for _, e := range slices.Backward(l.executions[name]) {
		if e.run == run && e.key == x {
			return e
		}
	}
	return nil
}

// recordedInvoke is the invocation of a function as want.json has it: the function and its payload.
type recordedInvoke struct {
	Function  string
	key, call string
	payload   json.RawMessage
}

// MarshalJSON returns the payload with the function's name in it.
func (i recordedInvoke) MarshalJSON() ([]byte, error) {
	name, err := json.Marshal(i.Function)
	return append(append(append([]byte(`{"function":`), name...), ','), i.payload[1:]...), err
}
