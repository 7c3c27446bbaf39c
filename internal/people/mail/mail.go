// Package mail tells people of requests by mail: SES sends it, Outbox writes it into a directory. A mail is text and
// HTML with the same facts, one link and nothing that acts when it is opened, no text of a model in the subject, and
// nothing from elsewhere (approvals.md, C2).
package mail

import (
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"sync"

	"github.com/countersign/countersign/internal/people"
)

// Mail is a message as a mail.
type Mail struct {
	Subject string
	Text    string
	HTML    string
}

// maxMail is how long the text and the HTML of a mail are together at most, in bytes: a longer one leaves the arguments
// out.
const maxMail = 200 << 10

const footer = "This message was sent by Countersign because you may decide about this request or it is yours. " +
	"Opening a link changes nothing: decisions are made on the page."

//go:embed mail.html
var mailHTML string

// mailTemplate is a mail as a document of its own, readable on a phone, with inline styles alone.
var mailTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("mail.html").Funcs(template.FuncMap{
		"alone":  func(s people.Span) string { return people.Text{s}.String() },
		"indent": func(depth int) int { return 16 * depth },
		"nth":    func(i int) int { return i + 1 },
	}).Parse(mailHTML))
})

type layout struct {
	Subject, Opening string
	Shown            people.Document // of a mail about one request
	Short            string          // why the arguments are not there; "" = they are
	Requests         []people.Other
	Elsewhere        string
	Invitation, Link string
	About, Footer    string
}

// New makes the mail of a message: whole, or where it would be too long without the arguments. A mail about several
// requests lists as many as there is room for.
func New(m people.Message) Mail {
	l := layout{Subject: m.Subject(), Opening: m.Opening(), Footer: footer}
	if len(m.Others) > 0 {
		l.About = "Run " + people.BareText(m.Approval.Run).String()
		for n := len(m.Requests()); ; n -= (n + 9) / 10 {
			l.Requests, l.Elsewhere = m.Requests()[:n], m.Elsewhere(n)
			if mail := l.mail(); n == 0 || mail.size() <= maxMail {
				return mail
			}
		}
	}
	l.Shown, l.Invitation, l.Link, l.About = m.Document(), m.Invitation(), m.Link, "Request "+m.Approval.ID
	mail := l.mail()
	for _, names := range [][]people.SectionName{
		{people.SectionRemark, people.SectionWho, people.SectionAbout}, {people.SectionRemark},
	} {
		if mail.size() > maxMail {
			l.Short, l.Shown = people.TooLong, l.Shown.Only(names...)
			mail = l.mail()
		}
	}
	return mail
}

func (m Mail) size() int { return len(m.Text) + len(m.HTML) }

// mail writes the mail. It panics where the template does not fit the layout: both are part of the program.
func (l layout) mail() Mail {
	var b strings.Builder
	paragraph := func(lines ...string) {
		for _, line := range lines {
			if line != "" {
				b.WriteString(line + "\n")
			}
		}
		b.WriteString("\n")
	}
	paragraph(l.Subject)
	paragraph(l.Opening)
	_ = people.WriteText(&b, l.Shown) // a strings.Builder takes all
	b.WriteString("\n")
	if l.Short != "" {
		paragraph(l.Short)
	}
	for i, r := range l.Requests {
		paragraph("  "+strconv.Itoa(i+1)+". "+r.Shown.Sentence.String(), r.Link)
	}
	paragraph(l.Elsewhere, l.Invitation, l.Link)
	b.WriteString(l.About + "\n-- \n" + l.Footer + "\n")
	var html strings.Builder
	if err := mailTemplate().Execute(&html, l); err != nil {
		panic("mail: " + err.Error())
	}
	return Mail{Subject: l.Subject, Text: b.String(), HTML: strings.TrimSpace(html.String()) + "\n"}
}

// headers are those of every mail beside its subject and addresses: no out-of-office answers it (RFC 3834).
var headers = [][2]string{{"Auto-Submitted", "auto-generated"}, {"X-Auto-Response-Suppress", "All"}}

// channel is what every channel of mails has. A mail that was sent stays as it is; its page says what became of the
// request.
type channel struct{}

// Name implements people.Channel.
func (channel) Name() string { return "email" }

// Reaches implements people.Channel: p has an address that is one and nothing else.
func (channel) Reaches(p people.Person) bool { return people.ValidEmail(p.Email) }

// Update implements people.Channel.
func (channel) Update(context.Context, string, people.Message) error { return nil }

// newMail returns the mail of a message; false = there is none, since what is decided is not mailed.
func (c channel) newMail(m people.Message) (Mail, bool, error) {
	if m.Occasion == people.Decided {
		return Mail{}, false, nil
	}
	if !c.Reaches(m.To) {
		return Mail{}, false, fmt.Errorf("mail request %s: the person has no address", m.Approval.ID)
	}
	return New(m), true, nil
}
