package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

type toolScript struct {
	spec        agent.ToolSpec
	results     []result // in order of execution; the last one repeats. None = the tool must not be called
	reconciles  bool
	resultsLine int // of the results in the archive
}

type result struct {
	resultForm
	data    agent.ToolResultData
	sleep   time.Duration
	failure error // the call fails with this error; nil = it does not fail
}

// resultForm is a result as it is written.
type resultForm struct {
	Call    string          `json:"call,omitempty"` // whose execution it is of; "" = it is the next one's
	Text    *string         `json:"text,omitempty"`
	JSON    json.RawMessage `json:"json,omitempty"`
	Error   *string         `json:"error,omitempty"`
	Fails   *string         `json:"fails,omitempty"`
	Media   *run.Media      `json:"media,omitempty"`
	Sleep   string          `json:"sleep,omitempty"`
	Suspend *run.Ticket     `json:"suspend,omitempty"`
	Patch   []patchForm     `json:"patch,omitempty"`

	Input  json.RawMessage `json:"input,omitempty"`  // the wanted arguments; nil = any
	Resume json.RawMessage `json:"resume,omitempty"` // the wanted answer to the tool's question; null = none, nil = any
	State  json.RawMessage `json:"state,omitempty"`  // the wanted view of the run's state; nil = any
}

