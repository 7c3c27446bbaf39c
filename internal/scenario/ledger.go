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

// ledger is the world outside: what tools were entered, and what came of it. No crash of an invocation reaches it.
type ledger struct {
	*part   // whose run has these tools
	tools   map[string]*canned
	used    map[string]int      // by tool: results given out
	index   map[execution]int   // which result an execution gets; a repeated one gets the same
	entries map[string][]*entry // by tool
	effects map[string]*entry   // by run and call: the newest that took effect
	rerun   map[string]int      // by call: how often people, or the tool itself, had it run again
	fences  map[string]fence    // by run and call
	invoked []invoked           // functions that answer later, each key once
	events  []policy.Outgoing   // in the order in which they first went out, each id once
}

// execution is the n-th of a call, as the journal counts.
type execution struct {
	call string
	n    int
}

// entry is one entering of a tool.
type entry struct {
	ctx        context.Context // of the invocation that entered it
	run        string
	execution  execution
	args       json.RawMessage
	result     result
	done       bool // it took effect
	left       bool // its tool has returned, or its invocation is dead
	void       bool // it had no effect and never will: its invocation died, or the same execution was begun again
	lost       bool // nobody hears its result, crash or not: its server dies before it answers
	repeatable bool // its tool is
	told       bool // the invocation that made it has ended well while the run was open: its result is on record
}

