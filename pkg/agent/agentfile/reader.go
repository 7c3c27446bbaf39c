package agentfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
)

// reader turns a tree into a definition and collects what is wrong on the way.
type reader struct {
	file     string
	opt      Options
	lines    map[string]int // by path
	problems Problems

	documents     map[string]document // of OpenAPI, by file: one is read once, however many tools are of it
	numbersAsKeys bool                // as documents of OpenAPI often have them: responses: {200: {}}
}

func newReader(file string, opt Options) *reader {
	return &reader{file: file, opt: opt, lines: map[string]int{}, documents: map[string]document{}}
}

// field is a value and where it stands.
type field struct {
	path string
	*node
}

func (f field) item(i int) field { return field{fmt.Sprintf("%s[%d]", f.path, i), f.items[i]} }

func (f field) child(m member) field { return field{join(f.path, m.key), m.value} }

// member is the value of a key, if it is there.
func (f field) member(key string) (field, bool) {
	for _, m := range f.members {
		if m.key == key {
			return f.child(m), true
		}
	}
	return field{}, false
}

// read takes one field's value.
type read = func(field)

// mapping reads f's keys, each with its reader. A key that has none is refused.
func (r *reader) mapping(f field, readers map[string]read) {
	if f.kind == kindSchema {
		properties := object{}
		for key, take := range readers {
			child := schemaField(join(f.path, key))
			take(child)
			properties[key] = child.schema
		}
		f.describe(object{"type": "object", "additionalProperties": false, "properties": properties})
		return
	}
	if f.kind != kindMapping {
		r.addWrongType(f, "a mapping")
		return
	}
	for _, m := range f.members {
		child := f.child(m)
		if take, ok := readers[m.key]; ok {
			take(child)
			continue
		}
		known := slices.Sorted(maps.Keys(readers))
		text := "got an unknown key, want one of " + strings.Join(known, ", ")
		if like := agent.Closest(m.key, known); len(like) > 0 {
			text += "; did you mean " + like[0] + "?"
		}
		r.add(child.path, text)
	}
}

func (r *reader) list(f field, take read) {
	if f.kind == kindSchema {
		item := schemaField(f.path + "[]")
		take(item)
		f.describe(object{"type": "array", "items": item.schema})
		return
	}
	if f.kind != kindList {
		r.addWrongType(f, "a list")
		return
	}
	for i := range f.items {
		take(f.item(i))
	}
}

// addWrongType adds a problem that names the type of f but not its value, unless f is reported as unreadable.
func (r *reader) addWrongType(f field, want string) {
	if !r.hasProblem(f.path) {
		r.add(f.path, fmt.Sprintf("got %s, want %s", f.kind, want))
	}
}

// keys reads a mapping of these keys.
func (r *reader) keys(readers map[string]read) read {
	return func(f field) { r.mapping(f, readers) }
}

// scalar reads a value of one kind by its text. The schema describes it; want completes "want ...".
func scalar[T any](r *reader, dst *T, k kind, want string, schema object, parse func(string) (T, error)) read {
	return func(f field) {
		if f.describe(schema) {
			return
		}
		v, err := parse(f.node.text)
		if f.kind != k || err != nil {
			r.addWrongType(f, want)
			return
		}
		*dst = v
	}
}

// text reads a string. YAML takes 3 for a number and, in a flow list, user:ana for a mapping.
func (r *reader) text(dst *string) read {
	return scalar(r, dst, kindString, "a string in quotes", object{"type": "string"},
		func(s string) (string, error) { return s, nil })
}

func (r *reader) texts(dst *[]string) read {
	return func(f field) {
		*dst = []string{}
		f.describe(object{"minItems": 1})
		if f.kind == kindList && len(f.items) == 0 {
			r.add(f.path, "got an empty list, want at least one")
		}
		r.list(f, func(item field) {
			var text string
			r.text(&text)(item)
			*dst = append(*dst, text)
		})
	}
}

// names reads a list that may be empty.
func (r *reader) names(dst *[]string) read {
	return func(f field) {
		if f.kind != kindList || len(f.items) > 0 {
			r.texts(dst)(f)
			f.describe(object{"minItems": 0})
		}
	}
}

func (r *reader) whole(dst *int) read { return whole(r, dst, strconv.Atoi) }

func whole[T int | int64](r *reader, dst *T, parse func(string) (T, error)) read {
	return func(f field) {
		want := "a whole number"
		if f.kind == kindNumber && integer.MatchString(f.node.text) { // it is one, and too large
			want += " of at most 18 digits"
		}
		scalar(r, dst, kindNumber, want, object{"type": "integer"}, parse)(f)
	}
}

