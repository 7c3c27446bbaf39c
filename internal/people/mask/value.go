// Package mask finds secrets in what people are shown: in members that a JSON Schema marks, in members whose names say
// so, and in texts by their form (approvals.md, B4). It is pure, and knows nothing of how anything is shown. Everything
// it finds stays in the stored bytes, which digests cover and tools get.
package mask

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/jsonx"
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
	// of a string: decoded; as it is spelled, where it has bytes or escapes that are no characters
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
	r := reader{raw, json.NewDecoder(bytes.NewReader(raw))}
	r.UseNumber()
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
	*json.Decoder
}

func (r *reader) value() *Value {
	from := r.start()
	token, _ := r.Token() // the JSON is valid
	v := &Value{Kind: Null}
	switch t := token.(type) {
	case json.Delim:
		if v.Kind = Array; t == '{' {
			v.Kind = Object
		}
		for r.More() {
			var m Member
			if v.Kind == Object {
				from := r.start()
				key, _ := r.Token()
				m.RawKey = r.in[from:r.InputOffset()]
				m.Key = asShown(m.RawKey, key.(string))
			}
			m.Value = r.value()
			v.Members = append(v.Members, m)
		}
		_, _ = r.Token()
	case string:
		v.Kind, v.Text = String, asShown(r.in[from:r.InputOffset()], t)
	case json.Number:
		v.Kind = Number
	case bool:
		v.Kind = Boolean
	}
	v.Raw = r.in[from:r.InputOffset():r.InputOffset()]
	return v
}

// start returns where the next token begins.
func (r *reader) start() int64 {
	at := r.InputOffset()
	for strings.IndexByte(" \t\r\n,:", r.in[at]) >= 0 {
		at++
	}
	return at
}

// asShown returns a decoded string. One that cannot be decoded without a loss stays as it is spelled.
func asShown(spelled []byte, decoded string) string {
	if strings.ContainsRune(decoded, utf8.RuneError) {
		if _, err := jsonx.CompactJSON(spelled, jsonx.StoredLimits(spelled)); err != nil {
			return string(spelled[1 : len(spelled)-1])
		}
	}
	return decoded
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
