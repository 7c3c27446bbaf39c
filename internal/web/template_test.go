package web

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// views are the views of all pages.
func views() map[string]any {
	return map[string]any{
		"plain.html": &plainPage{}, "approval.html": &requestPage{}, "signin.html": &signInPage{}, "run.html": &runPage{},
		"queue.html": &queuePage{}, "together.html": &togetherPage{}, "runs.html": &runsPage{}, "start.html": &startPage{}, "chat.html": &runPage{},
		"agents.html": &agentsPage{}, "agent.html": &agentPage{}, "audit.html": &auditPage{},
	}
}

// fill sets everything in v that has a text to text, and everything else to something that is true.
func fill(v reflect.Value, text string) { fillTo(v, text, 12) }

// fillTo is fill to a depth: parts of some views have parts of their own kind.
func fillTo(v reflect.Value, text string, depth int) {
	if depth == 0 {
		return
	}
	switch {
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() || f.Anonymous {
				fillTo(v.Field(i), text, depth-1)
			}
		}
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillTo(v.Elem(), text, depth-1)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillTo(v.Index(0), text, depth-1)
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(1)
	}
}

// Templates name what their views have, whichever way through them, and whatever a view holds is text on the page.
func TestB5PagesShowTheirViews(t *testing.T) {
	hostile := `"><script>alert(1)</script>`
	for _, pages := range []*pageSet{linkPages(), consolePages()} {
		for name, view := range views() {
			if pages.framed.Lookup(name) == nil {
				continue
			}
			empty, err := pages.render(name, view)
			require.NoError(t, err, name)
			for _, text := range []string{
				"text", "media", "tool_use", "tool_result", "tools", "outcome", "rtl", "escape", "escalated", "running", hostile,
			} {
				fill(reflect.ValueOf(view).Elem(), text)
				page, err := pages.render(name, view)
				require.NoError(t, err, name)
				require.Equal(t, strings.Count(string(empty), "<script"), strings.Count(string(page), "<script"), name)
				if text == hostile {
					require.Contains(t, string(page), "&lt;script&gt;alert(1)", name)
				}
			}
		}
	}
}

// The console's script makes no HTML, runs no text, and speaks to nobody else.
func TestConsoleScriptMakesNoHTML(t *testing.T) {
	script := readFile("console/console.js")
	for _, never := range []string{
		"innerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "createContextualFragment", "http:",
		"https:", "import(", "importScripts", "postMessage", "outerHTML =",
	} {
		require.NotContains(t, script, never)
	}
}
