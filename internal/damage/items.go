// Package damage makes of a stored item every way in which it can be damaged, or be of a newer version, for tests beside whatever reads it. What a reader
// promises is the same everywhere: an error that names the item and says which of the two it is, and nothing written.
package damage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/store"
)

// Damaged is an item with one thing wrong with it. What is the damage, as body: KEY: missing.
type Damaged struct {
	What string
	Item store.Item
}

// maxCuts is how many places, spread evenly, a body is cut off at.
const maxCuts = 40

// Items are all the ways in which one item is damaged. A body that is a JSON object is damaged key by key, however deep.
func Items(it store.Item) iter.Seq[Damaged] {
	return func(yield func(Damaged) bool) {
		for what, body := range bodies(it.Body) {
			bad := it
			bad.Body = body
			if !yield(Damaged{"body: " + what, bad}) {
				return
			}
		}
		for what, attrs := range attributes(it.Attrs) {
			bad := it
			bad.Attrs = attrs
			if !yield(Damaged{what, bad}) {
				return
			}
		}
	}
}

func attributes(attrs map[string]store.Value) iter.Seq2[string, map[string]store.Value] {
	return func(yield func(string, map[string]store.Value) bool) {
		for _, name := range slices.Sorted(maps.Keys(attrs)) {
			missing, other := maps.Clone(attrs), maps.Clone(attrs)
			delete(missing, name)
			if other[name] = store.Str("x"); attrs[name].IsString() {
				other[name] = store.Num(7)
			}
			if !yield(name+": missing", missing) || !yield(name+": another type", other) {
				return
			}
		}
	}
}

func bodies(body []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		if len(body) == 0 {
			yield("bytes where none belong", []byte("{}"))
			return
		}
		for what, bad := range Texts(body) {
			if !yield(what, bad) {
				return
			}
		}
	}
}

// Texts are all the ways in which a JSON text is damaged: as bytes, and if it is an object or a list, key by key, however deep.
func Texts(text []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		step := max(1, len(text)/maxCuts)
		for n := 0; n < len(text); n += step {
			if !yield(fmt.Sprintf("cut off at %d", n), text[:n]) {
				return
			}
		}
		for what, bad := range map[string][]byte{
			"none of ours": []byte("\x00\x01"), "null": []byte("null"), "a list": []byte("[]"), "a string": []byte(`"x"`), "a number": []byte("7"),
			"something behind it": append(slices.Clone(text), " {}"...), "not UTF-8": append(slices.Clone(text[:len(text)-1]), 0xff, text[len(text)-1]),
		} {
			if !yield(what, bad) {
				return
			}
		}
		var whole any
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		if dec.Decode(&whole) != nil {
			return
		}
		for what, bad := range values(whole, "") {
			if !yield(what, bad) {
				return
			}
		}
	}
}

// values are the texts of a value with one thing changed in it.
func values(v any, at string) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		switch v := v.(type) {
		case map[string]any:
			object(v, at, yield)
		case []any:
			for i, item := range v {
				for what, bad := range values(item, fmt.Sprintf("%s[%d]", at, i)) {
					if !yield(what, replaced(v, i, bad)) {
						return
					}
				}
			}
		}
	}
}

func object(v map[string]any, at string, yield func(string, []byte) bool) {
	keys := slices.Sorted(maps.Keys(v))
	for _, key := range keys {
		path := strings.TrimPrefix(at+"."+key, ".")
		missing := maps.Clone(v)
		delete(missing, key)
		twice := encode(v)
		twice = append(append(twice[:len(twice)-1], ','), member(key, v[key])...)
		capital := maps.Clone(missing)
		capital[other(key)] = v[key]
		for _, bad := range []struct {
			what string
			text []byte
		}{
			{path + ": missing", encode(missing)}, {path + ": another type", encode(with(v, key, wrong(v[key])))},
			{path + ": twice", append(twice, '}')}, {path + ": in other capitals", encode(capital)},
		} {
			if !yield(bad.what, bad.text) {
				return
			}
		}
		for what, text := range values(v[key], path) {
			if !yield(what, encode(with(v, key, json.RawMessage(text)))) {
				return
			}
		}
	}
	yield(strings.TrimPrefix(at+".zzz", ".")+": unknown", encode(with(v, "zzz", 1)))
}

func with(v map[string]any, key string, value any) map[string]any {
	out := maps.Clone(v)
	out[key] = value
	return out
}

func member(key string, value any) []byte { return append(append(encode(key), ':'), encode(value)...) }

// other is a key in other capitals.
func other(key string) string {
	if up := strings.ToUpper(key); up != key {
		return up
	}
	return strings.ToLower(key)
}

// wrong is a value of another type.
func wrong(v any) any {
	switch v.(type) {
	case string:
		return 7
	case map[string]any:
		return []any{}
	case []any:
		return map[string]any{"x": 1}
	default:
		return "x"
	}
}

func replaced(list []any, i int, text []byte) []byte {
	out := slices.Clone(list)
	out[i] = json.RawMessage(text)
	return encode(out)
}

func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("encode what was decoded: %v", err)) // what was JSON is JSON again
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
