package approval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// tallyDecision is the request as it will stand, and the fact for the run; nil where that is to hear nothing yet, as it takes
// more people.
func (d *Desk) tallyDecision(ctx context.Context, a Approval, r DecisionInput, now time.Time) (*run.Decided, Approval, error) {
	switch {
	case a.hasOtherBounds(r):
		return nil, a, &GrantError{Problem: "grant: got other bounds than those with which you have approved already"}
	case r.Grant != nil && (!isApproving(r.Action) || a.Kind == KindInput):
		return nil, a, errNoStandingGrant(a)
	case a.Kind == KindTools:
		a, err := d.withCurrentToolGrants(ctx, a, r)
		if err != nil {
			return nil, a, err
		}
		open := a.undecidedPlaces(a.toolPlaces(r))
		fact, decided := a.tallyTools(r, open, now)
		return fact, decided, decided.checkToolGrantBounds(fact, r, open, now)
	}
	said := r.decision(now)
	fact := run.Decided{Call: a.Call(), Approval: a.ID, Action: run.ActionApprove, By: r.By.ID, Digest: a.Digest, Note: r.Note}
	switch {
	case r.Action == Deny:
		fact.Action, fact.Text = run.ActionDeny, agent.TextDenied(r.By.ID, r.Note)
	case r.Action == Cancel:
		fact.Action, fact.Text = run.ActionCancel, agent.TextCallCancelled(r.By.ID, r.Note)
	case a.Kind == KindInput:
		return d.tallyAnswer(ctx, a, r, said)
	default:
		return d.tallyApproval(ctx, a, r, said, fact)
	}
	if a.Scope == agent.ScopeTool && len(a.Permissions) == 1 && r.Action == Deny {
		fact.Permit = a.Permissions[0].Digests[0]
	}
	return &fact, a.withDecision(fact, said), nil
}

// tallyApproval is plan of an approval or an edit of a call. Where tools are decided about, it is one on the call's
// tool; but an edit is of its own arguments alone. Where an approval stands for the very arguments, an edit's does for
// the edited ones.
func (d *Desk) tallyApproval(ctx context.Context, a Approval, r DecisionInput, said Decision, fact run.Decided) (*run.Decided, Approval, error) {
	on, err := d.loadAction(ctx, a)
	if err != nil {
		return nil, a, err
	}
	if on.changed {
		fact = run.Decided{Call: a.Call(), Approval: a.ID, Action: run.ActionAskAgain, By: "policy"}
		a.Status = Voided
		return &fact, a, nil
	}
	policy, a := on.policy, a.withCurrentGrant(on)
	if r.Action == Edit {
		if a, said.Args, policy, err = d.applyEdit(a, r, on); err != nil {
			return nil, a, err
		}
	}
	before := a
	a.Decisions = append(slices.Clip(a.Decisions), said)
	counted := a.CountedApprovals()
	if err := a.checkGrantBounds(r, said.At); err != nil || len(counted) < a.Quorum {
		return nil, a, err
	}
	fact.Digest = a.Digest
	for _, v := range counted[:len(counted)-1] {
		fact.With = append(fact.With, v.By)
	}
	if a.OriginalArgs != nil {
		fact.Args, fact.Policy = a.Args, policy
		if counted[0].By != r.By.ID {
			fact.Editor = counted[0].By
		}
	}
	if len(a.Permissions) == 1 {
		a.addPermit(&fact)
	}
	decided := before.withDecision(fact, said)
	decided.dropRecordOnlyPermit(&fact)
	return &fact, decided, nil
}

// pendingAction is what a request would let run, as its run and the policy of now have it.
type pendingAction struct {
	def     *agent.Definition
	s       *run.AgentState
	c       run.Call
	policy  string // as of agent.CallSuspended
	changed bool   // what was shown is not what would run: the policy changed (A17), or the item's arguments are not the call's (A22)
}

// loadAction reads what a request is about from its run. A digest that is not that of the request's arguments is another
// action: whoever decided was shown something else than what would run.
func (d *Desk) loadAction(ctx context.Context, a Approval) (pendingAction, error) {
	def, s, c, err := d.loadCall(ctx, a)
	if errors.Is(err, store.ErrNoBlob) { // nothing of the run can be carried out, whatever is decided
		return pendingAction{}, nil
	}
	if err != nil {
		return pendingAction{}, err
	}
	on := pendingAction{def: def, s: s, c: c}
	if c.Wait == nil || c.Wait.Approval != a.ID { // overtaken, by an entry that is on its way
		return on, nil
	}
	is := policy.ActionNow(def, s, c, a.Args)
	shows := a.OriginalArgs != nil || bytes.Equal(a.Args, c.Input) // an edit's arguments are held by the digest alone
	on.policy, on.changed = is.Policy, !shows || is.Digest != a.Digest || is.Rule.Verdict == agent.VerdictDeny
	return on, nil
}

