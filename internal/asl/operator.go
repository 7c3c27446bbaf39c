package asl

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"
)

// tests are the operators that look at the variable alone.
var tests = map[string]func(v any) bool{
	"IsPresent":   func(any) bool { return true },
	"IsNull":      func(v any) bool { return v == nil },
	"IsString":    isString,
	"IsNumeric":   isNumeric,
	"IsBoolean":   isBoolean,
	"IsTimestamp": isTimestamp,
}

// comparison is an operator with an operand: both sides must be of the type it takes.
type comparison struct {
	takes func(v any) bool
	holds func(v, operand any) bool
}

// comparisons are the operators with an operand; each but StringMatches has a variant whose name ends in Path.
var comparisons = buildComparisons()

func buildComparisons() map[string]comparison {
	all := map[string]comparison{
		"BooleanEquals": {takes: isBoolean, holds: func(v, operand any) bool { return v == operand }},
		"StringMatches": {takes: isString, holds: func(v, operand any) bool { return matchWildcard(operand.(string), v.(string)) }},
	}
	types := map[string]struct {
		takes func(v any) bool
		order func(a, b any) int
	}{
		"String":    {isString, func(a, b any) int { return cmp.Compare(a.(string), b.(string)) }},
		"Numeric":   {isNumeric, func(a, b any) int { return cmp.Compare(number(a), number(b)) }},
		"Timestamp": {isTimestamp, func(a, b any) int { return timestamp(a).Compare(timestamp(b)) }},
	}
	relations := map[string]func(order int) bool{
		"Equals":            func(o int) bool { return o == 0 },
		"LessThan":          func(o int) bool { return o < 0 },
		"LessThanEquals":    func(o int) bool { return o <= 0 },
		"GreaterThan":       func(o int) bool { return o > 0 },
		"GreaterThanEquals": func(o int) bool { return o >= 0 },
	}
	for typeName, t := range types {
		for relation, holds := range relations {
			all[typeName+relation] = comparison{t.takes, func(v, operand any) bool { return holds(t.order(v, operand)) }}
		}
	}
	return all
}

func isString(v any) bool {
	_, ok := v.(string)
	return ok
}

func isNumeric(v any) bool {
	_, ok := v.(json.Number)
	return ok
}

func isBoolean(v any) bool {
	_, ok := v.(bool)
	return ok
}

func isTimestamp(v any) bool {
	s, ok := v.(string)
	if !ok {
		return false
	}
	_, err := time.Parse(time.RFC3339, s)
	return err == nil
}

// number is a double, as Step Functions compares; a number out of its range is infinite.
func number(v any) float64 {
	f, _ := v.(json.Number).Float64() // the error says out of range, and f is then infinite
	return f
}

func timestamp(v any) time.Time {
	t, _ := time.Parse(time.RFC3339, v.(string)) // isTimestamp held
	return t
}

// matchWildcard matches text against a pattern in which * stands for anything and \* for itself.
func matchWildcard(pattern, text string) bool {
	parts := wildcardParts(pattern)
	if len(parts) == 1 {
		return text == parts[0]
	}
	text, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return strings.HasSuffix(text, parts[last])
}

// wildcardParts are the literal texts between the wildcards.
func wildcardParts(pattern string) []string {
	parts := []string{""}
	escaped := false
	for _, r := range pattern {
		switch {
		case escaped || r != '*' && r != '\\':
			parts[len(parts)-1] += string(r)
			escaped = false
		case r == '\\':
			escaped = true
		default:
			parts = append(parts, "")
		}
	}
	return parts
}
