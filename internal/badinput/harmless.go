package badinput

import (
	"errors"
	"fmt"
	"regexp"
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
	var problems []error
	text := escape.ReplaceAllStringFunc(shown, func(e string) string {
		text, err := readEscape(e)
		problems = append(problems, err)
		return text
	})
	if err := errors.Join(problems...); err != nil {
		return "", err
	}
	return text, nil
}

// escape finds a kind with an argument, in which there may be others, or a single letter.
var escape = regexp.MustCompile(`(?s)\\(?:(u|x|rtl|)\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}|.?)`)

var simple = map[string]string{`\n`: "\n", `\r`: "\r", `\t`: "\t", `\"`: `"`, `\\`: `\`, `\s`: " "}

func readEscape(e string) (string, error) {
	if text, ok := simple[e]; ok {
		return text, nil
	}
	m := escape.FindStringSubmatch(e)
	switch kind, arg := m[1], m[2]; {
	case kind == "u":
		u, err := strconv.ParseUint(arg, 16, 32)
		if u>>11 == 0xD800>>11 {
			return string(surrogate(u)), err
		}
		return string(rune(u)), err
	case kind == "x":
		u, err := strconv.ParseUint(arg, 16, 8)
		return string([]byte{byte(u)}), err
	case kind == "rtl":
		return arg, nil
	case strings.HasPrefix(e, `\{`):
		return expandCount(arg)
	}
	return "", fmt.Errorf("no escape: %.20q", e)
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
