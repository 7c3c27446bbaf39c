package run

import (
	"cmp"
	"encoding/json"
	"fmt"
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
	UndoOrdered{}, ToolsListed{}, ToolsDisabled{}, BudgetAsked{},
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

// UnmarshalEvent reads what MarshalEvent wrote. Unknown names, keys, and values that decide what happens are errors.
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
		if err := jsonx.ReadChecked("event "+name, body, v.Interface()); err != nil {
			return nil, err
		}
		e := v.Elem().Interface().(Event)
		return e, checkWords(name, e)
	}
	return nil, nil
}

// checkWords refuses values that decide what happens and that this build does not know: it would do something else.
func checkWords(name string, e Event) error {
	actions := []DecisionAction{ActionApprove, ActionDeny, ActionCancel, ActionFail, ActionAskAgain}
	switch e := e.(type) {
	case CallSuspended:
		return cmp.Or(checkWord(name, "for", e.For, ForApproval, ForOutcome, ForInput, ForAnswer),
			checkWord(name, "why", e.Why, WhyPolicyChanged, WhyStateChanged, WhyMiscounted))
	case Decided:
		return checkWord(name, "action", e.Action, actions...)
	case DecisionKept:
		return checkWord(name, "action", e.Action, actions...)
	default:
		return nil
	}
}

// checkWord refuses a value that is neither empty nor one of these.
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
