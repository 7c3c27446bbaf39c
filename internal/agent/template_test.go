package agent

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// original executes a text with text/template, the language's definition.
func original(text string, data any) (string, error) {
	t, err := template.New("t").Option("missingkey=error").Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, data)
	return b.String(), err
}

func ours(text string, data any) (string, error) {
	t, err := ParseTemplate("t", text)
	if err != nil {
		return "", err
	}
	return t.Execute(data)
}

// sameAsOriginal wants the same output or, of both, an error.
func sameAsOriginal(t require.TestingT, text string, data any) {
	want, wantErr := original(text, data)
	got, err := ours(text, data)
	if wantErr != nil {
		require.Error(t, err, "%s\n%#v\ntext/template: %v", text, data, wantErr)
		return
	}
	require.NoError(t, err, "%s\n%#v", text, data)
	require.Equal(t, want, got, "%s\n%#v", text, data)
}

var templateData = map[string]any{
	"s": "a<b>&\"'é", "empty": "", "n": json.Number("12"), "f": json.Number("1.5"), "i": 3, "l": int64(2), "zero": 0, "yes": true, "no": false,
	"x": 2.5, "none": nil, "list": []any{"a", json.Number("2"), nil, []any{}, map[string]any{"k": "v"}}, "nothing": []any{},
	"m": map[string]any{"b": "2", "a": map[string]any{"deep": []any{1, 2}}, "n": nil}, "void": map[string]any{},
}

