package jsonx

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// Condition compares the value at a JSON Pointer of JSON. Exactly one operator is set. Numbers are exact decimals.
type Condition struct {
	Path    string            `json:"path"`
	Eq      json.RawMessage   `json:"eq,omitempty"`
	Ne      json.RawMessage   `json:"ne,omitempty"`
	Gt      json.RawMessage   `json:"gt,omitempty"`
	Gte     json.RawMessage   `json:"gte,omitempty"`
	Lt      json.RawMessage   `json:"lt,omitempty"`
	Lte     json.RawMessage   `json:"lte,omitempty"`
	In      []json.RawMessage `json:"in,omitempty"`
	Matches string            `json:"matches,omitempty"` // RE2, unanchored
}

// Words returns the condition as people read and write it: path, operator, and the value as JSON, such as /amount lte
// 50 or /to in ["a","b"]. A path with spaces is a JSON string.
func (c Condition) Words() string {
	path := c.Path
	if strings.ContainsAny(path, " \"") {
		path = string(AppendCanonicalString(nil, path))
	}
	op, values := c.Operator()
	if len(values) == 0 {
		return path
	}
	value := string(values[0])
	if op == "in" {
		all := make([]string, len(values))
		for i, v := range values {
			all[i] = string(v)
		}
		value = "[" + strings.Join(all, ",") + "]"
	}
	return path + " " + op + " " + value
}

// Operator returns the condition's operator and the JSON values that it compares with: one value, but several for in. A
// pattern is a JSON string.
func (c Condition) Operator() (name string, values []json.RawMessage) {
	ops := c.Operators()
	if len(ops) == 0 {
		return "", nil
	}
	return ops[0].Name, ops[0].Operands
}

// Set sets the condition's operator. It returns false for an unknown operator or a value of the wrong kind.
func (c *Condition) Set(op string, value json.RawMessage) bool {
	switch op {
	case "in":
		return json.Unmarshal(value, &c.In) == nil && len(c.In) > 0
	case "matches":
		return json.Unmarshal(value, &c.Matches) == nil && c.Matches != ""
	}
	to, ok := map[string]*json.RawMessage{"eq": &c.Eq, "ne": &c.Ne, "gt": &c.Gt, "gte": &c.Gte, "lt": &c.Lt,
		"lte": &c.Lte}[op]
	if ok {
		*to = value
	}
	return ok
}

type comparison int

// The results of a comparison.
const (
	fails        comparison = iota - 1
	Incomparable            // the value is missing, or of a type that the operator does not compare
	Holds                   // = -fails
)

func comparisonOf(held bool) comparison {
	if held {
		return Holds
	}
	return fails
}

// Operator is one of a condition's comparisons.
type Operator struct {
	Name     string
	Operands []json.RawMessage
	test     func(value json.RawMessage, operands []json.RawMessage) comparison
}

// Operators returns the operators that are set; there should be exactly one.
func (c Condition) Operators() []Operator {
	var pattern json.RawMessage
	if c.Matches != "" {
		pattern = AppendCanonicalString(nil, c.Matches)
	}
	all := []Operator{
		{"eq", single(c.Eq), isIn},
		{"ne", single(c.Ne), func(value json.RawMessage, all []json.RawMessage) comparison { return -isIn(value, all) }},
		{"gt", single(c.Gt), compareOrdered(func(c int) bool { return c > 0 })},
		{"gte", single(c.Gte), compareOrdered(func(c int) bool { return c >= 0 })},
		{"lt", single(c.Lt), compareOrdered(func(c int) bool { return c < 0 })},
		{"lte", single(c.Lte), compareOrdered(func(c int) bool { return c <= 0 })},
		{"in", c.In, isIn},
		{"matches", single(pattern), c.matchesPattern},
	}
	return slices.DeleteFunc(all, func(o Operator) bool { return len(o.Operands) == 0 })
}

func single(v json.RawMessage) []json.RawMessage {
	if len(v) == 0 {
		return nil
	}
	return []json.RawMessage{v}
}

// Test compares the value at the condition's path with its operands.
func (c Condition) Test(raw json.RawMessage) comparison {
	value, ok, err := Lookup(raw, c.Path)
	ops := c.Operators()
	if !ok || err != nil || len(ops) != 1 {
		return Incomparable
	}
	return ops[0].test(value, ops[0].Operands)
}

func (c Condition) matchesPattern(value json.RawMessage, _ []json.RawMessage) comparison {
	re, err := regexp.Compile(c.Matches)
	s, ok := JSONString(value)
	if err != nil || !ok {
		return Incomparable
	}
	return comparisonOf(re.MatchString(s))
}

// isIn holds if value equals an operand. It is incomparable if no operand has the value's type.
func isIn(value json.RawMessage, operands []json.RawMessage) comparison {
	best := Incomparable
	for _, operand := range operands {
		switch equalScalars(value, operand) {
		case Holds:
			return Holds
		case fails:
			best = fails
		}
	}
	return best
}

// equalScalars compares values of one type. A null in the rule compares with every type.
func equalScalars(value, operand json.RawMessage) comparison {
	kind, want := JSONKind(value), JSONKind(operand)
	if want == 'n' {
		return comparisonOf(kind == 'n')
	}
	if kind != want {
		return Incomparable
	}
	switch kind {
	case '0':
		return compareOrdered(func(c int) bool { return c == 0 })(value, single(operand))
	case '"':
		a, ok := JSONString(value)
		b, ok2 := JSONString(operand)
		if !ok || !ok2 {
			return Incomparable
		}
		return comparisonOf(a == b)
	case 'b':
		return comparisonOf(string(value) == string(operand))
	}
	return Incomparable
}

func compareOrdered(accept func(c int) bool) func(json.RawMessage, []json.RawMessage) comparison {
	return func(value json.RawMessage, operands []json.RawMessage) comparison {
		c, err := CompareNumbers(string(value), string(operands[0]))
		if err != nil {
			return Incomparable
		}
		return comparisonOf(accept(c))
	}
}

// JSONString returns the text of a JSON string; false if raw is not a string.
func JSONString(raw json.RawMessage) (string, bool) {
	var s string
	if JSONKind(raw) != '"' || json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}

// Fits reports whether JSON that CompactJSON has accepted satisfies all conditions. A value that is missing, or of
// another type, satisfies none.
func Fits(when []Condition, args json.RawMessage) bool {
	return !slices.ContainsFunc(when, func(c Condition) bool { return c.Test(args) != Holds })
}
