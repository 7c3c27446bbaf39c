package mask

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Placeholder is what JSON and Text put in place of a secret of so many characters.
func Placeholder(characters int) string { return "[" + Words(characters) + "]" }

// Words say that so many characters are masked.
func Words(characters int) string {
	if characters == 1 {
		return "masked, 1 character"
	}
	return fmt.Sprintf("masked, %d characters", characters)
}

// JSON is a JSON value as text, to be read: with a placeholder for every secret in it. What is no JSON is judged as the
// text it is. A value without any is as it is stored.
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

// Text is a text with a placeholder for every part that has the form of a secret.
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