// Every construct of the language, in texts that a table can show.
func TestTemplateIsTheLanguage(t *testing.T) {
	for _, text := range []string{
		"", "plain", "{{/* c */}}", "a {{- /* c */ -}} b", " {{- .s -}} ", "{{.}}", "{{.s}}{{.n}}{{.i}}{{.l}}{{.x}}{{.yes}}{{.none}}{{.list}}{{.m}}",
		"{{.m.a.deep}}", "{{(.m).a.deep}}", "{{(index .m \"a\").deep}}", "{{$.s}}", "{{$x := .m}}{{$x.a.deep}}", "{{$x := 1}}{{$x = 2}}{{$x}}",
		"{{if .yes}}1{{else}}2{{end}}", "{{if .no}}1{{else if .i}}2{{else}}3{{end}}", "{{$x := 1}}{{if true}}{{$x = 2}}{{$y := 3}}{{$y}}{{end}}{{$x}}",
		"{{with .m}}{{.b}}{{end}}", "{{with .none}}1{{else}}{{.s}}{{end}}", "{{with .none}}1{{else with .i}}{{.}}{{end}}", "{{with $x := .i}}{{$x}}{{.}}{{end}}",
		"{{range .list}}[{{.}}]{{end}}", "{{range $e := .list}}{{$e}}{{end}}", "{{range $i, $e := .list}}{{$i}}={{$e}};{{end}}", "{{range .nothing}}{{else}}none{{end}}",
		"{{range $k, $v := .m}}{{$k}}={{$v}};{{end}}", "{{range .m}}{{.}};{{end}}", "{{range .void}}{{else}}none{{end}}", "{{range .none}}{{else}}none{{end}}",
		"{{range 3}}{{.}}{{end}}", "{{range .l}}{{printf \"%T\" .}}{{end}}", "{{range $i := .i}}{{$i}}{{end}}", "{{range 0}}{{else}}none{{end}}", "{{range -1}}1{{end}}",
		"{{range $i, $j := 3}}{{end}}", "{{range .s}}{{end}}", "{{range .x}}{{end}}", "{{range .yes}}{{end}}", "{{range index .s 0}}.{{end}}",
		"{{range $i, $e := .list}}{{if eq $i 1}}{{continue}}{{end}}{{if eq $i 3}}{{break}}{{end}}{{$i}}{{end}}.",
		"{{range 2}}{{range 3}}{{if .}}{{break}}{{end}}x{{end}}y{{end}}", "{{range $e := .list}}{{else}}{{$e}}{{end}}", "{{range $e := .nothing}}{{else}}{{$e}}{{end}}",
		"{{$i := 0}}{{$e := 0}}{{range $i, $e = .list}}{{end}}{{$i}}{{$e}}", "{{$e := 0}}{{range $e = .list}}{{end}}{{$e}}", "{{$x := 0}}{{range 3}}{{$x := .}}{{end}}{{$x}}",
		`{{define "d"}}<{{.}}{{$}}>{{end}}{{template "d" .i}}{{template "d"}}`, `{{block "b" .s}}[{{.}}]{{end}}`, `{{template "no"}}`,
		`{{define "d"}}{{$x}}{{end}}`, `{{$x := 1}}{{define "d"}}{{$x := 2}}{{$x}}{{end}}{{template "d"}}{{$x}}`, `{{define "t"}}other{{end}}`, `{{define "t"}}other{{end}}text`,
		`{{define "d"}}{{if gt . 0}}{{.}}{{template "d" (slice "abc" 9)}}{{end}}{{end}}{{template "d" 2}}`, `{{define "a"}}1{{end}}{{define "a"}}2{{end}}`,
		"{{.missing}}", "{{.m.missing}}", "{{.none.x}}", "{{.s.x}}", "{{.n.x}}", "{{.list.x}}", "{{.yes.x}}", "{{with .none}}{{else}}{{.m.n.x}}{{end}}",
		"{{.n.Int64}}", "{{.n.Float64}}", "{{.n.String | len}}", "{{.f.Int64}}", "{{gt .n.Int64 5}}", "{{.n.Int64.x}}", "{{.n.Int64 1}}", "{{1 | .n.Int64}}",
		"{{and}}", "{{and 0 .missing}}", "{{or 1 .missing}}", "{{and 1 2}}", "{{and 1 .none 2}}", "{{or 0 \"\" .s}}", "{{2 | and 1}}", "{{2 | or 1}}", "{{.none | or 0}}", "{{and nil}}",
		"{{not .none}}", "{{not 1}}", "{{not 1 2}}", "{{not .void}}", "{{not .x}}", "{{not 0i}}", "{{not .n}}",
		"{{len .s}}", "{{len .list}}", "{{len .m}}", "{{len .n}}", "{{len 3}}", "{{len .none}}", "{{len nil}}", "{{.s | len}}", "{{len}}", "{{len .s .s}}",
		"{{index .list 1}}", "{{index .list 4 \"k\"}}", "{{index .list 5}}", "{{index .list -1}}", "{{index .list .l}}", "{{index .list .n}}", "{{index .list nil}}", "{{index .list 1.0}}",
		"{{index .m \"b\"}}", "{{index .m \"zz\"}}", "{{index .m \"zz\" 1}}", "{{index .m .n}}", "{{index .m 1}}", "{{index .m nil}}", "{{index .s 1}}", "{{index .n 1}}", "{{index .s 99}}",
		"{{index .none}}", "{{index nil 1}}", "{{index .m}}", "{{index .i 0}}", "{{index}}", "{{1 | index .list}}", "{{index .list (index .s 0)}}", "{{index .list 'a'}}",
		"{{slice .s 1 3}}", "{{slice .s}}", "{{slice .s 1}}", "{{slice .s 3 1}}", "{{slice .s 1 99}}", "{{slice .s 1 2 3}}", "{{slice .n 1}}", "{{slice .list 1 2}}", "{{slice .list 1 2 3}}",
		"{{slice .list 1 3 2}}", "{{slice .list 1 99}}", "{{slice .list 1 2 3 4}}", "{{slice .m 1}}", "{{slice .none}}", "{{slice 3}}", "{{slice .list nil}}", "{{slice .list \"a\"}}",
		"{{eq 1 1}}", "{{eq 1 2 1}}", "{{eq 1 1.0}}", "{{eq .n \"12\"}}", "{{eq .n 12}}", "{{eq .i 3}}", "{{eq .l 2}}", "{{eq .none nil}}", "{{eq .none 1}}", "{{eq .list .list}}",
		"{{eq .list nil}}", "{{eq .m .list}}", "{{eq .m 1}}", "{{eq 1 .m}}", "{{eq .void .void}}", "{{eq 1}}", "{{eq}}", "{{eq true true}}", "{{eq 1i 1i}}", "{{eq (index .s 0) 97}}", "{{1 | eq 1}}",
		"{{eq 1 \"a\" 1}}", "{{eq 1 1 \"a\"}}", "{{ne 1 2}}", "{{ne 1 1}}", "{{ne 1}}", "{{ne 1 2 3}}", "{{ne 1 \"a\"}}", "{{ne .none nil}}",
		"{{lt 1 2}}", "{{lt \"a\" \"b\"}}", "{{lt .n .f}}", "{{lt 1.5 2.5}}", "{{lt 1 1.5}}", "{{lt true false}}", "{{lt 1i 2i}}", "{{lt nil nil}}", "{{lt .m .m}}", "{{le 1 1}}", "{{le 2 1}}",
		"{{le true true}}", "{{gt 2 1}}", "{{gt 1 \"a\"}}", "{{ge 1 1}}", "{{ge 1 2}}", "{{lt (index .s 0) 98}}", "{{le 1 2 3}}",
		"{{print}}", "{{print 1 2 \"a\" \"b\" .none nil}}", "{{println 1 .s}}", "{{printf \"%d-%s-%v-%q\" 1 .s .none .n}}", "{{printf}}", "{{printf 1}}", "{{printf .n}}", "{{printf nil}}", "{{printf .none}}",
		"{{printf (print \"%v\") 1}}", "{{.s | printf \"%q\"}}", "{{\"%d\" | printf}}", "{{printf \"%d\"}}", "{{printf \"%.3f|%5d|%x\" .x .i .s}}",
		"{{html .s}}", "{{html .none}}", "{{html nil}}", "{{html .s 1 2 .n}}", "{{html}}", "{{.s | html | printf \"%s!\"}}", "{{urlquery .s .n}}", "{{urlquery}}", "{{html .list}}", "{{html \"\\x00\"}}",
		"{{1}}", "{{1.5}}", "{{1e3}}", "{{0x1e}}", "{{-0x1e}}", "{{0x1p4}}", "{{'a'}}", "{{'.'}}", "{{1i}}", "{{1_000}}", "{{0b11}}", "{{0o17}}", "{{+1}}", "{{9223372036854775808}}", "{{99999999999999999999}}",
		"{{true}}", "{{nil}}", "{{\"a\\n\"}}", "{{`raw`}}", "{{1 2}}", "{{.s 1}}", "{{1 | .s}}", "{{1 | 2}}", "{{(1)}}", "{{(1) 2}}", "{{$x := 1}}{{2 | $x}}", "{{nil.x}}", "{{print.x}}", "{{(nil)}}", "{{(print 1).x}}",
		"{{nofunc}}", "{{$x}}", "{{$x = 1}}", "{{range $x = .list}}{{end}}", "{{if $x = 1}}{{end}}", "{{break}}", "{{.s", "{{end}}", "{{if}}{{end}}", "{{range .list}}", "{{template 1}}", "{{.a.}}", "{{call .s}}", "{{else}}",
		"{{/* a */ -}}\n x", "{{- 3}}", "{{-3}}", "{{3 -}} \n", "{{if and .yes (not .no)}}y{{end}}", "{{$a := 1}}{{with $a := 2}}{{$a}}{{end}}{{$a}}",
	} {
		if strings.HasPrefix(text, "{{call") {
			continue
		}
		sameAsOriginal(t, text, templateData)
	}
	for _, dot := range []any{nil, "s", 1, []any{1}, json.Number("5"), true} {
		for _, text := range []string{"{{.}}", "{{$}}", "{{.x}}", "{{range .}}{{.}}{{else}}e{{end}}", "{{with .}}{{.}}{{end}}", "{{print .}}", "{{.Int64}}"} {
			sameAsOriginal(t, text, dot)
		}
	}
}

