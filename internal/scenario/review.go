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

// review compares what came of the run with what is wanted.
func (s *stage) review() Result {
	r := Result{Calls: s.faults.Calls()}
	ctx := context.Background()
	entries, err := s.record.Entries(ctx, tenant, s.run, 0, 0)
	if err == nil {
		r.Journal = entries
		r.Seed, err = s.seed(ctx)
	}
	if err == nil {
		err = s.compare(ctx, "", s.scenario.want, r.Seed, entries)
	}
	family, lost := s.family()
	if err == nil && lost == nil {
		r.Children, err = s.compareChildren(ctx, family[1:])
	}
	if err = errors.Join(err, lost); err != nil {
		s.fail(Failure{Path: "run", Got: err.Error(), Want: "a run"})
	}
	for _, m := range family {
		m.part.used()
	}
	// Find agents of the story that nobody has asked, though their script says something.
	for _, name := range slices.Sorted(maps.Keys(s.scenario.delegates)) {
		if _, ok := of(family, name); !ok {
			for _, n := range script.New(s.scenario.delegates[name].script).Leftover() {
				s.fail(s.unused(n, "reply"))
			}
		}
	}
	for _, l := range append(s.cast.queue, s.cast.moments...) {
		s.fail(s.unused(l.number, l.do))
	}
	r.Failures = s.failures
	return r
}

// used compares how the run's script and tools were used.
func (p *part) used() {
	for _, f := range p.model.Failures() {
		p.stage.fail(Failure{Path: fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Path), Got: f.Got, Want: f.Want})
	}
	for _, n := range p.model.Leftover() {
		p.stage.fail(p.stage.unused(n, "reply"))
	}
	p.stage.failures = append(p.stage.failures, p.ledger.leftover()...)
}

// compareChildren matches the runs that the run's calls were, and theirs, against what is wanted of them, and gives their journals.
func (s *stage) compareChildren(ctx context.Context, children []member) ([][]run.Entry, error) {
	var journals [][]run.Entry
	seen := map[string]int{}
	for _, m := range children {
		entries, err := s.record.Entries(ctx, tenant, m.part.run, 0, 0)
		if err != nil {
			return nil, err
		}
		journals = append(journals, entries)
		wanted, ok := s.scenario.children[m.part.name]
		n := seen[m.part.name]
		seen[m.part.name]++
		if !ok || n >= len(wanted) {
			continue
		}
		if err := m.part.compare(ctx, fmt.Sprintf("children.%s[%d]", m.part.name, n), wanted[n], run.AgentState{}, entries); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.scenario.children)) {
		if want, got := len(s.scenario.children[name]), seen[name]; want != got {
			s.fail(Failure{Path: "children." + name, Got: fmt.Sprintf("%d runs", got), Want: fmt.Sprint(want)})
		}
	}
	return journals, nil
}

func (s *stage) unused(line int, what string) Failure {
	return Failure{Path: fmt.Sprintf("%s:%d: %s", s.scenario.archive, line, what), Got: "never its turn", Want: "every line used"}
}

// seed is what the run's journal is folded from.
func (s *stage) seed(ctx context.Context) (run.AgentState, error) {
	if s.first == "" {
		return run.AgentState{}, nil
	}
	if s.at >= 0 {
		past, err := s.record.At(ctx, tenant, s.first, s.at)
		return run.Seed(past), err
	}
	past, err := s.record.Load(ctx, tenant, s.first)
	return run.Seed(past.State), err
}

// compare matches what is wanted of a run against the run as it is on record. at stands before the paths of what differs; "" = nothing does.
func (p *part) compare(ctx context.Context, at string, wanted want, seed run.AgentState, entries []run.Entry) error {
	state, err := run.Fold(seed, entries)
	if err != nil {
		return err
	}
	got, err := p.got(ctx, wanted, &state, entries)
	if err != nil {
		return err
	}
	wanted = maps.Clone(wanted)
	p.nothingExecuted(wanted)
	if p.stage.crashing {
		for _, key := range notUnderCrash {
			delete(wanted, key)
		}
		wanted = p.relaxed(wanted, &state)
	}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		for _, m := range match.Match(wanted[key], got[key]) {
			path := beneath(key, m.Path)
			if at != "" {
				path = at + "." + path
			}
			p.stage.fail(Failure{Path: path, Got: m.Got, Want: m.Want})
		}
	}
	return nil
}

// beneath puts a key before a path of match's.
func beneath(key, path string) string {
	if path == "" || strings.HasPrefix(path, "[") {
		return key + path
	}
	return key + "." + path
}

