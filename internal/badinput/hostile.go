package badinput

// This file is a corpus of strings that hide, forge or break what people are shown, for the tests of every
// channel. CheckHarmless checks that a shown text is harmless, and Unescape that it is complete. Both have their own
// rules and do not use package show.

import (
	_ "embed" // the corpus
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

//go:embed strings.txt
var corpus string

// Hostile is one string of the corpus.
type Hostile struct {
	Comment string          // describes the string
	Text    string          // half a surrogate pair is written in the three bytes that UTF-8 would give it
	JSON    json.RawMessage // as a JSON string; nil if JSON cannot hold it
}

// IsStorable reports whether stored arguments can have the string. CompactJSON refuses half a surrogate pair and
// invalid UTF-8.
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
	inner := strings.Repeat(line[1:len(line)-1], times)
	return Hostile{Text: decode(inner), JSON: json.RawMessage(`"` + inner + `"`)}, nil
}

// decode decodes a JSON string without its quotes. encoding/json would replace half a surrogate pair by the replacement
// character.
func decode(in string) string {
	var b strings.Builder
	for in != "" {
		if u, ok := hex(in, `\u`, 4); ok && u>>11 == 0xD800>>11 {
			if low, ok := hex(in[6:], `\u`, 4); ok && u < 0xDC00 && low>>10 == 0xDC00>>10 {
				b.WriteRune(rune(0x10000 + (u-0xD800)<<10 + (low - 0xDC00)))
				in = in[12:]
				continue
			}
			b.Write(surrogate(u))
			in = in[6:]
			continue
		}
		n := 1
		if in[0] == '\\' {
			if n = 2; in[1] == 'u' {
				n = 6
			}
		}
		var part string
		if in[0] != '\\' {
			part = in[:1]
		} else if err := json.Unmarshal([]byte(`"`+in[:n]+`"`), &part); err != nil {
			panic(err) // the whole is valid
		}
		b.WriteString(part)
		in = in[n:]
	}
	return b.String()
}

func hex(in, prefix string, digits int) (uint64, bool) {
	rest, ok := strings.CutPrefix(in, prefix)
	if !ok || len(rest) < digits {
		return 0, false
	}
	u, err := strconv.ParseUint(rest[:digits], 16, 32)
	return u, err == nil
}

// surrogate returns half a surrogate pair in the bytes that UTF-8 would give it.
func surrogate(u uint64) []byte {
	return []byte{byte(0xE0 | u>>12), byte(0x80 | u>>6&0x3F), byte(0x80 | u&0x3F)}
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
