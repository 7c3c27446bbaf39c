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
	if !fitsKind(raw, t) {
		return &JSONError{Pointer: at, Want: kindWanted(t)}
	}
	switch kind := JSONKind(raw); {
	case kind == '{' && t.Kind() == reflect.Struct:
		return f.members(raw, t, at)
	case kind == '{' && t.Kind() == reflect.Map:
		return eachMember(raw, at, func(_ string, v json.RawMessage, at string) error { return f.Value(v, t.Elem(), at) })
	case kind == '[' && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array):
		return eachElement(raw, at, func(v json.RawMessage, at string) error { return f.Value(v, t.Elem(), at) })
	}
	return nil
}

// fitsKind reports whether a value is null or of the kind that encoding/json decodes into t.
func fitsKind(raw json.RawMessage, t reflect.Type) bool {
	kind := JSONKind(raw)
	switch t.Kind() {
	case reflect.String:
		return kind == '"' || kind == 'n' || t == reflect.TypeFor[json.Number]() && kind == '0'
	case reflect.Bool:
		return kind == 'b' || kind == 'n'
	case reflect.Struct, reflect.Map:
		return kind == '{' || kind == 'n'
	case reflect.Slice, reflect.Array:
		return kind == '[' || kind == 'n' || t.Elem().Kind() == reflect.Uint8 && kind == '"'
	case reflect.Interface:
		return true
	default:
		return kind == '0' || kind == 'n'
	}
}

// kindWanted is what a value for t is, in words.
func kindWanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Float32, reflect.Float64:
		return "a number that is not too large"
	default:
		return "a whole number that is not too large"
	}
}

func (f FieldCheck) members(raw json.RawMessage, t reflect.Type, at string) error {
	known := jsonFields(t)
	return eachMember(raw, at, func(key string, v json.RawMessage, at string) error {
		field, ok := known[key]
		switch {
		case ok:
			return f.Value(v, field, at)
		case f.Others && !isMisspelled(key, known):
			return nil
		default:
			return &JSONError{Pointer: at, Want: "a known key"}
		}
	})
}

// isMisspelled reports whether encoding/json would accept a key for a field of another name.
func isMisspelled(key string, known map[string]reflect.Type) bool {
	for name := range known {
		if strings.EqualFold(name, key) {
			return true
		}
	}
	return false
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
