package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var templateData = map[string]any{
	"s": "a<b>&", "n": json.Number("12"), "f": json.Number("1.50"), "i": 3, "none": nil,
	"list": []any{"a", json.Number("2"), nil},
	"m":    map[string]any{"b": "2", "a": map[string]any{"deep": []any{1, 2}}},
}

func executed(text string, data any) (string, error) {
	t, err := parseTemplate("t", text)
	if err != nil {
		return "", err
	}
	return executeTemplate(t, data)
}

// A text shows plain data as it is: nothing is escaped, numbers keep their digits, and keys have an order.
func TestTemplates(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "",
		"{{.s}} {{.n}} {{.f}} {{.none}}":       "a<b>& 12 1.50 <no value>",
		"{{range $k, $v := .m}}{{$k}};{{end}}": "a;b;",
		"{{index .m.a.deep 1}}":                "2",
		"{{if gt .n.Int64 5}}more{{end}}":      "more",
		`{{define "d"}}<{{.}}>{{end}}{{template "d" .i}}{{template "d" .s}}`: "<3><a<b>&>",
	} {
		got, err := executed(text, templateData)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

// A text ends: templates do not use themselves, and what they make has an end.
func TestTemplateBounds(t *testing.T) {
	data := map[string]any{"big": strings.Repeat("x", 1<<16), "many": make([]any, 100_000)}
	again, through := `{{define "d"}}{{range 2}}{{template "d" .}}{{end}}{{end}}`, `{{define "d"}}{{template "t"}}{{end}}`
	for text, want := range map[string]string{
		"{{range .many}}{{$.big}}{{end}}": "template: t: too much text: want at most 1048576 bytes",
		again + `{{template "d" .}}`:      `template: t: "d" uses itself`,
		again:                             `template: t: "d" uses itself`,
		through + `{{template "d"}}`:      `template: t: "d" uses itself`,
		through + `{{define "a"}}{{if .}}{{else}}{{template "d"}}{{end}}{{end}}{{template "a"}}`: `"a" uses itself`,
	} {
		_, err := executed(text, data)
		require.ErrorContains(t, err, want, text)
	}
	got, err := executed("{{range .many}}{{end}}{{range 16}}{{$.big}}{{end}}", data)
	require.NoError(t, err, "what a prompt may need fits")
	require.Len(t, got, maxText)
	leaves := `{{define "leaf"}}.{{end}}{{define "a"}}{{template "leaf"}}{{template "leaf"}}{{end}}`
	_, err = executed(leaves+`{{template "a"}}{{template "leaf"}}`, nil)
	require.NoError(t, err, "one template may be used in several places")
}
