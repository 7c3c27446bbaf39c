package web

import (
	"fmt"
	"html/template"
	"io/fs"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"text/template/parse"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// pages are the templates that are pages.
func pages(t *testing.T) []string {
	t.Helper()
	all, err := fs.ReadDir(files, "templates")
	require.NoError(t, err)
	var names []string
	for _, f := range all {
		if strings.HasSuffix(f.Name(), ".html") && f.Name() != "layout.html" && f.Name() != "parts.html" {
			names = append(names, f.Name())
		}
	}
	require.Contains(t, names, "approval.html")
	return names
}

// source is a page's text with its layout, as parse reads it.
func source(name string) string {
	style, _ := styles()
	return strings.ReplaceAll(file("layout.html")+file("parts.html")+file(name), "/*style*/", style)
}

// plainAttributes are those whose double-quoted values may hold actions: none of them is an address, a script or a style.
var plainAttributes = []string{
	"class", "id", "name", "value", "title", "datetime", "role", "for", "aria-labelledby", "aria-describedby", "aria-label", "placeholder", "lang",
}

// scanner follows HTML as far as it takes to know where an action stands. It knows less than HTML, and fails where it does not know.
type scanner struct {
	t    *testing.T
	name string
	in   string // text, tag, value, raw
	attr string // of the value
	tag  string
	word strings.Builder

	console bool // its pages have addresses and one script, which another test looks at
}

func (s *scanner) text(text string) {
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch s.in {
		case "text":
			if strings.HasPrefix(text[i:], "<!--") {
				s.t.Fatalf("%s: want no comments", s.name)
			}
			if c == '<' {
				s.in = "tag"
				s.word.Reset()
			}
		case "tag":
			switch c {
			case '"':
				word := strings.TrimSuffix(s.word.String(), "=")
				require.NotEqual(s.t, word, s.word.String(), "%s: a quote without an attribute", s.name)
				s.in, s.attr = "value", word[strings.LastIndexAny(word, " \n")+1:]
			case '\'':
				s.t.Fatalf("%s: want double quotes", s.name)
			case '>':
				word := s.word.String()
				s.tag, _, _ = strings.Cut(word, " ")
				if s.console {
					s.tag = strings.TrimPrefix(s.tag, "script")
				}
				require.NotContains(s.t, []string{"script", "iframe", "object", "embed", "base", "svg", "math", "template", "noscript", "img"}, s.tag, s.name)
				s.in = "text"
				if s.tag == "style" {
					s.in = "raw"
				}
			default:
				s.word.WriteByte(c)
			}
		case "value":
			if c == '"' {
				s.in = "tag"
				s.word.WriteByte(' ')
			}
		case "raw":
			if strings.HasPrefix(text[i:], "</style>") {
				s.in = "tag"
				s.word.Reset()
			}
		}
	}
}

func (s *scanner) action(n parse.Node) {
	switch s.in {
	case "text":
	case "value":
		if s.console && (s.attr == "href" || strings.HasPrefix(s.attr, "data-")) {
			return
		}
		require.Contains(s.t, plainAttributes, s.attr, "%s: %s stands in attribute %q", s.name, n, s.attr)
	default:
		s.t.Fatalf("%s: %s stands in a %s: want HTML text or a double-quoted attribute", s.name, n, s.in)
	}
}

// follow goes through a tree; every way through a choice must end where it began, but for attributes without actions.
func (s *scanner) follow(n parse.Node, trees map[string]*parse.Tree) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, c := range n.Nodes {
				s.follow(c, trees)
			}
		}
	case *parse.TextNode:
		s.text(string(n.Text))
	case *parse.ActionNode:
		if len(n.Pipe.Decl) == 0 {
			s.action(n)
		}
	case *parse.IfNode:
		s.branch(&n.BranchNode, trees)
	case *parse.RangeNode:
		s.branch(&n.BranchNode, trees)
	case *parse.WithNode:
		s.branch(&n.BranchNode, trees)
	case *parse.TemplateNode:
		require.Contains(s.t, trees, n.Name)
		s.follow(trees[n.Name].Root, trees)
	default:
		s.t.Fatalf("%s: what is %T?", s.name, n)
	}
}

