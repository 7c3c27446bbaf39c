package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
)

// eventTypes are the events by their stored names. A name is never used for another meaning.
var eventTypes = typesByName[Event](
	RunStarted{}, InputReceived{}, Decided{}, Answered{}, LateResult{}, Replied{}, Evicted{}, CallClaimed{},
	CallFinished{}, CallSuspended{}, CallUnknown{}, CallCancelled{}, Resumed{}, Parked{}, HandedOver{},
	Finished{}, DecisionKept{}, DecisionDropped{}, ContextBuilt{}, Remembered{}, Hooked{},
	PermissionRequested{}, PermissionAnswered{}, CallPermitted{}, PermissionChecked{},
	PermissionFailed{}, ContextFull{}, LateSuspended{}, Planned{}, StepRouted{}, Synthesised{}, PlanLeft{},
	UndoOrdered{}, ToolsListed{}, ToolsDisabled{},
)

func typesByName[T any](all ...T) map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for _, v := range all {
		types[nameOf(v)] = reflect.TypeOf(v)
	}
	return types
}

// EventTypes are the stored names of all events, sorted.
func EventTypes() []string { return slices.Sorted(maps.Keys(eventTypes)) }

// EventType is an event's stored name: that of its Go type in lower case, such as call_finished for CallFinished.
func EventType(e Event) string { return nameOf(e) }

func nameOf(v any) string {
	var name []byte
	for i, c := range []byte(reflect.TypeOf(v).Name()) {
		if 'A' <= c && c <= 'Z' {
			if c += 'a' - 'A'; i > 0 {
				name = append(name, '_')
			}
		}
		name = append(name, c)
	}
	return string(name)
}

// MarshalEvent writes the stored form: an object of one key, the event's name.
func MarshalEvent(e Event) (json.RawMessage, error) {
	name := EventType(e)
	if _, known := eventTypes[name]; !known {
		return nil, fmt.Errorf("marshal event: %s is not stored", name)
	}
	body, err := jsonx.MarshalVerbatim(e)
	if err != nil {
		return nil, fmt.Errorf("marshal event %s: %w", name, err)
	}
	return append(append([]byte(`{"`+name+`":`), body...), '}'), nil
}

// UnmarshalEvent reads what MarshalEvent wrote. Unknown names, keys and words that decide what happens are an error.
func UnmarshalEvent(raw json.RawMessage) (Event, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("unmarshal event: %w", err)
	}
	if len(m) != 1 {
		return nil, fmt.Errorf("unmarshal event: %d names, want one", len(m))
	}
	for name, body := range m {
		of, ok := eventTypes[name]
		if !ok {
			return nil, fmt.Errorf("event: %.64q is none that this version knows", name)
		}
		v := reflect.New(of)
		if err := readKnown("event "+name, body, v.Interface()); err != nil {
			return nil, err
		}
		e := v.Elem().Interface().(Event)
		return e, checkWords(name, e)
	}
	return nil, nil
}

// UnmarshalStored is UnmarshalEvent of an event that is stored by itself, with the checks that UnmarshalEntry makes of
// a whole entry.
func UnmarshalStored(raw json.RawMessage) (Event, error) {
	if _, err := jsonx.CompactJSON(raw, storedLimits(raw)); err != nil {
		return nil, fmt.Errorf("unmarshal event: %w", err)
	}
	return UnmarshalEvent(raw)
}

// storedLimits are those of what is stored: the bounds of what went into it are kept when it is written.
func storedLimits(data []byte) jsonx.JSONLimits {
	return jsonx.JSONLimits{Bytes: len(data) + 1, Depth: 256}
}

// ReadStored decodes a stored form into v, a pointer. It refuses whatever this version does not write: a key that v has
// no field for, a key twice or in other capitals, a value of another kind, anything behind the value. What names the
// form in the error. Raw JSON within v is as it was stored, to the byte.
func ReadStored(what string, data []byte, v any) error {
	if err := checkStored(data, v); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return readKnown(what, data, v)
}

// checkStored checks what a decoder would let pass.
func checkStored(data []byte, v any) error {
	if _, err := jsonx.CompactJSON(data, storedLimits(data)); err != nil {
		return err
	}
	if of := reflect.TypeOf(v); of.Elem().Kind() == reflect.Struct && jsonx.JSONKind(data) != '{' {
		return &jsonx.JSONError{Want: "an object"}
	}
	return jsonx.FieldCheck{Others: true}.Value(data, reflect.TypeOf(v), "")
}

// readKnown is ReadStored of what has been checked as part of a larger form.
func readKnown(what string, data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%s: %w", what, jsonx.WithoutValue(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: want nothing behind the value", what)
	}
	return nil
}

// checkWords refuses a fact with a word that decides what happens and that this build does not know: folded, it would
// mean something else.
func checkWords(name string, e Event) error {
	switch e := e.(type) {
	case CallSuspended:
		if err := checkWord(name, "for", e.For, ForApproval, ForOutcome, ForInput, ForAnswer); err != nil {
			return err
		}
		return checkWord(name, "why", e.Why, WhyPolicyChanged, WhyStateChanged, WhyMiscounted)
	case Decided:
		return checkWord(name, "action", e.Action, ActionApprove, ActionDeny, ActionCancel, ActionFail, ActionAskAgain)
	case DecisionKept:
		return checkWord(name, "action", e.Action, ActionApprove, ActionDeny, ActionCancel, ActionFail, ActionAskAgain)
	default:
		return nil
	}
}

// checkWord refuses a word that is neither empty nor one of these.
func checkWord[W ~string](event, key string, w W, known ...W) error {
	if w == "" || slices.Contains(known, w) {
		return nil
	}
	words := make([]string, len(known))
	for i, k := range known {
		words[i] = string(k)
	}
	return fmt.Errorf("event %s: %s: want one of: %s", event, key, strings.Join(words, ", "))
}
