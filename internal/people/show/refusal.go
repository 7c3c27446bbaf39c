package show

import (
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/approval"
)

// refusals are what people read of the desk's errors. The first that fits counts.
var refusals = []struct {
	err  error
	text string
}{
	{approval.ErrRequester, "The run acts for you. Another person has to approve this; you may deny it."},
	{approval.ErrUnpinned, "You have chosen your own name, and different people have to approve this."},
	{approval.ErrForbidden, "You are not among those who may decide this, as things stand now."},
	{approval.ErrExpired, "The request has expired. It was not carried out."},
	{approval.ErrFinished, "The run has ended: there is nothing left to decide."},
	{approval.ErrStale, "Somebody changed the arguments meanwhile. Read them again and answer anew."},
	{approval.ErrPolicyChanged, "The policy that applies has changed since you were asked. Whoever may decide now is " +
		"asked again."},
	{approval.ErrNothing, "The call no longer waits for an answer."},
	{approval.ErrIgnored, "The call no longer waits for an answer."},
	{approval.ErrNoCall, "The call no longer waits for an answer."},
	{approval.ErrKind, "The request cannot be answered like that. See its page."},
	{approval.ErrNotLinked, "The program that you decide with does not have this tool. Use the one that has it."},
	{approval.ErrNotFound, "There is no such request."},
	{approval.ErrRemark, fmt.Sprintf("A remark has 1 to %d characters.", approval.MaxRemarkChars)},
	{approval.ErrThreadFull, "The request takes no more remarks."},
}

// RefusalText says to the person who has made a decision why it was refused, in the same words on every channel. It
// returns "" for any other error: then nobody can say whether the decision was recorded.
func RefusalText(err error) string {
	if e, ok := errors.AsType[*approval.DecidedError](err); ok {
		return "The request is decided already. " + OutcomeText(e.Approval)
	}
	if e, ok := errors.AsType[*approval.ChannelError](err); ok {
		return "The policy lets people approve this by " + e.Allowed.Words() + "."
	}
	if e, ok := errors.AsType[*approval.EditError](err); ok {
		return "The arguments: " + e.Problem
	}
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return r.text
		}
	}
	return ""
}