func (s *scanner) branch(n *parse.BranchNode, trees map[string]*parse.Tree) {
	in, attr := s.in, s.attr
	for _, list := range []*parse.ListNode{n.List, n.ElseList} {
		s.in, s.attr = in, attr
		s.follow(list, trees)
		require.Equal(s.t, in, s.in, "%s: a branch of %s ends elsewhere", s.name, n.Pipe)
	}
}

// In no template does a value stand anywhere but in HTML text or in a double-quoted attribute that is neither an address, a script nor a style, so that
// one way of escaping is right for all of them; and there is nothing in one that runs or loads anything.
func TestB5TemplatesHoldValuesInTextAlone(t *testing.T) {
	known := map[string]any{}
	for _, name := range []string{"and", "or", "not", "eq", "ne", "lt", "gt", "le", "ge", "len", "index", "print", "printf"} {
		known[name] = true
	}
	for _, name := range pages(t) {
		trees, err := parse.Parse(name, source(name), "", "", known)
		require.NoError(t, err)
		s := &scanner{t: t, name: name, in: "text"}
		s.follow(trees[name].Root, trees)
		require.Equal(t, "text", s.in)
		require.NotRegexp(t, regexp.MustCompile(`(?i)\s(on[a-z]+|style|src|srcset|action|formaction|xlink:href|ping|background|poster|data)\s*=`), source(name), name)
		for _, href := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(source(name), -1) {
			require.True(t, strings.HasPrefix(href[1], "#"), "%s: %s", name, href[1])
		}
	}
	style, _ := styles()
	require.NotContains(t, style, "url(")
	require.NotContains(t, style, "@import")
	require.NotContains(t, style, "<")
	require.NotContains(t, style, "\\")
}

// hostile are texts that would do something where they are not escaped, or not escaped for where they stand.
var hostile = []string{
	"", "plain", `<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `</textarea><script>alert(1)</script>`, `</title><script>`, `&lt;b&gt; &amp; &#34;`,
	"+ADw-script+AD4-", "\x00<\x00script>", "\xff\xfe<", "a\u2028b\u2029c", "{{.form}}", "javascript:alert(1)", "<!--", "-->", "]]>", "`onload=alert(1)", "\u202Egnp.exe", "</style><script>",
	"line\nline\r\n\ttab", strings.Repeat("<", 50), "\U0001F600é漢", "%3Cscript%3E", "expression(alert(1))",
}

// shape is what a page is given in the place of v: the same shape, other texts.
func shape(v any, draw func() string, depth int) any {
	switch v := v.(type) {
	case string:
		return draw()
	case bool:
		return v
	case []any:
		var out []any
		for _, e := range v {
			out = append(out, shape(e, draw, depth+1))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if k == "kind" && depth > 2 { // of a span: the template compares it
				out[k] = e
				continue
			}
			out[k] = shape(e, draw, depth+1)
		}
		return out
	}
	return v
}

