package awsfake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Matches reports whether an event fits an event pattern: every field of the pattern is in the event, with one of the
// values listed. Comparisons are exact values, prefix and exists, which looks at leaves alone; others are an error that
// names them.
func Matches(pattern, event json.RawMessage) (bool, error) {
	p, err := decoded(pattern)
	if err != nil {
		return false, fmt.Errorf("event pattern: %w", err)
	}
	e, err := decoded(event)
	if err != nil {
		return false, fmt.Errorf("event: %w", err)
	}
	return object(p, e, "")
}

func decoded(raw json.RawMessage) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v map[string]any
	return v, d.Decode(&v)
}

func object(pattern, event map[string]any, at string) (bool, error) {
	for name, want := range pattern {
		path := strings.TrimPrefix(at+"."+name, ".")
		got, there := event[name]
		var ok bool
		var err error
		switch want := want.(type) {
		case map[string]any:
			inner, _ := got.(map[string]any)
			ok, err = object(want, inner, path)
		case []any:
			ok, err = oneOf(want, got, there, path)
		default:
			err = fmt.Errorf("event pattern: %s: want an object or a list", path)
		}
		if err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

func oneOf(wanted []any, got any, there bool, path string) (bool, error) {
	values, isList := got.([]any)
	if !isList {
		values = []any{got}
	}
	for _, want := range wanted {
		rule, isRule := want.(map[string]any)
		for _, v := range values {
			ok := there && reflect.DeepEqual(want, v)
			if isRule {
				var err error
				if ok, err = compare(rule, v, there, path); err != nil {
					return false, err
				}
			}
			if ok {
				return true, nil
			}
		}
	}
	return false, nil
}

func compare(rule map[string]any, v any, there bool, path string) (bool, error) {
	text, isText := v.(string)
	for kind, arg := range rule {
		want, _ := arg.(string)
		switch kind {
		case "prefix":
			return there && isText && strings.HasPrefix(text, want), nil
		case "exists":
			_, isObject := v.(map[string]any)
			return (there && !isObject) == (arg == true), nil
		default:
			return false, fmt.Errorf("event pattern: %s: comparison %q is not known here", path, kind)
		}
	}
	return false, fmt.Errorf("event pattern: %s: an empty comparison", path)
}