// drawnTemplate writes random texts that mostly make sense: names in scope, functions with about the right arguments.
type drawnTemplate struct {
	*rapid.T
	vars  []string
	loops int
}

func (d *drawnTemplate) pick(from ...string) string { return rapid.SampledFrom(from).Draw(d.T, "pick") }

func (d *drawnTemplate) body(depth int) string {
	var b strings.Builder
	mark := len(d.vars)
	for range rapid.IntRange(0, 3).Draw(d.T, "nodes") {
		b.WriteString(d.node(depth))
	}
	d.vars = d.vars[:mark]
	return b.String()
}

func (d *drawnTemplate) node(depth int) string {
	kinds := []string{"text", "action", "action", "declare", "assign", "template"}
	if depth > 0 {
		kinds = append(kinds, "if", "with", "range", "range", "block")
	}
	if d.loops > 0 {
		kinds = append(kinds, "break", "continue")
	}
	mark := len(d.vars)
	switch kind := d.pick(kinds...); kind {
	case "text":
		return d.pick("text", " ", "\n", "{", "%d")
	case "action":
		return d.delimited(d.pipe(depth))
	case "declare":
		s := "$" + d.pick("x", "y")
		text := d.delimited(s + " := " + d.pipe(depth))
		d.vars = append(d.vars, s)
		return text
	case "assign":
		return d.delimited(d.variable() + d.pick(" = ", " := ") + d.pipe(depth))
	case "template":
		return fmt.Sprintf("{{template %q %s}}", d.pick("a", "b"), d.pipe(depth))
	case "if", "with":
		text := "{{" + kind + " " + d.head(kind, depth) + "}}" + d.body(depth-1) + d.elseBranch(kind, depth)
		d.vars = d.vars[:mark]
		return text + "{{end}}"
	case "range":
		head := d.head(kind, depth)
		d.loops++
		text := "{{range " + head + "}}" + d.body(depth-1)
		d.loops--
		text += d.elseBranch(kind, depth) + "{{end}}"
		d.vars = d.vars[:mark]
		return text
	case "block":
		vars, loops := d.vars, d.loops
		d.vars, d.loops = []string{"$"}, 0
		text := d.body(depth - 1)
		d.vars, d.loops = vars, loops
		return fmt.Sprintf("{{block %q %s}}%s{{end}}", "block"+fmt.Sprint(rapid.IntRange(0, 999).Draw(d.T, "name")), d.pipe(depth), text)
	default:
		return "{{" + kind + "}}"
	}
}

