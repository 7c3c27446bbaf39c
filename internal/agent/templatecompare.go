package agent

import (
	"encoding/json"
	"errors"
	"fmt"
)

var (
	errBadComparison = errors.New("invalid type for comparison")
	errNoComparison  = errors.New("missing argument for comparison")
)

// basicKind is what values must share to be compared; empty for nil, lists and objects.
type basicKind string

const (
	boolKind    basicKind = "bool"
	intKind     basicKind = "int"
	floatKind   basicKind = "float"
	complexKind basicKind = "complex"
	stringKind  basicKind = "string"
)

// basic gives a value its kind, and a value of a type that is the same for the whole kind.
func basic(v any) (basicKind, any) {
	switch v := v.(type) {
	case bool:
		return boolKind, v
	case string:
		return stringKind, v
	case json.Number:
		return stringKind, string(v)
	case float64:
		return floatKind, v
	case complex128:
		return complexKind, v
	}
	if n, ok := integer(v); ok {
		return intKind, n
	}
	return "", nil
}

// equalsAny reports whether a equals one of the others.
func equalsAny(a any, others []any) (bool, error) {
	if len(others) == 0 {
		return false, errNoComparison
	}
	for _, b := range others {
		if same, err := equals(a, b); same || err != nil {
			return same, err
		}
	}
	return false, nil
}

// equals compares values of one kind. Anything may be compared with nil, lists and objects with nothing else.
func equals(a, b any) (bool, error) {
	kindA, x := basic(a)
	kindB, y := basic(b)
	switch {
	case kindA == kindB && kindA != "":
		return x == y, nil
	case a == nil || b == nil:
		return isNil(a) && isNil(b), nil
	default:
		return false, fmt.Errorf("incompatible types for comparison: %T and %T", a, b)
	}
}

func isNil(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return v == nil
	case map[string]any:
		return v == nil
	default:
		return false
	}
}

// less orders numbers of one kind and strings.
func less(a, b any) (bool, error) {
	kindA, x := basic(a)
	kindB, y := basic(b)
	if kindA != kindB {
		return false, fmt.Errorf("incompatible types for comparison: %T and %T", a, b)
	}
	switch x := x.(type) {
	case int64:
		return x < y.(int64), nil
	case float64:
		return x < y.(float64), nil
	case string:
		return x < y.(string), nil
	default:
		return false, errBadComparison
	}
}

func lessOrEqual(a, b any) (bool, error) {
	if yes, err := less(a, b); yes || err != nil {
		return yes, err
	}
	return equals(a, b)
}
