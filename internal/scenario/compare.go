package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/match"
	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/stream"
)

// notUnderCrash are the keys of want.json that a crash may change.
var notUnderCrash = []string{"modelCalls", "events", "seq"}

// compareOutcome compares what came of the run with what is wanted.
func (s *simulation) compareOutcome() Result {
	r := Result{Calls: s.faults.Calls()}
	ctx := context.Background()
	entries, err := s.journal.Entries(ctx, tenant, s.run, 0, 0)
	if err == nil {
		r.Journal = entries
		r.Seed, err = s.loadSeed(ctx)
	}
	if err == nil {
		err = s.compareRun(ctx, "", s.scenario.want, r.Seed, entries)
	}
	runs, lost := s.loadRunTree()
	if err == nil && lost == nil {
		r.Children, err = s.compareChildren(ctx, runs[1:])
	}
	if err = errors.Join(err, lost); err != nil {
		s.addFailure(Failure{Path: "run", Got: err.Error(), Want: "a run"})
	}
	for _, rec := range runs {
		rec.scripted.checkUsed()
	}
	// Find agents of the story that nobody has asked, though their script says something.
	for _, name := range slices.Sorted(maps.Keys(s.scenario.delegates)) {
		if _, ok := findRunOfAgent(runs, name); !ok {
			for _, n := range script.New(s.scenario.delegates[name].script).Leftover() {
				s.addFailure(s.unusedLine(n, "reply"))
			}
		}
	}
	for _, l := range append(s.people.queued, s.people.triggered...) {
		s.addFailure(s.unusedLine(l.number, l.do))
	}
	r.Failures = s.failures
	return r
}

// checkUsed compares how the run's script and tools were used.
func (sr *scriptedRun) checkUsed() {
	for _, f := range sr.model.Failures() {
		sr.sim.addFailure(Failure{Path: fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Path), Got: f.Got, Want: f.Want})
	}
	for _, n := range sr.model.Leftover() {
		sr.sim.addFailure(sr.sim.unusedLine(n, "reply"))
	}
	sr.sim.failures = append(sr.sim.failures, sr.effects.unusedResults()...)
}

// compareChildren matches the runs that the run's calls were, and theirs, against what is wanted of them, and gives their journals.
func (s *simulation) compareChildren(ctx context.Context, children []recordedRun) ([][]run.Entry, error) {
	var journals [][]run.Entry
	seen := map[string]int{}
	for _, rec := range children {
		entries, err := s.journal.Entries(ctx, tenant, rec.scripted.run, 0, 0)
		if err != nil {
			return nil, err
		}
		journals = append(journals, entries)
		wanted, ok := s.scenario.children[rec.scripted.agentName]
		n := seen[rec.scripted.agentName]
		seen[rec.scripted.agentName]++
		if !ok || n >= len(wanted) {
			continue
		}
		if err := rec.scripted.compareRun(ctx, fmt.Sprintf("children.%s[%d]", rec.scripted.agentName, n), wanted[n], run.AgentState{}, entries); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.scenario.children)) {
		if want, got := len(s.scenario.children[name]), seen[name]; want != got {
			s.addFailure(Failure{Path: "children." + name, Got: fmt.Sprintf("%d runs", got), Want: fmt.Sprint(want)})
		}
	}
	return journals, nil
}

func (s *simulation) unusedLine(line int, what string) Failure {
	return Failure{Path: fmt.Sprintf("%s:%d: %s", s.scenario.archive, line, what), Got: "never its turn", Want: "every line used"}
}

// loadSeed is what the run's journal is folded from.
func (s *simulation) loadSeed(ctx context.Context) (run.AgentState, error) {
	if s.continues == "" {
		return run.AgentState{}, nil
	}
	if s.forkAt >= 0 {
		past, err := s.journal.At(ctx, tenant, s.continues, s.forkAt)
		return run.Seed(past), err
	}
	past, err := s.journal.Load(ctx, tenant, s.continues)
	return run.Seed(past.State), err
}

// compareRun matches what is wanted of a run against the run as it is on record. at stands before the paths of what differs; "" = nothing does.
func (sr *scriptedRun) compareRun(ctx context.Context, at string, wanted want, seed run.AgentState, entries []run.Entry) error {
	state, err := run.Fold(seed, entries)
	if err != nil {
		return err
	}
	got, err := sr.observe(ctx, wanted, &state, entries)
	if err != nil {
		return err
	}
	wanted = maps.Clone(wanted)
	sr.expandNothingExecuted(wanted)
	if sr.sim.crashing {
		for _, key := range notUnderCrash {
			delete(wanted, key)
		}
		wanted = sr.checkRelaxed(wanted, &state)
	}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		for _, m := range match.Match(wanted[key], got[key]) {
			path := prefixPath(key, m.Path)
			if at != "" {
				path = at + "." + path
			}
			sr.sim.addFailure(Failure{Path: path, Got: m.Got, Want: m.Want})
		}
	}
	return nil
}

// prefixPath puts a key before a path of match's.
func prefixPath(key, path string) string {
	if path == "" || strings.HasPrefix(path, "[") {
		return key + path
	}
	return key + "." + path
}

