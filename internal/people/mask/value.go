// Package mask finds secrets in what people are shown: in members that a JSON Schema marks, in members whose names say
// so, and in texts by their form (approvals.md, B4). It is pure, and knows nothing of how anything is shown. Everything
// it finds stays in the stored bytes, which digests cover and tools get.
package mask

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Kind is the type of a JSON value.
type Kind string

// The kinds.
const (
	String  Kind = "string"
	Number  Kind = "number"
	Boolean Kind = "boolean"
	Null    Kind = "null"
	Object  Kind = "object"
	Array   Kind = "array"
)

// Value is a JSON value as it is stored: members in their order, numbers with their own digits.
type Value struct {
	Kind Kind
	Raw  json.RawMessage // its bytes, without space around them
	// of a string: decoded. Half a surrogate pair stands in the three bytes that UTF-8 would give it
	Text    string
	Members []Member // of an object or array
	// why nothing of it is shown; "" = it is, but for Hidden. Never of an object, an array or an empty text
	Secret Reason
	Hidden []Range // of a string: the parts of Text that are not shown; all of it where Secret says why
}

// Length returns the number of characters of a value without members.
func (v *Value) Length() int {
	if v.Kind == String {
		return utf8.RuneCountInString(v.Text)
	}
	return len(v.Raw)
}

// Member is a member of an object, or an element of an array.
type Member struct {
	Key    string // of an object, decoded as texts are
	RawKey []byte // as it is stored, with its quotes
	Value  *Value
}

// Reason says why a value is masked.
type Reason string

// The reasons. A value within one that the schema marks is masked by it as well.
const (
	BySchema Reason = "schema"
	ByName   Reason = "name"
	ByForm   Reason = "form" // the whole text has the form of a secret
)

// ErrJSON says that what is stored is no JSON.
var ErrJSON = errors.New("mask: not JSON")

// Read reads a JSON value and finds its secrets by schema, name and form. The schema may be nil, and one that is not
// JSON marks nothing. The error is ErrJSON.
func Read(raw, schema json.RawMessage) (*Value, error) {
	if !json.Valid(raw) {
		return nil, ErrJSON
	}
	r := reader{in: raw}
	v := r.value()
	var m marks
	var doc any
	if len(schema) > 0 && json.Unmarshal(schema, &doc) == nil {
		m = newMarks(&document{root: doc, refs: map[string]any{}, patterns: map[string]*pattern{}, left: maxLooks})
		m.add(doc)
	}
	markSecrets(v, m, "", "")
	return v, nil
}

// reader reads JSON that is valid.
type reader struct {
	in []byte
	at int
}

// next goes to the next byte that is no space, and returns it.
func (r *reader) next() byte {
	for isBlank(r.in[r.at]) {
		r.at++
	}
	return r.in[r.at]
}

// kinds are the kinds of values by their first byte. Any other byte begins a number.
var kinds = map[byte]Kind{'{': Object, '[': Array, '"': String, 't': Boolean, 'f': Boolean, 'n': Null}

func (r *reader) value() *Value {
	first := r.next()
	start := r.at
	v := &Value{Kind: cmp.Or(kinds[first], Number)}
	switch v.Kind {
	case Object, Array:
		for r.at++; r.next() != first+2; { // the closing bracket
			if r.in[r.at] == ',' {
				r.at++
				continue
			}
			var m Member
			if v.Kind == Object {
				m.RawKey, m.Key = r.text()
				r.next()
				r.at++ // the colon
			}
			m.Value = r.value()
			v.Members = append(v.Members, m)
		}
		r.at++
	case String:
		_, v.Text = r.text()
	default:
		for r.at < len(r.in) && strings.IndexByte(",]} \t\r\n", r.in[r.at]) < 0 {
			r.at++
		}
	}
	v.Raw = r.in[start:r.at:r.at]
	return v
}

// text takes a string, and gives it as it is spelled and decoded.
func (r *reader) text() (raw []byte, decoded string) {
	start := r.at
	r.at++
	var b []byte
	for r.in[r.at] != '"' {
		if r.in[r.at] != '\\' {
			b = append(b, r.in[r.at])
			r.at++
			continue
		}
		b = r.escape(b)
	}
	r.at++
	return r.in[start:r.at:r.at], string(b)
}

func (r *reader) escape(b []byte) []byte {
	c := r.in[r.at+1]
	r.at += 2
	if c != 'u' {
		if i := strings.IndexByte("bfnrt", c); i >= 0 {
			c = "\b\f\n\r\t"[i]
		}
		return append(b, c)
	}
	u := r.hex()
	if u>>10 == 0xD800>>10 && r.at+1 < len(r.in) && r.in[r.at] == '\\' && r.in[r.at+1] == 'u' {
		behind := r.at
		r.at += 2
		if low := r.hex(); low>>10 == 0xDC00>>10 {
			return utf8.AppendRune(b, 0x10000+(u-0xD800)<<10+(low-0xDC00))
		}
		r.at = behind
	}
	if u>>11 == 0xD800>>11 { // half a pair
		return append(b, byte(0xE0|u>>12), byte(0x80|u>>6&0x3F), byte(0x80|u&0x3F))
	}
	return utf8.AppendRune(b, u)
}