func (d *drawnTemplate) delimited(inner string) string {
	return d.pick("{{", "{{", "{{- ") + inner + d.pick("}}", "}}", " -}}")
}

func (d *drawnTemplate) head(kind string, depth int) string {
	pipe := d.pipe(depth)
	switch {
	case rapid.Bool().Draw(d.T, "plain"):
		return pipe
	case kind == "range" && rapid.Bool().Draw(d.T, "two"):
		if rapid.Bool().Draw(d.T, "assign") {
			return d.variable() + ", " + d.variable() + " = " + pipe
		}
		d.vars = append(d.vars, "$i", "$e")
		return "$i, $e := " + pipe
	default:
		d.vars = append(d.vars, "$v")
		return "$v := " + pipe
	}
}

func (d *drawnTemplate) elseBranch(kind string, depth int) string {
	switch d.pick("", "else", "chain") {
	case "":
		return ""
	case "chain":
		if kind != "range" {
			return "{{else " + kind + " " + d.pipe(depth) + "}}" + d.body(depth-1)
		}
	}
	return "{{else}}" + d.body(depth-1)
}

func (d *drawnTemplate) variable() string { return rapid.SampledFrom(d.vars).Draw(d.T, "variable") }

func (d *drawnTemplate) pipe(depth int) string {
	text := d.command(depth)
	for range rapid.IntRange(0, 1).Draw(d.T, "more") {
		text += " | " + d.pick("len", "not", "print", "html", "printf \"%v\"", "index .m", "index .list", "eq 1", "and 1", "or .none", "slice .s", "lt 1", "urlquery", "1", ".s")
	}
	return text
}

