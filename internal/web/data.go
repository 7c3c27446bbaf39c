package web

import (
	"fmt"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/people/show"
)

// titles are what somebody learns who points at what was put in place of something else.
var titles = map[show.Kind]string{
	show.Escape: "a character that cannot be seen, or could be taken for another", show.Count: "so many of them in a row",
	show.Mixed: "letters or digits that look like other ones", show.Masked: "a secret, which is not shown",
}

// Text is text for the template "text"; nil for none. What only notation escapes is itself: a line end ends the line, and
// an indent indents it. Of arguments, where each character counts, it is exactText.
func Text(t show.Text) []any {
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
	return exactText(read)
}

// maxIndent is how many spaces at a line's beginning are themselves; more would put the line out of sight.
const maxIndent = 24

// notation is what show writes as in JSON, and what it stands for.
var notation = map[string]string{`\n`: "\n", `\t`: "\t", `\"`: `"`, `\\`: `\`}

// exactText is text of arguments for the template "text": what cannot be seen is written out, line ends too.
func exactText(t show.Text) []any {
	var spans []any
	for _, s := range t {
		if s.Text != "" {
			lineEnd := s.Kind == show.Escape && s.Text == `\n` // which is shown, and ends the line as well
			spans = append(spans, map[string]any{"text": s.Text, "kind": string(s.Kind), "title": titles[s.Kind], "ends": lineEnd})
		}
	}
	return spans
}

// Facts are facts for the template "facts".
func Facts(facts []show.Fact) []any {
	var out []any
	for _, f := range facts {
		out = append(out, map[string]any{"name": f.Name, "label": f.Label, "value": Text(f.Value)})
	}
	return out
}

// What a page shows of arguments line by line: the rest of the bytes that a page may have is for what stands around a line, some 300 of them each. More than that is shown as one text,
// complete all the same (B2).
const (
	maxLines = 4000
	maxSpans = 12_000
	maxDepth = 8
)

// Arguments are arguments for the template "arguments"; nil for none.
func Arguments(arguments []show.Argument) any {
	if len(arguments) == 0 {
		return nil
	}
	spans := 0
	var lines []any
	for _, a := range arguments {
		spans += len(a.Key) + len(a.Value)
		if len(arguments) > maxLines || spans > maxSpans {
			return map[string]any{"plain": plain(arguments), "lines": nil}
		}
		lines = append(lines, map[string]any{
			"depth": min(a.Depth, maxDepth), "kind": a.Kind, "key": exactText(a.Key), "value": exactText(a.Value),
		})
	}
	return map[string]any{"plain": "", "lines": lines}
}

func plain(arguments []show.Argument) string {
	var out strings.Builder
	for _, a := range arguments {
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

// machine is a time for a datetime attribute.
func machine(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// span is a duration for people, in its largest unit.
func span(d time.Duration) string {
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

// flat is data whose texts are each in one piece: nothing but colour and frames is lost.
func flat(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, member := range v {
			out[name] = flat(member)
		}
		return out
	case []any:
		if len(v) > 1 && isSpan(v[0]) {
			return []any{map[string]any{"text": joined(v), "kind": "", "title": "", "ends": false}}
		}
		out := make([]any, 0, len(v))
		for _, element := range v {
			out = append(out, flat(element))
		}
		return out
	default:
		return v
	}
}

func isSpan(v any) bool {
	m, ok := v.(map[string]any)
	_, ends := m["ends"]
	return ok && ends
}

// joined is the text of spans; what is written from right to left stands in \rtl{…}, as in show.Text.
func joined(spans []any) string {
	var t show.Text
	for _, s := range spans {
		m := s.(map[string]any)
		t = append(t, show.Span{Text: m["text"].(string), Kind: show.Kind(m["kind"].(string))})
	}
	return t.String()
}
