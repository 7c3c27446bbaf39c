// Package badinput makes invalid inputs from a valid one, for the tests of every edge of the program. It varies each
// key of a JSON text in every invalid way, and the text as a whole. A table of Fields says what each key may hold: a
// new key needs a line in the table, and a new variation applies to every key of every edge.
//
// An Edge sends an input and observes what it did. Edge.RequireRefused checks every kind of input alike: the edge
// returns the right error, the error names the key, nothing is written or sent, and only the sender sees anything of
// the input.
package badinput

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
)

// Canary is part of every made-up value. Where it appears in a log, a metric, a header or an error, input has leaked.
const Canary = "canary-7d0f3a91"

// Case is an input with one error.
type Case struct {
	Key         string // JSON Pointer of the invalid key; "" = the whole text
	What        string // describes the error
	Body        []byte
	Code        string // of the wanted error; "" = the edge's code for unreadable input
	Says        string // what the error must name; "" = the key
	KeyNotNamed bool   // the error need not name the key, since the parser stops before it
}

func (c Case) String() string { return c.Key + ": " + c.What }

// Name returns what the error must name: by default the key without its path.
func (c Case) Name() string {
	if c.Says != "" {
		return c.Says
	}
	return c.Key[strings.LastIndexByte(c.Key, '/')+1:]
}

// Field says what a key may hold. The zero value accepts only null or a missing key.
type Field struct {
	Takes    string            // kinds of JSON: s(tring), n(umber), i(nteger), b(oolean), a(rray), o(bject)
	Required bool              // neither missing nor null
	Max      int               // longest text in bytes; 0 = only the input as a whole is bounded
	Bad      map[string]string // refused JSON values of an accepted kind, with the error's code; "" = the edge's code
	Good     []string          // other accepted JSON values
	Code     string            // of the error for texts of the wrong form; "" = the edge's code
	Opaque   bool              // another table has the keys below it
	Says     string            // what the error must name; "" = the key
	Kinds    string            // the error's code for values of another kind; "" = the edge's code
}

// values has one value of each JSON kind.
var values = map[byte]string{'s': `"` + Canary + `"`, 'n': `7`, 'b': `true`, 'a': `["` + Canary + `"]`,
	'o': `{"` + Canary + `":1}`}

// numbers are JSON numbers that no integer can hold.
var numbers = []string{`1e999`, `1.5`, `-0.1`, `9223372036854775808`, `-9223372036854775809`, `1E400`}

// noNumbers look like numbers and are not JSON.
var noNumbers = []string{`01`, `+1`, `1.`, `.5`, `NaN`, `Infinity`}

