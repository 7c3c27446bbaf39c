package scenario

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/stream"
)

// want is want.json by key.
type want map[string]json.RawMessage

// wantKeys are the keys of a run in JSON, and those that only a scenario has.
var wantKeys = func() (all []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[policy.RunView]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		all = append(all, name)
	}
	return append(all, "executed", "events", "checkpoints", "requests", "emitted", "published", "invoked", "notified")
}()

// loadWant reads want.json: the values wanted of the main run, and of the delegates' runs. Of those it has by agent an
// object for one run, or a list in the order of the calls.
func loadWant(f section, agents []string) (want, map[string][]want) {
	w := want{}
	if !f.decodeLine(f.data, 0, &w) {
		return nil, nil
	}
	var byName map[string]json.RawMessage
	if raw := w["children"]; raw != nil && json.Unmarshal(raw, &byName) != nil {
		f.bad("children", "want an object, by agent")
	}
	children := map[string][]want{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		var list []want
		if json.Unmarshal(byName[name], &list) != nil {
			list = []want{{}}
			if json.Unmarshal(byName[name], &list[0]) != nil {
				f.bad("children."+name, "want what is wanted of a run, or a list of that")
			}
		}
		if !slices.Contains(agents, name) {
			f.bad("children."+name, "got another agent, want one of agents/: %s",
				cmp.Or(strings.Join(agents, ", "), "there is none"))
		}
		for _, w := range list {
			f.checkWant(w)
		}
		children[name] = list
	}
	f.checkWant(w, "children")
	delete(w, "children")
	if err := script.Check(f.data); err != nil {
		f.bad("", "%v", err)
	}
	return w, children
}

// checkWant refuses keys that are neither of wantKeys nor of also.
func (s section) checkWant(w want, also ...string) {
	known := slices.Concat(wantKeys, also)
	for _, key := range slices.Sorted(maps.Keys(w)) {
		if !slices.Contains(known, key) {
			s.bad(key, "got an unknown key, want one of %s", strings.Join(known, ", "))
		}
	}
	if err := checkEventKinds(w["events"]); err != nil {
		s.bad("events", "%v", err)
	}
}

// areStreamEvents reports whether a list has an event type of a run's stream (docs/events.md). The journal's types are
// all different.
func areStreamEvents(raw json.RawMessage) bool {
	return slices.ContainsFunc(stringList(raw),
		func(name string) bool { return slices.Contains(stream.Types(), stream.Type(name)) })
}

// checkEventKinds refuses a list that mixes types of the stream and of the journal.
func checkEventKinds(raw json.RawMessage) error {
	if !areStreamEvents(raw) {
		return nil
	}
	for _, name := range stringList(raw) {
		if slices.Contains(run.EventTypes(), name) {
			return fmt.Errorf("got %s, which the journal has, beside events of the stream: want either", name)
		}
	}
	return nil
}

// stringList returns the strings of a JSON list, and nil for any other value.
func stringList(raw json.RawMessage) []string {
	var names []string
	if json.Unmarshal(raw, &names) != nil {
		return nil
	}
	return names
}

// notUnderCrash lists the keys of want.json that are not compared in disturbed runs.
var notUnderCrash = []string{"modelCalls", "events", "seq", "published"}

// compareOutcome compares the runs with want.json, and checks that every scripted line and result was used. It returns
// the compared runs.
func (s *simulation) compareOutcome() (compared []Run) {
	runs, err := s.loadRunTree()
	seen := map[string]int{} // runs of delegates, by agent
	for i, rec := range runs {
		var one Run
		if one, err = s.exportRun(rec); err != nil {
			break
		}
		compared = append(compared, one)
		at, wanted := "", s.scenario.want
		if name := rec.scripted.agentName; i > 0 {
			list, n := s.scenario.children[name], seen[name]
			if seen[name]++; n >= len(list) {
				continue
			}
			at, wanted = fmt.Sprintf("children.%s[%d].", name, n), list[n]
		}
		if err = rec.scripted.compareRun(at, wanted, one); err != nil {
			break
		}
	}
	all, missing := s.loadAllRuns()
	if err = cmp.Or(err, missing); err != nil {
		s.addFailure("run", err.Error(), "a run")
	}
	for _, name := range slices.Sorted(maps.Keys(s.scenario.children)) {
		if want, got := len(s.scenario.children[name]), seen[name]; want != got {
			s.addFailure("children."+name, fmt.Sprintf("%d runs", got), fmt.Sprint(want))
		}
	}
	var checked []*scriptedRun
	for _, rec := range all {
		if slices.Contains(checked, rec.scripted) {
			continue
		}
		checked = append(checked, rec.scripted)
		for _, f := range rec.scripted.model.Failures() {
			s.addFailure(fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Path), f.Got, f.Want)
		}
		for _, n := range rec.scripted.model.Leftover() {
			s.failUnused(n, "reply")
		}
		for _, c := range rec.scripted.scenario.tools {
			if n, used := len(c.results), rec.scripted.usedResults[c.spec.Name]; n > 1 && used < n {
				at := fmt.Sprintf("%s:%d: %s", s.scenario.archive, c.resultsLine, c.spec.Name)
				s.addFailure(at, fmt.Sprintf("%d of %d results used", used, n), "all")
			}
		}
	}
	// Agents and calls without a run leave their whole script unused.
	for _, name := range slices.Sorted(maps.Keys(s.scenario.delegates)) {
		d := s.scenario.delegates[name]
		var unused []*Scenario
		if _, ok := findRunOfAgent(all, name); !ok {
			unused = append(unused, d)
		}
		for _, call := range slices.Sorted(maps.Keys(d.calls)) {
			own := d.calls[call]
			if !slices.ContainsFunc(checked, func(sr *scriptedRun) bool { return sr.scenario == own }) {
				unused = append(unused, own)
			}
		}
		for _, own := range unused {
			for _, n := range script.New(own.script).Leftover() {
				s.failUnused(n, "reply")
			}
		}
	}
	for _, l := range append(s.people.queued, s.people.triggered...) {
		s.failUnused(l.number, l.Do)
	}
	return compared
}

