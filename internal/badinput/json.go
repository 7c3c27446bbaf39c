package badinput

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Case is an input that is wrong in one way.
type Case struct {
	Key  string // JSON Pointer of the key that is wrong; "" = the whole text
	What string // is wrong
	Body []byte
	Code string // of the error that it must give; "" = the edge's own for what cannot be read
	Says string // what the error names; "" = the key
	Mute bool   // the error need not name the key: the text cannot be read as far as that
}

func (c Case) String() string { return c.Key + ": " + c.What }

// Name is what the error names: the key, without where it stands.
func (c Case) Name() string {
	if c.Says != "" {
		return c.Says
	}
	return c.Key[strings.LastIndexByte(c.Key, '/')+1:]
}

// Field says what a key may hold. The zero value takes nothing but null, or to be left out.
type Field struct {
	Takes    string            // kinds of JSON: s(tring), n(umber), i(nteger), b(oolean), a(rray), o(bject)
	Required bool              // neither left out nor null
	Max      int               // longest text, in bytes; 0 = the whole input is bounded, and that is enough
	Bad      map[string]string // what is of a kind that it takes and is yet refused, in JSON, and the code of the error; "" = the edge's own
	Good     []string          // what stands for the example's value as well, in JSON
	Code     string            // of the error that every text of the wrong form gives; "" = the edge's own
	Opaque   bool              // what is below it is another table's
	Says     string            // what the error names in place of the key; "" = the key
	Kinds    string            // the code of the error for what is of another kind; "" = the edge's own
	Loose    bool              // of a reader that does not look at kinds: none of them is refused
}

// values are one of each kind of JSON.
var values = map[byte]string{'s': `"` + Canary + `"`, 'n': `7`, 'b': `true`, 'a': `["` + Canary + `"]`, 'o': `{"` + Canary + `":1}`}

// numbers are those that no integer holds.
var numbers = []string{`1e999`, `1.5`, `-0.1`, `9223372036854775808`, `-9223372036854775809`, `1E400`}

// noNumbers are no JSON at all.
var noNumbers = []string{`01`, `+1`, `1.`, `.5`, `NaN`, `Infinity`}

