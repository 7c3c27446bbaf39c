// Package notify tells people of requests: when they are asked, reminded, asked in place of others, asked something or answered, and when it is
// decided. A message that is lost or comes twice does no harm (approvals.md, C3).
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
	Escalated Occasion = "escalated" // to those who may decide as well from now on
	Question  Occasion = "question"  // to the requesters: an approver asks for information
	Answer    Occasion = "answer"    // to who asked
	Decided   Occasion = "decided"   // decided, expired or called off: a message that was sent before is updated
)

// Message is what one person is told.
type Message struct {
	Occasion Occasion
	Approval approval.Approval
	Shown    show.Request
	To       person.Person
	Link     string // the page of the request, signed for To; "" = there is none

	// Others are further requests of the same run about which the person is told by the same message, for the same
	// occasion. A message that has any lists all of its requests, each with its link, and is not updated.
	Others []Other
}

// Other is a further request that a message tells of.
type Other struct {
	Approval approval.Approval
	Shown    show.Request
	Link     string // as Message's
}

// Channel carries messages to people. Safe for concurrent use.
type Channel interface {
	// Name is email or slack.
	Name() string
	// Reaches reports whether the channel has an address of the person's.
	Reaches(p person.Person) bool
	// Send delivers m. Ref names the message for Update; "" where this channel changes none. To send again may send twice.
	Send(ctx context.Context, m Message) (ref string, err error)
	// Update changes a message that was sent to what is so now: decided, expired or called off.
	Update(ctx context.Context, ref string, m Message) error
}

// Links makes the addresses of pages. Safe for concurrent use.
type Links interface {
	// URL is the address at which to, a person's id, sees the request and may decide it, for a message of that channel; "" = there is none.
	// The same request, person and channel may be given several, each of which works.
	URL(ctx context.Context, a approval.Approval, to, channel string) (string, error)
}