func (s *simulation) failUnused(line int, what string) {
	s.addFailure(fmt.Sprintf("%s:%d: %s", s.scenario.archive, line, what), "never its turn", "every line used")
}

// exportRun returns a run with its journal and the state from which the journal is folded. Only the main run has an
// earlier one whose state is known.
func (s *simulation) exportRun(rec recordedRun) (Run, error) {
	r := Run{State: rec.State}
	var err error
	if r.Journal, err = s.entries(rec.State.Run); err != nil || s.continues == "" || rec.State.Run != s.run {
		return r, err
	}
	var past run.AgentState
	if s.forkAt >= 0 {
		past, err = s.journal.At(context.Background(), tenant, s.continues, s.forkAt)
	} else {
		var l store.Loaded
		l, err = s.load(s.continues)
		past = l.State
	}
	r.Seed = run.Seed(past)
	return r, err
}

// compareRun compares a run in the journal with the wanted values. It prefixes the paths of differences with at.
func (sr *scriptedRun) compareRun(at string, wanted want, r Run) error {
	state, err := run.Fold(r.Seed, r.Journal)
	if err != nil {
		return err
	}
	got, err := sr.observe(wanted, &state, r.Journal)
	if err != nil {
		return err
	}
	wanted = maps.Clone(wanted)
	// "executed": {} means that no tool ran. An object without keys would match anything.
	var none map[string]json.RawMessage
	if json.Unmarshal(wanted["executed"], &none) == nil && none != nil && len(none) == 0 {
		for name := range sr.executionCounts() {
			none[name] = json.RawMessage("null")
		}
		wanted["executed"] = encode(none)
	}
	if sr.sim.isDisturbed() {
		for _, key := range notUnderCrash {
			delete(wanted, key)
		}
		wanted = sr.checkRelaxed(wanted, &state)
	}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		for _, m := range script.Match(wanted[key], got[key]) {
			sr.sim.addFailure(under(at+key, m), m.Got, m.Want)
		}
	}
	return nil
}

// under is the path of a mismatch in the value at path.
func under(path string, m script.Mismatch) string {
	if m.Path != "" && m.Path[0] != '[' {
		path += "."
	}
	return path + m.Path
}

