package approval

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

// Outcome is a person's report on an interrupted call: a result, an error, or the order to run it again.
type Outcome struct {
	Tenant, Run, Call string
	ID                string // the request it answers; empty = the only outcome request about the call so far
	Key               string // idempotency key: without ID, the same key is the same answer to the same request; empty = none
	Content           string
	IsError           bool
	Rerun             bool

	By  policy.Principal
	Via Via

	Confirm   func(ctx context.Context) error // as DecisionInput's
	confirmed bool
}

// SettleOutcome records the outcome of an interrupted call once, and resumes the run. Anybody who may act for the
// tenant may report a result or an error. A rerun of a call that was approved takes the same quorum and four eyes as
// the approval. A rerun order that does not complete the quorum is recorded, and the request stays pending.
//
// The same answer to the same request returns the first answer (see Approval.IsRepeated), changes nothing and resumes
// the run again. A different answer is a *DecidedError. A call that waits for no outcome is ErrNothing. If the call has
// several such requests, an answer without ID is a *StaleError, unless Key identifies an earlier answer.
func (d *Desk) SettleOutcome(ctx context.Context, o Outcome) (_ Approval, err error) {
	defer func() { d.logRefusal(err, o.By, "tenant", o.Tenant, "run", o.Run, "via", string(o.Via)) }()
	l, err := d.Journal.Load(ctx, o.Tenant, o.Run)
	if err != nil {
		return Approval{}, err
	}
	c, ok := l.State.Call(o.Call)
	if !ok || c.Asks == 0 {
		return Approval{}, fmt.Errorf("answer call %s: %w", o.Call, ErrNothing)
	}
	var a Approval
	usedUp := false // the code
	for races := 0; ; races++ {
		if a, err = d.findOutcomeRequest(ctx, o, c); err != nil {
			return Approval{}, err
		}
		o.confirmed = o.Confirm != nil && o.Rerun && c.Grant != nil && a.Channels.TakeCode(o.Via)
		if err = d.authorizeRerun(ctx, a, c, o); err != nil {
			return Approval{}, err
		}
		if a.Status != Pending {
			if !isSameOutcome(a, o) {
				return Approval{}, &DecidedError{Approval: a}
			}
			a.repeated = true
			break
		}
		if l.State.Status == run.RunDone {
			return Approval{}, d.closeFinished(ctx, a)
		}
		if d.CheckLinked != nil {
			if err := d.CheckLinked(ctx, a); err != nil {
				return Approval{}, err
			}
		}
		if o.Rerun && c.Grant != nil && hasDecisionBy(a.CountedApprovals(), o.By.ID) {
			a.repeated = true
			return a, nil
		}
		if o.confirmed && !usedUp {
			if err := o.Confirm(ctx); err != nil {
				return Approval{}, err
			}
			usedUp = true
		}
		if a, err = d.commitOutcome(ctx, a, l.State.Definition, c, o); err == nil {
			break
		}
		if !lostRace(err) || races == maxRaces {
			return Approval{}, err
		}
	}
	if a.Status == Pending {
		return a, nil
	}
	err = d.resumeRun(ctx, a)
	d.notifyResumed(ctx, a)
	if err != nil {
		return Approval{}, err
	}
	return a, nil
}

// authorizeRerun refuses a person who may not order an approved call to be run again.
func (d *Desk) authorizeRerun(ctx context.Context, a Approval, c run.Call, o Outcome) error {
	if !o.Rerun || c.Grant == nil {
		return nil
	}
	a, err := d.addRunStarters(ctx, a, actionRerun)
	if err != nil {
		return err
	}
	r := DecisionInput{Tenant: o.Tenant, ID: a.ID, Action: actionRerun, By: o.By, Via: o.Via, confirmed: o.confirmed}
	now := d.Clock.Now()
	if err := a.authorizePerson(r, a.CanDecide(o.By, now)); err != nil {
		return fmt.Errorf("run call %s again: it was approved once and takes its approvers again: %w", o.Call, err)
	}
	return nil
}

// findOutcomeRequest returns the request that an answer is for.
func (d *Desk) findOutcomeRequest(ctx context.Context, o Outcome, c run.Call) (Approval, error) {
	if o.ID == "" {
		return d.inferOutcomeRequest(ctx, o, c)
	}
	a, err := Get(ctx, d.Table, o.Tenant, o.ID)
	if err == nil && !a.asksOutcomeOf(o) {
		err = fmt.Errorf("answer call %s: approval %s: %w", o.Call, o.ID, ErrNothing)
	}
	return a, err
}

