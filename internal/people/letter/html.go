package letter

import (
	_ "embed"
	"html/template"
	"strings"

	"github.com/countersign/countersign/internal/people/show"
)

//go:embed mail.html
var mailHTML string

// mailTemplate is a mail as a document of its own, readable on a phone, with inline styles alone.
var mailTemplate = template.Must(template.New("mail.html").Funcs(template.FuncMap{
	"alone":  func(s show.Span) string { return show.Text{s}.String() },
	"indent": func(depth int) int { return 16 * depth },
}).Parse(mailHTML))

// html is the letter as HTML. It panics where the template does not fit a letter: both are part of the program.
func (l Letter) html() string {
	view := struct {
		Letter
		TooLong, Invitation, Footer string
	}{l, TooLong, strings.TrimSuffix(l.invitation(), ":"), footer}
	if l.IsMany() {
		view.Footer = footerOfMany
	}
	var out strings.Builder
	if err := mailTemplate.Execute(&out, view); err != nil {
		panic("letter: " + err.Error())
	}
	return strings.TrimSpace(out.String()) + "\n"
}