// Depth returns n nested arrays.
func Depth(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// Cases returns the invalid variations of a valid text, by the table of its keys, and those with an unknown key in an
// object whose keys the table has. It panics if the text is not JSON.
func Cases(good string, table map[string]Field) []Case {
	var all []Case
	objects := []string{""}
	for key, f := range sorted(table) {
		if !Has(good, key) {
			continue
		}
		all = append(all, f.cases(good, key)...)
		isBelow := func(other string) bool { return strings.HasPrefix(other, key+"/") }
		if !f.Opaque && slices.ContainsFunc(slices.Collect(maps.Keys(table)), isBelow) {
			objects = append(objects, key)
		}
		parent := key[:strings.LastIndexByte(key, '/')]
		if _, err := strconv.Atoi(path.Base(parent)); err == nil && !slices.Contains(objects, parent) { // a list's element
			objects = append(objects, parent)
		}
	}
	for _, in := range objects {
		if key := in + "/zzz"; jsonx.JSONKind(lookup(good, in)) == '{' { // no edge has such a key
			body := patch(good, jsonx.Patch{Path: key, Value: []byte(`"` + Canary + `"`)})
			all = append(all, Case{Key: key, What: "an unknown key", Body: []byte(body)})
		}
	}
	return all
}

// Has reports whether a text has a key.
func Has(good, key string) bool { return lookup(good, key) != nil }

// lookup returns the value of a key; nil = there is none.
func lookup(good, key string) json.RawMessage {
	value, _, err := jsonx.Lookup(json.RawMessage(good), key)
	if err != nil {
		return nil
	}
	return value
}

// hole stands where a value is to come that need not be JSON.
const hole = `"the place of another value"`

// With returns the text with another value for a key.
func With(good, key, value string) string {
	return strings.Replace(patch(good, jsonx.Patch{Path: key, Value: []byte(hole)}), hole, value, 1)
}

// Without returns the text without a key.
func Without(good, key string) string { return patch(good, jsonx.Patch{Path: key}) }

func patch(good string, patches ...jsonx.Patch) string {
	out, err := jsonx.ApplyPatches([]byte(good), patches)
	if err != nil {
		panic(fmt.Sprintf("badinput: %s: %v", good, err))
	}
	return string(out)
}

// cases returns the invalid variations of a key.
func (f Field) cases(good, key string) []Case {
	var all []Case
	add := func(what, body, code string, mute bool) {
		all = append(all, Case{Key: key, What: what, Body: []byte(body), Code: code, Says: f.Says, KeyNotNamed: mute})
	}
	if f.Required {
		add("left out", Without(good, key), "", false)
		add("null", With(good, key, "null"), "", false)
	}
	for kind, value := range values {
		takes := strings.IndexByte(f.Takes, kind) >= 0 || kind == 'n' && strings.Contains(f.Takes, "i")
		if !takes {
			add("of kind "+string(kind), With(good, key, value), f.Kinds, false)
		}
	}
	if strings.Contains(f.Takes, "i") {
		for _, n := range numbers {
			add("the number "+n, With(good, key, n), "", false)
		}
	}
	if f.Max > 0 {
		add("a byte too long", With(good, key, Text(f.Max+1)), f.Code, false)
	}
	for value, code := range sorted(f.Bad) {
		add(fmt.Sprintf("the value %.40q", value), With(good, key, value), code, false)
	}
	return append(all, unreadableCases(good, key)...)
}

// unreadableCases returns the variations that make the text itself invalid, whatever the key may hold.
func unreadableCases(good, key string) []Case {
	var all []Case
	add := func(what, body string) {
		all = append(all, Case{Key: key, What: what, Body: []byte(body)})
	}
	for what, value := range map[string]string{
		"bytes that are no UTF-8": "\"a\xffb\"", "a cut character": "\"\xe2\x82\"", "half a surrogate pair": `"\ud800"`,
		"halves the wrong way round": `"\udc00\ud800"`,
		"a raw control character":    "\"a\x01b\"", "a raw line end": "\"a\nb\"", "65 deep": Depth(65),
	} {
		add(what, With(good, key, value))
	}
	for _, no := range noNumbers {
		add("no number, "+no, With(good, key, no))
	}
	for _, no := range []string{"0x1", "1_000", "1 2"} { // numbers, and then something
		all = append(all, Case{Key: key, What: "no number, " + no, Body: []byte(With(good, key, no)), KeyNotNamed: true})
	}
	parent, name := key[:strings.LastIndexByte(key, '/')], Case{Key: key}.Name()
	if value := lookup(good, key); jsonx.JSONKind(lookup(good, parent)) == '{' {
		add("given twice", With(good, key, fmt.Sprintf(`%s,%q:%s`, value, name, value)))
		escaped := fmt.Sprintf(`\u%04x%s`, name[0], name[1:])
		add("given twice, spelled otherwise", With(good, key, fmt.Sprintf(`%s,"%s":%s`, value, escaped, value)))
		add("given twice, null first", With(good, key, fmt.Sprintf(`null,%q:%s`, name, value)))
		add("in capitals", patch(good, jsonx.Patch{Path: key},
			jsonx.Patch{Path: parent + "/" + strings.ToUpper(name), Value: value}))
	}
	return all
}

// WholeCases returns the invalid variations of the text as a whole.
func WholeCases(good string) []Case {
	var all []Case
	for what, body := range map[string]string{
		"an array": "[" + good + "]", "a string": strconv.Quote(Canary), "a number": "7", "true": "true", "null": "null",
		"an empty array": "[]",
		"white space":    " \r\n\t", "half of it": good[:len(good)/2], "without its end": good[:len(good)-1],
		"with another behind it": good + good, "with text behind it": good + Canary, "with NUL behind it": good + "\x00",
		"behind a byte order mark": "\ufeff" + good, "in UTF-16": utf16(good), "with a comment": "/*" + Canary + "*/" + good,
		"with a comma too many": strings.TrimSuffix(good, "}") + ",}",
		"in single quotes":      strings.ReplaceAll(good, `"`, "'"), "a form": "message=" + Canary, "XML": "<a>" + Canary +
			"</a>", "compressed": string(Gzip(good)), "bytes": "\xff\xfe\xfd",
		"65 deep": Depth(65), "100,000 deep": Depth(100_000), "objects 65 deep": strings.Repeat(`{"a":`, 65) + "1" +
			strings.Repeat("}", 65),
		"another protocol": `{"jsonrpc":"2.0","method":"x"}`,
	} {
		if body != good {
			all = append(all, Case{What: "the text: " + what, Body: []byte(body), KeyNotNamed: true})
		}
	}
	return all
}

// Text returns a JSON string of n bytes.
func Text(n int) string {
	return `"` + Canary + strings.Repeat("x", max(0, n-len(Canary))) + `"`
}

// Padded returns a text padded to n bytes with white space.
func Padded(good string, n int) []byte {
	return append([]byte(good), bytes.Repeat([]byte(" "), n-len(good))...)
}

// Gzip returns the compressed text.
func Gzip(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text)) // into memory
	_ = w.Close()
	return b.Bytes()
}

func utf16(text string) string {
	out := "\xff\xfe"
	for _, c := range []byte(text) {
		out += string([]byte{c, 0})
	}
	return out
}

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
			name = cmp.Or(name, f.Name)
			found(at + "/" + name)
			keys(f.Type, at+"/"+name, opaque, found)
		}
	}
}

func sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