// patchForm is a change of the run's state as it is written. Without a value, it removes the member.
type patchForm struct {
	Path  *string         `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

func (ps *problems) loadToolScript(t agentfile.Tool) toolScript {
	c := toolScript{spec: t.Spec, reconciles: true, resultsLine: t.Line}
	if v, ok := t.Extra["reconcile"]; ok {
		if json.Unmarshal(v.JSON, &c.reconciles) != nil || isNull(v.JSON) {
			ps.at(v.Line, v.Key, "want true or false")
		}
	}
	v, ok := t.Extra["results"]
	if !ok {
		return c
	}
	if t.Spec.AnsweredLater() {
		kind := "kind " + string(t.Spec.Kind)
		if t.Spec.Kind == agent.KindLambda {
			kind = "async"
		}
		ps.at(v.Line, v.Key, "does not go with %s: people answer", kind)
	}
	c.resultsLine = v.Line
	if len(v.Items) == 0 {
		ps.at(v.Line, v.Key, "want a list of one or more")
	}
	for _, item := range v.Items {
		r, key, text := parseResult(item.JSON)
		if text != "" {
			ps.at(item.Line, joinPath(item.Key, key), "%s", text)
		}
		c.results = append(c.results, r)
	}
	for _, r := range c.results {
		if (r.Call == "") != (c.results[0].Call == "") {
			ps.at(v.Line, v.Key, "want a call in each of them, or in none")
			break
		}
	}
	return c
}

// ofCall returns the indexes of the results that name a call, in order; none = its executions take the next ones.
func (c *toolScript) ofCall(call string) (own []int) {
	for i, r := range c.results {
		if r.Call == call {
			own = append(own, i)
		}
	}
	return own
}

// parseResult parses a result. If it is invalid, text describes the problem with the key.
func parseResult(raw json.RawMessage) (r result, key, text string) {
	f := &r.resultForm
	if _, key, text := decodeStrict(raw, f); text != "" {
		return result{}, key, text
	}
	r.data = agent.ToolResultData{Suspend: f.Suspend, IsError: f.Error != nil}
	switch {
	case f.Text != nil:
		r.data.Content = *f.Text
	case f.Error != nil:
		r.data.Content = *f.Error
	case f.JSON != nil:
		r.data.Content = string(f.JSON) // compact, since agentfile made it from YAML
	}
	if f.Suspend != nil {
		if _, err := policy.NormalizeTicket(*f.Suspend); err != nil {
			return result{}, "suspend", err.Error()
		}
	}
	if f.Fails != nil {
		r.failure = errors.New(*f.Fails)
	}
	if f.Sleep != "" {
		var err error
		if r.sleep, err = agentfile.ParseDuration(f.Sleep); err != nil {
			return result{}, "sleep", err.Error()
		}
	}
	if f.Media != nil {
		r.data.Media = []run.Media{*f.Media}
		if f.Media.MediaType == "" || (f.Media.Data == "") == (f.Media.Blob == "") {
			return r, "", "media: want a mediaType, and either data or blob"
		}
	}
	given := 0
	for _, isSet := range []bool{f.Text != nil, f.Error != nil, f.JSON != nil, f.Suspend != nil, f.Fails != nil} {
		if isSet {
			given++
		}
	}
	switch {
	case given > 1 || given == 0 && f.Media == nil:
		return r, "", fmt.Sprintf("got %d of text, json, error, fails and suspend, want one (or media)", given)
	case f.Patch != nil && len(f.Patch) == 0:
		return r, "patch", "want a list of one or more"
	case f.Patch != nil && (f.Error != nil || f.Fails != nil):
		return r, "patch", "a call that fails changes nothing; want no error beside it"
	}
	for i, p := range f.Patch { // the run checks whether they apply
		if p.Path == nil {
			return r, "patch", fmt.Sprintf("patch %d: want a path, a JSON Pointer", i)
		}
		r.data.Patch = append(r.data.Patch, run.Patch{Path: *p.Path, Value: p.Value})
	}
	return r, "", ""
}

// executionKey is the n-th execution of a call, as the journal counts them.
type executionKey struct {
	call string
	n    int // negative: of the run that a fork began from, behind that point
}

type toolExecution struct {
	ctx        context.Context // of the invocation that started it
	by         *scriptedRun
	run, tool  string
	key        executionKey
	args       json.RawMessage
	result     result
	finished   bool // the tool has done its work
	returned   bool // the tool has returned, or the invocation is dead
	void       bool // without an effect for ever: the invocation died, or the execution was started again
	resultLost bool // the server dies before it answers
	repeatable bool // a crash may repeat the tool
	// its invocation ended without an error while the run was open, so the journal must have the result
	resultDelivered bool
}

// executionCounts counts by tool the executions that a crash did not void, the calls of services and functions, and the
// runs of delegates.
func (sr *scriptedRun) executionCounts() map[string]int {
	counts := map[string]int{}
	for _, e := range sr.events {
		if c, ok := sr.sim.loadCall(sr.run, e.Call); ok {
			counts[c.Tool]++
		}
	}
	for _, i := range sr.invokes {
		if c, ok := sr.sim.loadCall(sr.run, i.call); ok {
			counts[c.Tool]++
		}
	}
	if l, err := sr.sim.load(sr.run); err == nil {
		for _, c := range sr.sim.startedChildren(&l.State) {
			counts[c.Tool]++
		}
	}
	for _, e := range sr.sim.toolExecutions {
		if e.by == sr && !e.void {
			counts[e.tool]++
		}
	}
	return counts
}

// fence is set when a tool reports that a call did not happen. Of the invocations that had started by then, only the
// one that asked may still execute the call.
type fence struct{ invocation, started int }

// isUnderWay reports whether the execution may still take effect.
func (e *toolExecution) isUnderWay() bool {
	return !e.finished && !e.returned && !e.void && !fault.HasCrashed(e.ctx)
}

// recordExecution records that a tool is called. An unfinished earlier attempt becomes void.
func (sr *scriptedRun) recordExecution(
	ctx context.Context, c *toolScript, x executionKey, of tool.Call,
) *toolExecution {
	name := c.spec.Name
	if before := sr.sim.newestExecution(of.Run, name, x); before != nil && !before.finished {
		if !before.repeatable && before.isUnderWay() {
			sr.sim.addViolation("effects", "call "+x.call+" was entered while it was under way", "once")
		}
		before.void = true
	}
	e := &toolExecution{ctx: ctx, by: sr, run: of.Run, tool: name, key: x, args: of.Args,
		repeatable: sr.isRepeatable(name)}
	e.result = c.results[min(sr.reserveResult(name, x), len(c.results)-1)]
	sr.sim.toolExecutions = append(sr.sim.toolExecutions, e)
	return e
}

// reserveResult returns the index of an execution's result. Earlier executions of the call have results, too, even if
// they never reached the tool.
func (sr *scriptedRun) reserveResult(name string, x executionKey) int {
	var own []int
	if t := sr.tools[name]; t != nil {
		own = t.ofCall(x.call)
	}
	for i := 1; i <= x.n; i++ {
		before := executionKey{x.call, i}
		switch _, ok := sr.resultIndex[before]; {
		case ok:
		case len(own) > 0:
			used := map[int]bool{} // fewer than executions: a rerun after a crash has the result of the one before
			for of, at := range sr.resultIndex {
				if of.call == x.call {
					used[at] = true
				}
			}
			sr.resultIndex[before] = own[min(len(used), len(own)-1)]
			if len(used) < len(own) {
				sr.usedResults[name]++
			}
		default:
			sr.resultIndex[before] = sr.usedResults[name]
			sr.usedResults[name]++
		}
	}
	return sr.resultIndex[x]
}

// forgetExecutions lets a fork carry out again what its run has carried out since, each time with a result of its own.
func (sr *scriptedRun) forgetExecutions(past *run.AgentState) {
	for x, at := range maps.Clone(sr.resultIndex) {
		c, _ := past.Call(x.call)
		if c.Open() && !c.Entered() {
			c.Executions = 0 // it starts again
		}
		if x.n > c.Executions {
			delete(sr.resultIndex, x)
			sr.resultIndex[executionKey{x.call, -x.n}] = at
		}
	}
}

// executeTool executes a tool: people with this trigger act, the scripted time passes, and then the tool takes effect.
func (sr *scriptedRun) executeTool(ctx context.Context, t *toolScript, c tool.Call) (agent.ToolResultData, error) {
	n, err := sr.executionNumber(c.ID)
	if err != nil {
		return agent.ToolResultData{}, err
	}
	if len(t.results) == 0 || t.results[0].Call != "" && len(t.ofCall(c.ID)) == 0 {
		sr.sim.addFailure(t.spec.Name, "entered", "never entered: it has no results")
		return tool.Errorf("%s has no results", t.spec.Name), nil
	}
	if f, now := sr.fences[c.Run+"/"+c.ID], fault.InvocationNumber(ctx); now <= f.started && now != f.invocation {
		sr.sim.Diverged = true // this attempt may be the first to report the call as failed
		return agent.ToolResultData{}, errAttemptFenced
	}
	e := sr.recordExecution(ctx, t, executionKey{c.ID, n + c.Attempt - 1}, c)
	defer func() { e.returned = true }()
	if call, ok := sr.sim.loadCall(sr.run, c.ID); ok {
		sr.checkAuthorized(call, c.Args)
	}
	sr.checkToolInput(t.spec.Name+".input", e.result.Input, c.Args)
	sr.checkToolInput(t.spec.Name+".resume", e.result.Resume, c.Resume)
	sr.checkToolInput(t.spec.Name+".state", e.result.State, c.State)
	sr.sim.actAt(trigger{"executing", c.ID, sr.agentName})
	if err := sr.sim.clock.Sleep(ctx, e.result.sleep); err != nil {
		e.void = fault.HasCrashed(ctx)
		return agent.ToolResultData{}, err
	}
	if fault.HasCrashed(ctx) {
		e.void = true
		return agent.ToolResultData{}, fault.ErrExit
	}
	if e.finished = true; e.result.failure != nil {
		return agent.ToolResultData{}, e.result.failure
	}
	return e.result.data, nil
}

// errAttemptFenced refuses an attempt that a fence excludes.
var errAttemptFenced = errors.New("this attempt was called off")

// reconcileTool reports what became of a call. The outcome is unknown for a tool with reconcile: false and for a call
// that is under way. A call that did not happen is fenced.
func (sr *scriptedRun) reconcileTool(
	ctx context.Context, t *toolScript, c tool.Call,
) (tool.Outcome, agent.ToolResultData, error) {
	if !t.reconciles {
		return tool.OutcomeUnknown, agent.ToolResultData{}, nil
	}
	for _, e := range slices.Backward(sr.sim.toolExecutions) {
		if e.run == c.Run && e.key.call == c.ID && e.tookEffect() {
			return tool.OutcomeDone, e.result.data, nil
		}
	}
	n, err := sr.executionNumber(c.ID)
	if err != nil {
		return "", agent.ToolResultData{}, err
	}
	e := sr.sim.newestExecution(c.Run, t.spec.Name, executionKey{c.ID, n})
	switch {
	case e == nil:
	case e.isUnderWay():
		return tool.OutcomeUnknown, agent.ToolResultData{}, nil
	case e.finished && e.result.failure == nil:
		return tool.OutcomeDone, e.result.data, nil
	default: // without an effect
		e.void = e.void || e.finished
	}
	sr.fences[c.Run+"/"+c.ID] = fence{fault.InvocationNumber(ctx), sr.sim.injector.StartedInvocations()}
	return tool.OutcomeNotDone, agent.ToolResultData{}, nil
}

func (sr *scriptedRun) checkToolInput(path string, want, got json.RawMessage) {
	if want == nil {
		return
	}
	for _, m := range script.Match(want, got) {
		m.Path = under(path, m)
		if !slices.Contains(sr.sim.failures, m) {
			sr.sim.failures = append(sr.sim.failures, m)
		}
	}
}

// newestExecution returns the last attempt of an execution; nil if none reached the tool.
func (s *simulation) newestExecution(run, name string, x executionKey) *toolExecution {
	for _, e := range slices.Backward(s.toolExecutions) {
		if e.run == run && e.tool == name && e.key == x {
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
