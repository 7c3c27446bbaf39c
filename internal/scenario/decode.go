package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
)

// decode reads JSON, data, which begins in the section's n-th line, strictly: no unknown key, none twice.
func (s section) decode(data []byte, n int, v any) error {
	err := jsonx.DecodeStrict(data, v)
	var where *jsonx.JSONError
	if !errors.As(err, &where) {
		if err != nil {
			return s.problem(n, "", err.Error())
		}
		return nil
	}
	key := keyOf(where.Pointer)
	if where.Offset > 0 && where.Offset <= len(data) {
		return s.problem(n+bytes.Count(data[:where.Offset], []byte("\n")), key, "want "+where.Want)
	}
	last := key[strings.LastIndex(key, ".")+1:]
	part := section{data: data}
	return s.problem(n+part.lineOf(last), key, "want "+where.Want)
}

// keyOf is a JSON Pointer as a key path: /calls/0/id is calls.0.id.
func keyOf(pointer string) string {
	return strings.ReplaceAll(strings.TrimPrefix(pointer, "/"), "/", ".")
}

// isNull reports whether a key is not there or null.
func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// textOf is a value as a text: a string itself, anything else as compact JSON.
func textOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil && !isNull(raw) {
		return s
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return string(raw)
	}
	return b.String()
}
