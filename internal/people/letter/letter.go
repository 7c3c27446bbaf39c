// Package letter lays out what one person is told of a request: the same facts in the same order whatever the channel, runtime's words first
// and what a model or a tool said last, labelled as theirs (approvals.md, B1). Foreign text comes in as show.Text and stays it. A channel
// renders a Letter whole, or Brief where it has no room for the whole; it never cuts (B2).
package letter

import (
	"slices"
	"time"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/policy"
)

// Letter is what one person is told.
type Letter struct {
	Subject  string // one line, at most 120 characters: words of ours and the request's title
	Opening  string // why they are told, or what became of it: words of ours and the names of people
	Sections []Section
	Link     string // the request's page for this person; "" = there is none
	ID       string // the request's
	Pending  bool   // it can still be decided
	Code     bool   // it carries a code for the page, and has no link
	Via      string // the channels by which it is approved, where its page is none of them; else ""
	Short    bool   // Brief made it: the arguments are not in it

	// Of a letter about many requests of a run, which has no sections and neither link nor id of its own:
	Entries  []Entry
	Unlisted int    // so many requests are not among Entries
	Run      string // the run's id
}

// Section is some lines under a title.
type Section struct {
	Name      Name
	Title     string // of ours
	Untrusted bool   // a model, a tool or the API's caller says so; nobody vouches for it
	Lines     []Line
}

// Name says which section it is.
type Name string

// The sections, in the order in which they stand.
const (
	Remark    Name = "remark"    // what was asked or answered just now
	Facts     Name = "facts"     // what the runtime vouches for
	Arguments Name = "arguments" // complete; of a request about tools, those of each call
	Changed   Name = "changed"   // what is no longer as it was when it was asked
	Note      Name = "note"      // the rule's
	Claims    Name = "claims"    // what the API's caller says
	Asks      Name = "asks"      // what a tool asks
	Says      Name = "says"      // what the model said
	History   Name = "history"
)

// Line is one line of a section. Neither part has a line end.
type Line struct {
	Depth int
	Label show.Text // empty: the line is its value alone
	Value show.Text
}

// maxSubject is how long a subject is at most, in characters: a longer one is left out but for our words.
const maxSubject = 120

// Of lays out a message.
func Of(m notify.Message) Letter {
	if len(m.Others) > 0 {
		return layOutMany(m)
	}
	l := Letter{ID: m.Approval.ID, Link: m.Link, Pending: m.Approval.Status == approval.Pending && m.Occasion != notify.Decided}
	l.Subject, l.Opening = subject(m), opening(m)
	if m.Occasion == notify.Code {
		l.Pending, l.Link, l.Code = false, "", true
		l.add(Section{Name: Facts, Title: "Code", Lines: alone(plain(m.Code[:4] + " " + m.Code[4:]))})
		return l
	}
	if c := m.Approval.ChannelsOf(approval.DecisionInput{}); !c.Allow(approval.ViaPage) {
		l.Via = c.Words()
	}
	l.add(Section{Name: Remark, Title: remarkTitle(m.Occasion), Lines: remark(m)})
	l.add(Section{Name: Facts, Title: "Facts", Lines: facts(m.Shown.Facts)})
	l.add(Section{Name: Arguments, Title: "Arguments, complete", Lines: arguments(m.Shown.Arguments)})
	for _, t := range m.Shown.Tools {
		l.Sections = append(l.Sections, tool(t)...)
	}
	l.add(Section{Name: Changed, Title: "Changed since it was asked", Lines: facts(m.Shown.Changed)})
	l.add(Section{Name: Note, Title: "Why it is asked", Lines: alone(m.Shown.Note)})
	l.add(Section{Name: Claims, Title: "The caller says (nobody checked it)", Untrusted: true, Lines: claims(m.Shown.Claim)})
	l.add(Section{Name: Asks, Title: "The tool asks (its own words, not checked)", Untrusted: true, Lines: alone(m.Shown.Question)})
	l.add(Section{Name: Says, Title: "The model says (its own words, not checked)", Untrusted: true, Lines: alone(m.Shown.Says)})
	l.add(Section{Name: History, Title: "History", Lines: history(m.Shown.History)})
	return l
}