// observe is the run in JSON by key, and what only a scenario knows of it.
func (sr *scriptedRun) observe(ctx context.Context, wanted want, state *run.AgentState, entries []run.Entry) (map[string]json.RawMessage, error) {
	raw, err := json.Marshal(state)
	if err != nil {
		return nil, err
	}
	got := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &got); err != nil {
		return nil, err
	}
	if got["calls"], err = sr.addUndos(ctx, state, got["calls"]); err != nil {
		return nil, err
	}
	// The requests to people in the order in which they were made, as they stand now.
	requests := []approval.Approval{}
	for _, id := range requestIDs(entries) {
		if slices.Contains(sr.sim.crashRequests, id) {
			continue
		}
		a, err := approval.Get(ctx, sr.sim.table, tenant, id)
		if isRefusal(err) { // an outcome that was settled in the very entry that found it unknown: nobody was asked
			continue
		}
		if err != nil {
			return nil, err
		}
		if sr.sim.isDisturbed() && a.Kind == approval.KindOutcome && a.Status == approval.Voided { // what became of the call came late, and nobody had to say
			continue
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
		"invoked":  append([]recordedInvoke{}, sr.effects.invokes...),
		"executed": sr.effects.executionCounts(), "events": events, "checkpoints": checkpoints, "requests": requests, "emitted": sr.effects.emitted(),
		"notified": append([]notification{}, sr.sim.notifications...),
	} {
		if got[key], err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	return got, nil
}

// eventTypes are the types of the run's events: of its stream where those are wanted, else of its journal.
func (sr *scriptedRun) eventTypes(wanted want, entries []run.Entry) ([]string, error) {
	names := []string{}
	if !areStreamEvents(wanted["events"]) {
		for _, e := range entries {
			for _, ev := range e.Events {
				names = append(names, run.EventType(ev))
			}
		}
		return names, nil
	}
	state := run.AgentState{}
	for _, e := range entries {
		var events []stream.Event
		var err error
		if events, state, err = stream.Of(&sr.scenario.agent, state, e); err != nil {
			return nil, err
		}
		for _, ev := range events {
			names = append(names, string(ev.Type))
		}
	}
	return names, nil
}

// requestIDs are the ids of the requests that entries make.
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

// expandNothingExecuted makes "executed": {} mean that no tool was entered. As an object without keys it would match whatever was.
func (sr *scriptedRun) expandNothingExecuted(wanted want) {
	var none map[string]json.RawMessage
	if raw, ok := wanted["executed"]; !ok || json.Unmarshal(raw, &none) != nil || none == nil || len(none) > 0 {
		return
	}
	for name := range sr.effects.executionCounts() {
		none[name] = json.RawMessage("null")
	}
	wanted["executed"] = mustMarshal(none)
}

// checkRelaxed compares what a crash may repeat by its bounds, and leaves the rest of what is wanted.
func (sr *scriptedRun) checkRelaxed(wanted want, state *run.AgentState) want {
	if raw, ok := wanted["executed"]; ok {
		counts := map[string]json.RawMessage{}
		if json.Unmarshal(raw, &counts) != nil {
			return wanted // a pattern or null: it is matched as it stands
		}
		got := sr.effects.executionCounts()
		for name, n := range counts {
			if sr.checkBound("executed."+name, name, n, got[name]) {
				delete(counts, name)
			}
		}
		wanted["executed"] = mustMarshal(counts)
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
		if ok && i < len(got) && sr.checkAtLeast(fmt.Sprintf("calls[%d].executions", i), got[i], n) {
			delete(c, "executions")
		}
	}
	wanted["calls"] = mustMarshal(calls)
	return wanted
}

// checkAtLeast compares how often a call was executed, where a crash or a person may repeat it, and reports whether it did.
func (sr *scriptedRun) checkAtLeast(path string, c run.Call, wanted json.RawMessage) bool {
	n, err := strconv.Atoi(string(wanted))
	t := sr.effects.tools[c.Tool]
	if err != nil || t == nil || t.reconciles && !sr.isRepeatable(c.Tool) {
		return false
	}
	if c.Executions < n {
		sr.sim.addFailure(Failure{Path: path, Got: strconv.Itoa(c.Executions), Want: fmt.Sprintf("at least %d", n)})
	}
	return true
}

// isRepeatable reports whether a crash may repeat the tool.
func (sr *scriptedRun) isRepeatable(name string) bool {
	effect, ok := sr.scenario.effectOf(name)
	return ok && effect != run.EffectNonIdempotent
}

// checkBound compares how often a tool was entered by its bound, if there is one, and reports whether it did.
func (sr *scriptedRun) checkBound(path, name string, wanted json.RawMessage, got int) bool {
	n, err := strconv.Atoi(string(wanted))
	if err != nil {
		return false
	}
	t := sr.effects.tools[name]
	if t == nil || t.reconciles && !sr.isRepeatable(name) {
		return false
	}
	switch {
	case sr.isRepeatable(name) && got < n:
		sr.sim.addFailure(Failure{Path: path, Got: strconv.Itoa(got), Want: fmt.Sprintf("at least %d", n)})
	case !sr.isRepeatable(name) && got > n:
		sr.sim.addFailure(Failure{Path: path, Got: strconv.Itoa(got), Want: fmt.Sprintf("at most %d", n)})
	}
	return true
}

// mustMarshal writes what was just read.
func mustMarshal(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("scenario: " + err.Error()) // raw JSON by key always marshals
	}
	return raw
}