// inferOutcomeRequest finds the request of an answer without ID: the one that was answered under the same key, else the
// newest about the call if the call has no earlier one. A repeated answer about an earlier attempt is never taken for a
// later attempt.
func (d *Desk) inferOutcomeRequest(ctx context.Context, o Outcome, c run.Call) (Approval, error) {
	newest, err := Get(ctx, d.Table, o.Tenant, run.ApprovalID(o.Run, c.ID, c.Asks))
	if err != nil {
		return Approval{}, err
	}
	earlier := false
	for ask, a := c.Asks, newest; ; {
		if a.asksOutcomeOf(o) {
			if o.Key != "" && slices.ContainsFunc(a.Decisions, func(d Decision) bool { return d.Key == o.Key }) {
				return a, nil
			}
			earlier = earlier || ask < c.Asks
		}
		if ask--; ask == 0 {
			break
		}
		if a, err = Get(ctx, d.Table, o.Tenant, run.ApprovalID(o.Run, c.ID, ask)); err != nil && !errors.Is(err, ErrNotFound) {
			return Approval{}, err
		}
	}
	switch {
	case !newest.asksOutcomeOf(o):
		return Approval{}, fmt.Errorf("answer call %s: %w", o.Call, ErrNothing)
	case earlier && newest.Status == Pending:
		return Approval{}, &StaleError{Approval: newest}
	}
	return newest, nil
}

// asksOutcomeOf reports whether the request asks for the outcome of o's call.
func (a Approval) asksOutcomeOf(o Outcome) bool {
	return a.Kind == KindOutcome && a.Run == o.Run && a.Call() == o.Call
}

// commitOutcome writes the answer into the request and the run's inbox in one transaction. The model is told the answer
// and, if somebody had edited the call's arguments, the edited arguments (A8).
func (d *Desk) commitOutcome(ctx context.Context, a Approval, definition string, c run.Call, o Outcome) (Approval, error) {
	answer, err := o.decision(d.Clock.Now().Truncate(time.Millisecond))
	if err != nil {
		return Approval{}, err
	}
	a.Status = Approved
	a.Decisions = append(slices.Clip(a.Decisions), answer)
	counted := a.CountedApprovals()
	partial := o.Rerun && c.Grant != nil && len(counted) < a.Quorum
	if partial {
		a.Status = Pending
	}
	op, err := overwriteOp(a, Pending)
	if err != nil {
		return Approval{}, err
	}
	if a.rev = max(0, a.rev) + 1; partial {
		record, err := approvalRecordOp(a, o.By)
		if err != nil {
			return Approval{}, err
		}
		return a, d.Table.Write(ctx, op, record)
	}
	content := ""
	if !o.Rerun { // as a tool result of the agent is shortened; the request keeps all of it
		def, err := d.Definitions(ctx, a.Tenant, definition)
		if err != nil {
			return Approval{}, err
		}
		content = prompt.ShowResult(def, agent.ToolSpec{}, o.Call, o.Content, false).Text
	}
	fact := run.Answered{Call: o.Call, Approval: a.ID, Content: content, IsError: o.IsError, Rerun: o.Rerun, By: o.By.ID}
	if o.Rerun && c.Grant != nil {
		for _, v := range counted[:len(counted)-1] {
			fact.With = append(fact.With, v.By)
		}
		if fact.Voices, err = d.loadVoices(ctx, a, o.By, fact.With); err != nil {
			return Approval{}, err
		}
	}
	if by := c.Editor(); by != "" && !o.Rerun {
		fact.Content = agent.TextEdited(by, string(c.Input)) + fact.Content
	}
	got, err := d.Journal.Accept(ctx, a.Tenant, a.Run, "", fact, op)
	if err != nil {
		return d.resolveOutcomeRace(ctx, a, o, err)
	}
	if got.Closed {
		return Approval{}, fmt.Errorf("answer call %s: %w", o.Call, ErrFinished)
	}
	return a, nil
}

// resolveOutcomeRace reads the request after a write that failed or whose outcome is unknown, and reports the answer on
// record.
func (d *Desk) resolveOutcomeRace(ctx context.Context, a Approval, o Outcome, cause error) (Approval, error) {
	now, err := Get(ctx, d.Table, a.Tenant, a.ID)
	switch {
	case err != nil:
		return Approval{}, errors.Join(cause, err)
	case now.Status == Pending:
		return Approval{}, fmt.Errorf("answer call %s: %w", o.Call, cause)
	case isSameOutcome(now, o):
		now.repeated = true
		return now, nil
	default:
		return Approval{}, &DecidedError{Approval: now}
	}
}

// decision is the record of the answer as the request keeps it. Args holds the text as a JSON string.
func (o Outcome) decision(now time.Time) (Decision, error) {
	d := Decision{By: o.By.ID, Via: o.Via, Action: "result", At: now, Key: o.Key}
	if o.Rerun {
		d.Action, d.Confirmed = actionRerun, o.confirmed
		return d, nil
	}
	if o.IsError {
		d.Action = "error"
	}
	text, err := run.MarshalVerbatim(o.Content)
	d.Args = text
	return d, err
}

// isSameOutcome reports whether o repeats the answer on record.
func isSameOutcome(a Approval, o Outcome) bool {
	if len(a.Decisions) == 0 {
		return false
	}
	d := a.Decisions[len(a.Decisions)-1]
	again, err := o.decision(d.At)
	return err == nil && d.Action == again.Action && bytes.Equal(d.Args, again.Args)
}
