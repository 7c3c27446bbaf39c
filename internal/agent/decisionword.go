package agent

import (
	"encoding/json"
	"slices"
	"strings"
)

// DecisionFromJSON reads a free-form answer to a suspended call as a decision: resume or cancel (semantics.md 3.5, A16).
//
//	true, false                        resume, cancel
//	a string                           cancel if it is a denial word, else resume, "" too
//	an object                          cancel if approved is false or a denial word, if denied, rejected or the like is true,
//	                                   or if status, decision or action is a denial word; else resume
//	null, a list, a number, not JSON   cancel
//
// reason is the string itself or the object's reason, message or error; "" if there is none.
func DecisionFromJSON(raw json.RawMessage) (resume bool, reason string) {
	raw, err := CompactJSON(raw, JSONLimits{})
	if err != nil {
		return false, ""
	}
	switch jsonKind(raw) {
	case 'b':
		return string(raw) == "true", ""
	case '"':
		s, ok := jsonString(raw)
		return ok && !isDenialWord(s), s
	case '{':
		return decisionFromObject(raw)
	}
	return false, ""
}

func decisionFromObject(raw json.RawMessage) (resume bool, reason string) {
	var o map[string]json.RawMessage
	if err := json.Unmarshal(raw, &o); err != nil {
		return false, ""
	}
	for _, key := range []string{"reason", "message", "error"} {
		if s, ok := jsonString(o[key]); ok && s != "" {
			reason = s
			break
		}
	}
	return !deniesObject(o), reason
}

func deniesObject(o map[string]json.RawMessage) bool {
	if string(o["approved"]) == "false" {
		return true
	}
	if slices.ContainsFunc(denialWords, func(flag string) bool { return string(o[flag]) == "true" }) {
		return true
	}
	return slices.ContainsFunc([]string{"approved", "status", "decision", "action"}, func(key string) bool {
		s, ok := jsonString(o[key])
		return ok && isDenialWord(s)
	})
}

// denialWords mean no; as keys of an object with the value true they are denial flags.
var denialWords = []string{
	"false", "no", "denied", "deny", "reject", "rejected", "cancel", "canceled", "cancelled", "abort", "aborted",
}

func isDenialWord(s string) bool {
	return slices.Contains(denialWords, strings.ToLower(strings.TrimSpace(s)))
}
