package agent

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Words is the condition as people read and write it: path, operator, and the value as JSON, such as /amount lte 50 or /to in ["a","b"]. Paths
// with spaces are JSON strings.
func (c Condition) Words() string {
	path := c.Path
	if strings.ContainsAny(path, " \"") {
		path = string(appendCanonicalString(nil, path))
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

// Operator is the condition's operator and the JSON values it compares with: one, but of in. A pattern is a JSON string.
func (c Condition) Operator() (name string, values []json.RawMessage) {
	ops := c.operators()
	if len(ops) == 0 {
		return "", nil
	}
	return ops[0].name, ops[0].operands
}

// ConditionWords are conditions in words, all of which must hold; "" = there are none.
func ConditionWords(when []Condition) string {
	words := make([]string, len(when))
	for i, c := range when {
		words[i] = c.Words()
	}
	return strings.Join(words, " and ")
}

// ParseCondition reads what Words writes.
func ParseCondition(words string) (Condition, error) {
	var c Condition
	path, rest, ok := strings.Cut(strings.TrimSpace(words), " ")
	if strings.HasPrefix(words, `"`) {
		d := json.NewDecoder(strings.NewReader(words))
		if d.Decode(&path) != nil {
			return c, fmt.Errorf("got %q, want a path, one of %s, and a JSON value, such as /amount lte 50", words, operatorNames)
		}
		rest = words[d.InputOffset():]
	}
	op, value, ok2 := strings.Cut(strings.TrimSpace(rest), " ")
	value = strings.TrimSpace(value)
	c.Path = path
	if !ok || !ok2 || !json.Valid([]byte(value)) || !c.set(op, json.RawMessage(value)) {
		return c, fmt.Errorf("got %q, want a path, one of %s, and a JSON value, such as /amount lte 50 or /to eq \"ana\"", words, operatorNames)
	}
	var problems checker
	problems.condition("condition", c)
	return c, problems.err()
}

// set gives the condition its operator; false where there is none of the name, or its value is of another kind.
func (c *Condition) set(op string, value json.RawMessage) bool {
	switch op {
	case "in":
		return json.Unmarshal(value, &c.In) == nil && len(c.In) > 0
	case "matches":
		return json.Unmarshal(value, &c.Matches) == nil && c.Matches != ""
	}
	to, ok := map[string]*json.RawMessage{"eq": &c.Eq, "ne": &c.Ne, "gt": &c.Gt, "gte": &c.Gte, "lt": &c.Lt, "lte": &c.Lte}[op]
	if ok {
		*to = value
	}
	return ok
}
