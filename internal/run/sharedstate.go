package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/jsonx"
)

// Patch is one change of a run's shared state: the value at a JSON Pointer (RFC 6901) becomes Value.
//
// What is missing on the way is made: a list where the next part of the path is "-", else an object. In a list, an
// index replaces the element that has it, and "-" or the list's length appends one. The path "" is the state itself,
// which stays an object. Nil, which is no value in JSON, takes a member out of its object and does nothing where there
// is none; null is a value like any other. Elements are not taken out of a list, since that would move the others under
// whoever patches them at the same time: patch the list.
type Patch struct {
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// CallPatch is what one call changes of the run's shared state.
type CallPatch struct {
	Call  string  `json:"call"`
	Patch []Patch `json:"patch"`
}

// The bounds of a run's shared state.
const (
	// bytes of the state's JSON. The fold holds to it, so it is part of what a stored journal means
	MaxState     = 64 << 10
	maxPathDepth = 32 // parts of a path
)

// EmptyState is the shared state of a run whose tools have changed nothing.
var EmptyState = json.RawMessage(`{}`)

// SharedState is the run's shared state, a JSON object in canonical form: {} at first. What the calls of a parallel
// round have changed is no part of it before the round is at rest, so it is also the view of each of them. The caller
// must not write into it.
func (s *AgentState) SharedState() json.RawMessage {
	if s.Shared == nil {
		return EmptyState
	}
	return s.Shared
}

// Check says what is wrong with the patch, without looking at a state.
func (p Patch) Check() error {
	path, err := jsonx.ParsePointer(p.Path)
	switch {
	case err != nil:
		return err
	case !utf8.ValidString(p.Path):
		return errors.New("want a path in UTF-8")
	case len(path) > maxPathDepth:
		return fmt.Errorf("a path of %d parts, want at most %d", len(path), maxPathDepth)
	case p.Value == nil:
		return nil
	}
	_, err = jsonx.CompactJSON(p.Value, jsonx.JSONLimits{})
	return err
}

// ApplyPatches is the state after patches, in order and in canonical form, or the error that says which path does not
// fit it and why. Like every error about state it holds no value. The argument stays as it is.
func ApplyPatches(state json.RawMessage, patches []Patch) (json.RawMessage, error) {
	tree, err := stateTree(state)
	if err != nil {
		return nil, err
	}
	if tree, err = patchTree(tree, patches); err != nil {
		return nil, err
	}
	return treeState(tree)
}

func stateTree(state json.RawMessage) (any, error) {
	if len(state) == 0 {
		state = EmptyState
	}
	tree, err := jsonx.DecodeNumbers(state)
	if err != nil {
		return nil, errors.New("the state is not JSON")
	}
	return tree, nil
}

// patchTree is the tree after patches; the tree is the caller's to change.
func patchTree(tree any, patches []Patch) (any, error) {
	for _, p := range patches {
		var err error
		if tree, err = p.applyTo(tree); err != nil {
			return nil, fmt.Errorf("at %s: %w", ShownPath(p.Path), err)
		}
	}
	return tree, nil
}

func treeState(tree any) (json.RawMessage, error) {
	if _, ok := tree.(map[string]any); !ok {
		return nil, errors.New("want an object as the state")
	}
	out := jsonx.AppendCanonical(nil, tree)
	if len(out) > MaxState {
		return nil, fmt.Errorf("a state of %d bytes, want at most %d", len(out), MaxState)
	}
	return out, nil
}

// applyTo returns the tree after the patch.
func (p Patch) applyTo(tree any) (any, error) {
	path, err := jsonx.ParsePointer(p.Path)
	if err != nil {
		return nil, err
	}
	if p.Value == nil {
		return removeAt(tree, path)
	}
	value, err := jsonx.DecodeNumbers(p.Value)
	if err != nil {
		return nil, errors.New("want JSON as the value")
	}
	return setAt(tree, path, value)
}

// missing stands for a value that is not there yet.
type missing struct{}

var (
	errNoIndex  = errors.New("the list has no such place; want the index of an element, its length or -")
	errScalar   = errors.New("what stands there is neither an object nor a list")
	errTakesOut = errors.New("an element is not taken out of a list; patch the list")
)

// setAt returns v with value at path.
func setAt(v any, path []string, value any) (any, error) {
	if len(path) == 0 {
		return value, nil
	}
	switch v := v.(type) {
	case missing:
		if path[0] == "-" {
			return setAt([]any{}, path, value)
		}
		return setAt(map[string]any{}, path, value)
	case map[string]any:
		return withMember(v, path, value)
	case []any:
		return setElement(v, path, value)
	default:
		return nil, errScalar
	}
}

func withMember(v map[string]any, path []string, value any) (any, error) {
	child, ok := v[path[0]]
	if !ok {
		child = missing{}
	}
	next, err := setAt(child, path[1:], value)
	v[path[0]] = next
	return v, err
}

func setElement(v []any, path []string, value any) (any, error) {
	i, ok := jsonx.ArrayIndex(path[0])
	if path[0] == "-" {
		i, ok = len(v), true
	}
	if !ok || i > len(v) {
		return nil, errNoIndex
	}
	if i == len(v) {
		v = append(v, missing{})
	}
	next, err := setAt(v[i], path[1:], value)
	v[i] = next
	return v, err
}

// removeAt returns v without the member at path. At the root, the state becomes empty.
func removeAt(v any, path []string) (any, error) {
	if len(path) == 0 {
		return map[string]any{}, nil
	}
	switch v := v.(type) {
	case map[string]any:
		child, ok := v[path[0]]
		switch {
		case !ok:
			return v, nil
		case len(path) == 1:
			delete(v, path[0])
			return v, nil
		}
		next, err := removeAt(child, path[1:])
		v[path[0]] = next
		return v, err
	case []any:
		i, ok := jsonx.ArrayIndex(path[0])
		switch {
		case len(path) == 1:
			return nil, errTakesOut
		case !ok || i >= len(v):
			return v, nil
		}
		next, err := removeAt(v[i], path[1:])
		v[i] = next
		return v, err
	default:
		return v, nil
	}
}

// notePatches keeps a call's changes of the shared state apart until they are known not to conflict with those of other
// calls. A call that failed changes nothing.
func (s *AgentState) notePatches(call string, patches []Patch, isError bool) {
	if len(patches) > 0 && !isError {
		s.Patches = append(slices.Clip(s.Patches), CallPatch{call, patches})
	}
}

// settleState makes what calls have changed part of the shared state: at once where they run one after the other, else
// once none is under way any more. Calls whose changes do not go together stay apart from it, and Next ends the run.
func (s *AgentState) settleState() {
	if s.Round.Sequential || !slices.ContainsFunc(s.Live, Call.hasSharedView) {
		s.mergePatches()
	}
}

// hasSharedView reports whether the call has been entered, or is about to be, with the view of the round: its changes
// are still to come.
func (c Call) hasSharedView() bool {
	switch c.Status {
	case StatusNew, StatusRunning, StatusResuming:
		return true
	default:
		return c.Status == StatusSuspended && c.Wait.For == ForOutcome
	}
}

func (s *AgentState) mergePatches() {
	if len(s.Patches) == 0 {
		return
	}
	if merged, err := s.Merged(); err == nil {
		s.Shared, s.Patches = merged, nil
	}
}

// Merged is the shared state with everything that calls have changed, whatever order they finished in; or why that is
// none. Calls that had the same view do not touch the same path, not even with the same value (seed 001: a run error).
func (s *AgentState) Merged() (json.RawMessage, error) {
	patches := s.inRequestOrder(s.Patches)
	if err := firstConflict(patches); err != nil {
		return nil, err
	}
	tree, err := stateTree(s.Shared)
	for i := 0; err == nil && i < len(patches); i++ {
		if tree, err = patchTree(tree, patches[i].Patch); err != nil {
			return nil, fmt.Errorf("what call %s changed of the run's state does not fit it: %w", patches[i].Call, err)
		}
	}
	if err != nil {
		return nil, err
	}
	state, err := treeState(tree)
	if err != nil {
		return nil, fmt.Errorf("what %s changed does not fit the run's state: %w", namedCalls(patches), err)
	}
	return state, nil
}

func namedCalls(patches []CallPatch) string {
	if len(patches) == 1 {
		return "call " + patches[0].Call
	}
	return fmt.Sprintf("%d calls, from %s to %s,", len(patches), patches[0].Call, patches[len(patches)-1].Call)
}

func (s *AgentState) inRequestOrder(patches []CallPatch) []CallPatch {
	place := func(p CallPatch) int { return slices.IndexFunc(s.Live, func(c Call) bool { return c.ID == p.Call }) }
	return slices.SortedStableFunc(slices.Values(patches), func(a, b CallPatch) int { return place(a) - place(b) })
}

// firstConflict names the first two calls, in order, that changed the same path; nil if there are none.
func firstConflict(patches []CallPatch) error {
	paths := make([][][]string, len(patches))
	for i, p := range patches {
		paths[i] = p.splitPaths()
	}
	for i, a := range patches {
		for j, b := range patches[i+1:] {
			if k, l, found := firstOverlap(paths[i], paths[i+1+j]); found {
				return fmt.Errorf("calls %s and %s changed the same of the run's state, and neither saw the other's change: %s and %s",
					a.Call, b.Call, ShownPath(a.Patch[k].Path), ShownPath(b.Patch[l].Path))
			}
		}
	}
	return nil
}

// splitPaths returns the paths, split; one that cannot be split stands for the whole state.
func (p CallPatch) splitPaths() [][]string {
	out := make([][]string, len(p.Patch))
	for i, change := range p.Patch {
		if path, err := jsonx.ParsePointer(change.Path); err == nil {
			out[i] = path
		}
	}
	return out
}

func firstOverlap(a, b [][]string) (i, j int, found bool) {
	for i := range a {
		for j := range b {
			if overlap(a[i], b[j]) {
				return i, j, true
			}
		}
	}
	return 0, 0, false
}

// overlap reports whether one path leads to the other's value or into it. Two that part at a "-" overlap whatever
// follows: it decides what a missing parent becomes, and in what order a list grows.
func overlap(a, b []string) bool {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == "-" || b[i] == "-":
			return true
		case a[i] != b[i]:
			return false
		}
	}
	return true
}

// ShownPath is a path as an error names it.
func ShownPath(path string) string {
	if len(path) > jsonx.LongestPointer {
		path = path[:jsonx.LongestPointer] + "..."
	}
	return strconv.Quote(path)
}
