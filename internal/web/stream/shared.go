package stream

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
)

// shared tells how the state that tools share changed, whatever fact changed it.
func (w *writing) shared() {
	if w.before.Status == "" || bytes.Equal(w.before.SharedState(), w.after.SharedState()) {
		return
	}
	delta, err := difference(w.before.SharedState(), w.after.SharedState())
	w.fail(err)
	w.add(StateDelta, 0, StateDeltaData{Delta: delta})
}

// difference leads from one object to another, member by member.
func difference(from, to json.RawMessage) ([]StateOperation, error) {
	var was, is map[string]json.RawMessage
	if err := json.Unmarshal(from, &was); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(to, &is); err != nil {
		return nil, err
	}
	names := maps.Clone(was)
	maps.Copy(names, is)
	var out []StateOperation
	for _, name := range slices.Sorted(maps.Keys(names)) {
		old, had := was[name]
		now, has := is[name]
		path := "/" + pointerEscapes.Replace(name)
		switch {
		case !has:
			out = append(out, StateOperation{Op: "remove", Path: path})
		case !had:
			out = append(out, StateOperation{Op: "add", Path: path, Value: now})
		case !bytes.Equal(old, now):
			out = append(out, StateOperation{Op: "replace", Path: path, Value: now})
		}
	}
	return out, nil
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// patchOf is what the fact that ended a call says that it changes.
func patchOf(fact agent.Event, call string) []agent.Patch {
	switch e := fact.(type) {
	case agent.CallFinished:
		if e.Call == call {
			return e.Patch
		}
	case agent.Answered:
		if e.Call == call {
			return e.Patch
		}
	case agent.LateResult:
		if e.Call == call {
			return e.Patch
		}
	}
	return nil
}
