package show

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Quoted is foreign text as a value: in double quotes, on one line, unambiguous. No two strings give the same Text (B3):
//
//	\\ \" \n \r \t          what stands there, written as in JSON
//	\u{202E}                a character that is not Visible
//	\x{FF}                  a byte that is no UTF-8
//	\{12 spaces}            a run of spaces or line ends
//	\{9 times \u{200B}}     a run of anything else of which nothing can be seen; in it, \s is a space
//	\{mixed scripts}        behind a word that is not what it looks like; also \{looks like Latin}, \{odd letters} and \{digits of another script}
//	\rtl{…}                 text that is written from right to left
//	\{masked, …}            in place of a secret
//
// What begins with a backslash is in spans of a Kind of its own. Up to three spaces in a row stay as they are, so what renders a Text must
// keep them.
func Quoted(s string) Text { return quotedText(s, nil) }

// Bare is Quoted without the quotes, for a text whose ends show otherwise. It is as unambiguous. Neither masks anything: Foreign does.
//
// Spaces at its ends are counted, be it one: \{1 space}.
func Bare(s string) Text { return bareText(s, nil) }

// PlainQuotes is a Bare text in which quotes are as they are, for a place where nothing stands in quotes around it, such as JSON. A backslash
// is still written as two, so that it is as unambiguous.
func PlainQuotes(t Text) Text {
	all := make(Text, len(t))
	for i, s := range t {
		if s.Kind == Escape && s.Text == `\"` {
			s = Span{Text: `"`}
		}
		all[i] = s
	}
	return all.merged()
}

// Foreign is Bare with what has the form of a secret masked: what people are shown of a note, a word of the model or any other text.
func Foreign(s string) Text {
	var one builder
	return one.foreignText(s)
}

// Words is foreign text as people read it in a conversation: lines end where it ends them, indents, quotes and
// backslashes are themselves. What has the form of a secret is masked, and what cannot be seen, or puts the rest out of
// sight, is written out as by Foreign. Its spans may therefore hold line ends and tabs; nothing is decided on by it.
func Words(s string) Text {
	var one builder
	var t Text
	at := 0
	for _, h := range one.findSecrets(s) {
		t = append(append(t, conversationText(s[at:h.from])...), Span{Text: h.as, Kind: Masked})
		at = h.to
	}
	return append(t, conversationText(s[at:])...).merged()
}

func conversationText(s string) Text {
	e := escaper{all: s, words: true}
	return e.text()
}

func quotedText(s string, secrets []hidden) Text {
	t := Text{{Text: `"`}}
	t = append(t, escapeMasked(s, secrets, false)...)
	return append(t, Span{Text: `"`}).merged()
}

// hidden is a part of a text, in bytes, that is not shown, and what is shown for it.
type hidden struct {
	from, to int
	as       string
}

func bareText(s string, secrets []hidden) Text { return escapeMasked(s, secrets, true) }

// escapeMasked is the text of s. Open says that nothing stands around it by which its ends show.
func escapeMasked(s string, secrets []hidden, open bool) Text {
	var t Text
	at := 0
	for _, h := range secrets {
		t = append(t, escapeText(s[at:h.from], open && at == 0, false)...)
		t = append(t, Span{Text: h.as, Kind: Masked})
		at = h.to
	}
	return append(t, escapeText(s[at:], open && at == 0, open)...).merged()
}

// escapeText is the text of a piece of foreign text. First and last say that it begins or ends a text whose ends are open.
func escapeText(s string, first, last bool) Text {
	e := escaper{all: s, first: first, last: last}
	return e.text()
}

func (e *escaper) text() Text {
	for e.at < len(e.all) {
		e.step()
	}
	e.endWord()
	e.endPlain()
	return e.out
}

// escaper goes through a text from the left to the right.
type escaper struct {
	all   string
	at    int             // in bytes
	plain strings.Builder // the span that goes on
	out   Text            // those before it

	first, last bool // it begins, or ends, with nothing around it
	words       bool // see Words

	ownScripts map[*unicode.RangeTable]bool // see scriptsOf; nil = not looked for yet

	inside bool // a word goes on
	word   int  // where it began
	base   rune // the letter to which marks belong; 0 = none
	before rune // the character before, where it is shown as it is; else 0
	marks  int  // behind base
}