// got is the run in JSON by key, and what only a scenario knows of it.
func (p *part) got(ctx context.Context, wanted want, state *run.AgentState, entries []run.Entry) (map[string]json.RawMessage, error) {
	raw, err := json.Marshal(state)
	if err != nil {
		return nil, err
	}
	got := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &got); err != nil {
		return nil, err
	}
	if got["calls"], err = p.withUndos(ctx, state, got["calls"]); err != nil {
		return nil, err
	}
	// The requests to people in the order in which they were made, as they stand now.
	requests := []approval.Approval{}
	for _, id := range asks(entries) {
		if slices.Contains(p.stage.unforeseen, id) {
			continue
		}
		a, err := approval.Get(ctx, p.stage.table, tenant, id)
		if refusal(err) { // an outcome that was settled in the very entry that found it unknown: nobody was asked
			continue
		}
		if err != nil {
			return nil, err
		}
		if p.stage.disturbed() && a.Kind == approval.KindOutcome && a.Status == approval.Voided { // what became of the call came late, and nobody had to say
			continue
		}
		requests = append(requests, a)
	}

	events, err := p.events(wanted, entries)
	if err != nil {
		return nil, err
	}
	checkpoints := []run.Checkpoint{}
	for _, e := range entries {
		checkpoints = append(checkpoints, e.Kinds...)
	}
	for key, v := range map[string]any{
		"invoked":  append([]invoked{}, p.ledger.invoked...),
		"executed": p.ledger.executed(), "events": events, "checkpoints": checkpoints, "requests": requests, "emitted": p.ledger.emitted(),
		"notified": append([]notified{}, p.stage.notified...),
	} {
		if got[key], err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	return got, nil
}

// events are the types of the run's events: of its stream where those are wanted, else of its journal.
func (p *part) events(wanted want, entries []run.Entry) ([]string, error) {
	names := []string{}
	if !streamed(wanted["events"]) {
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
		if events, state, err = stream.Events(&p.scenario.agent, state, e); err != nil {
			return nil, err
		}
		for _, ev := range events {
			names = append(names, string(ev.Type))
		}
	}
	return names, nil
}

// asks are the ids of the requests that entries make.
func asks(entries []run.Entry) []string {
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

// nothingExecuted makes "executed": {} mean that no tool was entered. As an object without keys it would match whatever was.
func (p *part) nothingExecuted(wanted want) {
	var none map[string]json.RawMessage
	if raw, ok := wanted["executed"]; !ok || json.Unmarshal(raw, &none) != nil || none == nil || len(none) > 0 {
		return
	}
	for name := range p.ledger.executed() {
		none[name] = json.RawMessage("null")
	}
	wanted["executed"] = marshal(none)
}

// relaxed compares what a crash may repeat by its bounds, and leaves the rest of what is wanted.
func (p *part) relaxed(wanted want, state *run.AgentState) want {
	if raw, ok := wanted["executed"]; ok {
		counts := map[string]json.RawMessage{}
		if json.Unmarshal(raw, &counts) != nil {
			return wanted // a pattern or null: it is matched as it stands
		}
		got := p.ledger.executed()
		for name, n := range counts {
			if p.bounded("executed."+name, name, n, got[name]) {
				delete(counts, name)
			}
		}
		wanted["executed"] = marshal(counts)
	}
	if raw, ok := wanted["notified"]; ok && p.stage.relaxedNotified(raw) {
		delete(wanted, "notified")
	}
	var calls []map[string]json.RawMessage
	if raw, ok := wanted["calls"]; !ok || json.Unmarshal(raw, &calls) != nil {
		return wanted
	}
	got := state.Calls()
	for i, c := range calls {
		n, ok := c["executions"]
		if ok && i < len(got) && p.atLeast(fmt.Sprintf("calls[%d].executions", i), got[i], n) {
			delete(c, "executions")
		}
	}
	wanted["calls"] = marshal(calls)
	return wanted
}

// atLeast compares how often a call was executed, where a crash or a person may repeat it, and reports whether it did.
func (p *part) atLeast(path string, c run.Call, wanted json.RawMessage) bool {
	n, err := strconv.Atoi(string(wanted))
	t := p.ledger.tools[c.Tool]
	if err != nil || t == nil || t.reconciles && !p.repeatable(c.Tool) {
		return false
	}
	if c.Executions < n {
		p.stage.fail(Failure{Path: path, Got: strconv.Itoa(c.Executions), Want: fmt.Sprintf("at least %d", n)})
	}
	return true
}

// repeatable reports whether a crash may repeat the tool.
func (p *part) repeatable(name string) bool {
	effect, ok := p.scenario.effectOf(name)
	return ok && effect != run.EffectNonIdempotent
}

// bounded compares how often a tool was entered by its bound, if there is one, and reports whether it did.
func (p *part) bounded(path, name string, wanted json.RawMessage, got int) bool {
	n, err := strconv.Atoi(string(wanted))
	if err != nil {
		return false
	}
	t := p.ledger.tools[name]
	if t == nil || t.reconciles && !p.repeatable(name) {
		return false
	}
	switch {
	case p.repeatable(name) && got < n:
		p.stage.fail(Failure{Path: path, Got: strconv.Itoa(got), Want: fmt.Sprintf("at least %d", n)})
	case !p.repeatable(name) && got > n:
		p.stage.fail(Failure{Path: path, Got: strconv.Itoa(got), Want: fmt.Sprintf("at most %d", n)})
	}
	return true
}

// marshal writes what was just read.
func marshal(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("scenario: " + err.Error()) // raw JSON by key always marshals
	}
	return raw
}
