package show

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// WriteText writes a request as plain text, for terminals and mails: facts, then the complete arguments, then what is
// not to be trusted. Width is the longest line in characters, 0 = unlimited. A line that begins with spaces and "+ "
// continues the one above after a space; one that begins with "++ " continues a word. No other line begins so. The
// error is w's.
func WriteText(w io.Writer, r Request, width int) error {
	t := &writer{w: w, width: width}
	t.writeLine("", Bare("approval "+r.ID+" ("+r.Status+")"))
	for _, f := range r.Facts {
		t.writeLine(fmt.Sprintf("  %-10s ", f.Label), f.Value)
	}
	for _, e := range r.History {
		t.writeEvent(e)
	}
	for _, f := range r.Changed {
		t.writeLine("  changed    "+f.Label+" ", f.Value)
	}
	for _, tool := range r.Tools {
		t.writeTool(tool)
	}
	if len(r.Tools) == 0 {
		heading := "arguments"
		if r.Masked {
			heading += " (secrets are masked; the decision is on what is stored, with them)"
		}
		t.writeArguments("  ", ownText(heading), r.Arguments)
	}
	if len(r.Claim) > 0 {
		t.writeLine("  the caller says (not checked): the run is for ", quoteText(r.Claim))
	}
	if len(r.Question) > 0 {
		t.writeLine("  the tool asks (not to be trusted): ", r.Question)
	}
	for _, p := range r.Asked {
		t.writeArguments("  ", ownText(p.Label), p.Lines)
	}
	if len(r.Says) > 0 {
		t.writeLine("  the model says (not to be trusted)", nil)
		t.writeLine(`    `, quoteText(r.Says))
	}
	return t.err
}

// WriteArguments writes the lines of arguments as plain text after indent. The error is w's.
func WriteArguments(w io.Writer, indent string, lines []Argument) error {
	t := &writer{w: w}
	t.writeLines(indent, lines)
	return t.err
}

type writer struct {
	w     io.Writer
	width int
	err   error
}

// writeEvent writes an event, unless a fact says it already.
func (t *writer) writeEvent(e Event) {
	var value Text
	label := "decided"
	switch e.What {
	case "asked", "escalated", "expired":
		return
	case EventRemark:
		label = e.What
		value = append(append(append(value, Span{Text: "by "}), e.Who...), Span{Text: " at " + FormatTime(e.At)})
	default:
		value = append(value, Span{Text: e.What})
		if len(e.Tools) > 0 {
			value = append(append(value, Span{Text: " of "}), e.Tools...)
		}
		value = append(append(append(value, Span{Text: " by "}), e.Who...), Span{Text: " at " + FormatTime(e.At)})
	}
	if len(e.Note) > 0 {
		value = append(append(value, Span{Text: ": "}), quoteText(e.Note)...)
	}
	if len(e.Grant) > 0 {
		value = append(append(value, Span{Text: ", "}), e.Grant...)
	}
	t.writeLine(fmt.Sprintf("  %-10s ", label), value.merged())
	if len(e.Arguments) > 0 {
		t.writeArguments("    ", ownText("with"), e.Arguments)
	}
}

func quoteText(s Text) Text {
	return append(append(Text{{Text: `"`}}, s...), Span{Text: `"`}).merged()
}

func (t *writer) writeTool(tool Tool) {
	head := append(Text{}, tool.Name...)
	if tool.Verdict != "" {
		head = append(head, Span{Text: ": " + tool.Verdict})
	}
	t.writeLine("  ", head.merged())
	for _, f := range tool.Facts {
		t.writeLine(fmt.Sprintf("    %-8s ", f.Label), f.Value)
	}
	for i, c := range tool.Calls {
		head := ownText("call arguments")
		if i < len(tool.Blocked) {
			b := tool.Blocked[i]
			head = append(append(append(ownText("call "), b.ID...), Span{Text: ", decided by "}), b.Approvers...)
			if len(b.Note) > 0 {
				head = append(append(head, Span{Text: ", policy "}), quoteText(b.Note)...)
			}
			head = append(head, Span{Text: ", arguments"}).merged()
		}
		t.writeArguments("    ", head, c)
	}
}

// writeArguments writes a heading and the lines below it.
func (t *writer) writeArguments(indent string, head Text, lines []Argument) {
	t.writeLine(indent, head)
	t.writeLines(indent+"  ", lines)
}

func (t *writer) writeLines(indent string, lines []Argument) {
	for _, a := range lines {
		line := append(Text{}, a.Key...)
		if len(a.Key) > 0 {
			line = append(line, Span{Text: ":"})
			if len(a.Value) > 0 {
				line = append(line, Span{Text: " "})
			}
		}
		t.writeLine(indent+strings.Repeat("  ", a.Depth), append(line, a.Value...).merged())
	}
	if len(lines) == 0 {
		t.writeLine(indent+"(none)", nil)
	}
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
