package people

// This file and those named document… turn a request into one Document: in one sentence what would happen, the
// complete arguments, what they depend on, warnings, who decides until when, and last what the model said, marked as
// untrusted (approvals.md, B1 to B4). Every odd character is escaped and every secret masked.

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// SpanKind says how a span is to be read.
type SpanKind string

// The kinds. A span of a kind other than SpanPlain and SpanTime replaces text.
const (
	SpanPlain       SpanKind = ""
	SpanEscape      SpanKind = "escape" // \u{202E}: a character that cannot be seen, or is taken for another
	SpanCount       SpanKind = "count"  // \{12 spaces}: a run of what cannot be seen
	SpanMixed       SpanKind = "mixed"  // \{mixed scripts}: a mark behind a word that is not what it looks like
	SpanMasked      SpanKind = "masked" // \{masked, …}: in place of a secret
	SpanRightToLeft SpanKind = "rtl"    // right-to-left text, to be isolated (<bdi>); String writes \rtl{…}
	SpanTime        SpanKind = "time"   // a time, as FormatTimeIn writes it
)

// Span is a piece of text that holds visible characters alone: no control, no format character, no line end.
type Span struct {
	Text string
	Kind SpanKind
}

// Text is foreign text in harmless spans.
type Text []Span

// String joins the text of all spans, for channels of plain text. It writes right-to-left text in \rtl{…}: the Latin
// letters around it keep it in place without invisible characters.
func (t Text) String() string {
	var all strings.Builder
	for _, s := range t {
		if s.Kind == SpanRightToLeft {
			all.WriteString(`\rtl{` + s.Text + `}`)
			continue
		}
		all.WriteString(s.Text)
	}
	return all.String()
}

// Document is what people are shown of a request, the same on every channel. Backends lay its parts out in this order
// and decide nothing.
type Document struct {
	Title    Text // what is asked, without text of the model: for headings and subjects
	Sentence Text // what would happen, at most maxSentence characters; its values are the model's
	Risk     Risk // the class of what is asked; of several tools the highest
	RiskText Text // the reason of the class
	Sections []Section
	Masked   bool // something was masked
}

// Section is some lines under a title.
type Section struct {
	Name      SectionName
	Title     string // words of ours and names of the definition
	Untrusted bool   // a model, a tool or the API's caller says so; nobody vouches for it
	Rows      []Row
}

// SectionName says which section it is.
type SectionName string

// The sections, in order.
const (
	SectionRemark    SectionName = "remark"    // what was asked or answered just now; of messages alone
	SectionArguments SectionName = "arguments" // complete; of a request about tools, those of each call
	SectionDepends   SectionName = "depends"   // what the request depends on
	SectionWarnings  SectionName = "warnings"
	SectionWho       SectionName = "who"   // who decides, and until when
	SectionAbout     SectionName = "about" // the other facts that the runtime vouches for
	SectionTool      SectionName = "tool"  // the facts about one of several tools
	SectionHistory   SectionName = "history"
	SectionClaim     SectionName = "claim" // what the API's caller says
	SectionAsks      SectionName = "asks"  // what a tool asks
	SectionSays      SectionName = "says"  // what the model said
)

// Row is one line of a section. An object or array among arguments is a line of its own; its members follow, one level
// deeper.
type Row struct {
	Depth int
	Name  string // of a fact: stable, for programs
	Label Text   // empty: the line is its value alone. Of an argument: the member's key, "[0]" of an element
	Value Text   // empty for an object or array with members
	Wrong bool   // the agent's definition says that such a value looks wrong
}

// Text is the row in one piece, without its indent.
func (r Row) Text() Text {
	switch {
	case len(r.Label) == 0:
		return r.Value
	case len(r.Value) == 0:
		return textf("%1:", r.Label)
	}
	return textf("%1: %2", r.Label, r.Value)
}

// Fact returns the value of a fact; empty if the document has none of that name.
func (d Document) Fact(name string) Text {
	for _, s := range d.Sections {
		for _, l := range s.Rows {
			if l.Name == name && s.Name != SectionTool {
				return l.Value
			}
		}
	}
	return nil
}

// Only returns the document with the sections of these names alone, for a channel without room for all.
func (d Document) Only(names ...SectionName) Document {
	other := func(s Section) bool { return !slices.Contains(names, s.Name) }
	d.Sections = slices.DeleteFunc(slices.Clone(d.Sections), other)
	return d
}

// add appends a section that has lines.
func (d *Document) add(s Section) {
	if len(s.Rows) > 0 {
		d.Sections = append(d.Sections, s)
	}
}

// WriteText writes a document as plain text, for terminals and mails. The error is w's.
func WriteText(w io.Writer, d Document) error {
	var b strings.Builder
	line := func(before string, text Text) { b.WriteString(before + text.String() + "\n") }
	if len(d.Sentence) > 0 {
		line("  ", d.Sentence)
		line("  "+d.Risk.Words()+": ", d.RiskText)
	}
	for _, s := range d.Sections {
		line("  ", ownText(s.Title))
		for _, l := range s.Rows {
			text := l.Text()
			switch {
			case l.Name != "":
				text = slices.Concat(ownText(fmt.Sprintf("%-11s", l.Label.String()+" ")), l.Value).merged()
			case s.Untrusted && len(l.Label) == 0 && s.Name != SectionAsks: // what a tool asks is in quotes
				text = textf(`"%1"`, text)
			}
			line("    "+strings.Repeat("  ", l.Depth), text)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
