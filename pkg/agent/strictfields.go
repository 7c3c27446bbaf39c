package agent

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// checkFields refuses keys that are not, letter by letter, the names of the fields they would set. It stops where a type
// decodes itself.
func checkFields(raw json.RawMessage, t reflect.Type, at string) error {
	for t != nil && t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
	}
	if t == nil || decodesItself(t) || decodesItself(reflect.PointerTo(t)) {
		return nil
	}
	switch kind := jsonKind(raw); {
	case kind == '{' && t.Kind() == reflect.Struct:
		return checkStructFields(raw, t, at)
	case kind == '{' && t.Kind() == reflect.Map:
		return eachMember(raw, at, func(_ string, v json.RawMessage, at string) error { return checkFields(v, t.Elem(), at) })
	case kind == '[' && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array):
		return eachElement(raw, at, func(v json.RawMessage, at string) error { return checkFields(v, t.Elem(), at) })
	}
	return nil
}

func checkStructFields(raw json.RawMessage, t reflect.Type, at string) error {
	known := jsonFields(t)
	return eachMember(raw, at, func(key string, v json.RawMessage, at string) error {
		field, ok := known[key]
		if !ok {
			return &JSONError{Pointer: at, Want: "a known key"}
		}
		return checkFields(v, field, at)
	})
}

func eachMember(raw json.RawMessage, at string, visit func(key string, v json.RawMessage, at string) error) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return fmt.Errorf("json at %q: %w", at, err)
	}
	for _, key := range sortedKeys(members) {
		if err := visit(key, members[key], at+FormatPointer([]string{key})); err != nil {
			return err
		}
	}
	return nil
}

func eachElement(raw json.RawMessage, at string, visit func(v json.RawMessage, at string) error) error {
	var elements []json.RawMessage
	if err := json.Unmarshal(raw, &elements); err != nil {
		return fmt.Errorf("json at %q: %w", at, err)
	}
	for i, v := range elements {
		if err := visit(v, fmt.Sprintf("%s/%d", at, i)); err != nil {
			return err
		}
	}
	return nil
}

// jsonFields maps the keys encoding/json knows for a struct to the types of their fields.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Tag.Get("json") == "-" || !f.IsExported():
		case f.Anonymous && name == "": // its own fields are among the visible ones
		case name == "":
			fields[f.Name] = f.Type
		default:
			fields[name] = f.Type
		}
	}
	return fields
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func decodesItself(t reflect.Type) bool { return t.Implements(unmarshaler) }
