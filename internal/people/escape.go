package people

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// QuotedText is foreign text as a value: in double quotes, on one line, unambiguous. No two strings give the same Text
// (B3):
//
//	\\ \" \n \r \t          what stands there, written as in JSON
//	\u{202E}                a character that is not Visible
//	\x{FF}                  a byte that is no UTF-8
//	\{12 spaces}            a run of spaces or line ends
//	\{9 times \u{200B}}     a run of anything else of which nothing can be seen; in it, \s is a space
//	\{mixed scripts}        behind a word that is not what it looks like; also \{looks like Latin},
//	                        \{odd letters} and \{digits of another script}
//	\rtl{…}                 text that is written from right to left
//	\{masked, …}            in place of a secret
//
// What begins with a backslash is in spans of a SpanKind of its own. Up to three spaces in a row stay as they are, so
// what renders a Text must keep them.
func QuotedText(s string) Text { return quotedText(s, nil) }

// BareText is QuotedText without the quotes, for a text whose ends are visible otherwise. It is as unambiguous. Neither
// masks secrets: ForeignText does.
//
// Spaces at the ends are counted, even a single one: \{1 space}.
func BareText(s string) Text { return escapeText(s, nil, alone) }

// PlainQuotes leaves the quotes of a BareText text unescaped, for a place without quotes around it, such as JSON. A
// backslash is still doubled, so that the text stays unambiguous.
func PlainQuotes(t Text) Text {
	all := make(Text, len(t))
	for i, s := range t {
		if s.Kind == SpanEscape && s.Text == `\"` {
			s = Span{Text: `"`}
		}
		all[i] = s
	}
	return all.merged()
}

// ForeignText is BareText with secrets masked by form: it shows notes, the model's text and any other foreign text.
func ForeignText(s string) Text {
	var one documentBuilder
	return one.foreignText(s)
}

// ConversationText is foreign text of a conversation: line ends, indents, quotes and backslashes are kept. Secrets are
// masked by form, and invisible characters are escaped as by ForeignText. Its spans may hold line ends and tabs, so it
// must not show what people decide on.
func ConversationText(s string) Text {
	var one documentBuilder
	return escapeText(s, one.findSecrets(s), conversation)
}

func quotedText(s string, secrets []hidden) Text {
	return slices.Concat(ownText(`"`), escapeText(s, secrets, inQuotes), ownText(`"`)).merged()
}

// hidden is a part of a text, in bytes, that is masked, and its replacement.
type hidden struct {
	from, to int
	as       string
}

// textPlace is where an escaped text stands.
type textPlace int

const (
	inQuotes     textPlace = iota
	alone                  // nothing around it shows where it ends
	conversation           // see ConversationText
)

// escapeText is the text of s with the secrets masked.
func escapeText(s string, secrets []hidden, in textPlace) Text {
	var t Text
	at := 0
	for _, h := range secrets {
		t = append(t, (&escaper{all: s[at:h.from], words: in == conversation, first: in == alone && at == 0}).text()...)
		t = append(t, Span{Text: h.as, Kind: SpanMasked})
		at = h.to
	}
	last := escaper{all: s[at:], words: in == conversation, first: in == alone && at == 0, last: in == alone}
	return append(t, last.text()...).merged()
}

// escaper scans a text from left to right.
type escaper struct {
	all   string
	at    int             // in bytes
	plain strings.Builder // the current plain span
	out   Text            // the spans before it

	first, last bool // the text begins, or ends, open
	words       bool // see ConversationText

	ownScripts func() map[*unicode.RangeTable]bool // scriptsOf all, computed once

	inside bool // in a word
	word   int  // where it began
	base   rune // the letter that carries marks; 0 = none
	before rune // the character before, if it is not escaped; else 0
	marks  int  // after base
}

