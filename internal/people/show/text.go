package show

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// WriteText writes a document as plain text, for terminals and mails. Width is the longest line in characters, 0 =
// unlimited. A line that begins with spaces and "+ " continues the one above after a space; one that begins with "++ "
// continues a word. No other line begins so. The error is w's.
func WriteText(w io.Writer, d Document, width int) error {
	t := &writer{w: w, width: width}
	if len(d.Sentence) > 0 {
		t.writeLine("  ", d.Sentence)
		t.writeLine("  "+d.Risk.Words()+": ", d.RiskText)
	}
	for _, s := range d.Sections {
		t.writeLine("  ", ownText(s.Title))
		for _, l := range s.Rows {
			text := l.Text()
			switch {
			case l.Name != "":
				text = slices.Concat(ownText(fmt.Sprintf("%-11s", l.Label.String()+" ")), l.Value).merged()
			case s.Untrusted && len(l.Label) == 0 && s.Name != Asks: // what a tool asks is in quotes
				text = textf(`"%1"`, text)
			}
			t.writeLine("    "+strings.Repeat("  ", l.Depth), text)
		}
	}
	return t.err
}

type writer struct {
	w     io.Writer
	width int
	err   error
}

// writeLine writes one line and wraps it at the width.
func (t *writer) writeLine(before string, text Text) {
	if t.err != nil {
		return
	}
	indent := before[:len(before)-len(strings.TrimLeft(before, " "))]
	var b strings.Builder
	b.WriteString(before)
	left := t.width - utf8.RuneCountInString(before)
	room := max(t.width-len(indent)-len(withinWord)-2, minRoom)
	fresh := true
	for _, p := range splitPieces(text, room) {
		n := utf8.RuneCountInString(p.text)
		if p.space {
			n++
		}
		switch {
		case t.width == 0 || n <= left || fresh:
			if p.space {
				b.WriteByte(' ')
			}
		case p.space:
			b.WriteString("\n" + indent + "  " + behindSpace)
			left = room
		default:
			b.WriteString("\n" + indent + "  " + withinWord)
			left = room
		}
		b.WriteString(p.text)
		left, fresh = left-n, false
	}
	b.WriteByte('\n')
	_, t.err = io.WriteString(t.w, b.String())
}

// The prefixes of continued lines. A space at the end of a line could be lost.
const (
	behindSpace = "+ "  // in place of a space
	withinWord  = "++ " // in place of nothing
	minRoom     = 16
)

// piece is a part of a text that is not broken over lines.
type piece struct {
	text  string
	space bool // a space stands before it
}

// splitPieces splits a text where a line may end: at single spaces, and within words that are longer than a line. A
// replacement span is never split. Other spaces begin a piece, and end none.
func splitPieces(text Text, longest int) []piece {
	var all []piece
	var p piece
	end := func() {
		if text := strings.TrimRight(p.text, " "); text != "" {
			all, p = append(all, piece{text, p.space}), piece{text: p.text[len(text):]}
		}
	}
	for _, s := range text {
		if s.Kind != Plain {
			end()
			p.text += Text{s}.String()
			end()
			continue
		}
		for i, r := range s.Text {
			if r == ' ' && i > 0 && i+1 < len(s.Text) && s.Text[i-1] != ' ' && s.Text[i+1] != ' ' { // a single space
				end()
				p = piece{text: p.text, space: true}
				continue
			}
			if utf8.RuneCountInString(p.text) >= longest && r != ' ' && !unicode.IsMark(r) {
				end()
			}
			p.text += string(r)
		}
	}
	if p.text != "" || p.space {
		all = append(all, p)
	}
	return all
}
