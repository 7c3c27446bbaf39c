// Package show makes of a request to people what they are shown of it, on every channel alike: facts first, the complete arguments with every odd
// character escaped and every secret masked, and what the model said last, labelled as its word (approvals.md, B1 to B4). It renders nothing: pages,
// mails, messages and terminals do, from the same Request.
package show

import "time"

// Kind says how a span is to be read.
type Kind string

// The kinds. Whatever is not Plain was put in place of something else.
const (
	Plain  Kind = ""
	Escape Kind = "escape" // \u{202E}: a character that cannot be seen, or be taken for what it is
	Count  Kind = "count"  // \{12 spaces}: a run of spaces or line ends
	Mixed  Kind = "mixed"  // a mark behind a word of letters that look like others
	Masked Kind = "masked" // in place of a secret
)

// Span is a piece of text that holds visible characters alone: no control, no format character, no line end.
type Span struct {
	Text string
	Kind Kind
}

// Text is foreign text made harmless, in pieces.
type Text []Span

// String is the text of all spans.
func (t Text) String() string {
	var all []byte
	for _, s := range t {
		all = append(all, s.Text...)
	}
	return string(all)
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
	Kind  string // string, number, boolean, null, object, array
}

// Event is one line of a request's history.
type Event struct {
	At   time.Time
	Who  Text
	What string // asked, reminded, escalated, question, approve, deny, …
	Note Text
}

// Request is what people are shown.
type Request struct {
	ID        string
	Status    string
	Title     Text       // one line, of the runtime's making: no word of the model's
	Facts     []Fact     // B1, in order
	Arguments []Argument // complete
	Tools     []Tool     // of a request about tools; else none
	Changed   []Fact     // what a precondition gives now, where it is not what it gave; label, before → after
	Question  Text       // of a tool that asks something itself; not to be trusted
	Note      Text       // the rule's
	Says      Text       // what the model said beside the call; not to be trusted, and shown last
	History   []Event
	Masked    bool // something was masked
	Bytes     int  // of the arguments as they are stored
}

// Tool is one of the tools that a request is about.
type Tool struct {
	Name  Text
	Facts []Fact
	Calls [][]Argument
}
