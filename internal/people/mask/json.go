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
	return string(v.appendMasked(nil))
}

// Text is a text with a placeholder for every part that has the form of a secret.
func Text(s string) string { return maskRanges(s, Secrets(s)) }

func maskRanges(s string, hidden []Range) string {
	if len(hidden) == 0 {
		return s
	}
	var out strings.Builder
	at := 0
	for _, r := range hidden {
		out.WriteString(s[at:r.From] + Placeholder(utf8.RuneCountInString(s[r.From:r.To])))
		at = r.To
	}
	return out.String() + s[at:]
}

func (v *Value) appendMasked(out []byte) []byte {
	switch {
	case v.Kind == String:
		return appendText(out, v.Raw, v.Text, v.Hidden)
	case v.Secret != "":
		return append(out, `"`+Placeholder(v.Length())+`"`...)
	case v.Kind != Object && v.Kind != Array:
		return append(out, v.Raw...)
	}
	brackets := "{}"
	if v.Kind == Array {
		brackets = "[]"
	}
	out = append(out, brackets[0])
	for i, m := range v.Members {
		if i > 0 {
			out = append(out, ',')
		}
		if v.Kind == Object {
			out = append(appendText(out, m.RawKey, m.Key, Secrets(m.Key)), ':')
		}
		out = m.Value.appendMasked(out)
	}
	return append(out, brackets[1])
}

// appendText appends a JSON string. A string without secrets stays as it is stored.
func appendText(out, raw []byte, decoded string, hidden []Range) []byte {
	if len(hidden) == 0 {
		return append(out, raw...)
	}
	masked, _ := json.Marshal(maskRanges(decoded, hidden)) // a string
	return append(out, masked...)
}
