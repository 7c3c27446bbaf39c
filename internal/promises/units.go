// Package promises holds the sentences of docs/semantics.md that the product has to keep against what shows that it does: scenarios and
// tests by name, one line a sentence in docs/promises.txt. A sentence without a line fails, and so does a line whose proof is not there.
package promises

import (
	"regexp"
	"slices"
	"strings"
)

// Unit is one sentence, table row or list item of a section.
type Unit struct {
	Section string // 3.4, 6.1
	Text    string // without Markdown's marks
}

var (
	heading  = regexp.MustCompile(`^#{2,3} (\d+(?:\.\d+)?)\.? `)
	divider  = regexp.MustCompile(`^\|[-| :]+\|$`)
	item     = regexp.MustCompile(`^(?:- |\d+\. )`)
	sentence = regexp.MustCompile(`([.!?)])\s+([A-Z"` + "`" + `*(\[])`)
	marks    = strings.NewReplacer("`", "", "**", "", "*", "")
)

// Units splits the sections of a document that it is asked for; a section without a dot stands for its own text, before its
// subsections.
func Units(document string, sections []string) []Unit {
	s := splitter{want: sections}
	for line := range strings.Lines(document) {
		s.line(strings.TrimRight(line, "\n"))
	}
	s.paragraph()
	return s.units
}

type splitter struct {
	want    []string
	section string
	inTable bool
	text    []string // lines of the paragraph or item that is being read
	units   []Unit
}

func (s *splitter) line(line string) {
	if m := heading.FindStringSubmatch(line); m != nil {
		s.paragraph()
		s.section, s.inTable = m[1], false
		return
	}
	if !slices.Contains(s.want, s.section) {
		return
	}
	row := strings.HasPrefix(line, "|")
	switch {
	case row && divider.MatchString(line):
		s.units = s.units[:len(s.units)-1] // the row before was the header
	case row:
		s.paragraph()
		s.add(line)
	case line == "":
		s.paragraph()
	case item.MatchString(line):
		s.paragraph()
		s.text = []string{item.ReplaceAllString(line, "")}
	default:
		s.text = append(s.text, strings.TrimSpace(line))
	}
	s.inTable = row
}

// paragraph ends what is being read and splits it into sentences.
func (s *splitter) paragraph() {
	text := strings.Join(s.text, " ")
	s.text = nil
	for part := range strings.SplitSeq(sentence.ReplaceAllString(text, "$1\n$2"), "\n") {
		s.add(part)
	}
}

func (s *splitter) add(text string) {
	if text = strings.Join(strings.Fields(marks.Replace(text)), " "); text != "" {
		s.units = append(s.units, Unit{s.section, text})
	}
}
