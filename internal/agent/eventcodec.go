package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// eventTypes ties each event's stored name to its Go type. A name, once released, is never used for another meaning.
var eventTypes = map[string]func(json.RawMessage) (Event, error){
	"run_started":      decodeEvent[RunStarted],
	"input_received":   decodeEvent[InputReceived],
	"decided":          decodeEvent[Decided],
	"answered":         decodeEvent[Answered],
	"late_result":      decodeEvent[LateResult],
	"replied":          decodeEvent[Replied],
	"evicted":          decodeEvent[Evicted],
	"call_claimed":     decodeEvent[CallClaimed],
	"call_finished":    decodeEvent[CallFinished],
	"call_suspended":   decodeEvent[CallSuspended],
	"call_unknown":     decodeEvent[CallUnknown],
	"call_cancelled":   decodeEvent[CallCancelled],
	"resumed":          decodeEvent[Resumed],
	"parked":           decodeEvent[Parked],
	"handed_over":      decodeEvent[HandedOver],
	"finished":         decodeEvent[Finished],
	"decision_kept":    decodeEvent[DecisionKept],
	"decision_dropped": decodeEvent[DecisionDropped],
	"context_built":    decodeEvent[ContextBuilt],
	"tools_judged":     decodeEvent[ToolsJudged],
	"hooked":           decodeEvent[Hooked],

	"permission_requested": decodeEvent[PermissionRequested],
	"permission_answered":  decodeEvent[PermissionAnswered],
	"call_permitted":       decodeEvent[CallPermitted],
	"policy_evaluated":     decodeEvent[PolicyEvaluated],
	"permission_checked":   decodeEvent[PermissionChecked],
	"permission_failed":    decodeEvent[PermissionFailed],

	"context_full":   decodeEvent[ContextFull],
	"late_suspended": decodeEvent[LateSuspended],
	"planned":        decodeEvent[Planned],
	"step_routed":    decodeEvent[StepRouted],
	"synthesised":    decodeEvent[Synthesised],
	"plan_left":      decodeEvent[PlanLeft],

	"undo_ordered":   decodeEvent[UndoOrdered],
	"tools_listed":   decodeEvent[ToolsListed],
	"tools_disabled": decodeEvent[ToolsDisabled],

	"quarantined": decodeEvent[Quarantined],
	"released":    decodeEvent[Released],
}

func decodeEvent[E Event](raw json.RawMessage) (Event, error) {
	var e E
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(&e)
	return e, err
}

// EventTypes are the stored names of all events, sorted.
func EventTypes() []string { return slices.Sorted(maps.Keys(eventTypes)) }

// EventType is an event's stored name, such as call_finished.
func EventType(e Event) string {
	switch e.(type) {
	case RunStarted:
		return "run_started"
	case InputReceived:
		return "input_received"
	case Decided:
		return "decided"
	case Answered:
		return "answered"
	case LateResult:
		return "late_result"
	case Replied:
		return "replied"
	case Evicted:
		return "evicted"
	case CallClaimed:
		return "call_claimed"
	case CallFinished:
		return "call_finished"
	case CallSuspended:
		return "call_suspended"
	case CallUnknown:
		return "call_unknown"
	case CallCancelled:
		return "call_cancelled"
	case Resumed:
		return "resumed"
	case Parked:
		return "parked"
	case HandedOver:
		return "handed_over"
	case Finished:
		return "finished"
	default:
		return codeEventType(e)
	}
}

// codeEventType is EventType of the facts that come of code and people beside the loop.
func codeEventType(e Event) string {
	switch e.(type) {
	case ContextBuilt:
		return "context_built"
	case ToolsJudged:
		return "tools_judged"
	case Hooked:
		return "hooked"
	case ContextFull:
		return "context_full"
	case LateSuspended:
		return "late_suspended"
	case UndoOrdered:
		return "undo_ordered"
	default:
		return permissionEventType(e)
	}
}

// permissionEventType is EventType of what concerns permissions of tools, and decisions that are kept.
func permissionEventType(e Event) string {
	switch e.(type) {
	case DecisionKept:
		return "decision_kept"
	case DecisionDropped:
		return "decision_dropped"
	case PermissionRequested:
		return "permission_requested"
	case PermissionAnswered:
		return "permission_answered"
	case CallPermitted:
		return "call_permitted"
	case PolicyEvaluated:
		return "policy_evaluated"
	case PermissionChecked:
		return "permission_checked"
	case PermissionFailed:
		return "permission_failed"
	default:
		if name, ok := planEventType(e); ok {
			return name
		}
		if name, ok := listingEventType(e); ok {
			return name
		}
		if name, ok := quarantineEventType(e); ok {
			return name
		}
		return fmt.Sprintf("%T", e)
	}
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

// UnmarshalEvent reads what MarshalEvent wrote. Unknown names, forms, keys and words that decide what happens are a *NewerError: a newer build
// wrote them.
func UnmarshalEvent(raw json.RawMessage) (Event, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("unmarshal event: %w", err)
	}
	if len(m) != 1 {
		return nil, fmt.Errorf("unmarshal event: %d names, want one", len(m))
	}
	for name, body := range m {
		decode, ok := eventTypes[name]
		if !ok {
			return nil, unknownEvent(name)
		}
		e, err := decode(body)
		if err != nil {
			return nil, newerKey("event "+name, err)
		}
		return e, checkWords(name, e)
	}
	return nil, nil
}

// UnmarshalStored is UnmarshalEvent of an event that is stored by itself, with the checks that UnmarshalEntry makes of a whole entry.
func UnmarshalStored(raw json.RawMessage) (Event, error) {
	if _, err := CompactJSON(raw, storedLimits(raw)); err != nil {
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
