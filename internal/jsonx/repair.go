package jsonx

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// RepairJSON returns JSON for a text that was meant to be JSON. It corrects typical errors of models: quotes of another
// kind, doubled, missing around a key or unescaped inside a string; missing and superfluous commas and closing
// brackets; control characters and escapes that strings must not have; Python's words for true, false and null; and a
// code fence around the text. It invents no value, changes no number, and does not end a string, because the missing
// part is unknown. If the text may be cut, it closes nothing that is open at the end, for the same reason.
//
// ok is false if no reading is certain; then there is no text. Otherwise the text is JSON in the sense of CompactJSON
// with its default limits: raw itself, byte for byte, if that is JSON, and otherwise an object or a list. The time is
// proportional to the length of raw.
func RepairJSON(raw []byte, mayBeCut bool) (text json.RawMessage, ok bool) {
	if _, err := CompactJSON(raw, JSONLimits{}); err == nil {
		return raw, true
	}
	if len(raw) > defaultJSONBytes || !utf8.Valid(raw) {
		return nil, false
	}
	inner := strings.TrimSpace(string(raw))
	plain := inner
	if fenced, ok := strings.CutPrefix(inner, "```"); ok {
		plain = strings.TrimSuffix(strings.TrimLeft(fenced, "jsonJSON"), "```")
	}
	if text, ok = parseLenient(plain, mayBeCut); ok {
		return text, true
	}
	// An object may be escaped as if it were inside a string.
	if !strings.HasPrefix(inner, `{\"`) || json.Unmarshal([]byte(`"`+inner+`"`), &inner) != nil {
		return nil, false
	}
	if _, err := CompactJSON([]byte(inner), JSONLimits{}); err == nil {
		return json.RawMessage(inner), true
	}
	return parseLenient(inner, mayBeCut)
}

// parseLenient parses a text with all deviations that RepairJSON accepts, and returns strict JSON.
func parseLenient(text string, mayBeCut bool) (json.RawMessage, bool) {
	r := repairer{in: text, left: defaultJSONDepth}
	r.skipSpace()
	if c := r.peek(); c != '{' && c != '[' || !r.value() || r.open || r.unclosed && mayBeCut {
		return nil, false
	}
	if strings.Trim(r.in[r.at:], " \t\r\n,;]}`") != "" { // superfluous closing brackets are accepted
		return nil, false
	}
	out, err := CompactJSON(r.out, JSONLimits{})
	return out, err == nil
}

// repairer reads in from at and writes the repaired text to out. Every step advances.
type repairer struct {
	in   string
	at   int
	out  []byte
	left int  // remaining nesting depth
	open bool // a string has no end

	unclosed bool // brackets are missing at the end
}

func (r *repairer) peek() byte {
	if r.at >= len(r.in) {
		return 0
	}
	return r.in[r.at]
}

func (r *repairer) skipSpace() { r.at = skipSpace(r.in, r.at) }

func skipSpace(s string, at int) int { return len(s) - len(strings.TrimLeft(s[at:], " \t\r\n")) }

// value reads one value. It does not turn anything else into a value.
func (r *repairer) value() bool {
	r.skipSpace()
	switch c := r.peek(); c {
	case '{':
		return r.members('}', r.member)
	case '[':
		return r.members(']', r.value)
	case '"', '\'':
		r.str(false)
		return true
	}
	// A number, unchanged, or a word. CompactJSON checks the number.
	from := r.at
	for r.at < len(r.in) && (isWordByte(r.in[r.at]) || r.in[r.at] == '.' || r.in[r.at] == '+') {
		r.at++
	}
	text := r.in[from:r.at]
	r.out = append(r.out, cmp.Or(words[text], text)...)
	return text != ""
}

// words are the values that may be written without quotes.
var words = map[string]string{"true": "true", "false": "false", "null": "null", "True": "true", "False": "false",
	"None": "null"}

// members reads the members between brackets, up to the closing one or the end. A closing bracket of the other kind
// belongs to the surrounding value, and closes this one too.
func (r *repairer) members(closing byte, member func() bool) bool {
	if r.left--; r.left < 0 {
		return false
	}
	defer func() { r.left++ }()
	r.out = append(r.out, r.peek())
	r.at++
	for n := 0; ; n++ {
		r.at = len(r.in) - len(strings.TrimLeft(r.in[r.at:], " \t\r\n,")) // any number of commas
		switch c := r.peek(); c {
		case closing:
			r.at++
			r.out = append(r.out, closing)
			return true
		case 0, '}', ']':
			r.out, r.unclosed = append(r.out, closing), r.unclosed || c == 0
			return c != 0 || r.at >= len(r.in) // a zero byte is not the end
		}
		if n > 0 {
			r.out = append(r.out, ',')
		}
		if !member() {
			return false
		}
	}
}