func newLedger(p *part, tools []canned) *ledger {
	l := &ledger{
		part: p, tools: map[string]*canned{}, used: map[string]int{}, index: map[execution]int{}, entries: map[string][]*entry{}, effects: map[string]*entry{}, rerun: map[string]int{},
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
func (l *ledger) Emit(_ context.Context, e policy.Outgoing) error {
	for _, seen := range l.events {
		if seen.ID != e.ID {
			continue
		}
		if !reflect.DeepEqual(seen, e) {
			l.stage.fail(Failure{Path: "emitted", Got: fmt.Sprintf("%s again, and not the same", e.ID), Want: "one event for each id"})
		}
		return nil
	}
	l.events = append(l.events, e)
	if e.Call != "" {
		l.stage.act(moment{"executing", e.Call, l.name})
	}
	return nil
}

// executed counts the enterings of each tool that was entered, less those that a crash undid, and what services and functions that answer later were asked.
func (l *ledger) executed() map[string]int {
	counts := map[string]int{}
	for _, e := range l.events {
		if c, ok := l.called(e.Call); ok {
			counts[c.Tool]++
		}
	}
	for _, i := range l.invoked {
		if c, ok := l.called(i.call); ok {
			counts[c.Tool]++
		}
	}
	l.children(counts)
	for name, entries := range l.entries {
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

// children counts the runs that calls are and that have begun.
func (l *ledger) children(counts map[string]int) {
	run, err := l.stage.record.Load(context.Background(), tenant, l.run)
	if err != nil {
		return
	}
	for _, c := range run.State.Calls() {
		if _, err := l.stage.record.Head(context.Background(), tenant, c.Child); c.Child != "" && err == nil {
			counts[c.Tool]++
		}
	}
}

// emitted are the events that went out.
func (l *ledger) emitted() []policy.Outgoing { return append([]policy.Outgoing{}, l.events...) }

// leftover says which lists of results were not used up.
func (l *ledger) leftover() []Failure {
	var list []Failure
	for _, c := range l.scenario.tools {
		if n := len(c.results); n > 1 && l.used[c.spec.Name] < n {
			got := fmt.Sprintf("%d of %d results used", l.used[c.spec.Name], n)
			list = append(list, Failure{Path: fmt.Sprintf("%s:%d: %s", l.scenario.archive, c.line, c.spec.Name), Got: got, Want: "all"})
		}
	}
	return list
}

// fence is what a tool keeps of having said that a call did not happen and never will by the attempts of before: of the invocations that had begun
// by then, only the one that it was said to may still make it.
type fence struct{ to, begun int }

func (f fence) excludes(invocation int) bool { return invocation <= f.begun && invocation != f.to }

// underWay reports whether somebody is still at it, and may yet bring about its effect.
func (e *entry) underWay() bool {
	return !e.done && !e.left && !e.void && !fault.Crashed(e.ctx)
}

// enter records that a tool is entered.
func (l *ledger) enter(ctx context.Context, c *canned, x execution, of tool.Call) *entry {
	name := c.spec.Name
	if before := l.newest(of.Run, name, x); before != nil && !before.done {
		if !l.repeatable(name) && before.underWay() {
			l.stage.violate("effects", "call "+x.call+" was entered while it was under way", "once")
		}
		before.void = true
	}
	e := &entry{ctx: ctx, run: of.Run, execution: x, args: of.Args, result: l.choose(c, x), repeatable: l.repeatable(name)}
	l.stage.entered = append(l.stage.entered, e)
	l.entries[name] = append(l.entries[name], e)
	return e
}

// choose is the result of an execution.
func (l *ledger) choose(c *canned, x execution) result {
	return c.results[min(l.reserve(c.spec.Name, x), len(c.results)-1)]
}

// reserve is the place of an execution among its tool's results. Executions of the call before it that never came to be
// entered have theirs.
func (l *ledger) reserve(name string, x execution) int {
	for i := 1; i <= x.n; i++ {
		before := execution{x.call, i}
		if _, ok := l.index[before]; !ok {
			l.index[before] = l.used[name]
			l.used[name]++
		}
	}
	return l.index[x]
}

// again makes the execution after x stand for x.
func (l *ledger) again(name string, x execution) {
	l.index[execution{x.call, x.n + 1}] = l.reserve(name, x)
}

// cannedTool is a tool as the runtime sees it.
type cannedTool struct {
	ledger *ledger
	canned *canned
}

var _ tool.Reconciler = (*cannedTool)(nil)

func (t *cannedTool) Spec() agent.ToolSpec { return t.canned.spec }

// Call enters the tool: people who wait for that act, time passes, and then it takes effect.
func (t *cannedTool) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	l := t.ledger
	entered := c.Args
	n, err := l.executions(c.ID)
	if err != nil {
		return agent.ToolResultData{}, err
	}
	if len(t.canned.results) == 0 {
		l.stage.fail(Failure{Path: t.canned.spec.Name, Got: "entered", Want: "never entered: it has no results"})
		return tool.Errorf("%s has no results", t.canned.spec.Name), nil
	}
	if l.fences[c.Run+"/"+c.ID].excludes(fault.Number(ctx)) {
		l.stage.diverged = true // it may be first to say that nothing came of the call
		return agent.ToolResultData{}, errCalledOff
	}
	e := l.enter(ctx, t.canned, execution{c.ID, n + c.Attempt - 1}, c)
	defer func() { e.left = true }()
	if c, ok := l.called(c.ID); ok {
		l.authorised(c, entered)
	}
	l.checkEntered(t.canned.spec.Name+".input", e.result.input, c.Args)
	l.checkEntered(t.canned.spec.Name+".resume", e.result.heard, c.Resume)
	l.checkEntered(t.canned.spec.Name+".state", e.result.state, c.State)
	l.stage.act(moment{"executing", c.ID, l.name})
	if err := l.stage.clock.Sleep(ctx, e.result.sleep); err != nil {
		e.void = fault.Crashed(ctx)
		return agent.ToolResultData{}, err
	}
	if fault.Crashed(ctx) {
		e.void = true
		return agent.ToolResultData{}, fault.ErrExit
	}
	if e.result.fails != nil {
		e.done = true
		return agent.ToolResultData{}, e.result.fails
	}
	if e.done = true; e.result.data.Suspend == nil { // who asks for input has done nothing yet
		l.effects[c.Run+"/"+c.ID] = e
	}
	return e.result.data, nil
}

// errCalledOff is what a tool says to an attempt of which it has said before that it will never happen.
var errCalledOff = errors.New("this attempt was called off")

// lose notes that nobody hears what the tool's last entry for a call gives.
func (l *ledger) lose(name, call string) {
	for _, e := range slices.Backward(l.entries[name]) {
		if e.execution.call == call {
			e.lost = true
			return
		}
	}
}

// Reconcile tells what became of a call, truthfully or not at all. Where the lost execution asked for input, it says what. Of one that did not
// happen it sees to it that it never will.
func (t *cannedTool) Reconcile(ctx context.Context, c tool.Call) (tool.Outcome, agent.ToolResultData, error) {
	outcome, data, err := t.becameOf(c)
	if outcome == tool.OutcomeNotDone {
		t.ledger.fences[c.Run+"/"+c.ID] = fence{fault.Number(ctx), t.ledger.stage.faults.Started()}
	}
	return outcome, data, err
}

// becameOf is what Reconcile finds.
func (t *cannedTool) becameOf(c tool.Call) (tool.Outcome, agent.ToolResultData, error) {
	if !t.canned.reconciles {
		return tool.OutcomeUnknown, agent.ToolResultData{}, nil
	}
	if e := t.ledger.effects[c.Run+"/"+c.ID]; e != nil {
		return tool.OutcomeDone, e.result.data, nil
	}
	n, err := t.ledger.executions(c.ID)
	if err != nil {
		return "", agent.ToolResultData{}, err
	}
	e := t.ledger.newest(c.Run, t.canned.spec.Name, execution{c.ID, n})
	if e != nil && e.underWay() {
		return tool.OutcomeUnknown, agent.ToolResultData{}, nil
	}
	if e != nil && e.done {
		if e.result.fails != nil { // it was never carried out, and will not be
			e.void = true
			return tool.OutcomeNotDone, agent.ToolResultData{}, nil
		}
		return tool.OutcomeDone, e.result.data, nil
	}
	return tool.OutcomeNotDone, agent.ToolResultData{}, nil
}

// checkEntered compares what a tool is entered with.
func (p *part) checkEntered(path string, want, got json.RawMessage) {
	if want == nil {
		return
	}
	for _, m := range match.Match(want, got) {
		f := Failure{Path: match.Join(path, m.Path), Got: m.Got, Want: m.Want}
		if !slices.Contains(p.stage.failures, f) {
			p.stage.fail(f)
		}
	}
}
