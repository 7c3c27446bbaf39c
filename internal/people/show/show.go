// Package show makes of a request to people what they are shown of it, on every channel alike: facts first, the complete arguments with every odd
// character escaped and every secret masked, and what the model said last, labelled as its word (approvals.md, B1 to B4). It renders nothing: pages,
// mails, messages and terminals do, from the same Request.
package show

import (
	"strings"
	"time"
)

// Kind says how a span is to be read.
type Kind string

// The kinds. Whatever is not Plain was put in place of something else.
const (
	Plain       Kind = ""
	Escape      Kind = "escape" // \u{202E}: a character that cannot be seen, or is taken for another
	Count       Kind = "count"  // \{12 spaces}: a run of what cannot be seen
	Mixed       Kind = "mixed"  // \{mixed scripts}: a mark behind a word that is not what it looks like
	Masked      Kind = "masked" // \{masked, …}: in place of a secret
	RightToLeft Kind = "rtl"    // written from right to left: to be isolated (<bdi>), so that it moves nothing beside it; String writes \rtl{…}
)

// Span is a piece of text that holds visible characters alone: no control, no format character, no line end.
type Span struct {
	Text string
	Kind Kind
}

// Text is foreign text made harmless, in pieces.
type Text []Span

// String is the text of all spans, for channels that know of nothing but text. What is written from right to left stands in \rtl{…}:
// the letters of that keep it where it is, with nothing that cannot be seen.
func (t Text) String() string {
	var all strings.Builder
	for _, s := range t {
		if s.Kind == RightToLeft {
			all.WriteString(`\rtl{` + s.Text + `}`)
			continue
		}
		all.WriteString(s.Text)
	}
	return all.String()
}

// Fact is one line that the runtime vouches for.
type Fact struct {
	Name  string // stable, for programs: tool, effect, requester, expires, …
	Label string // for people
	Value Text
}

// Argument is one line of a call's arguments. A mapping or a list is a line of its own, and its members follow, one deeper.
type Argument struct {
	Depth int
	Key   Text   // of a member; "[0]" of an element
	Value Text   // empty of a mapping or list that has members
	Kind  string // string, number, boolean, null, object, array; unreadable = it is no JSON, and shown as the text it is
}

// EventRemark is what an Event of the thread is: a question about the request, or an answer to one.
const EventRemark = "said"

// Event is one line of a request's history.
type Event struct {
	At   time.Time
	Who  Text
	What string // asked, escalated, said (a question or an answer), approve, deny, edit, cancel, fail, expired
	Note Text

	Via       string     // the way it came by; "" = not recorded
	Tools     Text       // of a decision on some of a request's tools
	Grant     Text       // of an approval, how far the standing grant goes that it gives; none = as far as the policy lets it
	Arguments []Argument // an edit's, or the answer to a tool's question
}

// Request is what people are shown.
type Request struct {
	ID        string
	Status    string
	Title     Text       // one line, of the runtime's making: no word of the model's
	Facts     []Fact     // B1, in order
	Arguments []Argument // complete
	Tools     []Tool     // of a request about tools; else none
	Risk      Risk       // the class of what is asked; of several tools the highest
	Changed   []Fact     // what a precondition gives now, where it is not what it gave; label, before → after
	Question  Text       // of a tool that asks something itself; not to be trusted
	Asked     []Part     // and what it asks that with
	Note      Text       // the rule's
	Claim     Text       // whom the run is for by the word of the API's caller, which nobody checked
	Says      Text       // what the model said beside the call; not to be trusted, and shown last
	History   []Event
	Masked    bool // something was masked
	Bytes     int  // of the arguments as they are stored
}

// Tool is one of the tools that a request is about.
type Tool struct {
	Name    Text
	Verdict string // "" = nobody has decided about it
	Facts   []Fact
	Risk    Risk
	Calls   [][]Argument  // the arguments of the calls that ask; they do not bind the model unless a grant is of these alone
	Blocked []BlockedCall // and what else there is to say of those, one by one
}

// BlockedCall is a call that asks for the permission of its tool.
type BlockedCall struct {
	ID        Text
	Approvers Text
	Note      Text // the rule's
}

// Part is a JSON value that a tool asks people something with.
type Part struct {
	Label string
	Lines []Argument
}
