package agent

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var systemExample = SystemData{
	Date: "2026-01-01", Run: "r1", Input: rawJSON(`{"order":{"id":100000000000000000001,"note":"<b>"},"tags":["a","b"]}`),
	Interactions: Interactions{Current: 2, Max: 5}, Exhausted: true,
}

func TestRenderSystem(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain",
		"Today is {{.Date}}, run {{.Run}} of {{.Agent}}.":                                       "Today is 2026-01-01, run r1 of refunds.",
		"{{.Input.order.id}} {{.Input.order.note}}":                                             "100000000000000000001 <b>",
		"{{range .Tools}}{{.Name}}: {{.Description}};{{end}}":                                   "orders_get: Look.;",
		"{{.Interactions.Current}}/{{.Interactions.Max}}{{if .Interactions.Exhausted}}!{{end}}": "2/5!",
		"{{range .Input.tags}}{{.}}{{$.Run}} {{end}}":                                           "ar1 br1 ",
		"{{with .Input.order}}{{.id}}{{else}}{{.Run}}{{end}}":                                   "100000000000000000001",
		"{{/* nothing */}}": "",
	} {
		d := Definition{Name: "refunds", System: text, Tools: []ToolSpec{{Name: "orders.get", Description: "Look."}}}
		got, err := RenderSystem(d, systemExample)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
		require.NoError(t, CheckSystem(text, SystemOnce), text)
	}
}

func TestRenderSystemRefuses(t *testing.T) {
	noInput := systemExample
	noInput.Input = nil
	badInput := systemExample
	badInput.Input = rawJSON(`{"a":`)
	for _, tt := range []struct {
		text string
		data SystemData
		want string
	}{
		{"{{.Now}}", systemExample, `map has no entry for key "Now"`},
		{"{{.Input.missing}}", systemExample, `map has no entry for key "missing"`},
		{"{{.Input.x}}", noInput, `map has no entry for key "Input"`},
		{"{{.Input}}", noInput, `map has no entry for key "Input"`},
		{"{{.Date", systemExample, "parse system text of refunds"},
		{"x", badInput, "render system text of refunds: input"},
	} {
		_, err := RenderSystem(Definition{Name: "refunds", System: tt.text}, tt.data)
		require.ErrorContains(t, err, tt.want, tt.text)
	}
}

func TestCheckSystemRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{{.Now}}":                                 ".Now does not exist; want one of .Agent, .Caller, .Date",
		"{{if .Input.x}}{{.Now}}{{end}}":           ".Now does not exist",
		"{{range .Input.x}}{{$.Now}}{{end}}":       ".Now does not exist",
		"{{range .Input.x}}{{else}}{{.No}}{{end}}": ".No does not exist",
		"{{with .Today}}{{end}}":                   ".Today does not exist",
		"{{printf \"%s\" (.Who)}}":                 ".Who does not exist",
		"{{(.Who).x}}":                             ".Who does not exist",
		"{{.Interactions.Left}}":                   `map has no entry for key "Left"`,
		"{{range .Tools}}{{.Schema}}{{end}}":       `map has no entry for key "Schema"`,
		"{{nofunc}}":                               `function "nofunc" not defined`,
		"{{.Date":                                  "unclosed action",
		"{{index .Tools 5}}":                       "out of range",
	} {
		require.ErrorContains(t, CheckSystem(text, SystemOnce), want, text)
	}
}

// What depends on data that only a run has passes the check.
func TestCheckSystemAccepts(t *testing.T) {
	for _, text := range []string{
		"", "{{.Input.order.id}}", "{{range $i, $x := .Input.lines}}{{$i}}{{$x.name}}{{.Now}}{{end}}", "{{index .Input.x 5}}",
		`{{define "t"}}{{.anything}}{{end}}{{template "t" .Input}}`, "{{$in := .Input}}{{$in.x}}", "{{len .Tools}}{{.Date | printf \"%q\"}}",
	} {
		require.NoError(t, CheckSystem(text, SystemOnce), text)
	}
}