// Brief is the letter without its arguments and without whatever may be long: the facts alone, for a channel that has no room for the whole.
func (l Letter) Brief() Letter {
	l.Short = true
	l.Sections = slices.DeleteFunc(slices.Clone(l.Sections), func(s Section) bool { return s.Name != Facts })
	return l
}

// Bare is the letter without any section.
func (l Letter) Bare() Letter {
	l.Short, l.Sections = true, nil
	return l
}

// add leaves empty sections out.
func (l *Letter) add(s Section) {
	if len(s.Lines) > 0 {
		l.Sections = append(l.Sections, s)
	}
}

func facts(all []show.Fact) []Line {
	lines := make([]Line, 0, len(all))
	for _, f := range all {
		lines = append(lines, Line{Label: plain(f.Label), Value: f.Value})
	}
	return lines
}

// arguments are a call's, one key a line.
func arguments(all []show.Argument) []Line {
	lines := make([]Line, 0, len(all))
	for _, a := range all {
		lines = append(lines, Line{Depth: a.Depth, Label: a.Key, Value: a.Value})
	}
	return lines
}

// tool is one tool of a request about several, with every call that it blocked.
func tool(t show.Tool) []Section {
	out := []Section{{Name: Arguments, Title: "Tool", Lines: append([]Line{{Value: t.Name}}, facts(t.Facts)...)}}
	for _, call := range t.Calls {
		out = append(out, Section{Name: Arguments, Title: "One of its calls, complete", Lines: arguments(call)})
	}
	return slices.DeleteFunc(out, func(s Section) bool { return len(s.Lines) == 0 })
}

func alone(t show.Text) []Line {
	if len(t) == 0 {
		return nil
	}
	return []Line{{Value: t}}
}

func claims(subject show.Text) []Line {
	if len(subject) == 0 {
		return nil
	}
	return []Line{{Label: plain("the run is for"), Value: subject}}
}

func history(all []show.Event) []Line {
	lines := make([]Line, 0, len(all))
	for _, e := range all {
		lines = append(lines, Line{Label: plain(formatTime(e.At)), Value: eventText(e)})
		for _, a := range e.Arguments {
			lines = append(lines, Line{Depth: a.Depth + 1, Label: a.Key, Value: a.Value})
		}
	}
	return lines
}

// eventText describes an event in one line: action, tools, person, comment, and the scope of a grant.
func eventText(e show.Event) show.Text {
	if e.What == "escalated" { // Who are those that are asked
		return append(plain("asked as well: "), e.Who...)
	}
	value := plain(e.What)
	for _, part := range []struct {
		before string
		text   show.Text
	}{{" of ", e.Tools}, {" by ", e.Who}, {": ", e.Note}, {", ", e.Grant}} {
		if len(part.text) > 0 {
			value = append(append(value, show.Span{Text: part.before}), part.text...)
		}
	}
	return value
}

// remark is the newest question or answer, where the message is about one.
func remark(m notify.Message) []Line {
	if m.Occasion != notify.Question && m.Occasion != notify.Answer {
		return nil
	}
	for _, e := range slices.Backward(m.Shown.History) {
		if e.What == show.EventRemark && len(e.Note) > 0 {
			return []Line{{Label: e.Who, Value: e.Note}}
		}
	}
	return nil
}

func plain(text string) show.Text { return show.Text{{Text: text}} }

// formatTime formats a time for people, in UTC.
func formatTime(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04:05 UTC") }

// subject is words of ours and the title, which has none of a model's.
func subject(m notify.Message) string {
	words := subjects(m.Occasion)
	if m.Occasion == notify.Decided {
		words = outcomes(m.Approval.Status)
	}
	if words == "" {
		words = "About a request"
	}
	if title := m.Shown.Title.String(); title != "" && utf8.RuneCountInString(words+": "+title) <= maxSubject {
		return words + ": " + title
	}
	return words
}

// personName returns id if it is the id of a person, else "somebody".
func personName(id string) string {
	if p, err := policy.ParsePrincipal(id); err == nil && p.ID == id {
		return id
	}
	return "somebody"
}
