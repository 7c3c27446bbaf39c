package scenario

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/match"
)

// want is want.json by key.
type want map[string]json.RawMessage

// wantKeys are the keys of a run in JSON, and what only a scenario knows.
var wantKeys = []string{
	"id", "agent", "version", "status", "reason", "detail", "error", "output", "inferences", "interactions", "executionUnits", "usage", "cost", "messages",
	"calls", "waiting", "summary", "seq", "subject", "parent", "continues", "startedAt", "updatedAt", "endedAt", "modelCalls", "state",
	"executed", "events", "checkpoints", "requests",
}

func loadWant(f section, ps *problems) want {
	w := want{}
	if err := f.decode(f.data, 0, &w); err != nil {
		ps.add(err)
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(w)) {
		if !slices.Contains(wantKeys, key) {
			ps.add(f.problem(f.at(key), key, "got an unknown key, want one of "+strings.Join(wantKeys, ", ")))
		}
	}
	if err := match.Check(f.data); err != nil {
		ps.add(f.problem(0, "", err.Error()))
	}
	if events, ok := w["events"]; ok {
		w["events"] = storedNames(events)
	}
	return w
}

// storedNames are wanted event types by their stored names: a type may also be written by its name in Go, CallFinished for
// call_finished. What is no list of strings stays as it is, for the comparison to say so.
func storedNames(raw json.RawMessage) json.RawMessage {
	var names []string
	if json.Unmarshal(raw, &names) != nil {
		return raw
	}
	for i, n := range names {
		if goName.MatchString(n) {
			names[i] = strings.ToLower(strings.TrimPrefix(upper.ReplaceAllString(n, "_$0"), "_"))
		}
	}
	out, err := json.Marshal(names)
	if err != nil {
		return raw
	}
	return out
}

var (
	goName = regexp.MustCompile(`^([A-Z][a-z]+)+$`)
	upper  = regexp.MustCompile(`[A-Z]`)
)
