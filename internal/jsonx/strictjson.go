// Package jsonx reads JSON that authorizes something: strictly, exactly and in one canonical form. It also repairs JSON
// that models write.
//
// Duplicate keys, unknown keys and inputs beyond their limits are errors. Numbers, including amounts of money, are
// compared as decimals, never as floats. Conditions test a value at a pointer; patches change one.
package jsonx

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// JSONLimits limits a JSON text. The zero value has the defaults of R13.
type JSONLimits struct {
	Bytes int // longest text, in bytes, before compaction; 0 = 256 KiB
	Depth int // deepest nesting of objects and arrays; 0 = 64
}

const (
	defaultJSONBytes = 256 << 10
	defaultJSONDepth = 64
)

// JSONError says where a JSON text is not acceptable. It names keys and never quotes a value.
type JSONError struct {
	Offset  int    // bytes from the start of the text
	Pointer string // RFC 6901 pointer to the faulty value; "" = the whole text
	Want    string
}

func (e *JSONError) Error() string {
	if e.Pointer == "" {
		return fmt.Sprintf("json at offset %d: want %s", e.Offset, e.Want)
	}
	return fmt.Sprintf("json at offset %d, %s: want %s", e.Offset, ShownPath(e.Pointer), e.Want)
}

// ShownPath returns a path for an error, quoted and cut.
func ShownPath(path string) string {
	if len(path) > 200 {
		path = path[:200] + "..."
	}
	return strconv.Quote(path)
}

// CompactJSON checks one JSON value that will be hashed, shown or executed (R13, A6), and removes the white space
// between its tokens. Digits, key order and the spelling of strings stay the same. It returns a *JSONError for faults
// that encoding/json accepts: duplicate keys (compared after unescaping), invalid UTF-8, lone surrogates, anything
// after the value, and exceeded limits. The result shares no memory with raw.
func CompactJSON(raw []byte, lim JSONLimits) (json.RawMessage, error) {
	if most := cmp.Or(lim.Bytes, defaultJSONBytes); len(raw) > most {
		return nil, &JSONError{Offset: most, Want: fmt.Sprintf("at most %d bytes", most)}
	}
	s := jsonScanner{in: raw, out: make([]byte, 0, len(raw)), depthLeft: cmp.Or(lim.Depth, defaultJSONDepth)}
	if err := s.value(); err != nil {
		return nil, err
	}
	s.space()
	if s.pos < len(s.in) {
		return nil, s.expect("nothing after the value")
	}
	return s.out, nil
}

// DecodeStrict decodes raw into v after the checks of CompactJSON with default limits. Keys must be spelled exactly as
// v's fields. encoding/json would also accept another case, so that two different keys could set one field. Numbers in
// an interface are json.Number. Errors quote no value.
func DecodeStrict(raw []byte, v any) error { return DecodeStrictWithin(raw, JSONLimits{}, v) }

// DecodeStrictWithin is DecodeStrict with other limits.
func DecodeStrictWithin(raw []byte, lim JSONLimits, v any) error {
	return decodeWithin(raw, lim, v, FieldCheck{})
}

// DecodeKnown is DecodeStrict for JSON of another version of ours, or of a service that adds keys: it ignores unknown
// keys. A key that differs from one of v's only in case is still refused.
func DecodeKnown(raw []byte, lim JSONLimits, v any) error {
	return decodeWithin(raw, lim, v, FieldCheck{Others: true})
}

func decodeWithin(raw []byte, lim JSONLimits, v any, keys FieldCheck) error {
	compact, err := CompactJSON(raw, lim)
	if err == nil {
		err = keys.Value(compact, reflect.TypeOf(v))
	}
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(compact))
	dec.UseNumber()
	return WithoutValue(dec.Decode(v))
}

// StoredLimits returns the limits for stored data. Tighter limits apply when data is written.
func StoredLimits(data []byte) JSONLimits { return JSONLimits{Bytes: len(data) + 1, Depth: 256} }

// ReadStored decodes a stored form into v, a pointer. It refuses everything that this version does not write: a key
// without a field in v, a duplicate key or one in another case, a value of another kind, anything after the value. what
// names the form in the error. Raw JSON within v keeps its stored bytes.
func ReadStored(what string, data []byte, v any) error {
	target := reflect.TypeOf(v)
	_, err := CompactJSON(data, StoredLimits(data))
	if err == nil && target.Elem().Kind() == reflect.Struct && JSONKind(data) != '{' {
		err = &JSONError{Want: "an object"}
	}
	if err == nil {
		err = FieldCheck{Others: true}.Value(data, target) // faults that a decoder would accept
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return ReadChecked(what, data, v)
}

// ReadChecked is ReadStored for data that has been checked as part of a larger form.
func ReadChecked(what string, data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%s: %w", what, WithoutValue(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: want nothing behind the value", what)
	}
	return nil
}

