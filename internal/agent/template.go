package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
)

// maxText is how long a text that a template makes may be, in bytes.
const maxText = 1 << 20

// parseTemplate parses a text in the language of text/template. An error names the template and the line.
// A {{template}} that leads back to itself is an error, so that no text is executed without end.
func parseTemplate(name, text string) (*template.Template, error) {
	t, err := template.New(name).Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, err
	}
	uses := map[string][]string{}
	for _, defined := range t.Templates() {
		v := rootFields{}
		v.visit(defined.Tree.Root, false)
		uses[defined.Name()] = v.templates
	}
	for _, used := range slices.Sorted(maps.Keys(uses)) {
		if leadsTo(uses, used, used, map[string]bool{}) {
			return nil, fmt.Errorf("template: %s: %q uses itself by {{template}}; want {{range}} instead", name, used)
		}
	}
	return t, nil
}

// leadsTo reports whether a template uses another one, itself or by those that it uses. It adds to seen what it has
// looked at.
func leadsTo(uses map[string][]string, from, to string, seen map[string]bool) bool {
	for _, used := range uses[from] {
		if used == to {
			return true
		}
		if !seen[used] {
			seen[used] = true
			if leadsTo(uses, used, to, seen) {
				return true
			}
		}
	}
	return false
}

// executeTemplate returns the text that t makes of data. Data are plain: nil, bool, numbers, string, json.Number, []any
// and map[string]any. So a text can call no method but those of json.Number. A json.Number is text to the template:
// {{if gt .Input.amount.Int64 100}} compares numbers. An error names the template, the line, the expression and the key
// that is missing.
func executeTemplate(t *template.Template, data any) (string, error) {
	out := boundedText{template: t.Name()}
	if err := t.Execute(&out, data); err != nil {
		return "", err
	}
	return out.text.String(), nil
}

// boundedText is a text of at most maxText bytes.
type boundedText struct {
	template string // what makes it
	text     strings.Builder
}

// Write implements io.Writer.
func (b *boundedText) Write(p []byte) (int, error) {
	if len(p) > maxText-b.text.Len() {
		return 0, fmt.Errorf("template: %s: too much text: want at most %d bytes", b.template, maxText)
	}
	return b.text.Write(p)
}
