package tool

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// State reads the value at a JSON Pointer of the state that the run's tools share, as the call sees it; "" is all of
// it. found is false, and the value zero, where there is none. A number in an interface is a json.Number.
//
//	visits, _, err := tool.State[int](c, "/visits")
//
// It returns an error for a malformed pointer and for a value that is no T.
func State[T any](c Call, pointer string) (v T, found bool, err error) {
	state := c.State
	if len(state) == 0 {
		state = json.RawMessage(`{}`)
	}
	raw, found, err := jsonx.Lookup(state, pointer)
	if err != nil || !found {
		return v, false, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return *new(T), true, fmt.Errorf("read %q of the run's state: it is no %T", pointer, v)
	}
	return v, true, nil
}

// Change is one change of the state that the run's tools share. Make it by SetState or UnsetState.
type Change struct {
	patch run.Patch
	err   error
}

// SetState makes the JSON form of v the value at a JSON Pointer: see agent.Patch for what is made on the way and for
// lists, where "-" appends.
func SetState(pointer string, v any) Change {
	raw, err := run.MarshalVerbatim(v)
	if err != nil {
		err = fmt.Errorf("set %q of the run's state: %T has no JSON form", pointer, v)
	}
	return Change{run.Patch{Path: pointer, Value: raw}, err}
}

// UnsetState takes the member at a JSON Pointer out of its object. Where there is none it does nothing.
func UnsetState(pointer string) Change { return Change{patch: run.Patch{Path: pointer}} }

// Patched is the result r of a call that also changes the state, in that order, once it is stored. A result that is an
// error changes nothing.
//
//	return tool.Patched(tool.Text("noted"), tool.SetState("/visits", visits+1), tool.SetState("/log/-", in.Note))
//
// It returns an error where a value has no JSON form. A change that the state does not take is an error result of the
// call; in a parallel round, another call's change of the same path ends the run (state_conflict).
func Patched(r agent.ToolResultData, changes ...Change) (agent.ToolResultData, error) {
	for _, c := range changes {
		if c.err != nil {
			return agent.ToolResultData{}, c.err
		}
		r.Patch = append(r.Patch, c.patch)
	}
	return r, nil
}