// WithoutValue replaces an error of encoding/json that would quote a value. It names key and wanted kind instead.
func WithoutValue(err error) error {
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		_, want := kindsFor(t.Type)
		return fmt.Errorf("json key %q: want %s", t.Field, want)
	}
	return err
}

// jsonScanner copies one JSON value from in to out and checks it.
type jsonScanner struct {
	in        []byte
	pos       int
	out       []byte
	depthLeft int
	path      []string
}

func (s *jsonScanner) expect(what string) error {
	return &JSONError{Offset: s.pos, Pointer: FormatPointer(s.path), Want: what}
}

func (s *jsonScanner) space() { s.pos = len(s.in) - len(bytes.TrimLeft(s.in[s.pos:], " \t\r\n")) }

// peek returns the next byte, or 0 at the end; no JSON token starts with NUL.
func (s *jsonScanner) peek() byte {
	if s.pos < len(s.in) {
		return s.in[s.pos]
	}
	return 0
}

func (s *jsonScanner) take(n int) {
	s.out = append(s.out, s.in[s.pos:s.pos+n]...)
	s.pos += n
}

func (s *jsonScanner) value() error {
	s.space()
	rest := s.in[s.pos:]
	switch c := s.peek(); {
	case c == '{' || c == '[':
		if s.depthLeft == 0 {
			return s.expect("less nesting")
		}
		s.depthLeft--
		defer func() { s.depthLeft++ }()
		if c == '{' {
			seen := map[string]bool{}
			return s.list('}', func(int) error { return s.member(seen) })
		}
		return s.list(']', func(i int) error {
			s.path = append(s.path, fmt.Sprint(i))
			defer func() { s.path = s.path[:len(s.path)-1] }()
			return s.value()
		})
	case c == '"':
		_, err := s.string()
		return err
	case c == '-' || isDigit(c):
		token := rest[:len(rest)-len(bytes.TrimLeft(rest, "+-.0123456789eE"))]
		if !isNumber(token) {
			return s.expect("a JSON number")
		}
		s.take(len(token))
		return nil
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(rest, []byte(word)) {
			s.take(len(word))
			return nil
		}
	}
	return s.expect("a JSON value")
}

// isNumber reports whether s is a number of RFC 8259 and nothing else.
func isNumber(s []byte) bool {
	return len(s) > 0 && (s[0] == '-' || isDigit(s[0])) && isDigit(s[len(s)-1]) && json.Valid(s)
}

// list reads the items between brackets, and the commas between them.
func (s *jsonScanner) list(closing byte, item func(i int) error) error {
	s.take(1)
	s.space()
	if s.peek() == closing {
		s.take(1)
		return nil
	}
	for i := 0; ; i++ {
		if err := item(i); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.take(1)
		case closing:
			s.take(1)
			return nil
		default:
			return s.expect(fmt.Sprintf("a comma or %q", closing))
		}
	}
}

func (s *jsonScanner) member(seen map[string]bool) error {
	s.space()
	if s.peek() != '"' {
		return s.expect("a key in double quotes")
	}
	start := s.pos
	raw, err := s.string()
	if err != nil {
		return err
	}
	key := string(raw[1 : len(raw)-1])
	if strings.Contains(key, `\`) && json.Unmarshal(raw, &key) != nil {
		return s.expect("a key in double quotes")
	}
	s.path = append(s.path, key)
	defer func() { s.path = s.path[:len(s.path)-1] }()
	if seen[key] {
		s.pos = start
		return s.expect("each key once")
	}
	seen[key] = true
	s.space()
	if s.peek() != ':' {
		return s.expect("a colon")
	}
	s.take(1)
	return s.value()
}

// string reads a string token and returns it in its spelling, including quotes.
func (s *jsonScanner) string() ([]byte, error) {
	start := s.pos
	s.pos++
	for s.pos < len(s.in) {
		switch c := s.in[s.pos]; {
		case c == '"':
			s.pos++
			token := s.in[start:s.pos]
			s.out = append(s.out, token...)
			return token, nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return nil, err
			}
		case c < ' ':
			return nil, s.expect("control characters to be escaped")
		default:
			r, size := utf8.DecodeRune(s.in[s.pos:])
			if r == utf8.RuneError && size == 1 {
				return nil, s.expect("valid UTF-8")
			}
			s.pos += size
		}
	}
	return nil, s.expect("a closing quote")
}

func (s *jsonScanner) escape() error {
	if s.pos+1 < len(s.in) && bytes.IndexByte([]byte(`"\/bfnrt`), s.in[s.pos+1]) >= 0 {
		s.pos += 2
		return nil
	}
	u, ok := hexEscape(s.in[s.pos:])
	switch {
	case !ok:
		return s.expect("a JSON escape")
	case u < 0xD800 || u > 0xDFFF:
		s.pos += 6
		return nil
	case u > 0xDBFF:
		return s.expect("a high surrogate before a low one")
	}
	low, ok := hexEscape(s.in[s.pos+6:])
	if !ok || low < 0xDC00 || low > 0xDFFF {
		return s.expect("a low surrogate after a high one")
	}
	s.pos += 12
	return nil
}

