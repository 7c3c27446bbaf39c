package web

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/people/show"
)

// titles explain the marks in foreign text, as tooltips.
var titles = map[show.Kind]string{
	show.Escape: "a character that cannot be seen, or could be taken for another", show.Count: "so many of them in a row",
	show.Mixed: "letters or digits that look like other ones", show.Masked: "a secret, which is not shown",
}

// functions are the functions of the templates.
var functions = template.FuncMap{
	"spans": readableSpans, "exact": exactSpans, "arguments": newArguments,
	"second": formatSecond, "machine": formatDatetime, "size": formatSize, "short": shortID,
	"status": newStatusLabel, "places": newPlaces,
}

// span is a piece of foreign text for the template "spans".
type span struct {
	Text  string
	Kind  show.Kind
	Title string // tooltip
	Ends  bool   // ends its line
}

// Datetime is the datetime attribute of a time in UTC.
func (s span) Datetime() string {
	return strings.Replace(strings.TrimSuffix(s.Text, " UTC"), " ", "T", 1) + "Z"
}

// readableSpans returns foreign text in which escaped line ends and indents are themselves. Arguments use exactSpans,
// because each of their characters counts.
func readableSpans(t show.Text) []span {
	var read show.Text
	for i, s := range t {
		if s.Kind == show.Escape {
			switch s.Text {
			case `\r`:
				if i+1 < len(t) && t[i+1] == (show.Span{Text: `\n`, Kind: show.Escape}) {
					continue
				}
			case `\n`, `\t`, `\"`, `\\`:
				s = show.Span{Text: notation[s.Text]}
			}
		}
		if s.Kind == show.Count && len(read) > 0 && strings.HasSuffix(read[len(read)-1].Text, "\n") {
			var n int
			if _, err := fmt.Sscanf(s.Text, `\{%d spaces}`, &n); err == nil && n <= maxIndent {
				s = show.Span{Text: strings.Repeat(" ", n)}
			}
		}
		if n := len(read); n > 0 && s.Kind == show.Plain && read[n-1].Kind == show.Plain {
			read[n-1].Text += s.Text
			continue
		}
		read = append(read, s)
	}
	return exactSpans(read)
}

// maxIndent is how many leading spaces are shown as such. More would move the line out of sight.
const maxIndent = 24

// notation maps the escapes of package show to their characters.
var notation = map[string]string{`\n`: "\n", `\t`: "\t", `\"`: `"`, `\\`: `\`}

// exactSpans returns the text of arguments, with invisible characters and line ends written out.
func exactSpans(t show.Text) []span {
	var all []span
	for _, s := range t {
		if s.Text != "" {
			lineEnd := s.Kind == show.Escape && s.Text == `\n` // shown, and ends the line
			all = append(all, span{s.Text, s.Kind, titles[s.Kind], lineEnd})
		}
	}
	return all
}

// joinSpans joins spans into one without frames. Only the marks are lost.
func joinSpans(all []span) []span {
	if len(all) < 2 {
		return all
	}
	var t show.Text
	for _, s := range all {
		t = append(t, show.Span{Text: s.Text, Kind: s.Kind})
	}
	return []span{{Text: t.String()}}
}

// Bounds of arguments shown line by line, where each line takes about 300 bytes of HTML. Longer arguments are shown
// as one text, still complete (B2).
const (
	maxLines = 4000
	maxSpans = 12_000
	maxDepth = 8
)

// arguments are a call's arguments: line by line, or as one text.
type arguments struct {
	Plain string
	Lines []show.Row
}

// newArguments prepares arguments for the template "arguments"; nil for none.
func newArguments(all []show.Row) *arguments {
	if len(all) == 0 {
		return nil
	}
	if len(all) > maxLines || countSpans(all) > maxSpans {
		return &arguments{Plain: joinArguments(all)}
	}
	lines := slices.Clone(all)
	for i := range lines {
		lines[i].Depth = min(lines[i].Depth, maxDepth)
	}
	return &arguments{Lines: lines}
}

// countSpans counts the spans of arguments.
func countSpans(all []show.Row) (n int) {
	for _, a := range all {
		n += len(a.Label) + len(a.Value)
	}
	return n
}

func joinArguments(all []show.Row) string {
	var out strings.Builder
	for _, a := range all {
		out.WriteString(strings.Repeat(" ", a.Depth))
		out.WriteString(a.Label.String())
		out.WriteString(": ")
		out.WriteString(a.Value.String())
		out.WriteByte('\n')
	}
	return out.String()
}

// formatSecond formats a time for people, to the second.
func formatSecond(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04:05") }

// formatDatetime formats a time for a datetime attribute.
func formatDatetime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// formatSize formats a number of bytes for people.
func formatSize(n int) string {
	if n < 10_000 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%d KB", (n+512)/1024)
}