// observe returns the run's JSON by key, and the keys that only a scenario has.
func (sr *scriptedRun) observe(
	wanted want, state *run.AgentState, entries []run.Entry,
) (map[string]json.RawMessage, error) {
	ctx := context.Background()
	view, err := policy.View(state)
	if err != nil {
		return nil, err
	}
	got := map[string]json.RawMessage{}
	if err := json.Unmarshal(encode(view), &got); err != nil {
		return nil, err
	}
	if got["calls"], err = sr.addUndos(ctx, state, got["calls"]); err != nil {
		return nil, err
	}
	// Approval requests in the order in which they were made, in their present state.
	requests := []approval.Approval{}
	for _, id := range requestIDs(entries) {
		if slices.Contains(sr.sim.crashRequests, id) {
			continue
		}
		a, err := sr.sim.request(id)
		switch {
		case isRefusal(err): // the entry that found the outcome unknown settled it, too: no request was stored
			continue
		case err != nil:
			return nil, err
		case sr.sim.isDisturbed() && a.Kind == approval.KindOutcome && a.Status == approval.Voided:
			continue // the result came late and made the request unnecessary
		}
		requests = append(requests, a)
	}

	events, err := sr.eventTypes(wanted, entries)
	if err != nil {
		return nil, err
	}
	checkpoints := []run.Checkpoint{}
	for _, e := range entries {
		checkpoints = append(checkpoints, e.Kinds...)
	}
	for key, v := range map[string]any{
		"invoked":  append([]recordedInvoke{}, sr.invokes...),
		"executed": sr.executionCounts(), "events": events, "checkpoints": checkpoints, "requests": requests,
		"emitted": append([]policy.Outgoing{}, sr.events...), "published": append([]policy.Outgoing{}, sr.published...),
		"notified": append([]notification{}, sr.sim.notifications...),
	} {
		if got[key], err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	return got, nil
}

// eventTypes returns the types of the stream's events if want.json lists those, and else of the journal's.
func (sr *scriptedRun) eventTypes(wanted want, entries []run.Entry) ([]string, error) {
	names := []string{}
	ofStream := areStreamEvents(wanted["events"])
	state := run.AgentState{}
	for _, e := range entries {
		if !ofStream {
			for _, ev := range e.Events {
				names = append(names, run.EventType(ev))
			}
			continue
		}
		events, next, err := stream.Events(&sr.scenario.agent, state, e)
		if err != nil {
			return nil, err
		}
		state = next
		for _, ev := range events {
			names = append(names, string(ev.Type))
		}
	}
	return names, nil
}

func requestIDs(entries []run.Entry) []string {
	var ids []string
	for _, e := range entries {
		for _, ev := range e.Events {
			switch ev := ev.(type) {
			case run.CallSuspended:
				if ev.For != run.ForAnswer {
					ids = append(ids, ev.Approval)
				}
			case run.PermissionRequested:
				ids = append(ids, ev.Approval)
			case run.CallUnknown:
				ids = append(ids, ev.Approval)
			}
		}
	}
	return ids
}

// checkRelaxed compares the counts that a crash may change by their bounds, and returns the other wanted values.
func (sr *scriptedRun) checkRelaxed(wanted want, state *run.AgentState) want {
	if raw, ok := wanted["executed"]; ok {
		counts := map[string]json.RawMessage{}
		if json.Unmarshal(raw, &counts) != nil {
			return wanted // a pattern or null is matched as it is
		}
		got := sr.executionCounts()
		for name, n := range counts {
			if sr.checkBound("executed."+name, name, n, got[name], !sr.isRepeatable(name)) {
				delete(counts, name)
			}
		}
		wanted["executed"] = encode(counts)
	}
	if raw, ok := wanted["notified"]; ok && sr.sim.checkNotifiedAtLeast(raw) {
		delete(wanted, "notified")
	}
	var calls []map[string]json.RawMessage
	if raw, ok := wanted["calls"]; !ok || json.Unmarshal(raw, &calls) != nil {
		return wanted
	}
	got := state.Calls()
	for i, c := range calls {
		n, ok := c["executions"]
		if ok && i < len(got) && sr.checkBound(fmt.Sprintf("calls[%d].executions", i), got[i].Tool, n, got[i].Executions,
			false) {
			delete(c, "executions")
		}
	}
	wanted["calls"] = encode(calls)
	return wanted
}

// isRepeatable reports whether a crash may repeat calls of the tool. The effect of a server's tool comes from the
// agent's patterns.
func (sr *scriptedRun) isRepeatable(name string) bool {
	if t, ok := sr.scenario.agent.Tool(name); ok {
		return t.Effect != run.EffectNonIdempotent
	}
	for _, m := range sr.scenario.agent.MCP {
		if own, ok := strings.CutPrefix(name, m.Name+"."); ok {
			return m.Spec(agent.ServerTool{Name: own}).Effect != run.EffectNonIdempotent
		}
	}
	return false
}

// checkBound compares a number of executions of a tool by its lower or upper bound. It reports false if the number must
// be exact.
func (sr *scriptedRun) checkBound(path, name string, wanted json.RawMessage, got int, isMost bool) bool {
	n, err := strconv.Atoi(string(wanted))
	t := sr.tools[name]
	if err != nil || t == nil || t.reconciles && !sr.isRepeatable(name) {
		return false
	}
	switch {
	case isMost && got > n:
		sr.sim.addFailure(path, strconv.Itoa(got), fmt.Sprintf("at most %d", n))
	case !isMost && got < n:
		sr.sim.addFailure(path, strconv.Itoa(got), fmt.Sprintf("at least %d", n))
	}
	return true
}

// addUndos adds to the calls in JSON how each can be undone, as the API shows it.
func (sr *scriptedRun) addUndos(
	ctx context.Context, state *run.AgentState, calls json.RawMessage,
) (json.RawMessage, error) {
	var shown []map[string]any
	if err := json.Unmarshal(calls, &shown); err != nil {
		return nil, err
	}
	var ids []string
	for _, call := range shown {
		id, _ := call["id"].(string) // run.AgentState marshals ids as strings
		ids = append(ids, id)
	}
	ports := runtime.Ports{Journal: sr.sim.journal, Blobs: sr.sim.blobs}
	undos, err := ports.Undos(ctx, state, &sr.scenario.agent, ids)
	if err != nil || len(undos) == 0 { // return the original JSON, in which numbers keep their digits
		return calls, err
	}
	for i, id := range ids {
		if u := undos[id]; u != nil {
			shown[i]["undo"] = u
		}
	}
	return jsonx.MarshalVerbatim(shown)
}
