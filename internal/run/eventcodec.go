package run

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/countersign/countersign/internal/jsonx"
)

// eventNames ties each event's Go type to its stored name. A name is never used for another meaning.
var eventNames = map[reflect.Type]string{
	reflect.TypeFor[RunStarted]():          "run_started",
	reflect.TypeFor[InputReceived]():       "input_received",
	reflect.TypeFor[Decided]():             "decided",
	reflect.TypeFor[Answered]():            "answered",
	reflect.TypeFor[LateResult]():          "late_result",
	reflect.TypeFor[Replied]():             "replied",
	reflect.TypeFor[Evicted]():             "evicted",
	reflect.TypeFor[CallClaimed]():         "call_claimed",
	reflect.TypeFor[CallFinished]():        "call_finished",
	reflect.TypeFor[CallSuspended]():       "call_suspended",
	reflect.TypeFor[CallUnknown]():         "call_unknown",
	reflect.TypeFor[CallCancelled]():       "call_cancelled",
	reflect.TypeFor[Resumed]():             "resumed",
	reflect.TypeFor[Parked]():              "parked",
	reflect.TypeFor[HandedOver]():          "handed_over",
	reflect.TypeFor[Finished]():            "finished",
	reflect.TypeFor[DecisionKept]():        "decision_kept",
	reflect.TypeFor[DecisionDropped]():     "decision_dropped",
	reflect.TypeFor[ContextBuilt]():        "context_built",
	reflect.TypeFor[ToolsJudged]():         "tools_judged",
	reflect.TypeFor[Hooked]():              "hooked",
	reflect.TypeFor[PermissionRequested](): "permission_requested",
	reflect.TypeFor[PermissionAnswered]():  "permission_answered",
	reflect.TypeFor[CallPermitted]():       "call_permitted",
	reflect.TypeFor[PolicyEvaluated]():     "policy_evaluated",
	reflect.TypeFor[PermissionChecked]():   "permission_checked",
	reflect.TypeFor[PermissionFailed]():    "permission_failed",
	reflect.TypeFor[ContextFull]():         "context_full",
	reflect.TypeFor[LateSuspended]():       "late_suspended",
	reflect.TypeFor[Planned]():             "planned",
	reflect.TypeFor[StepRouted]():          "step_routed",
	reflect.TypeFor[Synthesised]():         "synthesised",
	reflect.TypeFor[PlanLeft]():            "plan_left",
	reflect.TypeFor[UndoOrdered]():         "undo_ordered",
	reflect.TypeFor[ToolsListed]():         "tools_listed",
	reflect.TypeFor[ToolsDisabled]():       "tools_disabled",
}

// eventTypes is eventNames the other way round.
var eventTypes = func() map[string]reflect.Type {
	types := make(map[string]reflect.Type, len(eventNames))
	for t, name := range eventNames {
		types[name] = t
	}
	return types
}()

// EventTypes are the stored names of all events, sorted.
func EventTypes() []string { return slices.Sorted(maps.Keys(eventTypes)) }

// EventType is an event's stored name, such as call_finished.
func EventType(e Event) string {
	if name, ok := eventNames[reflect.TypeOf(e)]; ok {
		return name
	}
	return fmt.Sprintf("%T", e)
}

// MarshalEvent writes the stored form: an object of one key, the event's name.
func MarshalEvent(e Event) (json.RawMessage, error) {
	name := EventType(e)
	if _, known := eventTypes[name]; !known {
		return nil, fmt.Errorf("marshal event: %s is not stored", name)
	}
	body, err := MarshalVerbatim(e)
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
			return nil, fmt.Errorf("event: %q is none that this version knows", Bounded(name))
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

// callOf is the id of the call a fact is about, "" where it is about the run.
func callOf(e Event) string {
	switch e := e.(type) {
	case Decided:
		return e.Call
	case Answered:
		return e.Call
	case LateResult:
		return e.Call
	case CallClaimed:
		return e.Call
	case CallFinished:
		return e.Call
	case CallSuspended:
		return e.Call
	case CallUnknown:
		return e.Call
	case CallCancelled:
		return e.Call
	case Hooked:
		return e.Call
	case CallPermitted:
		return e.Call
	case LateSuspended:
		return e.Call
	case UndoOrdered:
		return e.Call.ID
	default:
		return ""
	}
}
