package people

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Occasion is why a message is sent.
type Occasion string

// The occasions.
const (
	Asked     Occasion = "asked"
	Reminder  Occasion = "reminder"
	Escalated Occasion = "escalated" // to the approvers that the escalation added
	Question  Occasion = "question"  // to the requesters: an approver asks something
	Answer    Occasion = "answer"    // to the approvers who asked
	Decided   Occasion = "decided"   // decided, expired or cancelled: a sent message is updated
	Code      Occasion = "code"      // to an approver who asked for it on the request's page
)

// Message is what one person is told.
type Message struct {
	Occasion Occasion
	Approval approval.Approval
	Shown    Document
	To       Person
	Link     string // the page of the request, signed for To; "" = there is none
	Code     string // of occasion Code: what To types on the page

	// Others are further requests of the same run in the same message, for the same occasion. Such a message lists all of
	// its requests, each with its link, and is not updated.
	Others []Other
}

// Other is a further request in the same message.
type Other struct {
	Approval approval.Approval
	Shown    Document
	Link     string // as Message's
}

// Channel carries messages to people. Safe for concurrent use.
type Channel interface {
	// Name is email or slack.
	Name() string
	// Reaches reports whether the channel can reach the person.
	Reaches(p Person) bool
	// Send delivers m. Ref names the message for Update; "" if the channel cannot update. A retry may send twice.
	Send(ctx context.Context, m Message) (ref string, err error)
	// Update changes a sent message to show the outcome of its request.
	Update(ctx context.Context, ref string, m Message) error
}

// Links makes the addresses of pages. Safe for concurrent use.
type Links interface {
	// URL returns the address at which the person with the id to sees the request and may decide it, for a message of that
	// channel; "" = there is none. Several calls may return different addresses; each works.
	URL(ctx context.Context, a approval.Approval, to, channel string) (string, error)
}

// occasionWords are what a message of an occasion begins with: its subject, why the person is told, and the same of
// several requests.
var occasionWords = map[Occasion]struct{ subject, opening, many string }{
	Asked:    {"Decision needed", "You are asked to decide about this.", "wait for your decision"},
	Reminder: {"Still waiting for a decision", "This still waits for a decision.", "still wait for a decision"},
	Escalated: {
		"Decision needed from you as well", "This is not decided yet, so you are asked as well.",
		"are not decided yet, so you are asked as well",
	},
	Question: {"Question about a request", "Who is to decide about this asks for information. Answering decides nothing.",
		""},
	Answer: {"Answer about a request", "What you asked about this was answered. It still waits for a decision.", ""},
	Code: {
		"Your code for a request", "Somebody asked for this code on the request's page, which a link of yours opens. If it " +
			"was you, type the code there within ten minutes, and nowhere else. If not, somebody else has your link: tell " +
			"those who run Countersign.", "",
	},
}

// The sentences of messages that are no facts.
const (
	TooLong = "The arguments are too long for this message and are left out of it, all of them. " +
		"See the complete request before you decide."
	noLink = "Decide it with `countersign approvals`, the web console or the API."
)

// maxSubject is the longest subject, in characters. A longer one loses the request's title.
const maxSubject = 120

// Subject is one line: words of ours and the request's title, which has no text of a model (approvals.md, C2).
func (m Message) Subject() string {
	begins, ends := occasionWords[m.Occasion].subject, m.Shown.Title.String()
	if m.Occasion == Decided {
		begins = StatusText(m.Approval.Kind, m.Approval.Status)
	}
	if len(m.Others) > 0 {
		ends = m.count() + " of run " + m.run()
	}
	if ends != "" && utf8.RuneCountInString(begins+": "+ends) <= maxSubject {
		return begins + ": " + ends
	}
	return begins
}

// Opening says why the person is told, or what became of the request: words of ours and ids.
func (m Message) Opening() string {
	words, before := occasionWords[m.Occasion], "Nothing is carried out before it is approved."
	if slices.ContainsFunc(m.Requests(), func(r Other) bool { return r.Approval.Kind == approval.KindOutcome }) {
		before = "What was interrupted may have been carried out: find out before you answer."
	}
	switch {
	case m.Occasion == Decided:
		return OutcomeText(m.Approval)
	case len(m.Others) > 0:
		sooner := func(a, b Other) int { return a.Approval.ExpiresAt.Compare(b.Approval.ExpiresAt) }
		first := slices.MinFunc(m.Requests(), sooner).Approval.ExpiresAt
		return fmt.Sprintf("%s of run %s of agent %s %s. %s Each is decided by itself, the first until %s.", m.count(),
			m.run(), BareText(m.Approval.Agent), words.many, before, FormatTime(first))
	case words.many == "": // it asks for no decision
		return words.opening
	}
	return words.opening + " " + before
}

func (m Message) count() string {
	if m.Approval.Kind == approval.KindTools {
		return strconv.Itoa(1+len(m.Others)) + " requests"
	}
	return strconv.Itoa(1+len(m.Others)) + " calls"
}

func (m Message) run() string { return BareText(m.Approval.Run).String() }