func (d *drawnTemplate) command(depth int) string {
	if depth == 0 || rapid.Bool().Draw(d.T, "operand") {
		return d.operand(depth)
	}
	f := d.pick("and", "or", "not", "len", "index", "slice", "eq", "ne", "lt", "le", "gt", "ge", "print", "println", "printf", "html", "urlquery")
	if f == "printf" {
		f += " " + d.pick(`"%v %d"`, `"%s|%q"`, "`%T`", ".s", "1")
	}
	for range rapid.IntRange(0, 3).Draw(d.T, "arguments") {
		f += " " + d.operand(depth-1)
	}
	return f
}

func (d *drawnTemplate) operand(depth int) string {
	field := func() string {
		return d.pick(".s", ".n", ".i", ".x", ".l", ".yes", ".none", ".list", ".nothing", ".m", ".m.a", ".m.a.deep", ".m.n", ".void", ".b", ".a", ".missing", ".n.Int64", ".n.String")
	}
	switch d.pick("field", "field", "field", "variable", "constant", "dot", "pipe") {
	case "field":
		return field()
	case "variable":
		return d.variable() + d.pick("", "", field())
	case "constant":
		return d.pick("0", "1", "2", "-1", "1.5", "'a'", `"a"`, `""`, `"b"`, `"deep"`, "true", "false", "nil", "1i", "0x1e")
	case "pipe":
		if depth > 0 {
			return "(" + d.pipe(depth-1) + ")" + d.pick("", "", ".a", ".deep")
		}
	}
	return "."
}

func drawJSON(depth int) *rapid.Generator[any] {
	plain := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.SampledFrom([]any{"", "a", "b", "<&>", "é"}), rapid.IntRange(-2, 5).AsAny(), rapid.Int64Range(-2, 5).AsAny(),
		rapid.SampledFrom([]any{json.Number("0"), json.Number("12"), json.Number("1.5"), 0.0, 2.5}),
	}
	if depth > 0 {
		inner := drawJSON(depth - 1)
		plain = append(plain, rapid.SliceOfN(inner, 0, 3).AsAny(), rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "deep", "n"}), inner, 0, 3).AsAny())
	}
	return rapid.OneOf(plain...)
}

func drawTemplateData(t *rapid.T) map[string]any {
	data := map[string]any{}
	for name, fixed := range templateData {
		data[name] = fixed
		if rapid.Bool().Draw(t, "another "+name) {
			data[name] = drawJSON(2).Draw(t, name)
		}
	}
	return data
}

// The executor is text/template's for every text over plain data.
func TestTemplateEqualsTheOriginal(t *testing.T) {
	parsed, ran := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		d := &drawnTemplate{T: t, vars: []string{"$"}}
		text := `{{define "a"}}` + d.body(1) + `{{end}}{{define "b"}}` + d.body(1) + `{{end}}` + d.body(3)
		if strings.Contains(text[:strings.LastIndex(text, "{{define")], "{{template") {
			t.Skip("templates that may invoke each other for ever take the original to its own limit")
		}
		data := drawTemplateData(t)
		if _, err := ParseTemplate("t", text); err == nil {
			parsed++
		}
		if _, err := ours(text, data); err == nil {
			ran++
		}
		sameAsOriginal(t, text, data)
	})
	t.Logf("%d texts parsed, %d ran", parsed, ran)
}

