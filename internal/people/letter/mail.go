package letter

import "strings"

// Mail is a letter as a mail: text and HTML with the same facts. It has no action but a link, no image and nothing from elsewhere.
type Mail struct {
	Subject string
	Text    string
	HTML    string
}

// MaxMail is how long the text and the HTML of a mail are together at most, in bytes: what is longer is told in brief.
const MaxMail = 200 << 10

// The sentences of mails and messages that are no facts.
const (
	TooLong = "The arguments are too long for this message and are left out of it, all of them. See the complete request before you decide."
	noLink  = "Decide it with `countersign approvals`, the web console or the API."
	footer  = "This message was sent by Countersign because you may decide about this request or it is yours. " +
		"Opening a link changes nothing: decisions are made on the page."
	footerOfMany = "This message was sent by Countersign because you may decide about these requests. " +
		"Opening a link changes nothing: decisions are made on the pages."
)

// AsMail is the letter as a mail: whole, or where it would be too long in brief. One about many lists as many as there
// is room for.
func (l Letter) AsMail() Mail {
	if l.IsMany() {
		m := l.mail()
		for n := len(l.Entries); n > 0 && len(m.Text)+len(m.HTML) > MaxMail; {
			n -= (n + 9) / 10
			m = l.First(n).mail()
		}
		return m
	}
	for _, form := range []func() Letter{func() Letter { return l }, l.Brief} {
		if m := form().mail(); len(m.Text)+len(m.HTML) <= MaxMail {
			return m
		}
	}
	return l.Bare().mail()
}

func (l Letter) mail() Mail { return Mail{Subject: l.Subject, Text: l.text(), HTML: l.html()} }

// text is the letter in plain text.
func (l Letter) text() string {
	var b strings.Builder
	b.WriteString(l.Subject + "\n\n" + l.Opening + "\n")
	if l.Short {
		b.WriteString("\n" + TooLong + "\n")
	}
	for _, s := range l.Sections {
		b.WriteString("\n" + s.Title + "\n")
		for _, line := range s.Lines {
			b.WriteString(line.String() + "\n")
		}
	}
	if l.IsMany() {
		l.writeEntries(&b)
		return b.String()
	}
	b.WriteString("\n" + l.invitation() + "\n")
	if l.Link != "" {
		b.WriteString(l.Link + "\n")
	}
	b.WriteString("\nRequest " + l.ID + "\n-- \n" + footer + "\n")
	return b.String()
}

func (l Letter) writeEntries(b *strings.Builder) {
	b.WriteString("\n")
	for _, e := range l.Entries {
		b.WriteString("  " + e.String() + "\n")
		if e.Link != "" {
			b.WriteString("  " + e.Link + "\n")
		}
	}
	if rest := l.Elsewhere(); rest != "" {
		b.WriteString("\n" + rest + "\n")
	}
	b.WriteString("\nRun " + l.Run + "\n-- \n" + footerOfMany + "\n")
}

// invitation says where the request is seen and decided.
func (l Letter) invitation() string {
	switch {
	case l.Code:
		return "The page is behind the link that you were sent by another channel."
	case l.Link == "" && l.Pending:
		return noLink
	case l.Link == "":
		return "There is nothing to do."
	case l.Pending && l.Via != "":
		return "It is approved by " + l.Via + ". See it, and deny it if you want to, on its page:"
	case l.Pending:
		return "See it and decide on its page:"
	default:
		return "See it on its page:"
	}
}

// String is the line as plain text, indented by its depth and once more: nothing of it can stand where our own words begin.
func (l Line) String() string {
	indent := strings.Repeat("  ", l.Depth+1)
	switch {
	case len(l.Label) == 0:
		return indent + l.Value.String()
	case len(l.Value) == 0:
		return indent + l.Label.String() + ":"
	default:
		return indent + l.Label.String() + ": " + l.Value.String()
	}
}
