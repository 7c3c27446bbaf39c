package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/jsonx"
)

// CallPatch holds one call's changes of the run's shared state.
type CallPatch struct {
	Call  string  `json:"call"`
	Patch []Patch `json:"patch"`
}

// Patch is one change of a run's shared state.
type Patch = jsonx.Patch

// maxState is the largest JSON of a run's shared state, in bytes. It is part of the stored form: the fold enforces it.
const maxState = 64 << 10

// EmptyState is the shared state of a run before any change.
var EmptyState = json.RawMessage(`{}`)

// SharedState returns the run's shared state, a JSON object in canonical form, {} at first. It excludes the changes of
// a parallel round that is still running, so it is also what each call of that round reads. The caller must not write
// into it.
func (s *AgentState) SharedState() json.RawMessage {
	if s.Shared == nil {
		return EmptyState
	}
	return s.Shared
}

// ApplyPatches returns the state after the patches, applied in order, in canonical form. An error names the path that
// does not fit the state and why, but no value. The argument is not changed.
func ApplyPatches(state json.RawMessage, patches []Patch) (json.RawMessage, error) {
	if len(state) == 0 {
		state = EmptyState
	}
	out, err := jsonx.ApplyPatches(state, patches)
	if err != nil {
		return nil, err
	}
	if err := checkState(out); err != nil {
		return nil, err
	}
	return out, nil
}

func checkState(state json.RawMessage) error {
	switch {
	case jsonx.JSONKind(state) != '{':
		return errors.New("want an object as the state")
	case len(state) > maxState:
		return fmt.Errorf("a state of %d bytes, want at most %d", len(state), maxState)
	}
	return nil
}

// notePatches stores a call's changes of the shared state separately until they are known not to conflict with those of
// other calls. A failed call changes nothing.
func (s *AgentState) notePatches(call string, patches []Patch, isError bool) {
	if len(patches) > 0 && !isError {
		s.Patches = append(slices.Clip(s.Patches), CallPatch{call, patches})
	}
}

// mergeReadyPatches merges the changes of calls into the shared state: at once in a sequential round, otherwise when no
// call is under way. Conflicting changes stay separate, and policy.Next ends the run.
func (s *AgentState) mergeReadyPatches() {
	underWay := func(c Call) bool { return c.Open() && (c.Status != StatusSuspended || c.Wait.For == ForOutcome) }
	if s.Round.Sequential || !slices.ContainsFunc(s.Live, underWay) {
		s.mergePatches()
	}
}

func (s *AgentState) mergePatches() {
	if merged, err := s.Merged(); len(s.Patches) > 0 && err == nil {
		s.Shared, s.Patches = merged, nil
	}
}

// Merged returns the shared state with all changes of calls, in the order of the calls. Calls that read the same state
// must not change the same path, not even to the same value: that is an error (seed 001).
func (s *AgentState) Merged() (json.RawMessage, error) {
	place := func(p CallPatch) int { return slices.IndexFunc(s.Live, func(c Call) bool { return c.ID == p.Call }) }
	patches := slices.SortedStableFunc(slices.Values(s.Patches), func(a, b CallPatch) int { return place(a) - place(b) })
	for i, a := range patches {
		for _, b := range patches[i+1:] {
			if k, l, found := jsonx.PatchOverlap(a.Patch, b.Patch); found {
				return nil, fmt.Errorf("calls %s and %s changed the same of the run's state, and neither saw the "+
					"other's change: %s and %s",
					a.Call, b.Call, jsonx.ShownPath(a.Patch[k].Path), jsonx.ShownPath(b.Patch[l].Path))
			}
		}
	}
	state := s.SharedState()
	for _, p := range patches {
		var err error
		if state, err = jsonx.ApplyPatches(state, p.Patch); err != nil {
			return nil, fmt.Errorf("the changes of call %s do not fit the shared state: %w", p.Call, err)
		}
	}
	if err := checkState(state); err != nil {
		who := "call " + patches[0].Call
		if n := len(patches); n > 1 {
			who = fmt.Sprintf("%d calls, from %s to %s", n, patches[0].Call, patches[n-1].Call)
		}
		return nil, fmt.Errorf("the changes of %s do not fit the shared state: %w", who, err)
	}
	return state, nil
}
