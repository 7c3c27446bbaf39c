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
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
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

type comparison struct{ found []Mismatch }

// value compares one place; an empty got is absent.
func (c *comparison) value(path string, want, got json.RawMessage) {
	want, got = bytes.TrimSpace(want), bytes.TrimSpace(got)
	switch jsonx.JSONKind(want) {
	case 'n':
		c.expect(len(got) == 0 || jsonx.JSONKind(got) == 'n', path, want, got)
	case '{':
		if jsonx.JSONKind(got) != '{' {
			c.expect(false, path, want, got)
			return
		}
		wants, gots := decoded[map[string]json.RawMessage](want), decoded[map[string]json.RawMessage](got)
		for _, k := range slices.Sorted(maps.Keys(wants)) {
			c.value(Join(path, k), wants[k], gots[k])
		}
	case '[':
		c.list(path, want, got)
	case '"':
		pattern, isPattern := strings.CutPrefix(decoded[string](want), "~")
		if !isPattern {
			c.expect(jsonx.JSONKind(got) == '"' && decoded[string](want) == decoded[string](got), path, want, got)
			return
		}
		over := show(got)
		if jsonx.JSONKind(got) == '"' {
			over = decoded[string](got)
		}
		c.expect(len(got) > 0 && regexp.MustCompile(pattern).MatchString(over), path, want, got)
	case '0':
		c.expect(jsonx.JSONKind(got) == '0' && sameNumber(string(want), string(got)), path, want, got)
	default:
		c.expect(bytes.Equal(want, got), path, want, got)
	}
}

func (c *comparison) expect(ok bool, path string, want, got json.RawMessage) {
	if !ok {
		c.found = append(c.found, Mismatch{Path: path, Got: show(got), Want: show(want)})
	}
}

func (c *comparison) list(path string, want, got json.RawMessage) {
	if jsonx.JSONKind(got) != '[' {
		c.expect(false, path, want, got)
		return
	}
	wants, gots := decoded[[]json.RawMessage](want), decoded[[]json.RawMessage](got)
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
	case !plainKey.MatchString(key):
		return fmt.Sprintf("%s[%q]", path, key)
	case path == "":
		return key
	default:
		return path + "." + key
	}
}

var plainKey = regexp.MustCompile(`^[\w-]+$`)

// decoded reads a value whose kind is known and which Match has validated: an error would be a bug of this package.
func decoded[T any](raw json.RawMessage) (v T) {
	if err := json.Unmarshal(raw, &v); err != nil {
		panic("match: " + err.Error())
	}
	return v
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
	return plainHTML.Replace(b.String())
}

// plainHTML finds an escaped backslash before the escapes, so that the u003c behind it is not taken for one.
var plainHTML = strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&")

// sameNumber reports whether two JSON numbers are the same decimal.
func sameNumber(a, b string) bool {
	order, err := jsonx.CompareNumbers(a, b)
	return err == nil && order == 0
}

// Check says why want cannot be a pattern: it is not exactly one JSON value, or a string that starts with ~ is not an
// RE2 expression. The error names the path.
func Check(want json.RawMessage) error {
	v, err := jsonx.DecodeNumbers(want)
	if err != nil {
		return fmt.Errorf("read JSON: %w", err)
	}
	return checkPatterns(v, "")
}

func checkPatterns(v any, path string) error {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if err := checkPatterns(v[key], Join(path, key)); err != nil {
				return err
			}
		}
	case []any:
		for i, item := range v {
			if err := checkPatterns(item, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case string:
		if pattern, isPattern := strings.CutPrefix(v, "~"); isPattern {
			if _, err := regexp.Compile(pattern); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	return nil
}
