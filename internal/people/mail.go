package people

// This file, outbox.go and ses.go tell people of requests by mail: SES sends it, Outbox writes it into a directory. A
// mail is text and HTML with the same facts, one link and nothing that acts when it is opened, no text of a model in
// the subject, and nothing from elsewhere (approvals.md, C2).

import (
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"sync"
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

const mailFooter = "This message was sent by Countersign because you may decide about this request or it is yours. " +
	"Opening a link changes nothing: decisions are made on the page."

//go:embed mail.html
var mailHTML string

// mailTemplate is a mail as a document of its own, readable on a phone, with inline styles alone.
var mailTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("mail.html").Funcs(template.FuncMap{
		"alone":  func(s Span) string { return Text{s}.String() },
		"indent": func(depth int) int { return 16 * depth },
		"nth":    func(i int) int { return i + 1 },
	}).Parse(mailHTML))
})

type mailLayout struct {
	Subject, Opening string
	Shown            Document // of a mail about one request
	Short            string   // why the arguments are not there; "" = they are
	Requests         []Other
	Elsewhere        string
	Invitation, Link string
	About, Footer    string
}

// NewMail makes the mail of a message: whole, or where it would be too long without the arguments. A mail about several
// requests lists as many as there is room for.
func NewMail(m Message) Mail {
	l := mailLayout{Subject: m.Subject(), Opening: m.Opening(), Footer: mailFooter}
	if len(m.Others) > 0 {
		l.About = "Run " + BareText(m.Approval.Run).String()
		for n := len(m.Requests()); ; n -= (n + 9) / 10 {
			l.Requests, l.Elsewhere = m.Requests()[:n], m.Elsewhere(n)
			if mail := l.mail(); n == 0 || mail.size() <= maxMail {
				return mail
			}
		}
	}
	l.Shown, l.Invitation, l.Link, l.About = m.Document(), m.Invitation(), m.Link, "Request "+m.Approval.ID
	mail := l.mail()
	for _, names := range [][]SectionName{
		{SectionRemark, SectionWho, SectionAbout}, {SectionRemark},
	} {
		if mail.size() > maxMail {
			l.Short, l.Shown = TooLong, l.Shown.Only(names...)
			mail = l.mail()
		}
	}
	return mail
}

func (m Mail) size() int { return len(m.Text) + len(m.HTML) }

// mail writes the mail. It panics where the template does not fit the layout: both are part of the program.
func (l mailLayout) mail() Mail {
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
	_ = WriteText(&b, l.Shown) // a strings.Builder takes all
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

// mailHeaders are those of every mail beside its subject and addresses: no out-of-office answers it (RFC 3834).
var mailHeaders = [][2]string{{"Auto-Submitted", "auto-generated"}, {"X-Auto-Response-Suppress", "All"}}

// mailChannel is what every channel of mails has. A mail that was sent stays as it is; its page says what became of the
// request.
type mailChannel struct{}

// Name implements Channel.
func (mailChannel) Name() string { return "email" }

// Reaches implements Channel: p has an address that is one and nothing else.
func (mailChannel) Reaches(p Person) bool { return ValidEmail(p.Email) }

// Update implements Channel.
func (mailChannel) Update(context.Context, string, Message) error { return nil }

// newMail returns the mail of a message; false = there is none, since what is decided is not mailed.
func (c mailChannel) newMail(m Message) (Mail, bool, error) {
	if m.Occasion == Decided {
		return Mail{}, false, nil
	}
	if !c.Reaches(m.To) {
		return Mail{}, false, fmt.Errorf("mail request %s: the person has no address", m.Approval.ID)
	}
	return NewMail(m), true, nil
}
