package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"
)

// deriveSchema makes the JSON Schema of a struct's JSON form. The types of its fields are written out in place; only
// types that contain themselves are named under $defs. The reflector panics on types without a JSON form; here that is
// an error.
func deriveSchema(t reflect.Type) (raw json.RawMessage, err error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("derive schema of %s: it is not a struct", t)
	}
	defer func() {
		if p := recover(); p != nil {
			raw, err = nil, fmt.Errorf("derive schema of %s: %v", t, p)
		}
	}()
	r := jsonschema.Reflector{Anonymous: true, DoNotReference: !isRecursive(t, nil), Namer: typeNamer()}
	s := r.ReflectFromType(t)
	s.Version = "" // said once, in the contract: 2020-12
	if raw, err = json.Marshal(s); err != nil {
		return nil, fmt.Errorf("derive schema of %s: %w", t, err)
	}
	if raw, err = liftRef(raw); err != nil {
		return nil, fmt.Errorf("derive schema of %s: %w", t, err)
	}
	return raw, nil
}

// isRecursive reports whether t contains itself through exported fields, elements or pointers.
func isRecursive(t reflect.Type, path []reflect.Type) bool {
	if slices.Contains(path, t) {
		return true
	}
	path = append(slices.Clip(path), t)
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return isRecursive(t.Elem(), path)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-" && isRecursive(f.Type, path) {
				return true
			}
		}
	}
	return false
}

// typeNamer gives every named type a name of its own; the reflector alone would confuse equal names of two packages.
func typeNamer() func(reflect.Type) string {
	names := map[reflect.Type]string{}
	return func(t reflect.Type) string {
		if name, ok := names[t]; ok || t.Name() == "" {
			return name
		}
		base, _, _ := strings.Cut(t.Name(), "[") // type parameters are no part of it
		name := base
		for n := 2; slices.Contains(slices.Collect(maps.Values(names)), name); n++ {
			name = base + strconv.Itoa(n)
		}
		names[t] = name
		return name
	}
}

// liftRef moves the definition that a top-level $ref names to the top: a tool's schema is an object schema.
func liftRef(raw json.RawMessage) (json.RawMessage, error) {
	var top struct {
		Ref  string                     `json:"$ref"`
		Defs map[string]json.RawMessage `json:"$defs"`
	}
	if err := json.Unmarshal(raw, &top); err != nil || top.Ref == "" {
		return raw, err
	}
	definition, ok := top.Defs[strings.TrimPrefix(top.Ref, "#/$defs/")]
	if !ok {
		return nil, errors.New("the type has no definition of its own")
	}
	var lifted map[string]json.RawMessage
	if err := json.Unmarshal(definition, &lifted); err != nil {
		return nil, err
	}
	defs, err := json.Marshal(top.Defs)
	if err != nil {
		return nil, err
	}
	lifted["$defs"] = defs
	return json.Marshal(lifted)
}
