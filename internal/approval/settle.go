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

// Outcome is somebody's word on what became of a call that was interrupted: a result, an error, or the order to run it again.
type Outcome struct {
	Tenant, Run, Call string
	ID                string // the request it answers; empty = the only one of this kind there has been about the call
	Key               string // the client's own id of the answer: without ID, the same key is the same answer to the same request; empty = none
	Content           string
	IsError           bool
	Rerun             bool

	By  policy.Principal
	Via Via // for the record
}

// SettleOutcome records what became of a call, once, and wakes the run. It is data, not a decision: whoever may act for the tenant may
// say it; but running a call again that was approved is approved as it was: by as many different approvers, none of whom is one the run acts for
// where that takes four eyes. An order that is not the last is recorded, and the request stays pending. The same answer to the same request gives
// the first answer (see Approval.Repeated), changes nothing and wakes again; another one is a *DecidedError. A call that waits for no outcome is
// ErrNothing. A call that was asked about before is asked about under a new request: an answer without ID is a *StaleError then, unless Key says
// which it was.
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
	for races := 0; ; races++ {
		if a, err = d.findOutcomeRequest(ctx, o, c); err != nil {
			return Approval{}, err
		}
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
		if o.Rerun && c.Grant != nil && hasDecisionBy(a.CountedApprovals(), DecisionInput{By: o.By}) {
			a.repeated = true
			return a, nil
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
	err = d.ResumeRun(ctx, a.Tenant, a.Run)
	d.notifyResumed(ctx, a)
	if err != nil {
		return Approval{}, fmt.Errorf("wake run %s: %w", a.Run, err)
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
	r, now := DecisionInput{Tenant: o.Tenant, ID: a.ID, Action: actionRerun, By: o.By}, d.Clock.Now()
	if err := a.authorizePerson(r, func(p policy.Principal) bool { return a.CanDecide(p, now) }); err != nil {
		return fmt.Errorf("run call %s again: it was approved once and takes its approvers again: %w", o.Call, err)
	}
	return nil
}

// findOutcomeRequest is the request that an answer is to.
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

// inferOutcomeRequest is the request that an answer is to which names none: the one that was answered under the same key, else the newest about the call where
// it is the first. What was said of an earlier attempt, and comes again, is not said of a later one.
func (d *Desk) inferOutcomeRequest(ctx context.Context, o Outcome, c run.Call) (Approval, error) {
	newest, err := Get(ctx, d.Table, o.Tenant, run.ApprovalID(o.Run, c.ID, c.Asks))
	if err != nil {
		return Approval{}, err
	}
	earlier := false
	for ask, a := c.Asks, newest; ; {
		if a.asksOutcomeOf(o) {
			if a.wasAnsweredWithKey(o.Key) {
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

// asksOutcomeOf reports whether the request asks what became of the call that o is about.
func (a Approval) asksOutcomeOf(o Outcome) bool {
	return a.Kind == KindOutcome && a.Run == o.Run && a.Call() == o.Call
}

// wasAnsweredWithKey reports whether somebody has answered the request under a key.
func (a Approval) wasAnsweredWithKey(key string) bool {
	return key != "" && slices.ContainsFunc(a.Decisions, func(d Decision) bool { return d.Key == key })
}

// commitOutcome records the answer in the request and the run's inbox at once. The model is told what the person said and, where somebody had
// changed the call's arguments, that (A8).
func (d *Desk) commitOutcome(ctx context.Context, a Approval, definition string, c run.Call, o Outcome) (Approval, error) {
	said, err := o.decision(d.Clock.Now().Truncate(time.Millisecond))
	if err != nil {
		return Approval{}, err
	}
	a.Status = Approved
	a.Decisions = append(slices.Clip(a.Decisions), said)
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
		voice, err := approvalRecordOp(a, o.By)
		if err != nil {
			return Approval{}, err
		}
		return a, d.Table.Write(ctx, op, voice)
	}
	content, err := d.truncateContent(ctx, a.Tenant, definition, o)
	if err != nil {
		return Approval{}, err
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

// truncateContent is what somebody said in place of a tool, as the agent's context takes it. All of it is kept with the request.
func (d *Desk) truncateContent(ctx context.Context, tenant, definition string, o Outcome) (string, error) {
	if o.Rerun {
		return "", nil
	}
	def, err := d.Definitions(ctx, tenant, definition)
	if err != nil {
		return "", err
	}
	head, chars, cut := prompt.CutResult(def, o.Content)
	if cut {
		head += prompt.CutNotice(def, o.Call, chars, false)
	}
	return head, nil
}

// resolveOutcomeRace looks who won where the write failed or nobody knows whether it did.
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

// decision is the answer as it is kept with the request: the text stands as a JSON string where an edit's arguments stand.
func (o Outcome) decision(now time.Time) (Decision, error) {
	d := Decision{By: o.By.ID, Via: o.Via, Action: o.action(), At: now, Key: o.Key}
	if o.Rerun {
		return d, nil
	}
	text, err := run.MarshalVerbatim(o.Content)
	d.Args = text
	return d, err
}

// isSameOutcome reports whether o says what the request's own answer said.
func isSameOutcome(a Approval, o Outcome) bool {
	if len(a.Decisions) == 0 {
		return false
	}
	d := a.Decisions[len(a.Decisions)-1]
	again, err := o.decision(d.At)
	return err == nil && d.Action == again.Action && bytes.Equal(d.Args, again.Args)
}

// action is how the answer is recorded with the request.
func (o Outcome) action() Action {
	switch {
	case o.Rerun:
		return actionRerun
	case o.IsError:
		return "error"
	default:
		return "result"
	}
}