func (e *escaper) text() Text {
	for e.at < len(e.all) {
		rest := e.all[e.at:]
		if as, n := e.conversationSpace(); n > 0 {
			e.endWord()
			e.base, e.before, e.marks = 0, 0, 0
			e.plain.WriteString(as)
			e.at += n
			continue
		}
		if t, n := repeatedRun(rest); n > 0 {
			e.addSpecial(t, n)
			continue
		}
		n := len(rest) - len(strings.TrimLeft(rest, " "))
		if n > 0 && (e.first && e.at == 0 || e.last && n == len(rest)) { // spaces at an open end of the text
			e.addSpecial(Span{Text: countText([]escapeUnit{{r: ' '}}, n), Kind: SpanCount}, n)
			continue
		}
		u := escapeUnitAt(rest)
		if t, n := rightToLeftAt(rest, u); n > 0 {
			if !e.inside { // its words are checked like others
				e.inside, e.word = true, e.at
			}
			e.base, e.before, e.marks = 0, 0, 0
			e.addSpan(Span{Text: t, Kind: SpanRightToLeft})
			e.at += n
			if next, _ := utf8.DecodeRuneInString(e.all[e.at:]); !inWord(next) {
				e.endWord()
			}
			continue
		}
		if unicode.IsMark(u.r) && u.kind == SpanPlain {
			if e.marks++; e.marks > maxMarks || e.base == 0 || !canCarryMark(e.base, e.before, u.r) {
				u.shown, u.kind = fmt.Sprintf(`\u{%04X}`, u.r), SpanEscape
			}
		}
		if u.kind != SpanPlain {
			e.addSpecial(Span{Text: u.shown, Kind: u.kind}, u.bytes)
			continue
		}
		if !inWord(u.r) {
			e.endWord()
		} else if !e.inside {
			e.inside, e.word = true, e.at
		}
		if !unicode.IsMark(u.r) {
			e.base, e.marks = u.r, 0
		}
		e.before = u.r
		e.plain.WriteString(u.shown)
		e.at += u.bytes
	}
	e.endWord()
	e.endPlain()
	return e.out
}

// Bounds of the white space that ConversationText leaves unescaped: its length, and its line ends.
const (
	maxSpace    = 120
	maxLineEnds = 4
)

// conversationSpace returns what ConversationText alone leaves unescaped here, and its bytes; 0 = nothing.
func (e *escaper) conversationSpace() (as string, bytes int) {
	if !e.words {
		return "", 0
	}
	rest := e.all[e.at:]
	if rest[0] == '"' || rest[0] == '\\' {
		return rest[:1], 1
	}
	n := len(rest) - len(strings.TrimLeft(rest, " \t\r\n"))
	as = strings.ReplaceAll(rest[:n], "\r\n", "\n")
	if n > maxSpace || strings.Count(as, "\n") > maxLineEnds || strings.Contains(as, "\r") {
		return "", 0
	}
	return as, n
}

// addSpan ends the plain span and appends another one.
func (e *escaper) addSpan(s Span) {
	e.endPlain()
	e.out = append(e.out, s)
}

func (e *escaper) endPlain() {
	if e.plain.Len() > 0 {
		e.out = append(e.out, Span{Text: e.plain.String()})
		e.plain.Reset()
	}
}

// addSpecial appends a span that replaces text.
func (e *escaper) addSpecial(s Span, bytes int) {
	e.endWord()
	e.base, e.before, e.marks = 0, 0, 0
	e.addSpan(s)
	e.at += bytes
}

// endWord ends the current word and appends a warning if it looks like another word.
func (e *escaper) endWord() {
	if !e.inside {
		return
	}
	e.inside = false
	if e.ownScripts == nil {
		e.ownScripts = sync.OnceValue(func() map[*unicode.RangeTable]bool { return scriptsOf(e.all) })
	}
	if m := markOf(e.all[e.word:e.at], e.ownScripts); m != "" {
		e.addSpan(Span{Text: m, Kind: SpanMixed})
	}
}

// escapeUnit is a character, or an invalid byte, and how it is shown.
type escapeUnit struct {
	r     rune
	bytes int
	shown string
	kind  SpanKind
}