// withCurrentGrant is a request with what an approval of it grants beside its call, as the run and its definition have it:
// what the item says of that is not believed. A call that does not wait under the request any more grants nothing else.
func (a Approval) withCurrentGrant(on pendingAction) Approval {
	if len(a.Permissions) == 0 {
		return a
	}
	a.Permissions = nil
	c := on.c
	if c.Wait == nil || c.Wait.Approval != a.ID || policy.ActionNow(on.def, on.s, c, a.Args).Digest != a.Digest {
		return a
	}
	a.origin = requestOrigin{at: c.Wait.Since, requesters: on.s.RequestersOnce(c.Wait.Heard), edited: a.OriginalArgs != nil}
	c.Input = a.Args
	is := NewCallRequest(on.def, on.s, c)
	a.Scope, a.Grants, a.Permissions = is.Scope, is.Grants, is.Permissions
	return a
}

// withCurrentToolGrants is grantable of a request about tools, where what is granted stands.
func (d *Desk) withCurrentToolGrants(ctx context.Context, a Approval, r DecisionInput) (Approval, error) {
	if r.Action != Approve || a.Grants != agent.GrantsStanding {
		return a, nil
	}
	def, s, _, err := d.loadCall(ctx, a)
	if err != nil {
		return a, err
	}
	var is Approval
	for _, open := range s.OpenRequests() {
		if open.Approval == a.ID {
			is = NewToolsRequest(def, s, open)
			a.origin = requestOrigin{at: open.Since, requesters: s.RequestersOnce(open.Heard)}
		}
	}
	a.Permissions = slices.Clone(a.Permissions)
	for i := range a.Permissions {
		p := &a.Permissions[i]
		p.Standing = nil
		for _, real := range is.Permissions {
			if real.Tool == p.Tool {
				p.Calls, p.Standing, p.Bounds = real.Calls, real.Standing, real.Bounds
			}
		}
	}
	return a, nil
}

// addPermit adds what an approval of a call grants beside it.
func (a Approval) addPermit(fact *run.Decided) {
	switch {
	case a.Scope != agent.ScopeTool:
		fact.Permit, fact.Standing = a.Permissions[0].Digests[0], true
	case a.OriginalArgs == nil:
		fact.Permit, fact.Once = a.Permissions[0].Digests[0], a.Grants == agent.GrantsOnce
		fact.Standing = a.Grants == agent.GrantsStanding
	}
}

// applyEdit makes a new action of the call: checked against schema and deny rules as if the model had asked for it, with its
// own digest (A8). The request is about that then: earlier approvals do not count any more, nobody is needed less than
// before, and who decides is an approver of both.
func (d *Desk) applyEdit(a Approval, r DecisionInput, on pendingAction) (edited Approval, args json.RawMessage, policyName string, err error) {
	if args, err = jsonx.CompactJSON(r.Args, jsonx.JSONLimits{}); err != nil {
		return a, nil, "", &EditError{Problem: err.Error()}
	}
	is, err := policy.Amend(on.def, on.s, on.c, args, d.canDecideUnder(a, r), d.ValidateArgs)
	if err != nil {
		return a, nil, "", amendError(a, r, err)
	}
	a = a.withArgs(args)
	a.Digest = is.Digest
	asks := is.Rule.Verdict == agent.VerdictAsk
	if asks {
		a = a.alsoRequiring(is.Rule)
	}
	a.Quorum = policy.FourEyesEdit(a.Quorum, a.FourEyes)
	if a.FourEyes && slices.Contains(a.Requesters, r.By.ID) {
		return a, nil, "", fmt.Errorf("decide approval %s as %s: %w", a.ID, r.By.ID, ErrRequester)
	}
	if a.Scope == agent.ScopeTool || len(a.Permissions) == 0 {
		return a, args, is.Policy, nil
	}
	a.Permissions = nil
	if asks { // else nobody is asked about those: no one grants them
		on.c.Input = args
		a.Permissions = []Permission{callPermission(on.def, on.s, on.c)}
	}
	return a, args, is.Policy, nil
}

