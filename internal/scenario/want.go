package scenario

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/match"
)

// want is want.json by key.
type want map[string]json.RawMessage

// wantKeys are the keys of a run in JSON, and what only a scenario knows.
var wantKeys = []string{
	"id", "agent", "version", "status", "reason", "error", "output", "inferences", "interactions", "executionUnits", "usage", "messages",
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
	return w
}