func (r *repairer) member() bool {
	switch c := r.peek(); {
	case c == '"' || c == '\'':
		r.str(true)
	case isWordByte(c):
		from := r.at
		for isWordByte(r.peek()) {
			r.at++
		}
		r.out = append(append(append(r.out, '"'), r.in[from:r.at]...), '"')
	default:
		return false
	}
	r.skipSpace()
	if r.peek() != ':' {
		return false
	}
	r.at++
	r.out = append(r.out, ':')
	return r.value()
}

func isWordByte(c byte) bool {
	return c == '_' || c == '-' || c == '$' || isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// str reads a string. A quote ends the string if what follows may come after a key or a value. Any other quote is part
// of the string, or superfluous.
func (r *repairer) str(key bool) {
	quote := r.peek()
	r.at++
	if r.peek() == quote && !r.endsString(r.at+1, key) { // "" followed by a text: a doubled quote
		r.at++
	}
	r.out = append(r.out, '"')
	inner := 0 // quotes that are part of the string
	for r.at < len(r.in) {
		c := r.in[r.at]
		switch {
		case c == quote && r.endsString(r.at+1, key):
			r.at++
			r.out = append(r.out, '"')
			return
		case c == quote && inner%2 == 0 && r.at+1 < len(r.in) && r.in[r.at+1] == quote && r.endsString(r.at+2, key):
			r.at++ // doubled at the end
		case c == quote:
			inner++
			r.writePlain(c)
		case c == '\\':
			r.writeEscape()
		default:
			r.writePlain(c)
		}
	}
	r.open = true
}

// endsString reports whether a string may end before at.
func (r *repairer) endsString(at int, key bool) bool {
	at = skipSpace(r.in, at)
	if at >= len(r.in) {
		return true
	}
	switch r.in[at] {
	case ':':
		return key
	case '}', ']':
		return !key
	case ',':
		return !key && r.follows(skipSpace(r.in, at+1))
	case '"', '\'':
		return !key && r.isKeyAt(at)
	}
	return false
}

// isKeyAt reports whether a quoted key begins at at, which means that a comma is missing before it.
func (r *repairer) isKeyAt(at int) bool {
	end := at + 1
	for end < len(r.in) && isWordByte(r.in[end]) {
		end++
	}
	if end == at+1 || end >= len(r.in) || r.in[end] != r.in[at] {
		return false
	}
	end = skipSpace(r.in, end+1)
	return end < len(r.in) && r.in[end] == ':'
}

// follows reports whether at at begins what may follow a comma between members, and not more of a text.
func (r *repairer) follows(at int) bool {
	if at >= len(r.in) || strings.IndexByte("\"'{}[],-0123456789", r.in[at]) >= 0 {
		return true
	}
	end := at
	for end < len(r.in) && isWordByte(r.in[end]) {
		end++
	}
	if _, word := words[r.in[at:end]]; word {
		return true
	}
	after := skipSpace(r.in, end)
	return end > at && after < len(r.in) && r.in[after] == ':'
}

// writePlain writes a byte of a string in a form that JSON allows.
func (r *repairer) writePlain(c byte) {
	r.at++
	quoted := AppendCanonicalString(nil, string([]byte{c}))
	r.out = append(r.out, quoted[1:len(quoted)-1]...)
}

// writeEscape writes a backslash and the byte that it escapes. Before any other byte it is a plain backslash.
func (r *repairer) writeEscape() {
	rest := r.in[r.at+1:]
	switch {
	case rest == "": // the text was cut within the escape
		r.at++
	case rest[0] == '\'':
		r.out = append(r.out, '\'')
		r.at += 2
	case rest[0] == 'u' && len(rest) > 4 && strings.Trim(rest[1:5], "0123456789abcdefABCDEF") == "":
		r.out = append(r.out, r.in[r.at:r.at+6]...)
		r.at += 6
	case strings.IndexByte(`"\/bfnrt`, rest[0]) >= 0:
		r.out = append(r.out, '\\', rest[0])
		r.at += 2
	default:
		r.out = append(r.out, '\\', '\\')
		r.at++
	}
}

// RepairedInput returns the object that a call's arguments were meant to be, which may be inside a string. nil = no
// reading is certain.
func RepairedInput(raw json.RawMessage) json.RawMessage {
	var inner string
	if json.Unmarshal(raw, &inner) == nil {
		raw = json.RawMessage(inner)
	}
	text, ok := RepairJSON(raw, false)
	if !ok || !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		return nil
	}
	return text
}