// hexEscape reads \uXXXX at the start of b.
func hexEscape(b []byte) (u rune, ok bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n), err == nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// JSONKind returns the kind of a value by its first byte: 'n'ull, 'b'ool, '0' number, '"' string, '[' or '{'; 0 =
// nothing.
func JSONKind(raw json.RawMessage) byte {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return 0
	}
	switch c := raw[0]; {
	case c == 't' || c == 'f':
		return 'b'
	case c == '-' || isDigit(c):
		return '0'
	default:
		return c
	}
}

// DecodeNumbers decodes JSON into maps, lists and json.Number. The caller has checked raw.
func DecodeNumbers(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("json: want nothing after the value")
	}
	return v, nil
}

// FieldCheck refuses keys that do not exactly match the names of their fields, and values of a kind that the fields
// cannot hold. It does not descend into types that decode themselves.
type FieldCheck struct {
	Others bool // ignore unknown keys
}

// Value checks that every key of raw is a field of t, at any depth. The error names the key by its path.
func (f FieldCheck) Value(raw json.RawMessage, t reflect.Type) error {
	for t != nil && t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
	}
	if t == reflect.TypeFor[time.Time]() || t == reflect.TypeFor[*time.Time]() {
		if json.Unmarshal(raw, new(time.Time)) != nil { // its error would quote the text, and name no key
			return &JSONError{Want: "a time, such as 2026-01-31T12:00:00Z"}
		}
		return nil
	}
	if t == nil || decodesItself(t) || decodesItself(reflect.PointerTo(t)) {
		return nil
	}
	kind := JSONKind(raw)
	if accepted, want := kindsFor(t); !strings.ContainsRune(accepted, rune(kind)) && t.Kind() != reflect.Interface {
		return &JSONError{Want: want}
	}
	switch {
	case kind == '{' && t.Kind() == reflect.Struct:
		return f.members(raw, t)
	case kind == '{' && t.Kind() == reflect.Map:
		return eachMember(raw, func(_ string, v json.RawMessage) error { return f.Value(v, t.Elem()) })
	case kind == '[' && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array):
		var elements []json.RawMessage
		if err := json.Unmarshal(raw, &elements); err != nil {
			return err
		}
		for i, v := range elements {
			if err := f.Value(v, t.Elem()); err != nil {
				return below(strconv.Itoa(i), err)
			}
		}
	}
	return nil
}

// kindsFor returns the kinds of values, as JSONKind returns them, that encoding/json decodes into t, and their
// description.
func kindsFor(t reflect.Type) (accepted, want string) {
	switch t.Kind() {
	case reflect.String:
		if t == reflect.TypeFor[json.Number]() {
			return `"n0`, "a string"
		}
		return `"n`, "a string"
	case reflect.Bool:
		return "bn", "true or false"
	case reflect.Struct, reflect.Map:
		return "{n", "an object"
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return `[n"`, "a list"
		}
		return "[n", "a list"
	case reflect.Float32, reflect.Float64:
		return "0n", "a number that is not too large"
	default:
		return "0n", "a whole number that is not too large"
	}
}

// below puts the pointer of an error below a key or an index.
func below(token string, err error) error {
	if e, ok := errors.AsType[*JSONError](err); ok {
		e.Pointer = FormatPointer([]string{token}) + e.Pointer
	}
	return err
}

func (f FieldCheck) members(raw json.RawMessage, t reflect.Type) error {
	known := jsonFields(t)
	return eachMember(raw, func(key string, v json.RawMessage) error {
		if field, ok := known[key]; ok {
			return f.Value(v, field)
		}
		refuse := !f.Others
		for name := range known { // encoding/json would accept the key for a field with another case
			refuse = refuse || strings.EqualFold(name, key)
		}
		if refuse {
			return &JSONError{Want: "a known key"}
		}
		return nil
	})
}

func eachMember(raw json.RawMessage, visit func(key string, v json.RawMessage) error) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return err
	}
	for _, key := range SortedKeys(members) {
		if err := visit(key, members[key]); err != nil {
			return below(key, err)
		}
	}
	return nil
}

// fieldsByType has what jsonFields has returned: a map of fields by type.
var fieldsByType sync.Map

// jsonFields maps a struct's keys for encoding/json to the types of their fields. The map is shared.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	if known, ok := fieldsByType.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Tag.Get("json") == "-" || !f.IsExported():
		case f.Anonymous && name == "": // its own fields are among the visible ones
		case name == "":
			fields[f.Name] = f.Type
		default:
			fields[name] = f.Type
		}
	}
	fieldsByType.Store(t, fields)
	return fields
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func decodesItself(t reflect.Type) bool { return t.Implements(unmarshaler) }
