package script

// This file compares what a scenario wants with what it got (docs/scenarios.md): objects match as subsets,
// lists in full and in order, numbers exactly as decimals (1 is 1.0), strings exactly, a string starting with ~ is an
// unanchored RE2 expression over a string or over any other value's compact JSON text, and null means absent or null.
//
// Everything here is pure and safe for concurrent use.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// Mismatch is one place where the value differs. Got and Want are compact JSON, or "absent", or for a pattern or value
// that cannot be read the reason why.
type Mismatch struct {
	Path string // e.g. messages[2].content.text; "" is the whole value
	Got  string
	Want string
}

// String is the line people see.
func (m Mismatch) String() string {
	path := m.Path
	if path == "" {
		path = "."
	}
	return fmt.Sprintf("%s: got %s, want %s", path, m.Got, m.Want)
}

// absent is how a value that is not there is shown.
const absent = "absent"

// Match lists where got differs from want, in order of want's lists and of object keys by name; nil means that it
// matches. An empty got is an absent value. A want that Check refuses and a got that is not JSON are mismatches at the
// root.
func Match(want, got json.RawMessage) []Mismatch {
	if err := Check(want); err != nil {
		return []Mismatch{{Got: show(got), Want: "a valid pattern: " + err.Error()}}
	}
	if len(got) > 0 && !json.Valid(got) {
		return []Mismatch{{Got: "text that is not JSON", Want: show(want)}}
	}
	c := &comparison{}
	c.value("", want, got)
	return c.found
}

// comparison collects the mismatches of one Match.
type comparison struct{ found []Mismatch }

// value compares one place; an empty got is absent.
func (c *comparison) value(path string, want, got json.RawMessage) {
	want, got = bytes.TrimSpace(want), bytes.TrimSpace(got)
	switch kindOf(want) {
	case kindNull:
		c.expect(len(got) == 0 || kindOf(got) == kindNull, path, want, got)
	case kindObject:
		c.object(path, want, got)
	case kindList:
		c.list(path, want, got)
	case kindString:
		pattern, isPattern := strings.CutPrefix(unquote(want), "~")
		if !isPattern {
			c.expect(kindOf(got) == kindString && unquote(want) == unquote(got), path, want, got)
			return
		}
		over := show(got)
		if kindOf(got) == kindString {
			over = unquote(got)
		}
		c.expect(len(got) > 0 && regexp.MustCompile(pattern).MatchString(over), path, want, got)
	case kindNumber:
		c.expect(kindOf(got) == kindNumber && sameNumber(string(want), string(got)), path, want, got)
	default:
		c.expect(bytes.Equal(want, got), path, want, got)
	}
}

func (c *comparison) expect(ok bool, path string, want, got json.RawMessage) {
	if !ok {
		c.found = append(c.found, Mismatch{Path: path, Got: show(got), Want: show(want)})
	}
}

func (c *comparison) object(path string, want, got json.RawMessage) {
	if kindOf(got) != kindObject {
		c.expect(false, path, want, got)
		return
	}
	wants, gots := fields(want), fields(got)
	keys := make([]string, 0, len(wants))
	for k := range wants {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		c.value(Join(path, k), wants[k], gots[k])
	}
}

func (c *comparison) list(path string, want, got json.RawMessage) {
	if kindOf(got) != kindList {
		c.expect(false, path, want, got)
		return
	}
	wants, gots := elements(want), elements(got)
	for i := range max(len(wants), len(gots)) {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case i >= len(gots):
			c.expect(false, at, wants[i], nil)
		case i >= len(wants):
			c.found = append(c.found, Mismatch{Path: at, Got: show(gots[i]), Want: absent})
		default:
			c.value(at, wants[i], gots[i])
		}
	}
}

// Join is the path of an object's key under path: a dot and the name, or the quoted name in brackets where it holds
// anything but letters, digits, _ and -.
func Join(path, key string) string {
	switch {
	case !plain(key):
		return fmt.Sprintf("%s[%q]", path, key)
	case path == "":
		return key
	default:
		return path + "." + key
	}
}

func plain(key string) bool {
	return key != "" && !slices.ContainsFunc([]byte(key), func(b byte) bool {
		return b != '_' && b != '-' && (b < '0' || b > '9') && (b < 'a' || b > 'z') && (b < 'A' || b > 'Z')
	})
}

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

// decimal is a number in its one normal form: sign, digits without zeros at either end, and the power of ten of the
// last digit. Zero has no digits and no sign. The exponent is big because JSON bounds it nowhere, and the value is
// never expanded.
type decimal struct {
	negative bool
	digits   string
	exponent string
}

// sameNumber reports whether two JSON numbers are the same decimal.
func sameNumber(a, b string) bool { return normal(a) == normal(b) }

// normal reads a valid JSON number.
func normal(s string) decimal {
	s, negative := strings.CutPrefix(s, "-")
	mantissa, power := s, "0"
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, power = s[:i], s[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return decimal{}
	}
	exponent, _ := new(big.Int).SetString(power, 10)
	exponent.Add(exponent, big.NewInt(int64(len(digits)-len(short)-len(fraction))))
	return decimal{negative, short, exponent.String()}
}
