package approval

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
)

// This file is the only place that answers "may this person decide this?" (A9). Pages, Slack, API, console and command
// line send their decisions through authorize. CanDecide, CanApprove and Awaits say what they offer a person, and who
// is notified of a request. policy.ApplyEarlyDecisions authorizes decisions that were made before their call asked.
// The claim checks the policy again (A22).

// ApproversAt returns the approvers at that time, and the sets that an approver must belong to as well. After the
// escalation they include the escalation's people, whether or not a process has recorded it. Of KindTools, see
// Permissions.
func (a Approval) ApproversAt(now time.Time) (approvers []string, above [][]string) {
	if a.EscalatesAt.IsZero() || now.Before(a.EscalatesAt) {
		return a.Approvers, a.Above
	}
	return slices.Concat(a.Approvers, a.EscalateTo), policy.WidenSets(a.Above, a.AboveTo)
}

// IsOpen reports whether the request can still be decided at that time.
func (a Approval) IsOpen(now time.Time) bool { return a.Status == Pending && now.Before(a.ExpiresAt) }

// CanDecide reports whether p is among the approvers at that time, and so may deny. It ignores earlier decisions of p.
// An empty set of approvers means nobody.
func (a Approval) CanDecide(p policy.Principal, now time.Time) bool {
	approvers, above := a.ApproversAt(now)
	return policy.MayDecideEach(p, approvers, above)
}

// CanApprove reports whether p can decide the request and may approve it (checkPerson).
func (a Approval) CanApprove(p policy.Principal, now time.Time) bool {
	return a.CanDecide(p, now) && a.checkPerson(p) == nil
}

// checkPerson refuses approvals by a person for whom the run acts, under four eyes, and by an Unpinned principal if the
// request counts people or tells them apart.
func (a Approval) checkPerson(p policy.Principal) error {
	several := func(t Permission) bool { return t.Quorum > 1 }
	switch {
	case a.FourEyes && slices.Contains(a.Requesters, p.ID):
		return ErrRequester
	case p.Unpinned && (a.FourEyes || a.Quorum > 1 || slices.ContainsFunc(a.Permissions, several)):
		return ErrUnpinned
	}
	return nil
}

// HasDecided reports whether the person has decided a request about a call since the last edit. An edit resets earlier
// approvals (A8).
func (a Approval) HasDecided(person string) bool {
	return a.Kind != KindTools && hasDecisionBy(a.sinceEdit(), person)
}

// Awaits reports whether the request waits for p, who may approve it and has not decided it.
func (a Approval) Awaits(p policy.Principal, now time.Time) bool {
	if a.Kind != KindTools {
		return a.CanApprove(p, now) && !a.HasDecided(p.ID)
	}
	return a.checkPerson(p) == nil && slices.ContainsFunc(a.Permissions, func(t Permission) bool {
		return t.Verdict == "" && a.CanDecideTool(p, t, now)
	})
}

// CanUnmask reports whether p may be shown what is masked: an approver, of every tool that a request about tools asks
// for.
func (a Approval) CanUnmask(p policy.Principal, now time.Time) bool {
	return a.canDecideEach(p, a.Permissions, now)
}

// canDecideEach reports whether p is among the approvers of the request and of each of these tools.
func (a Approval) canDecideEach(p policy.Principal, tools []Permission, now time.Time) bool {
	return a.CanDecide(p, now) &&
		!slices.ContainsFunc(tools, func(t Permission) bool { return !a.CanDecideTool(p, t, now) })
}

// CanDecideTool reports whether p is an approver of every call that asks for the tool.
func (a Approval) CanDecideTool(p policy.Principal, t Permission, now time.Time) bool {
	return !slices.ContainsFunc(t.Calls, func(b BlockedCall) bool {
		a.Approvers, a.EscalateTo, a.Above, a.AboveTo = b.Approvers, b.EscalateTo, b.Above, b.AboveTo
		return !a.CanDecide(p, now)
	})
}

// isApproving reports whether the action lets something run. Four eyes forbid it to the people for whom the run acts,
// and it counts only by the channels of the rule. Denials and cancellations are safe.
func isApproving(a Action) bool { return a == Approve || a == Edit || a == Rerun }

// needsApprover reports whether only an approver may make the decision. Anybody who may act for the tenant may report
// the outcome of a call, and may order to repeat a call that nobody had to approve.
func (t *attempt) needsApprover() bool {
	return t.request.Kind != KindOutcome || t.Action != ReportResult && t.Action != ReportError &&
		(t.Action != Rerun || t.approved)
}

// authorize refuses a person who may not make the decision, or not by that channel.
func (t *attempt) authorize() error {
	if !t.needsApprover() {
		return nil
	}
	a, tool := t.request, t.Tool
	if t.Action == Fail { // it decides every open tool
		tool = ""
	}
	err := t.authorizeApproval(a)
	if !a.canDecideEach(t.By, a.named(tool), t.now) && !errors.Is(err, ErrRequester) && !errors.Is(err, ErrUnpinned) {
		err = fmt.Errorf("decide approval %s as %s: %w", a.ID, t.By.ID, ErrForbidden)
	}
	if err != nil && t.Action == Rerun {
		err = fmt.Errorf("run call %s again: it was approved once and takes its approvers again: %w", a.Call(), err)
	}
	return err
}

// authorizeApproval refuses an approval of a by a person who may not approve, or by a channel that does not count.
func (t *attempt) authorizeApproval(a Approval) error {
	if !isApproving(t.Action) {
		return nil
	}
	if err := a.checkPerson(t.By); err != nil {
		return fmt.Errorf("decide approval %s as %s: %w", a.ID, t.By.ID, err)
	}
	if c := a.ChannelsOf(t.Tool); !c.Count(t.Via, t.record.Confirmed) {
		return &ChannelError{ID: a.ID, Via: t.Via, Allowed: c}
	}
	return nil
}

// ChannelsOf returns the channels by which the request is approved; of a request about tools, by which the named tool
// is, or with "" all that are not decided.
func (a Approval) ChannelsOf(tool string) agent.Channels {
	c := a.Channels
	for _, p := range a.named(tool) {
		for _, b := range p.Calls {
			c = c.Narrow(b.Channels)
		}
	}
	return c
}

// validate refuses a decision that does not go with the kind of request.
func (t *attempt) validate() error {
	var problem string
	switch a, of := t.request, kinds[t.request.Kind]; {
	case !slices.Contains(of.actions, t.Action):
		problem = strings.ReplaceAll(of.refusal, "CALL", a.Call())
	case t.Result != nil && (t.Action != Approve || a.Kind != KindInput && string(t.Result) != "true"):
		problem = "a result answers what a tool asks and goes with nothing else"
	case a.Kind != KindTools && t.Tool != "":
		problem = fmt.Sprintf("it is about call %s, not about tools", a.Call())
	case (t.Action == Edit) != (t.Args != nil):
		problem = "arguments go with an edit and with nothing else"
	case a.Kind == KindTools && t.Tool != "" && len(a.named(t.Tool)) == 0:
		problem = fmt.Sprintf("it does not ask about tool %q", t.Tool)
	default:
		return nil
	}
	return fmt.Errorf("decide approval %s: %s: %w", t.ID, problem, ErrKind)
}