// Depth is an array in an array and so on, so many deep.
func Depth(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// Of are the cases of a good text, by the table of its keys. Keys that are not in it have none. It panics where the
// text is not JSON.
func Of(good string, table map[string]Field) []Case {
	var all []Case
	for key, f := range sorted(table) {
		n := mustParse(good)
		if _, _, ok := n.find(key); ok {
			all = append(all, f.cases(good, key)...)
		}
	}
	return append(all, siblings(good, table)...)
}

// Has reports whether a text has a key.
func Has(good, key string) bool {
	_, _, ok := mustParse(good).find(key)
	return ok
}

// With is a text with another value for a key.
func With(good, key, value string) string {
	return edit(good, key, func(m *member) { m.val = &node{raw: value} })
}

// Without is a text without a key.
func Without(good, key string) string {
	n := mustParse(good)
	parent, at, _ := n.find(key)
	parent.members = slices.Delete(parent.members, at, at+1)
	return n.String()
}

func mustParse(good string) *node {
	n, err := parse([]byte(good))
	if err != nil {
		panic(fmt.Sprintf("badinput: %s: %v", good, err))
	}
	return n
}

func edit(good, key string, change func(*member)) string {
	n := mustParse(good)
	parent, at, ok := n.find(key)
	if !ok {
		panic(fmt.Sprintf("badinput: %s has no %s", good, key))
	}
	change(&parent.members[at])
	return n.String()
}

func (f Field) takes(kind byte) bool {
	return strings.IndexByte(f.Takes, kind) >= 0 || kind == 'n' && strings.Contains(f.Takes, "i")
}

// cases are the ways in which a key is wrong.
func (f Field) cases(good, key string) []Case {
	var all []Case
	add := func(what, body, code string, mute bool) {
		all = append(all, Case{Key: key, What: what, Body: []byte(body), Code: code, Says: f.Says, Mute: mute})
	}
	if f.Required {
		add("left out", Without(good, key), "", false)
		add("null", With(good, key, "null"), "", false)
	}
	for kind, value := range values {
		if !f.takes(kind) && !f.Loose {
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
		add("the value "+short(value), With(good, key, value), code, false)
	}
	return append(all, unread(good, key)...)
}

// unread are those that break the text itself (R13), whatever the key may hold.
func unread(good, key string) []Case {
	n := mustParse(good)
	parent, at, _ := n.find(key)
	var all []Case
	add := func(what, body string) {
		all = append(all, Case{Key: key, What: what, Body: []byte(body)})
	}
	for what, value := range map[string]string{
		"bytes that are no UTF-8": "\"a\xffb\"", "a cut character": "\"\xe2\x82\"", "half a surrogate pair": `"\ud800"`, "halves the wrong way round": `"\udc00\ud800"`,
		"a raw control character": "\"a\x01b\"", "a raw line end": "\"a\nb\"", "65 deep": Depth(65),
	} {
		add(what, With(good, key, value))
	}
	for _, no := range noNumbers {
		add("no number, "+no, With(good, key, no))
	}
	for _, no := range []string{"0x1", "1_000", "1 2"} { // numbers, and then something
		all = append(all, Case{Key: key, What: "no number, " + no, Body: []byte(With(good, key, no)), Mute: true})
	}
	if parent.open == '{' {
		m := parent.members[at]
		add("given twice", twice(good, key, m.key, m.val.String()))
		add("given twice, spelled otherwise", twice(good, key, escaped(m.key), m.val.String()))
		add("given twice, null first", twice(With(good, key, "null"), key, m.key, m.val.String()))
		add("in capitals", edit(good, key, func(m *member) { m.key = strings.ToUpper(m.key) }))
	}
	return all
}

func twice(good, key, again, value string) string {
	n := mustParse(good)
	parent, at, _ := n.find(key)
	parent.members = slices.Insert(parent.members, at+1, member{again, &node{raw: value}})
	return n.String()
}

// escaped is a key whose first character is written as an escape.
func escaped(key string) string { return fmt.Sprintf(`"\u%04x%s`, key[1], key[2:]) }

// siblings are unknown keys in each object that the table knows the keys of.
func siblings(good string, table map[string]Field) []Case {
	objects := []string{""}
	for key := range sorted(table) {
		if Has(good, key) {
			if n, at, _ := mustParse(good).find(key); n.members[at].val.open == '{' && !table[key].Opaque && hasBelow(table, key) {
				objects = append(objects, key)
			}
			if parent := key[:max(0, strings.LastIndexByte(key, '/'))]; isElement(parent) && !slices.Contains(objects, parent) {
				objects = append(objects, parent)
			}
		}
	}
	var all []Case
	for _, in := range objects {
		n := mustParse(good)
		of := n
		if in != "" {
			parent, at, _ := n.find(in)
			of = parent.members[at].val
		}
		if of.open != '{' {
			continue
		}
		of.members = append(of.members, member{`"` + unknownKey + `"`, &node{raw: `"` + Canary + `"`}})
		all = append(all, Case{Key: in + "/" + unknownKey, What: "an unknown key", Body: []byte(n.String())})
	}
	return all
}

// unknownKey is no edge's.
const unknownKey = "zzz"

func hasBelow(table map[string]Field, key string) bool {
	for k := range table {
		if strings.HasPrefix(k, key+"/") {
			return true
		}
	}
	return false
}

// isElement reports whether a pointer ends in a number.
func isElement(pointer string) bool {
	_, err := strconv.Atoi(pointer[strings.LastIndexByte(pointer, '/')+1:])
	return err == nil
}

// Whole are the ways in which a text is wrong as a whole: those that no key is to blame for.
func Whole(good string) []Case {
	var all []Case
	for what, body := range map[string]string{
		"an array": "[" + good + "]", "a string": strconv.Quote(Canary), "a number": "7", "true": "true", "null": "null", "an empty array": "[]",
		"white space": " \r\n\t", "half of it": good[:len(good)/2], "without its end": good[:len(good)-1], "with another behind it": good + good, "with text behind it": good + Canary, "with NUL behind it": good + "\x00",
		"behind a byte order mark": "\ufeff" + good, "in UTF-16": utf16(good), "with a comment": "/*" + Canary + "*/" + good, "with a comma too many": strings.TrimSuffix(good, "}") + ",}",
		"in single quotes": strings.ReplaceAll(good, `"`, "'"), "a form": "message=" + Canary, "XML": "<a>" + Canary + "</a>", "compressed": string(Gzip(good)), "bytes": "\xff\xfe\xfd",
		"65 deep": Depth(65), "100,000 deep": Depth(100_000), "objects 65 deep": strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65),
		"another protocol": `{"jsonrpc":"2.0","method":"x"}`,
	} {
		if body != good {
			all = append(all, Case{What: "the text: " + what, Body: []byte(body), Mute: true})
		}
	}
	return all
}

// Text is a JSON string of so many bytes.
func Text(n int) string {
	return `"` + Canary + strings.Repeat("x", max(0, n-len(Canary))) + `"`
}

// Padded is a text made so many bytes long by white space.
func Padded(good string, n int) []byte {
	return append([]byte(good), bytes.Repeat([]byte(" "), n-len(good))...)
}

// Gzip is a text compressed.
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

func short(text string) string {
	if len(text) > 40 {
		return fmt.Sprintf("%q and more", text[:40])
	}
	return fmt.Sprintf("%q", text)
}