// step shows what stands at the place, and goes behind it.
func (e *escaper) step() {
	if as, n := e.conversationSpace(); n > 0 {
		e.endWord()
		e.base, e.before, e.marks = 0, 0, 0
		e.plain.WriteString(as)
		e.at += n
		return
	}
	if t, n := repeatedRun(e.all[e.at:]); n > 0 {
		e.addSpecial(t, n)
		return
	}
	if n := e.edgeSpaces(); n > 0 {
		e.addSpecial(Span{Text: countText([]unit{{r: ' '}}, n), Kind: Count}, n)
		return
	}
	u := unitAt(e.all[e.at:])
	if t, n := rightToLeftAt(e.all[e.at:], u); n > 0 {
		e.addRightToLeft(t, n)
		return
	}
	if unicode.IsMark(u.r) && u.kind == Plain && !e.canShowMark(u.r) {
		u.shown, u.kind = fmt.Sprintf(`\u{%04X}`, u.r), Escape
	}
	if u.kind != Plain {
		e.addSpecial(Span{Text: u.shown, Kind: u.kind}, u.bytes)
		return
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

// The white space that Words leaves as it is: so much at once, and so many line ends in it.
const (
	maxSpace    = 120
	maxLineEnds = 4
)

// conversationSpace is what stands here as it is in Words alone, and the bytes it takes; 0 = nothing.
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

// addSpan ends the plain span and puts another one behind it.
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

// edgeSpaces is how many spaces stand here, at an end of the text that nothing shows; 0 for none, or none there.
func (e *escaper) edgeSpaces() int {
	rest := e.all[e.at:]
	n := len(rest) - len(strings.TrimLeft(rest, " "))
	if e.first && e.at == 0 || e.last && n == len(rest) {
		return n
	}
	return 0
}

// addSpecial shows what is not shown as it is.
func (e *escaper) addSpecial(s Span, bytes int) {
	e.endWord()
	e.base, e.before, e.marks = 0, 0, 0
	e.addSpan(s)
	e.at += bytes
}

// addRightToLeft shows text that is written so; the words in it are judged like others.
func (e *escaper) addRightToLeft(text string, bytes int) {
	if !e.inside {
		e.inside, e.word = true, e.at
	}
	e.base, e.before, e.marks = 0, 0, 0
	e.addSpan(Span{Text: text, Kind: RightToLeft})
	e.at += bytes
	if next, _ := utf8.DecodeRuneInString(e.all[e.at:]); !inWord(next) {
		e.endWord()
	}
}

// canShowMark reports whether the mark may stand here as it is.
func (e *escaper) canShowMark(r rune) bool {
	e.marks++
	return e.marks <= maxMarks && e.base != 0 && canCarryMark(e.base, e.before, r)
}

// endWord marks the word that ends here, if it needs a mark.
func (e *escaper) endWord() {
	if !e.inside {
		return
	}
	e.inside = false
	if m := markOf(e.all[e.word:e.at], e.textScripts); m != "" {
		e.addSpan(Span{Text: m, Kind: Mixed})
	}
}

// textScripts are the scripts of the whole text, by scriptsOf.
func (e *escaper) textScripts() map[*unicode.RangeTable]bool {
	if e.ownScripts == nil {
		e.ownScripts = scriptsOf(e.all)
	}
	return e.ownScripts
}

// unit is a character, or a byte that is none, and how it is shown.
type unit struct {
	r     rune
	bytes int
	shown string
	kind  Kind
}

// unitAt is the first unit of a text that has one.
func unitAt(s string) unit {
	r, n := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && n == 1:
		if lone, ok := surrogateAt(s); ok {
			return unit{r: r, bytes: 3, shown: fmt.Sprintf(`\u{%04X}`, lone), kind: Escape}
		}
		return unit{r: r, bytes: 1, shown: fmt.Sprintf(`\x{%02X}`, s[0]), kind: Escape}
	case r == '"' || r == '\\':
		return unit{r: r, bytes: n, shown: `\` + string(r), kind: Escape}
	case r == '\n':
		return unit{r: r, bytes: n, shown: `\n`, kind: Escape}
	case r == '\r':
		return unit{r: r, bytes: n, shown: `\r`, kind: Escape}
	case r == '\t':
		return unit{r: r, bytes: n, shown: `\t`, kind: Escape}
	case !Visible(r):
		return unit{r: r, bytes: n, shown: fmt.Sprintf(`\u{%04X}`, r), kind: Escape}
	}
	return unit{r: r, bytes: n, shown: string(r)}
}

// surrogateAt is half a character, as JSON can name it and UTF-8 cannot: in the three bytes that UTF-8 would give it.
func surrogateAt(s string) (rune, bool) {
	if len(s) < 3 || s[0] != 0xED || s[1] < 0xA0 || s[1] > 0xBF || s[2] < 0x80 || s[2] > 0xBF {
		return 0, false
	}
	return 0xD000 | rune(s[1]&0x3F)<<6 | rune(s[2]&0x3F), true
}

// The runs that are counted: so many repetitions of so few units, of which none can be seen.
const (
	leastRepeated = 4
	leastLineEnds = 3
	longestUnit   = 4
)

// repeatedRun is the count of a run that s begins with, and the bytes it takes; 0 if there is none.
func repeatedRun(s string) (Span, int) {
	var units []unit
	size := 0
	for len(units) < longestUnit && size < len(s) {
		u := unitAt(s[size:])
		if !isBlank(u) {
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
			return Span{Text: countText(units, times), Kind: Count}, times * size
		}
	}
	return Span{}, 0
}

// isBlank reports whether nothing of the unit can be seen.
func isBlank(u unit) bool {
	if u.r == utf8.RuneError && u.bytes == 1 {
		return true
	}
	return u.r == ' ' || u.kind == Escape && u.r != '"' && u.r != '\\' && !unicode.In(u.r, signs, equivalents)
}

func countText(of []unit, times int) string {
	if len(of) == 1 && of[0].r == ' ' && times == 1 {
		return `\{1 space}`
	}
	if len(of) == 1 && of[0].r == ' ' {
		return fmt.Sprintf(`\{%d spaces}`, times)
	}
	if len(of) == 1 && of[0].r == '\n' {
		return fmt.Sprintf(`\{%d line ends}`, times)
	}
	var b strings.Builder
	for _, u := range of {
		if u.r == ' ' {
			b.WriteString(`\s`)
			continue
		}
		b.WriteString(u.shown)
	}
	return fmt.Sprintf(`\{%d times %s}`, times, b.String())
}

// rightToLeftAt is the text written from right to left that s begins with, whose first unit is u, and the bytes it takes; 0 if there is
// none. Spaces and stops between two such characters belong to it. Digits do not, since they would be moved.
func rightToLeftAt(s string, u unit) (string, int) {
	if !startsRightToLeft(u) {
		return "", 0
	}
	end, behind := 0, 0 // end is behind the last character of it
	base, before, count, between := rune(0), rune(0), 0, 0
	for ; behind < len(s); behind += u.bytes {
		u = unitAt(s[behind:])
		switch {
		case startsRightToLeft(u):
			base, count, between = u.r, 0, 0
		case u.kind == Plain && unicode.IsMark(u.r) && count < maxMarks && between == 0 && canCarryMark(base, before, u.r):
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

// maxBetween is how many spaces and stops may stand between two characters of a text that is written from right to left.
const maxBetween = 2

func startsRightToLeft(u unit) bool {
	return u.kind == Plain && unicode.Is(rightToLeft, u.r) && !unicode.IsMark(u.r) && !unicode.IsNumber(u.r)
}

// merged is the text with neighbours that are plain made one.
func (t Text) merged() Text {
	var all Text
	for _, s := range t {
		if n := len(all); n > 0 && s.Kind == Plain && all[n-1].Kind == Plain {
			all[n-1].Text += s.Text
			continue
		}
		all = append(all, s)
	}
	return all
}

// ownText is text of the runtime's making, which has nothing to be escaped.
func ownText(s string) Text {
	if s == "" {
		return nil
	}
	return Text{{Text: s}}
}

// Line is foreign text on one line in which every character that is not Visible is escaped, and nothing else. It is for messages of the
// program's own, which quote what they name: a backslash stays one, so that a text with escapes in it is shown like one without.
func Line(s string) string {
	return escapeInvisible(s, func(r rune) bool { return false })
}

// Lines is Line of a text that may have several lines.
func Lines(s string) string {
	return escapeInvisible(s, func(r rune) bool { return r == '\n' })
}

// JSON is a JSON text in which every character that is not Visible is spelled \uXXXX, but for the white space between its values. It means
// the same.
func JSON(text []byte) []byte {
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
		u := unitAt(s)
		switch {
		case u.r == '"' || u.r == '\\' || keep(u.r):
			b.WriteRune(u.r)
		default:
			b.WriteString(u.shown)
		}
		s = s[u.bytes:]
	}
	return b.String()
}
