// Package notify tells people of approval requests: new ones, reminders, escalations, questions and answers, and the
// decision. A message that is lost or sent twice does no harm (approvals.md, C3).
package notify

import (
	"context"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/people/show"
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
	Shown    show.Document
	To       person.Person
	Link     string // the page of the request, signed for To; "" = there is none
	Code     string // of occasion Code: what To types on the page

	// Others are further requests of the same run in the same message, for the same occasion. Such a message lists all of
	// its requests, each with its link, and is not updated.
	Others []Other
}

// Other is a further request in the same message.
type Other struct {
	Approval approval.Approval
	Shown    show.Document
	Link     string // as Message's
}

// Channel carries messages to people. Safe for concurrent use.
type Channel interface {
	// Name is email or slack.
	Name() string
	// Reaches reports whether the channel can reach the person.
	Reaches(p person.Person) bool
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
