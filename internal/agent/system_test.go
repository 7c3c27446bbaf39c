package agent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
)

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
		require.ErrorContains(t, agent.CheckSystem(text, agent.SystemOnce), want, text)
	}
}