// alsoRequiring is a request that another policy's word holds for as well. It is never weaker for it: a set of the same
// approvers is another one where others are among it later.
func (a Approval) alsoRequiring(dec policy.Decision) Approval {
	a.Quorum, a.FourEyes = max(a.Quorum, dec.People()), a.FourEyes || dec.FourEyes
	a.Above, a.AboveTo = slices.Clone(a.Above), slices.Clone(a.AboveTo)
	alike := func(x, y []string) bool { return slices.Equal(sortedSet(x), sortedSet(y)) }
	also := func(of, to []string) {
		same := func(have, later []string) bool {
			return alike(have, of) && (a.EscalatesAt.IsZero() || alike(later, to))
		}
		if same(a.Approvers, a.EscalateTo) {
			return
		}
		for i, have := range a.Above {
			var later []string
			if i < len(a.AboveTo) {
				later = a.AboveTo[i]
			}
			if same(have, later) {
				return
			}
		}
		a.Above = append(a.Above, of)
		if len(to) > 0 && !a.EscalatesAt.IsZero() {
			a.AboveTo = append(append(a.AboveTo, make([][]string, len(a.Above)-1-len(a.AboveTo))...), to)
		}
	}
	var to []string
	if dec.Escalate != nil {
		to = dec.Escalate.To
		if at := a.RequestedAt.Add(dec.Escalate.After); !a.EscalatesAt.IsZero() && at.After(a.EscalatesAt) {
			a.EscalatesAt = at
		}
	}
	also(dec.Approvers, to)
	for i, of := range dec.Above {
		to = nil
		if i < len(dec.AboveTo) {
			to = dec.AboveTo[i]
		}
		also(of, to)
	}
	return a
}

// canDecideUnder reports whether the person who makes r may decide about a call of which policy says that.
func (d *Desk) canDecideUnder(a Approval, r DecisionInput) func(policy.Decision) bool {
	waited := d.Clock.Now().Sub(a.RequestedAt)
	return func(dec policy.Decision) bool { return dec.MayAfter(r.By, waited) }
}

// tallyAnswer is plan of an answer to what a call's tool asks. It takes as many people who give the same answer as it
// would take to approve the call; of each, the newest answer counts.
func (d *Desk) tallyAnswer(ctx context.Context, a Approval, r DecisionInput, said Decision) (*run.Decided, Approval, error) {
	def, s, c, err := d.loadCall(ctx, a)
	if err != nil {
		return nil, a, err
	}
	if c.Wait == nil || c.Wait.Approval != a.ID { // pending, and overtaken by an entry that is on its way
		return nil, a, fmt.Errorf("decide approval %s: call %s: %w", a.ID, a.Call(), ErrNothing)
	}
	fact, err := policy.ResumeInput(def, s, c, r.Result, r.By.ID, d.canDecideUnder(a, r), d.ValidateArgs)
	if err != nil {
		return nil, a, amendError(a, r, err)
	}
	people := a.Quorum
	if fact.Args != nil { // a new action, which takes what its own rule wants as well (A8)
		if people, err = a.answerQuorum(r, policy.ActionNow(def, s, c, fact.Args).Rule); err != nil {
			return nil, a, err
		}
	}
	said.Args, fact.Note = fact.Result, r.Note
	decided := a.withDecision(fact, said)
	counted := decided.CountedApprovals()
	if len(counted) < people {
		a.Decisions = decided.Decisions
		return nil, a, nil
	}
	for _, v := range counted[:len(counted)-1] {
		fact.With = append(fact.With, v.By)
	}
	return &fact, decided, nil
}

// answerQuorum is how many people give an answer that takes the arguments' place, of which policy says that. Each of
// them is judged by it in turn.
func (a Approval) answerQuorum(r DecisionInput, dec policy.Decision) (people int, err error) {
	if dec.Verdict == agent.VerdictAsk {
		a = a.alsoRequiring(dec)
	}
	if a.FourEyes && slices.Contains(a.Requesters, r.By.ID) {
		return 0, fmt.Errorf("decide approval %s as %s: %w", a.ID, r.By.ID, ErrRequester)
	}
	return policy.FourEyesEdit(a.Quorum, a.FourEyes), nil
}

// loadCall is the call that a request is about, in its run and under its definition.
func (d *Desk) loadCall(ctx context.Context, a Approval) (*agent.Definition, *run.AgentState, run.Call, error) {
	l, err := d.Journal.Load(ctx, a.Tenant, a.Run)
	if err != nil {
		return nil, nil, run.Call{}, err
	}
	def, err := d.Definitions(ctx, a.Tenant, l.State.Definition)
	if err != nil {
		return nil, nil, run.Call{}, fmt.Errorf("decide approval %s: %w", a.ID, err)
	}
	if l.State.Status == run.RunDone {
		return nil, nil, run.Call{}, ErrFinished
	}
	c, ok := l.State.Call(a.Call())
	if !ok {
		return nil, nil, run.Call{}, fmt.Errorf("decide approval %s: call %s: %w", a.ID, a.Call(), ErrNothing)
	}
	return def, &l.State, c, nil
}

// amendError is the desk's error for one of changed arguments.
func amendError(a Approval, r DecisionInput, err error) error {
	var refused *policy.AmendError
	switch {
	case errors.As(err, &refused):
		return &EditError{Problem: refused.Problem}
	case errors.Is(err, policy.ErrOtherApprovers):
		return fmt.Errorf("decide approval %s as %s: %w: %w", a.ID, r.By.ID, err, ErrForbidden)
	default:
		return err
	}
}
