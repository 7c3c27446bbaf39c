package jsonx

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// CanonicalText returns the RFC 8785 form of raw, except that numbers keep their digits. Text that is not JSON is
// returned unchanged, which equals no canonical form.
func CanonicalText(raw json.RawMessage) string {
	if text, err := CanonicalJSON(raw); err == nil {
		return text
	}
	return string(raw)
}

// CanonicalJSON returns the RFC 8785 form of a JSON value, except that numbers keep their digits.
func CanonicalJSON(raw json.RawMessage) (string, error) {
	v, err := DecodeNumbers(raw)
	if err != nil {
		return "", err
	}
	return string(AppendCanonical(nil, v)), nil
}

// AppendCanonical appends a value of DecodeNumbers in RFC 8785 form, except that a json.Number keeps its spelling.
func AppendCanonical(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case json.Number:
		return append(b, v...)
	case string:
		return AppendCanonicalString(b, v)
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = AppendCanonical(b, e)
		}
		return append(b, ']')
	case map[string]any:
		b = append(b, '{')
		for i, k := range slices.SortedFunc(maps.Keys(v), compareUTF16) {
			if i > 0 {
				b = append(b, ',')
			}
			b = AppendCanonicalString(b, k)
			b = append(b, ':')
			b = AppendCanonical(b, v[k])
		}
		return append(b, '}')
	}
	panic(fmt.Sprintf("canonical json: %T", v)) // a programming error: no input leads to another type
}

// compareUTF16 orders keys by UTF-16 code units (RFC 8785, 3.2.3). That is not the order of their bytes: U+1F600 comes
// before U+FB33. Keys that differ in invalid bytes only are still ordered.
func compareUTF16(a, b string) int {
	return cmp.Or(slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b))), strings.Compare(a, b))
}

// AppendCanonicalString appends s and escapes exactly what RFC 8785, 3.2.2.2 requires. Bytes that are not UTF-8 are
// copied, so that different strings stay different.
func AppendCanonicalString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b', '\t', '\n', '\f', '\r':
			b = append(b, '\\', "btn_fr"[c-'\b'])
		default:
			if c < ' ' {
				b = fmt.Appendf(b, `\u%04x`, c)
			} else {
				b = append(b, c)
			}
		}
	}
	return append(b, '"')
}

// SortedKeys returns the keys of m in order.
func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// MarshalVerbatim is json.Marshal without changes to raw JSON inside v. Arguments are hashed by their bytes, and
// json.Marshal would write & as \u0026 in them (A6).
func MarshalVerbatim(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// StoredLen returns the length of text as a JSON string, in bytes; control characters take six.
func StoredLen(text string) int {
	b, _ := MarshalVerbatim(text) // a string always marshals
	return len(b)
}