func (r *reader) hex() rune {
	u, _ := strconv.ParseUint(string(r.in[r.at:r.at+4]), 16, 32) // the JSON is valid
	r.at += 4
	return rune(u)
}

// markSecrets says of a value, and of all within it, what is masked: what the schema marks, and below it every value
// that has no members; texts behind a name that says so, and in a list behind one; and what has the form of a secret. A
// number, boolean or null behind such a name counts or switches something more often than it is a secret. An object is
// never masked as a whole, and no name masks what is in one: its members have names of their own.
//
// name is the name that the value stands behind, why the reason for which all of it is masked; "" = there is none.
func markSecrets(v *Value, m marks, name string, why Reason) {
	if m.secret() {
		why = BySchema
	}
	switch v.Kind {
	case String:
		v.markText(name, why)
	case Object:
		for _, member := range v.Members {
			under := why
			if under != BySchema {
				under = ""
			}
			if under == "" && SecretName(member.Key) {
				under = ByName
			}
			markSecrets(member.Value, m.member(member.Key), member.Key, under)
		}
	case Array:
		for i, member := range v.Members {
			markSecrets(member.Value, m.element(i), name, why)
		}
	default:
		if why == BySchema {
			v.Secret = why
		}
	}
}

// markText judges a text. Whoever writes the schema knows that its values are secrets, spaces and all, but not what a
// shell would run. Whoever writes the text has chosen its names: behind them only what cannot be anything else is
// masked.
func (v *Value) markText(name string, why Reason) {
	whole := Range{0, len(v.Text)}
	switch {
	case v.Text == "":
	case why == BySchema && !isCommand(v.Text), why == ByName && isOpaque(v.Text):
		v.Secret, v.Hidden = why, []Range{whole}
	default:
		v.Hidden = Secrets(v.Text)
		if why == ByName && isHeader(strings.ToLower(name)) { // Authorization, Cookie and others: read it with its name
			before, f := name+": ", finder{text: v.Text, found: v.Hidden}
			for _, r := range Secrets(before + v.Text) {
				if r.From >= len(before) {
					f.hide(r.From-len(before), r.To-len(before))
				}
			}
			v.Hidden = f.merged()
		}
		if slices.Equal(v.Hidden, []Range{whole}) {
			v.Secret = ByForm
		}
	}
}

// isCommand reports whether a text reads like a command with more than words in it: one that is put in place of
// something, or that stands behind another.
func isCommand(s string) bool {
	for _, sign := range []string{"$(", "${", "`", "<(", ">("} {
		if strings.Contains(s, sign) {
			return true
		}
	}
	for i := range len(s) {
		beside := i > 0 && isBlank(s[i-1]) || i+1 < len(s) && isBlank(s[i+1])
		if beside && strings.IndexByte(";|&<>", s[i]) >= 0 {
			return true
		}
	}
	return false
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// Placeholder returns what JSON and Text put in place of a secret of this many characters.
func Placeholder(characters int) string { return "[" + Words(characters) + "]" }

// Words says that this many characters are masked.
func Words(characters int) string {
	if characters == 1 {
		return "masked, 1 character"
	}
	return fmt.Sprintf("masked, %d characters", characters)
}

// JSON returns a JSON value as text, with a placeholder for every secret in it. Invalid JSON is treated as text. A
// value without secrets is unchanged.
func JSON(raw, schema json.RawMessage) string {
	v, err := Read(raw, schema)
	if err != nil {
		return Text(string(raw))
	}
	quoted := func(text string, hidden []Range) []byte { // nil = it hides nothing
		if len(hidden) == 0 {
			return nil
		}
		out, _ := json.Marshal(maskRanges(text, hidden)) // a string
		return out
	}
	return string(v.Rewrite(func(v *Value) []byte {
		if v.Secret != "" && v.Kind != String {
			return []byte(`"` + Placeholder(v.Length()) + `"`)
		}
		return quoted(v.Text, v.Hidden)
	}, func(key string) []byte { return quoted(key, Secrets(key)) }))
}

// Text returns a text with a placeholder for every part that has the form of a secret.
func Text(s string) string { return maskRanges(s, Secrets(s)) }

func maskRanges(s string, hidden []Range) string {
	var out strings.Builder
	at := 0
	for _, r := range hidden {
		out.WriteString(s[at:r.From] + Placeholder(utf8.RuneCountInString(s[r.From:r.To])))
		at = r.To
	}
	return out.String() + s[at:]
}

// Rewrite returns the JSON with other JSON in place of some values and keys: with what the functions return, where that
// is not nil. Everything else keeps its spelling, but for white space around members.
func (v *Value) Rewrite(value func(*Value) []byte, key func(string) []byte) []byte {
	if other := value(v); other != nil {
		return other
	}
	if v.Kind != Object && v.Kind != Array {
		return v.Raw
	}
	brackets := "{}"
	if v.Kind == Array {
		brackets = "[]"
	}
	out := []byte{brackets[0]}
	for i, m := range v.Members {
		if i > 0 {
			out = append(out, ',')
		}
		if v.Kind == Object {
			name := key(m.Key)
			if name == nil {
				name = m.RawKey
			}
			out = append(append(out, name...), ':')
		}
		out = append(out, m.Value.Rewrite(value, key)...)
	}
	return append(out, brackets[1])
}