// escapeUnitAt is the first unit of a text that is not empty.
func escapeUnitAt(s string) escapeUnit {
	r, n := utf8.DecodeRuneInString(s)
	u := escapeUnit{r: r, bytes: n, kind: SpanEscape}
	switch {
	case r == utf8.RuneError && n == 1:
		u.shown = fmt.Sprintf(`\x{%02X}`, s[0])
	case r == '"' || r == '\\':
		u.shown = `\` + string(r)
	case r == '\n':
		u.shown = `\n`
	case r == '\r':
		u.shown = `\r`
	case r == '\t':
		u.shown = `\t`
	case !Visible(r):
		u.shown = fmt.Sprintf(`\u{%04X}`, r)
	default:
		u.shown, u.kind = string(r), SpanPlain
	}
	return u
}

// The runs that are counted: so many repetitions of so few units, of which none can be seen.
const (
	leastRepeated = 4
	leastLineEnds = 3
	longestUnit   = 4
)

// repeatedRun is the count of a repeated invisible run that s begins with, and its bytes; 0 if there is none.
func repeatedRun(s string) (Span, int) {
	var units []escapeUnit
	size := 0
	for len(units) < longestUnit && size < len(s) {
		u := escapeUnitAt(s[size:])
		odd := u.kind == SpanEscape && u.r != '"' && u.r != '\\' && !unicode.In(u.r, signs, equivalents)
		if u.r != ' ' && !odd && (u.r != utf8.RuneError || u.bytes != 1) { // it can be seen
			break
		}
		units = append(units, u)
		size += u.bytes
		first := s[:size]
		times := 1
		for strings.HasPrefix(s[times*size:], first) {
			times++
		}
		if times >= leastRepeated || first == "\n" && times >= leastLineEnds {
			return Span{Text: countText(units, times), Kind: SpanCount}, times * size
		}
	}
	return Span{}, 0
}

func countText(of []escapeUnit, times int) string {
	shown := ""
	for _, u := range of {
		if u.r == ' ' {
			u.shown = `\s`
		}
		shown += u.shown
	}
	switch {
	case shown == `\s` && times == 1:
		return `\{1 space}`
	case shown == `\s`:
		return fmt.Sprintf(`\{%d spaces}`, times)
	case shown == `\n`:
		return fmt.Sprintf(`\{%d line ends}`, times)
	}
	return fmt.Sprintf(`\{%d times %s}`, times, shown)
}

// rightToLeftAt is the right-to-left text that s begins with, whose first unit is u, and its bytes; 0 if there is none.
// It includes spaces and stops between two such characters, but no digits, which would be moved.
func rightToLeftAt(s string, u escapeUnit) (string, int) {
	if !startsRightToLeft(u) {
		return "", 0
	}
	end, behind := 0, 0 // end is behind the last character of it
	base, before, count, between := rune(0), rune(0), 0, 0
	for ; behind < len(s); behind += u.bytes {
		u = escapeUnitAt(s[behind:])
		switch {
		case startsRightToLeft(u):
			base, count, between = u.r, 0, 0
		case u.kind == SpanPlain && unicode.IsMark(u.r) && count < maxMarks && between == 0 &&
			canCarryMark(base, before, u.r):
			count++
		case strings.ContainsRune(" ,.-'", u.r) && between < maxBetween:
			between++
			continue
		default:
			return s[:end], end
		}
		before = u.r
		end = behind + u.bytes
	}
	return s[:end], end
}

// maxBetween is how many spaces and stops may stand between two characters of a text that is written from right to
// left.
const maxBetween = 2

func startsRightToLeft(u escapeUnit) bool {
	return u.kind == SpanPlain && unicode.Is(rightToLeft, u.r) && !unicode.IsMark(u.r) && !unicode.IsNumber(u.r)
}

func (t Text) merged() Text {
	var all Text
	for i := 0; i < len(t); {
		end := i + 1
		for t[i].Kind == SpanPlain && end < len(t) && t[end].Kind == SpanPlain {
			end++
		}
		s := t[i]
		if end > i+1 { // all of them are plain
			s.Text = t[i:end].String()
		}
		all, i = append(all, s), end
	}
	return all
}

// ownText is text of the runtime, which needs no escaping.
func ownText(s string) Text {
	if s == "" {
		return nil
	}
	return Text{{Text: s}}
}

// textf returns words of ours with texts in place of %1, %2 and so on.
func textf(words string, texts ...Text) Text {
	var all Text
	for i, part := range strings.Split(words, "%") {
		if i > 0 {
			all, part = append(all, texts[part[0]-'1']...), part[1:]
		}
		all = append(all, ownText(part)...)
	}
	return all.merged()
}

// EscapeLine is foreign text on one line with every character that is not Visible escaped, and nothing else. It is for
// the program's own messages: a backslash is not doubled, so that escaped text stays as it is.
func EscapeLine(s string) string {
	return escapeInvisible(s, func(r rune) bool { return false })
}

// EscapeLines is EscapeLine for text of several lines.
func EscapeLines(s string) string {
	return escapeInvisible(s, func(r rune) bool { return r == '\n' })
}

// EscapeJSON spells every character of a JSON text that is not Visible as \uXXXX, except the white space between
// values. The meaning stays the same.
func EscapeJSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r < ' ' || Visible(r):
			out = append(out, text[:n]...)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[n:]
	}
	return out
}

func escapeInvisible(s string, keep func(rune) bool) string {
	var b strings.Builder
	for len(s) > 0 {
		u := escapeUnitAt(s)
		if u.r == '"' || u.r == '\\' || keep(u.r) {
			u.shown = string(u.r)
		}
		b.WriteString(u.shown)
		s = s[u.bytes:]
	}
	return b.String()
}
