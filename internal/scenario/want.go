package scenario

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/stream"
)

// want is want.json by key.
type want map[string]json.RawMessage

// wantKeys are the keys of a run in JSON, and those that only a scenario has.
var wantKeys = []string{
	"id", "agent", "version", "status", "reason", "detail", "error", "output", "inferences", "interactions",
	"executionUnits", "usage", "cost", "messages",
	"calls", "waiting", "summary", "seq", "subject", "parent", "parentCall", "root", "continues", "startedAt", "updatedAt",
	"endedAt", "modelCalls", "state",
	"servers", "executed", "events", "checkpoints", "requests", "emitted", "published", "invoked", "notified",
}

// loadWant reads want.json: the values wanted of the main run, and of the delegates' runs by agent.
func loadWant(f section, agents []string) (want, map[string][]want) {
	w := want{}
	if !f.decode(&w) {
		return nil, nil
	}
	children := f.children(w["children"], agents)
	delete(w, "children")
	f.checkWant(w)
	if err := script.Check(f.data); err != nil {
		f.bad("", "%v", err)
	}
	return w, children
}

// children reads the values wanted of the delegates' runs: by agent an object for one run, or a list in the order of
// the calls.
func (s section) children(raw json.RawMessage, agents []string) map[string][]want {
	var byName map[string]json.RawMessage
	if raw == nil {
		return nil
	}
	if json.Unmarshal(raw, &byName) != nil {
		s.bad("children", "want an object, by agent")
	}
	children := map[string][]want{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		var list []want
		if json.Unmarshal(byName[name], &list) != nil {
			list = []want{{}}
			if json.Unmarshal(byName[name], &list[0]) != nil {
				s.bad("children."+name, "want what is wanted of a run, or a list of that")
			}
		}
		if !slices.Contains(agents, name) {
			s.bad("children."+name, "got another agent, want one of agents/: %s",
				cmp.Or(strings.Join(agents, ", "), "there is none"))
		}
		for _, w := range list {
			s.checkWant(w)
		}
		children[name] = list
	}
	return children
}

// checkWant checks the keys and the event types wanted of one run.
func (s section) checkWant(w want) {
	for _, key := range slices.Sorted(maps.Keys(w)) {
		if !slices.Contains(wantKeys, key) {
			s.bad(key, "got an unknown key, want one of %s", strings.Join(wantKeys, ", "))
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
