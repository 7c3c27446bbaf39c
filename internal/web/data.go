package web

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/people/show"
)

// titles are what somebody learns who points at what was put in place of something else.
var titles = map[show.Kind]string{
	show.Escape: "a character that cannot be seen, or could be taken for another", show.Count: "so many of them in a row",
	show.Mixed: "letters or digits that look like other ones", show.Masked: "a secret, which is not shown",
}

// functions are what templates call.
var functions = template.FuncMap{
	"spans": spans, "exact": exact, "arguments": argumentsOf, "facts": withoutRisk, "risk": riskOf,
	"moment": moment, "second": second, "machine": machine, "size": size, "short": short,
	"happening": happening, "verb": verb, "status": runStatus, "times": times,
	"nth": func(i int) int { return i + 1 },
}

// span is a piece of foreign text, for the template "spans".
type span struct {
	Text  string
	Kind  show.Kind
	Title string // what somebody learns who points at it
	Ends  bool   // it ends its line
}

// spans is foreign text. What only notation escapes is itself: a line end ends the line, and an indent indents it. Of
// arguments, where each character counts, it is exact.
func spans(t show.Text) []span {
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
	return exact(read)
}

// maxIndent is how many spaces at a line's beginning are themselves; more would put the line out of sight.
const maxIndent = 24

// notation is what show writes as in JSON, and what it stands for.
var notation = map[string]string{`\n`: "\n", `\t`: "\t", `\"`: `"`, `\\`: `\`}

// exact is text of arguments: what cannot be seen is written out, line ends too.
func exact(t show.Text) []span {
	var all []span
	for _, s := range t {
		if s.Text != "" {
			lineEnd := s.Kind == show.Escape && s.Text == `\n` // which is shown, and ends the line as well
			all = append(all, span{s.Text, s.Kind, titles[s.Kind], lineEnd})
		}
	}
	return all
}

// inOnePiece is a text without frames around what was put in place of something else: nothing but colour is lost.
func inOnePiece(all []span) []span {
	if len(all) < 2 {
		return all
	}
	var t show.Text
	for _, s := range all {
		t = append(t, show.Span{Text: s.Text, Kind: s.Kind})
	}
	return []span{{Text: t.String()}}
}

// What a page shows of arguments line by line: what stands around a line takes some 300 bytes. More than that is shown
// as one text, complete all the same (B2).
const (
	maxLines = 4000
	maxSpans = 12_000
	maxDepth = 8
)

// arguments are a call's arguments: line by line, or as one text.
type arguments struct {
	Plain string
	Lines []show.Argument
}

// argumentsOf is arguments for the template "arguments"; nil for none.
func argumentsOf(all []show.Argument) *arguments {
	if len(all) == 0 {
		return nil
	}
	if len(all) > maxLines || pieces(all) > maxSpans {
		return &arguments{Plain: plain(all)}
	}
	lines := slices.Clone(all)
	for i := range lines {
		lines[i].Depth = min(lines[i].Depth, maxDepth)
	}
	return &arguments{Lines: lines}
}

// pieces counts the spans of arguments.
func pieces(all []show.Argument) (n int) {
	for _, a := range all {
		n += len(a.Key) + len(a.Value)
	}
	return n
}

func plain(all []show.Argument) string {
	var out strings.Builder
	for _, a := range all {
		out.WriteString(strings.Repeat(" ", a.Depth))
		out.WriteString(a.Key.String())
		out.WriteString(": ")
		out.WriteString(a.Value.String())
		out.WriteByte('\n')
	}
	return out.String()
}

// moment is a time for people, to the minute.
func moment(t time.Time) string { return t.UTC().Format("2 January 2006, 15:04 UTC") }

// second is a time for people, to the second.
func second(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04:05") }

// machine is a time for a datetime attribute.
func machine(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// duration is a duration for people, in its largest unit.
func duration(d time.Duration) string {
	for _, u := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		switch n := int(d / u.of); {
		case n == 1:
			return "1 " + u.name
		case n > 1:
			return fmt.Sprintf("%d %ss", n, u.name)
		}
	}
	return "less than a minute"
}

// size is a number of bytes for people.
func size(n int) string {
	if n < 10_000 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%d KB", (n+512)/1024)
}
