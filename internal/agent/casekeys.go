package agent

import (
	"encoding/json"
	"strings"
)

// noteCaseKeys warns whoever is asked about a call that two keys of one object differ in nothing but upper and lower
// case.
const noteCaseKeys = "Warning: two keys of one object are the same but for upper and lower case. The tool may take the value of either."

// withCaseKeys is a decision about arguments of which an object has two keys that are equal but for case: many
// decoders, Go's among them, take either for the same field, so what a rule has compared may not be what the tool
// gets. Such a call is never allowed by policy.
func (d Decision) withCaseKeys(args json.RawMessage) Decision {
	if d.Verdict == VerdictDeny || !hasCaseKeys(args) {
		return d
	}
	d.Verdict = VerdictAsk
	d.Note = strings.TrimSpace(d.Note + "\n" + noteCaseKeys)
	return d
}

// hasCaseKeys reports whether an object in a JSON value, however deep, has two keys that are equal but for case.
func hasCaseKeys(raw json.RawMessage) bool {
	v, err := decodeNumbers(raw)
	return err == nil && caseKeysIn(v)
}

func caseKeysIn(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		seen := make(map[string]bool, len(v))
		for key, of := range v {
			folded := strings.Map(caseFold, key)
			if seen[folded] || caseKeysIn(of) {
				return true
			}
			seen[folded] = true
		}
	case []any:
		for _, of := range v {
			if caseKeysIn(of) {
				return true
			}
		}
	}
	return false
}
