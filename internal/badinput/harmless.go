package badinput

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckHarmless returns an error if a shown text has characters that a person cannot see, or that change the text
// beside them. Line ends pass. Mark-up is not checked: channels with mark-up test their own escapes.
func CheckHarmless(shown string) error {
	if !utf8.ValidString(shown) {
		return fmt.Errorf("bytes that are no UTF-8 in %.60q", shown)
	}
	marks := 0
	for i, r := range shown {
		if !unicode.IsMark(r) {
			marks = 0
		} else if marks++; marks > 3 || i == 0 {
			return fmt.Errorf("marks on nothing, or in a heap, in %.60q", shown[max(0, i-20):])
		}
		switch {
		case r == '\n' || ' ' <= r && r < 0x7F:
		case !unicode.IsPrint(r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Variation_Selector, r),
			unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r), 0xE0000 <= r && r <= 0xE0FFF, r == 0x2800, r == 0x034F,
			r == utf8.RuneError:
			return fmt.Errorf("%U in %.60q", r, shown[max(0, i-20):])
		}
	}
	return nil
}

// Unescape returns the string that a shown text stands for. It reads \u{202E}, \x{FF}, \{12 spaces}, \{3 times \n\s},
// \n, \" and \\, replaces \rtl{…} by its text, and drops marks like \{mixed scripts}. Unknown escapes and masks are
// errors.
func Unescape(shown string) (string, error) {
	var b strings.Builder
	for shown != "" {
		if shown[0] != '\\' {
			b.WriteByte(shown[0])
			shown = shown[1:]
			continue
		}
		text, n, err := readEscape(shown)
		if err != nil {
			return "", err
		}
		b.WriteString(text)
		shown = shown[n:]
	}
	return b.String(), nil
}

var simple = map[byte]string{'n': "\n", 'r': "\r", 't': "\t", '"': `"`, '\\': `\`, 's': " "}

// readEscape reads one escape, and returns its text and its length.
func readEscape(s string) (text string, n int, err error) {
	if len(s) < 2 {
		return "", 0, fmt.Errorf("a backslash at the end")
	}
	end := closingBrace(s)
	switch {
	case end > 0 && strings.HasPrefix(s, `\u{`):
		u, err := strconv.ParseUint(s[3:end], 16, 32)
		if u>>11 == 0xD800>>11 {
			return string(surrogate(u)), end + 1, err
		}
		return string(rune(u)), end + 1, err
	case end > 0 && strings.HasPrefix(s, `\x{`):
		u, err := strconv.ParseUint(s[3:end], 16, 8)
		return string([]byte{byte(u)}), end + 1, err
	case end > 0 && strings.HasPrefix(s, `\rtl{`):
		return s[5:end], end + 1, nil
	case end > 0 && strings.HasPrefix(s, `\{`):
		text, err := expandCount(s[2:end])
		return text, end + 1, err
	}
	if text, ok := simple[s[1]]; ok {
		return text, 2, nil
	}
	return "", 0, fmt.Errorf("no escape: %.20q", s)
}

// closingBrace returns the index of the brace that closes the escape; 0 = it opens none.
func closingBrace(s string) int {
	open := strings.IndexByte(s, '{')
	if open < 0 || strings.Trim(s[1:open], "ultrx") != "" {
		return 0
	}
	depth := 0
	for i, c := range []byte(s) {
		switch c {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return 0
}

func expandCount(what string) (string, error) {
	switch what {
	case "mixed scripts", "looks like Latin", "odd letters", "digits of another script":
		return "", nil
	}
	number, of, ok := strings.Cut(what, " ")
	n, err := strconv.Atoi(number)
	if !ok || err != nil {
		return "", fmt.Errorf("not to be undone: %q", what)
	}
	switch {
	case of == "spaces", of == "space":
		return strings.Repeat(" ", n), nil
	case of == "line ends":
		return strings.Repeat("\n", n), nil
	case strings.HasPrefix(of, "times "):
		unit, err := Unescape(strings.TrimPrefix(of, "times "))
		return strings.Repeat(unit, n), err
	}
	return "", fmt.Errorf("not to be undone: %q", what)
}
