package jsonx

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// FieldCheck refuses keys that are not, letter by letter, the names of the fields they would set, and values of another
// kind than these hold. It stops where a type decodes itself.
type FieldCheck struct {
	Others bool // keys that are no field's are nobody's business
}

// Value checks that every key of raw is a field of t, at any depth. The error names the key by its path below at.
func (f FieldCheck) Value(raw json.RawMessage, t reflect.Type, at string) error {
	for t != nil && t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
	}
	if t == reflect.TypeFor[time.Time]() || t == reflect.TypeFor[*time.Time]() {
		if json.Unmarshal(raw, new(time.Time)) != nil { // its error quotes the text, and names no key
			return &JSONError{Pointer: at, Want: "a time, such as 2026-01-31T12:00:00Z"}
		}
		return nil
	}
	if t == nil || decodesItself(t) || decodesItself(reflect.PointerTo(t)) {
		return nil
	}
	kind := JSONKind(raw)
	if accepted, want := kindsFor(t); !strings.ContainsRune(accepted, rune(kind)) && t.Kind() != reflect.Interface {
		return &JSONError{Pointer: at, Want: want}
	}
	switch {
	case kind == '{' && t.Kind() == reflect.Struct:
		return f.members(raw, t, at)
	case kind == '{' && t.Kind() == reflect.Map:
		return eachMember(raw, at, func(_ string, v json.RawMessage, at string) error { return f.Value(v, t.Elem(), at) })
	case kind == '[' && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array):
		var elements []json.RawMessage
		if err := json.Unmarshal(raw, &elements); err != nil {
			return fmt.Errorf("json at %q: %w", at, err)
		}
		for i, v := range elements {
			if err := f.Value(v, t.Elem(), fmt.Sprintf("%s/%d", at, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// kindsFor are the kinds of values, as JSONKind has them, that encoding/json decodes into t, and what is wanted in
// words.
func kindsFor(t reflect.Type) (accepted, want string) {
	switch t.Kind() {
	case reflect.String:
		if t == reflect.TypeFor[json.Number]() {
			return `"n0`, "a string"
		}
		return `"n`, "a string"
	case reflect.Bool:
		return "bn", "true or false"
	case reflect.Struct, reflect.Map:
		return "{n", "an object"
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return `[n"`, "a list"
		}
		return "[n", "a list"
	case reflect.Float32, reflect.Float64:
		return "0n", "a number that is not too large"
	default:
		return "0n", "a whole number that is not too large"
	}
}

func (f FieldCheck) members(raw json.RawMessage, t reflect.Type, at string) error {
	known := jsonFields(t)
	return eachMember(raw, at, func(key string, v json.RawMessage, at string) error {
		if field, ok := known[key]; ok {
			return f.Value(v, field, at)
		}
		refuse := !f.Others
		for name := range known { // encoding/json would take the key for a field of another name
			refuse = refuse || strings.EqualFold(name, key)
		}
		if refuse {
			return &JSONError{Pointer: at, Want: "a known key"}
		}
		return nil
	})
}

func eachMember(raw json.RawMessage, at string, visit func(key string, v json.RawMessage, at string) error) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return fmt.Errorf("json at %q: %w", at, err)
	}
	for _, key := range SortedKeys(members) {
		if err := visit(key, members[key], at+FormatPointer([]string{key})); err != nil {
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
