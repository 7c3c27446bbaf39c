package mask

import "encoding/json"

// Placeholder is what JSON puts in place of a secret.
const Placeholder = "[masked]"

// JSON is a JSON value as text, to be read: with Placeholder in place of every secret in it. What is no JSON is judged as the text it is.
// A value without any is as it is stored.
func JSON(raw, schema json.RawMessage) string {
	v, err := Read(raw, schema)
	if err != nil {
		return Text(string(raw))
	}
	return string(v.masked(nil))
}

// Text is a text with Placeholder in place of what has the form of a secret.
func Text(s string) string {
	var out []byte
	at := 0
	for _, r := range Secrets(s) {
		out = append(append(out, s[at:r.From]...), Placeholder...)
		at = r.To
	}
	return string(append(out, s[at:]...))
}

func (v *Value) masked(out []byte) []byte {
	switch {
	case v.Secret == BySchema, v.Kind == String && v.Secret != "" && v.Text != "":
		return append(append(append(out, '"'), Placeholder...), '"')
	case v.Kind == String:
		return text(out, v.Raw, v.Text)
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
			out = append(text(out, m.RawKey, m.Key), ':')
		}
		out = m.Value.masked(out)
	}
	return append(out, brackets[1])
}

// text adds a JSON string: as it is stored, where nothing of it is a secret.
func text(out, raw []byte, decoded string) []byte {
	if len(Secrets(decoded)) == 0 {
		return append(out, raw...)
	}
	masked, _ := json.Marshal(Text(decoded)) // a string
	return append(out, masked...)
}
