package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// templateFunction is a function that texts may call.
type templateFunction struct {
	min, max int            // arguments; max -1 = any number
	enough   func(any) bool // the argument that is the result, the later ones staying unevaluated; nil = none is
	call     func(args []any) (any, error)
}

// templateFunctions are the functions of text/template, but for call, which needs functions as data, and js.
var templateFunctions = map[string]templateFunction{
	"and":      {min: 1, max: -1, call: lastOf, enough: func(v any) bool { return !truth(v) }},
	"or":       {min: 1, max: -1, call: lastOf, enough: truth},
	"not":      {min: 1, max: 1, call: func(a []any) (any, error) { return !truth(a[0]), nil }},
	"len":      {min: 1, max: 1, call: func(a []any) (any, error) { return length(a[0]) }},
	"index":    {min: 1, max: -1, call: func(a []any) (any, error) { return index(a[0], a[1:]) }},
	"slice":    {min: 1, max: 4, call: func(a []any) (any, error) { return slice(a[0], a[1:]) }},
	"eq":       {min: 1, max: -1, call: func(a []any) (any, error) { return equalsAny(a[0], a[1:]) }},
	"ne":       {min: 2, max: 2, call: func(a []any) (any, error) { return not(equalsAny(a[0], a[1:])) }},
	"lt":       {min: 2, max: 2, call: func(a []any) (any, error) { return less(a[0], a[1]) }},
	"le":       {min: 2, max: 2, call: func(a []any) (any, error) { return lessOrEqual(a[0], a[1]) }},
	"gt":       {min: 2, max: 2, call: func(a []any) (any, error) { return not(lessOrEqual(a[0], a[1])) }},
	"ge":       {min: 2, max: 2, call: func(a []any) (any, error) { return not(less(a[0], a[1])) }},
	"print":    {max: -1, call: func(a []any) (any, error) { return fmt.Sprint(a...), nil }},
	"println":  {max: -1, call: func(a []any) (any, error) { return fmt.Sprintln(a...), nil }},
	"printf":   {min: 1, max: -1, call: func(a []any) (any, error) { return format(a[0], a[1:]) }},
	"html":     {max: -1, call: func(a []any) (any, error) { return htmlEscapes.Replace(textOf(a)), nil }},
	"urlquery": {max: -1, call: func(a []any) (any, error) { return url.QueryEscape(textOf(a)), nil }},
}

// truth is false for the zero value of a type and for what has no elements.
func truth(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case json.Number:
		return v != ""
	case float64:
		return v != 0
	case complex128:
		return v != 0
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	default:
		n, ok := integer(v)
		return !ok || n != 0
	}
}

// integer reads the integers of plain data. A uint8 is what the index of a string gives.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case uint8:
		return int64(v), true
	default:
		return 0, false
	}
}

// likeInteger gives n the type of v.
func likeInteger(v any, n int64) any {
	switch v.(type) {
	case int64:
		return n
	case uint8:
		return uint8(n)
	default:
		return int(n)
	}
}

func lastOf(args []any) (any, error) { return args[len(args)-1], nil }

func not(b bool, err error) (bool, error) { return !b, err }

func format(f any, args []any) (string, error) {
	text, ok := f.(string)
	if !ok {
		return "", fmt.Errorf("wrong type for value; expected string; got %T", f)
	}
	return fmt.Sprintf(text, args...), nil
}

var htmlEscapes = strings.NewReplacer(`"`, "&#34;", `'`, "&#39;", "&", "&amp;", "<", "&lt;", ">", "&gt;", "\000", "\uFFFD")

// textOf is the text of arguments as print gives it, but that nil is printed as it is by itself.
func textOf(args []any) string {
	shown := make([]any, len(args))
	for i, a := range args {
		shown[i] = printable(a)
	}
	return fmt.Sprint(shown...)
}

func length(v any) (int, error) {
	switch v := v.(type) {
	case string:
		return len(v), nil
	case json.Number:
		return len(v), nil
	case []any:
		return len(v), nil
	case map[string]any:
		return len(v), nil
	default:
		return 0, fmt.Errorf("len of type %T", v)
	}
}

// index is v[i][j]..., a missing key being nil.
func index(v any, indexes []any) (any, error) {
	if v == nil {
		return nil, errors.New("index of untyped nil")
	}
	var err error
	for _, i := range indexes {
		if v, err = element(v, i); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func element(v, at any) (any, error) {
	if m, ok := v.(map[string]any); ok {
		key, ok := at.(string)
		if !ok {
			return nil, fmt.Errorf("value has type %T; should be string", at)
		}
		return m[key], nil
	}
	n, err := length(v)
	if err != nil {
		return nil, fmt.Errorf("can't index item of type %T", v)
	}
	i, err := position(at, n-1)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case string:
		return v[i], nil
	case json.Number:
		return v[i], nil
	default:
		return v.([]any)[i], nil
	}
}

// position reads an index from 0 to last.
func position(at any, last int) (int, error) {
	n, ok := integer(at)
	if !ok {
		return 0, fmt.Errorf("cannot index slice/array with type %T", at)
	}
	if n < 0 || n > int64(last) {
		return 0, fmt.Errorf("index out of range: %d", n)
	}
	return int(n), nil
}

// slice is v[i:j] or, for a list, v[i:j:k]; what is left out is as in Go.
func slice(v any, indexes []any) (any, error) {
	switch v := v.(type) {
	case string:
		i, err := bounds(indexes, 2, len(v), len(v))
		return v[i[0]:i[1]], err
	case json.Number:
		i, err := bounds(indexes, 2, len(v), len(v))
		return v[i[0]:i[1]], err
	case []any:
		i, err := bounds(indexes, 3, len(v), cap(v))
		return v[i[0]:i[1]:i[2]], err
	default:
		return nil, fmt.Errorf("can't slice item of type %T", v)
	}
}

// bounds reads up to most indexes; without them they are 0, length and limit. With an error they are zero.
func bounds(indexes []any, most, length, limit int) ([3]int, error) {
	if len(indexes) > most {
		return [3]int{}, fmt.Errorf("too many slice indexes: %d", len(indexes))
	}
	at := [3]int{0, length, limit}
	for i, index := range indexes {
		n, err := position(index, limit)
		if err != nil {
			return [3]int{}, err
		}
		at[i] = n
	}
	if at[0] > at[1] || at[1] > at[2] {
		return [3]int{}, fmt.Errorf("invalid slice index: want %d <= %d <= %d", at[0], at[1], at[2])
	}
	return at, nil
}
