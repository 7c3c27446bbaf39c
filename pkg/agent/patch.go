package agent

import (
	"encoding/json"
	"fmt"
)

// Patch sets one value of a run's shared state.
type Patch struct {
	Path  string          `json:"path"`  // JSON Pointer (RFC 6901) below the root; objects on the way are made where they are missing
	Value json.RawMessage `json:"value"` // strict JSON
}

// SharedState is the run's shared state, a JSON object: {} at first. The caller must not write into it.
func (s *AgentState) SharedState() json.RawMessage {
	if s.Shared == nil {
		return json.RawMessage(`{}`)
	}
	return s.Shared
}

// ApplyPatches is the shared state with the patches applied, in order; nil is the empty object. state is left as it is. An error says which
// patch cannot be applied; then none is.
func ApplyPatches(state json.RawMessage, patches []Patch) (json.RawMessage, error) {
	for _, p := range patches {
		tokens, err := parsePointer(p.Path)
		if err == nil && len(tokens) == 0 {
			err = fmt.Errorf("json pointer: want a place below the root")
		}
		value := p.Value
		if err == nil {
			value, err = CompactJSON(p.Value, JSONLimits{})
		}
		if err == nil {
			state, err = placed(state, tokens, value)
		}
		if err != nil {
			return nil, fmt.Errorf("patch %q: %w", p.Path, err)
		}
	}
	return state, nil
}

// placed is the object with value at the place that the tokens lead to.
func placed(object json.RawMessage, tokens []string, value json.RawMessage) (json.RawMessage, error) {
	if len(tokens) == 0 {
		return value, nil
	}
	members := map[string]json.RawMessage{}
	if len(object) > 0 {
		if jsonKind(object) != '{' {
			return nil, fmt.Errorf("want an object above %q", tokens[0])
		}
		if err := json.Unmarshal(object, &members); err != nil {
			return nil, err
		}
	}
	child, err := placed(members[tokens[0]], tokens[1:], value)
	if err != nil {
		return nil, err
	}
	members[tokens[0]] = child
	return MarshalVerbatim(members)
}