// full is data that takes every way through the pages.
func full() map[string]any {
	text := []any{
		map[string]any{"text": "a", "kind": "", "title": "", "ends": false}, map[string]any{"text": "b", "kind": "escape", "title": "t", "ends": true},
		map[string]any{"text": "c", "kind": "rtl", "title": "", "ends": false},
	}
	facts := []any{map[string]any{"name": "n", "label": "l", "value": text}}
	args := map[string]any{"plain": "", "lines": []any{
		map[string]any{"depth": "1", "kind": "string", "key": text, "value": text}, map[string]any{"depth": "0", "kind": "object", "key": text, "value": nil},
	}}
	words := []any{map[string]any{"what": "w", "kind": "deny", "to": false, "who": text, "at": "t", "when": "w", "note": text, "grant": text}, map[string]any{"what": "w", "kind": "deny", "to": false, "who": nil, "at": "t", "when": "w", "note": nil, "grant": nil}}
	return map[string]any{
		"title": "t", "who": text, "heading": text, "facts": facts, "changed": facts, "arguments": args, "bytes": "b", "masked": true,
		"tools": []any{map[string]any{"id": "i", "name": text, "facts": facts, "risk": map[string]any{"level": "low", "label": "h", "text": "t"}, "verdict": "v", "calls": []any{
			map[string]any{"head": "h", "arguments": args}, map[string]any{"head": "h", "arguments": map[string]any{"plain": "p", "lines": nil}},
		}}},
		"history": words, "question": text, "says": text, "id": text, "form": "f", "claim": text, "risk": map[string]any{"level": "high", "label": "h", "text": "t"},
		"notice": map[string]any{"kind": "bad", "role": "alert", "head": "h", "text": text},
		"open":   true, "status": "pending", "statusLabel": "s", "lede": "l", "outcome": words, "outcomeHead": "o", "quorum": "q",
		"note": "n", "result": "r", "text": "t", "args": "a", "editing": true, "asking": true, "each": []any{map[string]any{"tool": "t", "name": text}},
		"approveLabel": "a", "denyLabel": "d", "resultLabel": "r", "resultHelp": "h", "resultButtons": []any{map[string]any{"action": "a", "label": "l", "class": "c"}},
		"may":        map[string]any{"verdict": true, "approve": true, "result": true, "edit": true, "ask": true},
		"answerHead": "a", "answerText": "t", "fine": "f", "askAction": "a", "askLabel": "l", "askField": "f", "askButton": "b", "askHelp": "h",
	}
}

// Our pages are, byte for byte, what html/template makes of the same templates over the same data, whatever texts that data holds.
func TestB5PagesAreThoseOfHTMLTemplate(t *testing.T) {
	for _, name := range pages(t) {
		theirs, err := template.New(name).Parse(source(name))
		require.NoError(t, err)
		ours := Parse(name)
		same := func(t require.TestingT, data map[string]any) {
			switch name {
			case "plain.html":
				data["heading"] = data["title"]
			case "signin.html":
				data["problem"], data["file"] = data["title"], data["title"]
			}
			got, err := ours.HTML(data)
			require.NoError(t, err)
			var want strings.Builder
			require.NoError(t, theirs.Execute(&want, data))
			require.Equal(t, want.String(), got, name)
		}
		same(t, full())
		for _, h := range hostile {
			data := shape(full(), func() string { return h }, 0).(map[string]any)
			same(t, data)
		}
		rapid.Check(t, func(t *rapid.T) {
			anything := rapid.OneOf(rapid.SampledFrom(hostile), rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
			same(t, shape(full(), func() string { return anything.Draw(t, "text") }, 0).(map[string]any))
		})
	}
}

// Escaping leaves nothing that begins or ends anything in HTML, and html/template's own escaper is the judge of the rest.
func FuzzEscape(f *testing.F) {
	for _, h := range hostile {
		f.Add(h)
	}
	theirs := template.Must(template.New("t").Parse(`<p title="{{.}}">{{.}}</p><textarea>{{.}}</textarea><title>{{.}}</title>`))
	f.Fuzz(func(t *testing.T, text string) {
		var want strings.Builder
		require.NoError(t, theirs.Execute(&want, text))
		got := Escape(text)
		require.Equal(t, want.String(), fmt.Sprintf(`<p title="%s">%s</p><textarea>%s</textarea><title>%s</title>`, got, got, got, got))
		require.False(t, strings.ContainsAny(got, "<>\"'\x00"))
	})
}

// Every page's data takes all the members that its template asks for: one that is missing would be found by whoever opens it.
func TestDataIsComplete(t *testing.T) {
	request := Parse("approval.html")
	_, err := request.HTML(full())
	require.NoError(t, err)
	for _, absent := range reflect.ValueOf(full()).MapKeys() {
		data := full()
		delete(data, absent.String())
		_, err := request.HTML(data)
		require.ErrorContains(t, err, absent.String(), "nothing is left out in silence")
	}
}
