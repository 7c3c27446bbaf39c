package letter

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/show"
)

// Entry is one of the requests of a letter about many: one line, and its own page.
type Entry struct {
	Number int       // from 1
	Text   show.Text // the tool and those arguments that fit, each whole
	Link   string    // the request's page for this person; "" = there is none
}

// String is the entry as plain text, without its link.
func (e Entry) String() string { return strconv.Itoa(e.Number) + ". " + e.Text.String() }

// maxEntry is how long the arguments in an entry are at most, in characters.
const maxEntry = 160

// layOutMany lays out a message about several requests of a run.
func layOutMany(m notify.Message) Letter {
	l := Letter{Pending: true, Run: show.Bare(m.Approval.Run).String()}
	l.list(m.Approval, m.Shown, m.Link)
	for _, o := range m.Others {
		l.list(o.Approval, o.Shown, o.Link)
	}
	what, n := "calls", len(l.Entries)
	if m.Approval.Kind == approval.KindTools {
		what = "requests"
	}
	run := fmt.Sprintf("%d %s of run %s", n, what, l.Run)
	if l.Subject = subjects(m.Occasion) + ": " + run; utf8.RuneCountInString(l.Subject) > maxSubject {
		l.Subject = fmt.Sprintf("%s: %d %s of a run", subjects(m.Occasion), n, what)
	}
	waits := map[notify.Occasion]string{
		notify.Reminder:  "still wait for a decision",
		notify.Escalated: "are not decided yet, so you are asked as well",
	}[m.Occasion]
	if waits == "" {
		waits = "wait for your decision"
	}
	l.Opening = fmt.Sprintf(
		"%s of agent %s %s. Nothing of them is carried out before it is approved. Each is decided by itself.",
		run, show.Bare(m.Approval.Agent), waits)
	return l
}

func (l *Letter) list(a approval.Approval, shown show.Request, link string) {
	l.Entries = append(l.Entries, Entry{Number: len(l.Entries) + 1, Text: callLine(a, shown), Link: link})
}

// callLine returns the tool of a call with those of its arguments that fit whole, or the title of another kind of
// request.
func callLine(a approval.Approval, shown show.Request) show.Text {
	if a.Kind != approval.KindCall || len(a.Tools) != 1 {
		return shown.Title
	}
	line, left, size := show.Bare(a.Tools[0]), 0, 0
	before := ": "
	for i, arg := range shown.Arguments {
		part := append(append(show.Text{}, arg.Key...), show.Span{Text: ": "})
		part = append(part, arg.Value...)
		if size += utf8.RuneCountInString(part.String()) + 2; size > maxEntry {
			left = len(shown.Arguments) - i
			break
		}
		line, before = append(append(line, show.Span{Text: before}), part...), ", "
	}
	if left > 0 {
		line = append(line, show.Span{Text: " (" + strconv.Itoa(left) + " more on its page)"})
	}
	return line
}

// First is a letter about many that lists the first n requests and counts the others.
func (l Letter) First(n int) Letter {
	l.Unlisted += len(l.Entries) - n
	l.Entries = l.Entries[:n]
	return l
}

// IsMany reports whether the letter is about many requests.
func (l Letter) IsMany() bool { return len(l.Entries)+l.Unlisted > 0 }

// Elsewhere says where the requests are seen that have no link in a letter about many; "" = each has one.
func (l Letter) Elsewhere() string {
	command := "`countersign approvals --run " + l.Run + "`"
	switch {
	case l.Unlisted > 0 && len(l.Entries) > 0:
		return fmt.Sprintf("And %d more: open the console, or %s.", l.Unlisted, command)
	case l.Unlisted > 0:
		return fmt.Sprintf("See all %d of them in the console, or with %s.", l.Unlisted, command)
	case l.Entries[0].Link == "":
		return "Decide them with " + command + ", the web console or the API."
	}
	return ""
}