func FuzzTemplate(f *testing.F) {
	for _, text := range []string{
		"{{range $i, $e := .list}}{{if eq $i 1}}{{continue}}{{end}}{{$e | printf \"%v\"}}{{else}}none{{end}}", "{{with $x := .m}}{{$x.a.deep}}{{end}}",
		`{{block "b" .s}}[{{slice . 1 2 | html}}]{{end}}`, "{{$x := 1}}{{$x = index .list 0}}{{$x}}", "{{range 3}}{{.}}{{end}}",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "js") || strings.Contains(text, "call") {
			return // left out
		}
		for _, costly := range []string{"range", "template", "block", "%"} { // what may run away in the original, which has no bounds
			if strings.Count(text, costly) > 1 {
				return
			}
		}
		if strings.ContainsAny(text, "%*") && strings.ContainsAny(text, "0123456789") || manyDigits.MatchString(text) {
			return
		}
		sameAsOriginal(t, text, templateData)
	})
}

// manyDigits are numbers that the original would range over for seconds.
var manyDigits = regexp.MustCompile(`[0-9][0-9a-fA-F_xXoObB]{4}`)

// An error says where, and which key.
func TestTemplateErrors(t *testing.T) {
	for text, want := range map[string]string{
		"a\n{{.m.nope}}": `template: t:2:4: executing "t" at <.m.nope>: map has no entry for key "nope"`,
		"{{define \"d\"}}\n\n{{.x}}{{end}}{{template \"d\" .m}}": `template: t:3:2: executing "d" at <.x>: map has no entry for key "x"`,
		"{{len 3}}":                     `template: t:1:2: executing "t" at <len>: error calling len: len of type int`,
		"{{js .s}}":                     `template: t:1: function "js" not defined`,
		"{{template \"no\"}}":           `template "no" not defined`,
		"{{.none.x}}":                   `nil data; no entry for key "x"`,
		"{{index .list 9}}":             "index out of range: 9",
		"{{eq 1 .s}}":                   "incompatible types for comparison: int and string",
		"{{.f.Int64}}":                  "error calling Int64",
		"{{not}}":                       "wrong number of args for not: got 0",
		"{{1 | .s}}":                    "can't give argument to non-function .s",
		"{{if .m}}\n{{.list.x}}{{end}}": `template: t:2:7: executing "t" at <.list.x>: can't evaluate field x in type []interface {}`,
	} {
		_, err := ours(text, templateData)
		require.ErrorContains(t, err, want, text)
	}
}

// A text ends, whatever it is given.
func TestTemplateBounds(t *testing.T) {
	data := map[string]any{"big": strings.Repeat("x", 1<<16), "many": make([]any, 100_000)}
	for text, want := range map[string]string{
		"{{range 1000000000}}{{end}}":                                                 "too much work",
		"{{range .many}}{{$.big}}{{end}}":                                             "too much output: want at most 1048576 bytes",
		"{{$x := \"ab\"}}{{range 1000}}{{$x = print $x $x}}{{end}}":                   "too long: want at most 1048576 bytes, got 2097152",
		"{{range .many}}{{$x := print $.big}}{{end}}":                                 "too much work",
		"{{range .many}}{{range $.many}}{{end}}{{end}}":                               "too much work",
		`{{define "d"}}{{template "d" .}}{{end}}{{template "d" .}}`:                   "exceeded maximum template depth (500)",
		`{{define "d"}}{{range 2}}{{template "d" .}}{{end}}{{end}}{{template "d" .}}`: "exceeded maximum template depth (500)",
	} {
		_, err := ours(text, data)
		require.ErrorContains(t, err, want, text)
	}
	got, err := ours("{{range .many}}{{end}}{{range 16}}{{$.big}}{{end}}", data)
	require.NoError(t, err, "what a prompt may need fits")
	require.Len(t, got, maxTemplateOutput)
}
