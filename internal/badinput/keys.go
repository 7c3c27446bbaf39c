package badinput

import (
	"encoding/json"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Keys returns the JSON Pointers of all keys that a type is decoded from, with those of a list's first element. It does
// not look into opaque types and types with their own UnmarshalJSON.
func Keys(t reflect.Type, opaque ...reflect.Type) []string {
	var all []string
	keys(t, "", opaque, func(key string) { all = append(all, key) })
	slices.Sort(all)
	return all
}

func keys(t reflect.Type, at string, opaque []reflect.Type, found func(string)) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	self := reflect.TypeFor[json.Unmarshaler]()
	switch {
	case t.Implements(self) || reflect.PointerTo(t).Implements(self) || slices.Contains(opaque, t):
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		keys(t.Elem(), at+"/0", opaque, found)
	case t.Kind() == reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous && name == "" || !f.IsExported() || name == "-" {
				continue
			}
			if name == "" {
				name = f.Name
			}
			found(at + "/" + name)
			keys(f.Type, at+"/"+name, opaque, found)
		}
	}
}

// sorted iterates over a map in the order of its keys.
func sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