// IsPending reports whether the message is about what can still be decided.
func (m Message) IsPending() bool {
	return m.Approval.Status == approval.Pending && m.Occasion != Decided && m.Occasion != Code
}

// Document is what the message shows of its request, with the question or answer that it is about on top. A message
// with a code shows the code alone.
func (m Message) Document() Document {
	d, title := m.Shown, map[Occasion]string{Question: "The question", Answer: "The answer"}[m.Occasion]
	if m.Occasion == Code {
		code := ForeignText(m.Code[:4] + " " + m.Code[4:])
		return Document{Sections: []Section{{Name: SectionRemark, Title: "Code", Rows: []Row{{Value: code}}}}}
	}
	if n := len(m.Approval.Thread); n > 0 && title != "" {
		r := m.Approval.Thread[n-1]
		said := []Row{{Label: ForeignText(r.By), Value: ForeignText(r.Text)}}
		d.Sections = slices.Insert(slices.Clone(d.Sections), 0, Section{Name: SectionRemark, Title: title, Rows: said})
	}
	return d
}

// Invitation says where the request is seen and decided.
func (m Message) Invitation() string {
	channels := m.Approval.ChannelsOf("")
	switch {
	case m.Occasion == Code:
		return "The page is behind the link that you were sent by another channel."
	case m.Occasion == Question && m.Link == "":
		return "Answer it with `countersign ask`, the web console or the API."
	case m.Occasion == Question: // those who started the run may not be among those who decide
		return "See it and answer on its page."
	case m.Link == "" && m.IsPending():
		return noLink
	case m.Link == "":
		return "There is nothing to do."
	case m.IsPending() && !channels.Allow(agent.ViaPage):
		return "It is approved by " + channels.Words() + ". See it, and deny it if you want to, on its page."
	case m.IsPending():
		return "See it and decide on its page."
	}
	return "See it on its page."
}

// Requests are all requests of the message.
func (m Message) Requests() []Other {
	return append([]Other{{m.Approval, m.Shown, m.Link}}, m.Others...)
}

// Elsewhere says where the requests are seen that the message has no link to, if it lists the first n of them; "" =
// there is a link to each.
func (m Message) Elsewhere(n int) string {
	command := "`countersign approvals --run " + m.run() + "`"
	switch rest := 1 + len(m.Others) - n; {
	case n == 0:
		return fmt.Sprintf("See all %d of them in the console, or with %s.", rest, command)
	case rest > 0:
		return fmt.Sprintf("And %d more: open the console, or %s.", rest, command)
	case m.Link == "":
		return "Decide them with " + command + ", the web console or the API."
	}
	return ""
}

// Viewer loads what people are shown of requests besides what is stored with them. Both fields are required. It keeps
// the run that it read last: many requests of one reply take one read. Safe for concurrent use.
type Viewer struct {
	Runs        Runs
	Definitions func(ctx context.Context, tenant, digest string) (*agent.Definition, error)

	last atomic.Pointer[run.AgentState]
}

// Runs loads the runs of requests; *store.Journal implements it.
type Runs interface {
	Load(ctx context.Context, tenant, run string) (store.Loaded, error)
}

// View returns the definition that a request's run is pinned to, and the model's text beside the call. If the run no
// longer exists and was not read last, View returns the definition that the request names, which says what is secret.
func (v *Viewer) View(ctx context.Context, a approval.Approval) (DocumentView, error) {
	s, text, made := v.last.Load(), "", false
	if s != nil && s.Tenant == a.Tenant && s.Run == a.Run { // what is shown of a call that was made never changes
		text, made = textBesideCall(s, a.Call())
	}
	if !made {
		l, err := v.Runs.Load(ctx, a.Tenant, a.Run)
		if s = &l.State; errors.Is(err, store.ErrNoRun) {
			s.Definition = a.Definition
		} else if err != nil {
			return DocumentView{}, err
		} else {
			v.last.Store(s)
		}
		text, _ = textBesideCall(s, a.Call())
	}
	def, err := v.Definitions(ctx, a.Tenant, s.Definition)
	if err != nil {
		return DocumentView{}, err
	}
	if a.Undoes != nil { // no model has made the call
		text = ""
	}
	return DocumentView{Definition: def, ModelText: text}, nil
}

// Show returns what people are shown of a request.
func (v *Viewer) Show(ctx context.Context, a approval.Approval) (Document, error) {
	view, err := v.View(ctx, a)
	if err != nil {
		return Document{}, err
	}
	return BuildDocument(a, view), nil
}

// textBesideCall returns the model's text in the reply that made a call, and whether it was made. It searches only live
// messages, which include the reply of a waiting call.
func textBesideCall(s *run.AgentState, call string) (text string, made bool) {
	var texts []string
	for _, m := range s.Messages.All() {
		if m.Role != run.RoleAssistant {
			if made {
				break
			}
			texts = nil
			continue
		}
		switch b := m.Block.(type) {
		case run.Text:
			texts = append(texts, b.Text)
		case run.ToolUse:
			made = made || b.ID == call
		}
	}
	if !made {
		return "", false
	}
	return strings.Join(texts, "\n"), true
}
