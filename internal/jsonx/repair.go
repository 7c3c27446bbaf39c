package jsonx

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// RepairJSON makes JSON of what was meant to be JSON. It takes what models get wrong: quotes of another kind, doubled,
// missing around a key or inside of a string without their backslash; commas and closing brackets that are missing or
// too many; control characters and escapes that no string may have; Python's words for true, false and null; a code
// fence around it all. It makes up no value, touches no number, and ends no string: where one has no end nobody knows
// what is missing.
//
// ok is false where nothing is sure enough; then there is no text. Else the text is JSON in the sense of CompactJSON
// with its default limits: raw itself, byte for byte, where that is JSON, and else an object or a list. Takes time in
// proportion to raw.
func RepairJSON(raw []byte) (text json.RawMessage, ok bool) {
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
	if text, ok = parseLenient(plain); ok {
		return text, true
	}
	// An object may be escaped as if it stood inside a string.
	if !strings.HasPrefix(inner, `{\"`) || json.Unmarshal([]byte(`"`+inner+`"`), &inner) != nil {
		return nil, false
	}
	if _, err := CompactJSON([]byte(inner), JSONLimits{}); err == nil {
		return json.RawMessage(inner), true
	}
	return parseLenient(inner)
}

// parseLenient reads a text with all deviations that RepairJSON accepts, and returns strict JSON.
func parseLenient(text string) (json.RawMessage, bool) {
	r := repairer{in: text, left: defaultJSONDepth}
	r.skipSpace()
	if c := r.peek(); c != '{' && c != '[' || !r.value() || r.open {
		return nil, false
	}
	if strings.Trim(r.in[r.at:], " \t\r\n,;]}`") != "" { // closing brackets too many are not more than that
		return nil, false
	}
	out, err := CompactJSON(r.out, JSONLimits{})
	return out, err == nil
}

// repairer reads on at a byte of in and writes what it makes of it. Every step goes forward.
type repairer struct {
	in   string
	at   int
	out  []byte
	left int  // how much deeper values may nest
	open bool // a string has no end
}

func (r *repairer) peek() byte {
	if r.at >= len(r.in) {
		return 0
	}
	return r.in[r.at]
}

func (r *repairer) skipSpace() { r.at = skipSpace(r.in, r.at) }

func skipSpace(s string, at int) int { return len(s) - len(strings.TrimLeft(s[at:], " \t\r\n")) }

// value takes one value. What stands there and is none is not made one.
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
	// A number, as it stands, or a word. Whether the number is one is for CompactJSON to say.
	from := r.at
	for r.at < len(r.in) && (isWordByte(r.in[r.at]) || r.in[r.at] == '.' || r.in[r.at] == '+') {
		r.at++
	}
	text := r.in[from:r.at]
	r.out = append(r.out, cmp.Or(words[text], text)...)
	return text != ""
}

// words are what may stand without quotes.
var words = map[string]string{"true": "true", "false": "false", "null": "null", "True": "true", "False": "false",
	"None": "null"}

// members takes what stands between brackets, up to the closing one or the end. A closing bracket of the other kind
// belongs to what is around it, and closes this too.
func (r *repairer) members(closing byte, member func() bool) bool {
	if r.left--; r.left < 0 {
		return false
	}
	defer func() { r.left++ }()
	r.out = append(r.out, r.peek())
	r.at++
	for n := 0; ; n++ {
		r.at = len(r.in) - len(strings.TrimLeft(r.in[r.at:], " \t\r\n,")) // commas, as many as there are
		switch c := r.peek(); c {
		case closing:
			r.at++
			r.out = append(r.out, closing)
			return true
		case 0, '}', ']':
			r.out = append(r.out, closing)
			return c != 0 || r.at >= len(r.in) // a byte of zero is no end
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

// str takes a string. A quote ends it that is followed by what may stand behind a key or a value; any other is part of
// it, or one too many.
func (r *repairer) str(key bool) {
	quote := r.peek()
	r.at++
	if r.peek() == quote && !r.endsString(r.at+1, key) { // "" and then a text: doubled
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

// isKeyAt reports whether a quoted key begins at at: a comma is missing before it.
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

// follows reports whether what may stand behind a comma begins at at, and not more of a text.
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
	switch {
	case c == '"':
		r.out = append(r.out, '\\', '"')
	case c == '\n':
		r.out = append(r.out, '\\', 'n')
	case c == '\t':
		r.out = append(r.out, '\\', 't')
	case c == '\r':
		r.out = append(r.out, '\\', 'r')
	case c < ' ':
		const hex = "0123456789abcdef"
		r.out = append(r.out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
	default:
		r.out = append(r.out, c)
	}
}

// writeEscape writes a backslash and the byte it escapes. A byte that cannot be escaped stands for itself.
func (r *repairer) writeEscape() {
	rest := r.in[r.at+1:]
	switch {
	case rest == "": // the text was cut in its middle
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

// RepairedInput is the object that a call's arguments were meant to be: they may also be a string that holds it. nil =
// nothing is sure enough.
func RepairedInput(raw json.RawMessage) json.RawMessage {
	var inner string
	if json.Unmarshal(raw, &inner) == nil {
		raw = json.RawMessage(inner)
	}
	text, ok := RepairJSON(raw)
	if !ok || !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		return nil
	}
	return text
}
