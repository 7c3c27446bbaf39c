package script

import (
	"bytes"
	"encoding/json"
	"regexp"
)

// kind is a JSON value's type, told by its first byte; kindAbsent is no value.
type kind uint8

const (
	kindAbsent kind = iota
	kindNull
	kindBool
	kindNumber
	kindString
	kindList
	kindObject
)

// kindOf looks at the first byte: raw is valid JSON without leading space, or empty.
func kindOf(raw json.RawMessage) kind {
	if len(raw) == 0 {
		return kindAbsent
	}
	switch raw[0] {
	case 'n':
		return kindNull
	case 't', 'f':
		return kindBool
	case '"':
		return kindString
	case '[':
		return kindList
	case '{':
		return kindObject
	default:
		return kindNumber
	}
}

// fields splits an object, the last of equal keys winning. raw is known to be one.
func fields(raw json.RawMessage) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	must(json.Unmarshal(raw, &m))
	return m
}

// elements splits a list. raw is known to be one.
func elements(raw json.RawMessage) []json.RawMessage {
	var l []json.RawMessage
	must(json.Unmarshal(raw, &l))
	return l
}

// unquote decodes a string. raw is known to be one.
func unquote(raw json.RawMessage) string {
	var s string
	must(json.Unmarshal(raw, &s))
	return s
}

// show is the compact text of a value, "absent" for none, with <, > and & as themselves: encoding/json writes them as
// escapes, and a pattern's author does not.
func show(raw json.RawMessage) string {
	if len(raw) == 0 {
		return absent
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return "text that is not JSON"
	}
	return plainHTML.ReplaceAllStringFunc(b.String(), func(escape string) string {
		switch escape {
		case `\u003c`:
			return "<"
		case `\u003e`:
			return ">"
		case `\u0026`:
			return "&"
		}
		return escape
	})
}

// plainHTML finds every escape, so that the u003c after an escaped backslash is not taken for one.
var plainHTML = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)

// must holds where Match has validated the bytes before: an error would be a bug of this package.
func must(err error) {
	if err != nil {
		panic("match: " + err.Error())
	}
}
