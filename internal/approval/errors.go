package approval

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
)

// The errors of Decide, besides those of the table.
var (
	ErrForbidden = errors.New("not one of the approvers")
	ErrExpired   = errors.New("the request has expired")
	ErrFinished  = errors.New("the run has ended")
	ErrKind      = errors.New("the request cannot be decided like that")
	ErrNothing   = errors.New("the call waits for nobody")
	ErrNoCall    = errors.New("the run has no such call")
	ErrIgnored   = errors.New("the call has ended: the decision changes nothing")
	ErrNotLinked = errors.New("not part of this program; use the program that has it, or cancel the run")
	ErrKept      = errors.New("too many decisions are kept already")

	ErrRequester     = fmt.Errorf("the run acts for them, who may deny and not approve (four eyes): %w", ErrForbidden)
	ErrUnpinned      = fmt.Errorf("they chose their name, and people are counted or told apart here: %w", ErrForbidden)
	ErrStale         = errors.New("the request is about another action since") // each *StaleError is one
	ErrPolicyChanged = errors.New("the policy that applies has changed since") // each *PolicyError is one
)

// StaleError says that the request is about another action than the person was shown, because somebody has edited the
// arguments meanwhile.
type StaleError struct{ Approval Approval }

// Is makes e an ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

func (e *StaleError) Error() string {
	if i := e.Approval.lastEdit(); i >= 0 {
		return fmt.Sprintf("approval %s is about other arguments than were shown: %s has changed them; look at it again",
			e.Approval.ID, e.Approval.Decisions[i].By)
	}
	if e.Approval.Kind == KindOutcome {
		return fmt.Sprintf("answer call %s: it was asked about before and has run again since; "+
			"want approval: the id of the request you answer, which is %s now", e.Approval.Call(), e.Approval.ID)
	}
	return fmt.Sprintf("approval %s is about another action than was shown: look at it again", e.Approval.ID)
}

// PolicyError says that a request is void. Either the policy that applies to its call has changed since it was made, or
// the request does not show the arguments of the call. The run requests approval again, or denies the call.
type PolicyError struct{ Approval Approval }

// Is makes e an ErrPolicyChanged.
func (e *PolicyError) Is(target error) bool { return target == ErrPolicyChanged }

func (e *PolicyError) Error() string {
	return fmt.Sprintf("approval %s is void: the policy that applies to call %s has changed since, "+
		"or the request does not show that call; it is asked about again, or denied by now", e.Approval.ID, e.Approval.Call())
}

// ChannelError says that a person may not approve by the channel that they have used. The request stays as it is.
type ChannelError struct {
	ID      string // the request's
	Via     Via
	Allowed agent.Channels
}

// Is makes e an ErrForbidden.
func (e *ChannelError) Is(target error) bool { return target == ErrForbidden }

func (e *ChannelError) Error() string {
	if e.Allowed.Allow(e.Via) {
		takes := "a code, which the page sends"
		if e.Allowed.Confirm == agent.ConfirmOIDC {
			takes = "a sign-in by OIDC, which the page asks for"
		}
		return fmt.Sprintf("approve approval %s: on a page behind a link this takes %s", e.ID, takes)
	}
	return fmt.Sprintf("approve approval %s by %s: the policy lets people approve this by %s; "+
		"it can be denied by every channel", e.ID, cmp.Or(agent.ViaText(e.Via), "an unknown channel"), e.Allowed.Words())
}

// DecidedError says that another, different decision was recorded first (A12).
type DecidedError struct{ Approval Approval }

func (e *DecidedError) Error() string {
	if e.Approval.Status == Pending {
		return fmt.Sprintf("approval %s is decided about that tool, and waits for the others", e.Approval.ID)
	}
	if e.Approval.wasDecidedByPeople() {
		d := e.Approval.Decisions[len(e.Approval.Decisions)-1]
		return fmt.Sprintf("approval %s is %s: %s by %s", e.Approval.ID, e.Approval.Status, d.Action, d.By)
	}
	return fmt.Sprintf("approval %s is %s", e.Approval.ID, e.Approval.Status)
}

// RequestIn returns the request as it is now, if err says that it is another one than the person saw: a *DecidedError,
// *StaleError or *PolicyError. Nil = it says nothing of that.
func RequestIn(err error) *Approval {
	if e, ok := errors.AsType[*DecidedError](err); ok {
		return &e.Approval
	}
	if e, ok := errors.AsType[*StaleError](err); ok {
		return &e.Approval
	}
	if e, ok := errors.AsType[*PolicyError](err); ok {
		return &e.Approval
	}
	return nil
}

// logRefusal logs who was refused what: names and ids only.
func (d *Desk) logRefusal(err error, by policy.Principal, what ...any) {
	if d.Log == nil {
		return
	}
	var channel *ChannelError
	what = append(what, "by", by.ID)
	switch {
	case errors.As(err, &channel):
		d.Log.Warn("refused: not by this channel", what...)
	case errors.Is(err, ErrForbidden):
		d.Log.Warn("refused: not one of the approvers", what...)
	case errors.Is(err, ErrExpired):
		d.Log.Warn("refused: the request had expired", what...)
	}
}
