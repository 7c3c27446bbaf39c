package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// invisible is what a person cannot see, or would take for something else, though it is no control character.
var invisible = []*unicode.RangeTable{
	unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector,
	{
		R16: []unicode.Range16{{Lo: 0x2800, Hi: 0x2800, Stride: 1}, {Lo: 0xFFFC, Hi: 0xFFFC, Stride: 1}}, // an empty Braille cell, an object
		R32: []unicode.Range32{{Lo: 0x1D159, Hi: 0x1D159, Stride: 1}},                                    // an empty note head
	},
}

// visible reports whether a character is on the allow-list: letters, marks, digits, punctuation and symbols that show, and the plain
// space. unicode.IsPrint is not that list (approvals.md, B3).
func visible(r rune) bool {
	if r == ' ' {
		return true
	}
	return unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S) && !unicode.In(r, invisible...)
}

// lines is foreign text that may have several lines; every character that is not visible is escaped, like \u{202E}.
func lines(s string) string {
	return escape(s, func(r rune) (string, bool) { return "\n", r == '\n' })
}

// line is foreign text on one line.
func line(s string) string {
	return escape(s, func(r rune) (string, bool) { return `\n`, r == '\n' })
}

// escape writes what is visible as it is, what special knows as it says, and everything else as \u{HEX}, or \x{HEX} for a byte
// that is not UTF-8.
func escape(s string, special func(rune) (string, bool)) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		as, ok := special(r)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x{%02X}`, s[0])
		case ok:
			b.WriteString(as)
		case visible(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u{%04X}`, r)
		}
		s = s[n:]
	}
	return b.String()
}

// cut shortens a line of progress. What is decided on is never cut.
func cut(s string, limit int) string {
	r := []rune(s)
	if len(r) <= limit {
		return s
	}
	return string(r[:limit]) + "…"
}

// text is a string as a value: in quotes, unambiguous, with long runs of spaces and line ends as counts and look-alikes marked.
func text(s string) string {
	quoted := escape(s, func(r rune) (string, bool) {
		switch r {
		case '"', '\\':
			return `\` + string(r), true
		case '\n':
			return `\n`, true
		case '\t':
			return `\t`, true
		}
		return "", false
	})
	quoted = counted(counted(quoted, " ", 4, "spaces"), `\n`, 3, "line ends")
	if mixesScripts(s) {
		return `"` + quoted + `" \{mixes scripts}`
	}
	return `"` + quoted + `"`
}

// counted replaces runs of at least so many units by their count. A backslash before a brace is in no escaped text by itself.
func counted(s, unit string, least int, name string) string {
	var b strings.Builder
	for s != "" {
		n := 0
		for strings.HasPrefix(s[n*len(unit):], unit) {
			n++
		}
		switch {
		case n == 0:
			step := 1
			if s[0] == '\\' && len(s) > 1 { // an escape stays whole
				step = 2
			}
			b.WriteString(s[:step])
			s = s[step:]
			continue
		case n < least:
			b.WriteString(strings.Repeat(unit, n))
		default:
			fmt.Fprintf(&b, `\{%d %s}`, n, name)
		}
		s = s[n*len(unit):]
	}
	return b.String()
}

// lookAlikes are scripts with letters that look like Latin ones.
var lookAlikes = []*unicode.RangeTable{unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee, unicode.Coptic}

// mixesScripts reports whether one word has Latin letters and letters of a script that looks like it.
func mixesScripts(s string) bool {
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return !unicode.IsLetter(r) }) {
		latin := strings.ContainsFunc(word, func(r rune) bool { return unicode.Is(unicode.Latin, r) })
		other := strings.ContainsFunc(word, func(r rune) bool { return unicode.In(r, lookAlikes...) })
		if latin && other {
			return true
		}
	}
	return false
}

// writeArguments writes all of a call's arguments, one key a line, numbers with their own digits. It never cuts.
func writeArguments(w io.Writer, indent string, raw json.RawMessage) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	t, err := d.Token()
	if err != nil {
		return fmt.Errorf("show arguments: %w", err)
	}
	if t != json.Delim('{') {
		return writeValue(w, indent, "", d, t)
	}
	if !d.More() {
		fmt.Fprintf(w, "%s(none)\n", indent)
		return nil
	}
	return writeMembers(w, indent, d, true)
}

// writeMembers writes the members of an object or the elements of a list that d stands in, up to its end.
func writeMembers(w io.Writer, indent string, d *json.Decoder, keys bool) error {
	for d.More() {
		t, err := d.Token()
		name := "- "
		if keys && err == nil {
			name = key(t.(string)) + ": " // the decoder lets only strings be keys
			t, err = d.Token()
		}
		if err != nil {
			return fmt.Errorf("show arguments: %w", err)
		}
		if err := writeValue(w, indent, name, d, t); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

func writeValue(w io.Writer, indent, name string, d *json.Decoder, t json.Token) error {
	switch v := t.(type) {
	case json.Delim:
		if !d.More() {
			fmt.Fprintf(w, "%s%s%s%s\n", indent, name, v, map[json.Delim]string{'{': "}", '[': "]"}[v])
			_, err := d.Token()
			return err
		}
		fmt.Fprintf(w, "%s%s\n", indent, strings.TrimSuffix(name, " "))
		return writeMembers(w, indent+"  ", d, v == '{')
	case string:
		fmt.Fprintf(w, "%s%s%s\n", indent, name, text(v))
	case nil:
		fmt.Fprintf(w, "%s%snull\n", indent, name)
	default:
		fmt.Fprintf(w, "%s%s%v\n", indent, name, v)
	}
	return nil
}

// key is a member's name; one that is not a plain word stands in quotes.
func key(s string) string {
	plain := func(r rune) bool {
		return r == '_' || r == '-' || r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r))
	}
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return text(s)
	}
	return s
}