var integer = regexp.MustCompile(`^-?[0-9]+$`)

// measured reads a number of tokens, or the word that has them counted.
func (r *reader) measured(dst **int) read {
	return func(f field) {
		switch {
		case f.describe(object{"anyOf": []object{{"type": "integer"}, {"const": "measured"}}}):
		case f.kind == kindString && f.node.text == "measured":
			*dst = nil
		case f.kind == kindNumber:
			*dst = new(int)
			r.whole(*dst)(f)
		default:
			r.addWrongType(f, "a whole number or measured")
		}
	}
}

func (r *reader) duration(dst *time.Duration) read {
	return scalar(r, dst, kindString, strings.TrimPrefix(errDuration.Error(), "want "), object{
		"type": "string", "pattern": `^([0-9]+d)?([0-9.]+(ns|us|µs|ms|s|m|h))*$`,
		"examples": []string{"250ms", "30s", "24h", "7d"},
	}, ParseDuration)
}

func (r *reader) boolean(dst *bool) read {
	return scalar(r, dst, kindBool, "true or false", object{"type": "boolean"}, strconv.ParseBool)
}

func (r *reader) raw(dst *json.RawMessage) read {
	return func(f field) {
		if !f.describe(object{}) {
			*dst = f.json()
		}
	}
}

// word reads one of the words.
func (r *reader) word(dst reflect.Value, words []string) read {
	return func(f field) {
		if f.describe(object{"enum": words}) {
			return
		}
		want := strings.Join(words, " or ")
		switch {
		case f.kind != kindString:
			r.addWrongType(f, want)
		case slices.Contains(words, f.node.text):
			dst.SetString(f.node.text)
		default:
			r.add(f.path, fmt.Sprintf("got %s, want %s", f.word(), want))
		}
	}
}

// textsByKey reads a mapping of texts; which keys there are, Check says.
func (r *reader) textsByKey(dst *map[string]string) read {
	return func(f field) {
		if f.describe(object{"type": "object", "additionalProperties": object{"type": "string"}}) {
			return
		}
		if f.kind != kindMapping {
			r.addWrongType(f, "a mapping of texts")
			return
		}
		for _, m := range f.members {
			var text string
			r.text(&text)(f.child(m))
			if *dst == nil {
				*dst = map[string]string{}
			}
			(*dst)[m.key] = text
		}
	}
}

var shortWord = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,40}$`)

// word shows a scalar where a word of a small set is wanted; anything longer is not one and may be a secret.
func (n *node) word() string {
	if n.kind != kindMapping && n.kind != kindList && shortWord.MatchString(n.text) {
		return n.text
	}
	return string(n.kind)
}

var errDuration = errors.New("want a duration such as 250ms, 30s, 24h or 7d")

// ParseDuration reads a duration as files have it: time.ParseDuration's form, with whole days (24 h each) in front: 7d,
// 1d12h. Negative durations and those over 292 years are refused.
func ParseDuration(s string) (time.Duration, error) {
	days, rest, found := strings.Cut(s, "d")
	if !found {
		days, rest = "0", s
	}
	n, err := strconv.ParseUint(days, 10, 32)
	if err != nil || n > uint64(math.MaxInt64/(24*time.Hour)) {
		return 0, errDuration
	}
	total := time.Duration(n) * 24 * time.Hour
	if found && rest == "" {
		return total, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 || strings.ContainsAny(rest, "+-") || d > math.MaxInt64-total {
		return 0, errDuration
	}
	return total + d, nil
}

// Schema is the JSON Schema of agent.yaml, draft 2020-12, for editors to complete and check from. It is made of the
// readers of the keys themselves, so it knows every key. What depends on more than one key, on files or on registered
// code, Parse alone says.
func Schema() json.RawMessage {
	root := schemaField("")
	newReader("agent.yaml", Options{AllowUnknownTools: true}).definition(root)
	root.schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root.schema["title"] = "agent.yaml of Countersign"
	text, err := json.MarshalIndent(root.schema, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("marshal the schema: %v", err)) // it is made of texts, numbers, lists and maps
	}
	return text
}

// object is a JSON object.
type object = map[string]any

// schemaField stands for any value at a path: who reads it describes there what it takes.
func schemaField(path string) field {
	return field{path: path, node: &node{kind: kindSchema, schema: object{}}}
}

// describe writes what a reader takes, where f stands for any value; false where it is a value to read.
func (f field) describe(schema object) bool {
	if f.kind != kindSchema {
		return false
	}
	maps.Copy(f.schema, schema)
	return true
}

// presets are the words of the key preset.
var presets = agent.EnumValues(reflect.TypeFor[agent.Preset]())
