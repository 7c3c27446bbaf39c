// Package show turns a request into what people are shown of it, the same on every channel: facts first, then the complete
// arguments with every odd character escaped and every secret masked, and last what the model said, marked as untrusted
// (approvals.md, B1 to B4). Pages, mails, messages and terminals render the same Request.
package show

import (
	"strings"
	"time"
)

// Kind says how a span is to be read.
type Kind string

// The kinds. A span of a kind other than Plain replaces text.
const (
	Plain       Kind = ""
	Escape      Kind = "escape" // \u{202E}: a character that cannot be seen, or is taken for another
	Count       Kind = "count"  // \{12 spaces}: a run of what cannot be seen
	Mixed       Kind = "mixed"  // \{mixed scripts}: a mark behind a word that is not what it looks like
	Masked      Kind = "masked" // \{masked, …}: in place of a secret
	RightToLeft Kind = "rtl"    // right-to-left text, to be isolated (<bdi>); String writes \rtl{…}
)

// Span is a piece of text that holds visible characters alone: no control, no format character, no line end.
type Span struct {
	Text string
	Kind Kind
}

// Text is foreign text in harmless spans.
type Text []Span

// String joins the text of all spans, for channels of plain text. It writes right-to-left text in \rtl{…}: the Latin
// letters around it keep it in place without invisible characters.
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

// Fact is a line that the runtime vouches for.
type Fact struct {
	Name  string // stable, for programs: tool, effect, requester, expires, …
	Label string // for people
	Value Text
}

// Argument is a line of a call's arguments. An object or array is a line of its own; its members follow, one level
// deeper.
type Argument struct {
	Depth int
	Key   Text   // of a member; "[0]" of an element
	Value Text   // empty for an object or array with members
	Kind  string // string, number, boolean, null, object, array; unreadable = not JSON, shown as text
}

// EventRemark is the What of an Event of the thread: a question about the request, or an answer.
const EventRemark = "said"

// Event is one line of a request's history.
type Event struct {
	At   time.Time
	Who  Text
	What string // asked, escalated, said (a question or an answer), approve, deny, edit, cancel, fail, expired
	Note Text

	Via       string     // the channel; "" = not recorded
	Tools     Text       // of a decision on some of the tools
	Grant     Text       // of an approval: bounds of its standing grant; empty = the policy's own
	Arguments []Argument // of an edit, or of the answer to a tool's question
}

// Request is what people are shown of a request.
type Request struct {
	ID        string
	Status    string
	Title     Text       // one line by the runtime, without text of the model
	Facts     []Fact     // B1, in order
	Arguments []Argument // complete
	Tools     []Tool     // of a request about tools; else none
	Risk      Risk       // the class of what is asked; of several tools the highest
	Changed   []Fact     // what a precondition returned before and returns now
	Question  Text       // what a tool asks; untrusted
	Asked     []Part     // the parameters of its question
	Note      Text       // the rule's
	Claim     Text       // whom the API's caller says the run is for; unverified
	Says      Text       // the model's text beside the call; untrusted, and shown last
	History   []Event
	Masked    bool // something was masked
	Bytes     int  // of the arguments as they are stored
}

// Tool is one of the tools of a request about tools.
type Tool struct {
	Name    Text
	Verdict string // "" = nobody has decided about it
	Facts   []Fact
	Risk    Risk
	Calls   [][]Argument  // arguments of the calls that ask; see Facts for what a grant covers
	Blocked []BlockedCall // the same calls, in order
}

// BlockedCall is a call that asks for the permission of its tool.
type BlockedCall struct {
	ID        Text
	Approvers Text
	Note      Text // the rule's
}

// Part is a JSON value of a tool's question.
type Part struct {
	Label string
	Lines []Argument
}
