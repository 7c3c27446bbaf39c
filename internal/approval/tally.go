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
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// CountedApprovals returns the approvals that count towards the quorum, in order. Of a call they are those since the
// last edit, and the edit counts itself. Of KindInput they are the newest answers of the people who gave the same
// answer most recently; of KindOutcome, the rerun orders. Of KindTools, see ToolApprovals.
func (a Approval) CountedApprovals() []Decision {
	switch a.Kind {
	case KindInput:
		var answer json.RawMessage
		if answers := filterByAction(a.Decisions, Approve); len(answers) > 0 {
			answer = answers[len(answers)-1].Args
		}
		return a.matchingAnswers(answer)
	case KindOutcome:
		return firstPerPerson(filterByAction(a.Decisions, Rerun))
	default:
		return firstPerPerson(filterByAction(a.sinceEdit(), Approve, Edit))
	}
}

// sinceEdit returns the decisions from the last edit on; without one, all.
func (a Approval) sinceEdit() []Decision {
	from := 0
	for i, d := range a.Decisions {
		if d.Action == Edit {
			from = i
		}
	}
	return a.Decisions[from:]
}

// ToolApprovals returns the approvals of one tool of a request about tools, in order. Place is the tool's index in
// Permissions.
func (a Approval) ToolApprovals(place int) []Decision { return a.approvalsOf(a.Permissions[place]) }

// approvalsOf returns the approvals of what p grants: of the tool, or of the call.
func (a Approval) approvalsOf(p Permission) []Decision {
	if a.Kind != KindTools {
		return a.CountedApprovals()
	}
	return firstPerPerson(slices.DeleteFunc(filterByAction(a.Decisions, Approve), func(d Decision) bool {
		return !slices.Contains(d.Tools, p.Tool)
	}))
}

// approvalsCountedWith returns the approvals that r would be counted with. An edit starts a new count.
func (a Approval) approvalsCountedWith(r DecisionInput) []Decision {
	switch {
	case r.Action == Edit:
		return nil
	case a.Kind == KindTools:
		var all []Decision
		for _, i := range a.toolPlaces(r.Tool) {
			all = append(all, a.ToolApprovals(i)...)
		}
		return all
	case a.Kind == KindInput:
		answer, _ := policy.CompactAnswer(r.Result) // tallyAnswer refuses an answer that is not valid
		return a.matchingAnswers(answer)
	default:
		return a.CountedApprovals()
	}
}

func filterByAction(all []Decision, actions ...Action) []Decision {
	var counted []Decision
	for _, d := range all {
		if slices.Contains(actions, d.Action) {
			counted = append(counted, d)
		}
	}
	return counted
}

// peopleOf returns who made the decisions.
func peopleOf(all []Decision) (people []string) {
	for _, d := range all {
		people = append(people, d.By)
	}
	return people
}

// firstPerPerson returns the first decision of each person.
func firstPerPerson(all []Decision) []Decision {
	var first []Decision
	for _, d := range all {
		if !hasDecisionBy(first, d.By) {
			first = append(first, d)
		}
	}
	return first
}

// matchingAnswers returns the newest answer of each person if it equals answer.
func (a Approval) matchingAnswers(answer json.RawMessage) []Decision {
	var newest []Decision
	for _, d := range filterByAction(a.Decisions, Approve) {
		newest = slices.DeleteFunc(newest, func(have Decision) bool { return have.By == d.By })
		newest = append(newest, d)
	}
	return slices.DeleteFunc(newest, func(d Decision) bool { return !bytes.Equal(d.Args, answer) })
}

// tallyDecision returns the request with the decision r, and the fact for the run. The fact is nil if the quorum takes
// more people.
func (d *Desk) tallyDecision(
	ctx context.Context, a Approval, r DecisionInput, now time.Time,
) (fact *run.Decided, decided Approval, err error) {
	switch {
	case !now.Before(a.ExpiresAt) && a.Kind != KindOutcome: // see DecideOp
		return nil, a, fmt.Errorf("decide approval %s: %w", a.ID, ErrExpired)
	case r.Digest != a.Digest:
		return nil, a, &StaleError{Approval: a}
	case a.hasOtherBounds(r):
		return nil, a, &GrantError{Problem: "grant: got other bounds than those with which you have approved already"}
	case r.Grant != nil && (!isApproving(r.Action) || a.Kind == KindInput):
		return nil, a, errNoStandingGrant(a)
	case a.Kind == KindTools:
		if a, err = d.withCurrentToolGrants(ctx, a, r); err != nil {
			return nil, a, err
		}
		open := a.undecidedPlaces(a.toolPlaces(r.Tool))
		fact, decided = a.tallyTools(r, open, now)
		err = decided.checkToolGrantBounds(fact, r, open, now)
	default:
		fact, decided, err = d.tallyCall(ctx, a, r, now)
	}
	if err == nil {
		err = d.validatePattern(ctx, decided, r)
	}
	return fact, decided, err
}

// tallyCall is tallyDecision of a request about one call.
func (d *Desk) tallyCall(
	ctx context.Context, a Approval, r DecisionInput, now time.Time,
) (*run.Decided, Approval, error) {
	decision := r.decision(now)
	fact := run.Decided{
		Call: a.Call(), Approval: a.ID, Action: run.ActionApprove, By: r.By.ID, Digest: a.Digest, Note: r.Note,
	}
	switch {
	case a.Kind == KindOutcome:
		return d.tallyOutcome(ctx, a, r, decision, fact)
	case r.Action == Deny:
		fact.Action, fact.Text = run.ActionDeny, agent.TextDenied(r.By.ID, r.Note)
	case r.Action == Cancel:
		fact.Action, fact.Text = run.ActionCancel, agent.TextCallCancelled(r.By.ID, r.Note)
	case a.Kind == KindInput:
		return d.tallyAnswer(ctx, a, r, decision)
	default:
		return d.tallyApproval(ctx, a, r, decision, fact)
	}
	if a.Scope == agent.ScopeTool && len(a.Permissions) == 1 && r.Action == Deny {
		fact.Permit = a.Permissions[0].Digests[0]
	}
	return &fact, a.withDecision(fact, decision), nil
}

// tallyApproval is tallyCall of an approval or an edit. If decisions are about tools, an approval covers the call's
// tool, and an edit only its own arguments. If an approval grants the exact arguments, an edit grants the edited ones.
func (d *Desk) tallyApproval(
	ctx context.Context, a Approval, r DecisionInput, decision Decision, fact run.Decided,
) (*run.Decided, Approval, error) {
	on, err := d.loadAction(ctx, a)
	if err != nil {
		return nil, a, err
	}
	if on.changed {
		fact = run.Decided{Call: a.Call(), Approval: a.ID, Action: run.ActionAskAgain, By: "policy"}
		a.Status = Voided
		return &fact, a, nil
	}
	policyName, a := on.policy, a.withCurrentGrant(on)
	if r.Action == Edit {
		if a, decision.Args, policyName, err = d.applyEdit(a, r, on); err != nil {
			return nil, a, err
		}
		decision.Digest = a.Digest
	}
	before := a
	a.Decisions = append(slices.Clip(a.Decisions), decision)
	counted := a.CountedApprovals()
	if err := a.checkGrantBounds(r, decision.At); err != nil || len(counted) < a.Quorum {
		return nil, a, err
	}
	fact.Digest = a.Digest
	fact.With = peopleOf(counted[:len(counted)-1])
	if a.OriginalArgs != nil {
		fact.Args, fact.Policy = a.Args, policyName
		if counted[0].By != r.By.ID {
			fact.Editor = counted[0].By
		}
	}
	if len(a.Permissions) == 1 {
		a.addPermit(&fact)
	}
	decided := before.withDecision(fact, decision)
	if fact.Standing && decided.grantBounds(decided.Permissions[0]).RecordAlone() {
		fact.Permit, fact.Standing = "", false // only the stored record can express the grant; later calls are covered by it
	}
	return &fact, decided, nil
}

// pendingAction is the call that an approval would let run, under its run and the current policy.
type pendingAction struct {
	def    *agent.Definition
	s      *run.AgentState
	c      run.Call
	policy string // as in agent.CallSuspended

	// changed says that people were shown another action than would run: either the policy has changed (A17), or the
	// request's arguments are not the call's (A22).
	changed bool
}

// loadAction reads the call of a request and compares it with the request. If they differ, the people were shown
// another action than would run.
func (d *Desk) loadAction(ctx context.Context, a Approval) (pendingAction, error) {
	def, s, c, err := d.loadCall(ctx, a)
	if errors.Is(err, store.ErrNoBlob) { // the run cannot go on, whatever is decided
		return pendingAction{}, nil
	}
	if err != nil {
		return pendingAction{}, err
	}
	on := pendingAction{def: def, s: s, c: c}
	if c.Wait == nil || c.Wait.Approval != a.ID { // a journal entry that is being written has decided the call
		return on, nil
	}
	now := policy.ActionNow(def, s, c, a.Args)
	sameArgs := a.OriginalArgs != nil || bytes.Equal(a.Args, c.Input) // the digest alone binds edited arguments
	on.policy, on.changed = now.Policy, !sameArgs || now.Digest != a.Digest || now.Rule.Verdict == agent.VerdictDeny
	return on, nil
}

// withCurrentGrant recomputes from the run and its definition what an approval grants besides its call. The stored item
// is not trusted for that. A call that no longer waits for this request grants nothing else.
func (a Approval) withCurrentGrant(on pendingAction) Approval {
	if len(a.Permissions) == 0 {
		return a
	}
	a.Permissions = nil
	c := on.c
	if c.Wait == nil || c.Wait.Approval != a.ID || policy.ActionNow(on.def, on.s, c, a.Args).Digest != a.Digest {
		return a
	}
	a.origin = requestOrigin{at: c.Wait.Since, requesters: on.s.RequestersOnce(c.Wait.Heard),
		edited: a.OriginalArgs != nil}
	c.Input = a.Args
	current := NewCallRequest(on.def, on.s, c)
	a.Scope, a.Grants, a.Permissions = current.Scope, current.Grants, current.Permissions
	return a
}

// withCurrentToolGrants is withCurrentGrant of a request about tools that gives standing grants.
func (d *Desk) withCurrentToolGrants(ctx context.Context, a Approval, r DecisionInput) (Approval, error) {
	if r.Action != Approve || a.Grants != agent.GrantsStanding {
		return a, nil
	}
	def, s, _, err := d.loadCall(ctx, a)
	if err != nil {
		return a, err
	}
	var current Approval
	for _, open := range s.OpenRequests() {
		if open.Approval == a.ID {
			current = NewToolsRequest(def, s, open)
			a.origin = requestOrigin{at: open.Since, requesters: s.RequestersOnce(open.Heard)}
		}
	}
	a.Permissions = slices.Clone(a.Permissions)
	for i := range a.Permissions {
		p := &a.Permissions[i]
		p.Standing = nil
		for _, real := range current.Permissions {
			if real.Tool == p.Tool {
				p.Calls, p.Standing, p.Bounds = real.Calls, real.Standing, real.Bounds
			}
		}
	}
	return a, nil
}

// addPermit adds to the fact what an approval of a call grants besides the call.
func (a Approval) addPermit(fact *run.Decided) {
	switch {
	case a.Scope != agent.ScopeTool:
		fact.Permit, fact.Standing = a.Permissions[0].Digests[0], true
	case a.OriginalArgs == nil:
		fact.Permit, fact.Once = a.Permissions[0].Digests[0], a.Grants == agent.GrantsOnce
		fact.Standing = a.Grants == agent.GrantsStanding
	}
}

// tallyAnswer is tallyCall of an answer to what a call's tool asks. The quorum is that of an approval of the call, and
// all of its people must give the same answer. Of each person the newest answer counts.
func (d *Desk) tallyAnswer(
	ctx context.Context, a Approval, r DecisionInput, decision Decision,
) (*run.Decided, Approval, error) {
	def, s, c, err := d.loadCall(ctx, a)
	if err != nil {
		return nil, a, err
	}
	if c.Wait == nil || c.Wait.Approval != a.ID { // a journal entry that is being written has decided the call
		return nil, a, fmt.Errorf("decide approval %s: call %s: %w", a.ID, a.Call(), ErrNothing)
	}
	fact, err := policy.ResumeInput(def, s, c, r.Result, r.By.ID, d.canDecideUnder(a, r), d.ValidateArgs)
	if err != nil {
		return nil, a, amendError(a, r, err)
	}
	quorum := a.Quorum
	if fact.Args != nil { // a new action, whose own rule applies as well (A8)
		both := a
		if rule := policy.ActionNow(def, s, c, fact.Args).Rule; rule.Verdict == agent.VerdictAsk {
			both = a.alsoRequiring(rule)
		}
		if err := both.authorizeApproval(r); err != nil {
			return nil, a, err
		}
		quorum = policy.FourEyesEdit(both.Quorum, both.FourEyes)
	}
	decision.Args, fact.Note = fact.Result, r.Note
	counted, decided := a.countQuorum(fact, decision, quorum)
	return counted, decided, nil
}

// countQuorum returns the decided request, and the fact with everybody who has made the decision. If the quorum takes
// more people, it returns the request with the decision alone.
func (a Approval) countQuorum(fact run.Decided, decision Decision, quorum int) (*run.Decided, Approval) {
	decided := a.withDecision(fact, decision)
	counted := decided.CountedApprovals()
	if len(counted) < quorum {
		a.Decisions = decided.Decisions
		return nil, a
	}
	fact.With = peopleOf(counted[:len(counted)-1])
	return &fact, decided
}

// tallyOutcome is tallyCall of what became of an interrupted call: a result, an error, or the order to run it again.
// The order takes the quorum of the approval, if the call was approved. The model is told the answer and, if somebody
// had edited the call's arguments, the edited arguments (A8).
func (d *Desk) tallyOutcome(
	ctx context.Context, a Approval, r DecisionInput, decision Decision, fact run.Decided,
) (*run.Decided, Approval, error) {
	def, _, c, err := d.loadCall(ctx, a)
	if err != nil {
		return nil, a, err
	}
	decision.Key, decision.Args = r.Key, r.reported()
	if r.Action != Rerun { // as a tool result of the agent is shortened; the request keeps all of it
		fact.Text = prompt.ShowResult(def, agent.ToolSpec{}, a.Call(), r.Content, false).Text
		if by := c.Editor(); by != "" {
			fact.Text = agent.TextEdited(by, string(c.Input)) + fact.Text
		}
	}
	if r.Action != Rerun || !a.takesApprover(r) {
		return &fact, a.withDecision(fact, decision), nil
	}
	counted, decided := a.countQuorum(fact, decision, a.Quorum)
	return counted, decided, nil
}

// canDecideUnder returns a function that reports whether r's person may decide a call under a policy decision.
func (d *Desk) canDecideUnder(a Approval, r DecisionInput) func(policy.Decision) bool {
	waited := d.Clock.Now().Sub(a.RequestedAt)
	return func(dec policy.Decision) bool { return dec.MayAfter(r.By, waited) }
}

// loadCall loads the call of a request with its run and its definition.
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

// The approvals of a request are recorded twice: in its item, for people, and in the run's partition, for the claim (PK
// T#tenant#RUN#run, SK V#request#person#revision). A process that can write only the item changes what people see, and
// lets nothing run: the fact that lets a call run names the people whose approvals are in the run's partition. The
// claim counts them against the policy (agent.Grant, ToolPermit, StandingGrant).

// approvalRecord is an approval as recorded with its run.
type approvalRecord struct {
	run.Voice
	About string `json:"about"` // by subjectDigest
}

func runPartition(tenant, run string) string { return "T#" + tenant + "#RUN#" + run }

// subjectDigest is the digest of what an approval is about: the action or the answer, the tools, and the bounds of the
// grant.
func subjectDigest(a Approval, decision Decision) (string, error) {
	digest := a.Digest
	if a.Kind == KindInput { // the answer replaces it
		digest = ""
	}
	of, err := jsonx.MarshalVerbatim([]any{digest, decision.Action, decision.Args, decision.Tools, decision.Grant})
	if err != nil {
		return "", fmt.Errorf("record the approval of %s: %w", decision.By, err)
	}
	return store.BlobDigest(of), nil
}

// newestVoice is the person's part in the newest decision of a request.
func newestVoice(decided Approval, by policy.Principal) run.Voice {
	decision := decided.Decisions[len(decided.Decisions)-1]
	return run.Voice{
		By: by.ID, Groups: by.Groups, At: decision.At, Tools: decision.Tools,
		Via: decision.Via, Confirmed: decision.Confirmed,
	}
}

// approvalRecordOp records the newest approval of a request that stays pending.
func approvalRecordOp(decided Approval, by policy.Principal) (store.Op, error) {
	of, err := subjectDigest(decided, decided.Decisions[len(decided.Decisions)-1])
	if err != nil {
		return store.Op{}, err
	}
	body, err := json.Marshal(approvalRecord{newestVoice(decided, by), of})
	if err != nil {
		return store.Op{}, fmt.Errorf("record the approval of %s: %w", by.ID, err)
	}
	key := store.Key{
		PK: runPartition(decided.Tenant, decided.Run), SK: fmt.Sprintf("V#%s#%s#%d", decided.ID, by.ID, decided.rev),
	}
	return store.Op{Kind: store.Put, Item: store.Item{Key: key, Body: body}}, nil
}

// loadVoices returns the people who have decided a request: the newest one, and those with whom it is decided, as
// recorded with the run.
func (d *Desk) loadVoices(
	ctx context.Context, decided Approval, by policy.Principal, with []string,
) ([]run.Voice, error) {
	last := newestVoice(decided, by)
	if len(with) == 0 {
		return []run.Voice{last}, nil
	}
	from, to := prefixRange("V#" + decided.ID)
	p, err := d.Table.Query(ctx, store.Range{PK: runPartition(decided.Tenant, decided.Run), From: from, To: to})
	if err != nil {
		return nil, fmt.Errorf("read the approvals of %s: %w", decided.ID, err)
	}
	counted := map[string]bool{} // by person and subject
	for _, of := range decided.Decisions[:len(decided.Decisions)-1] {
		what, err := subjectDigest(decided, of)
		if err != nil {
			return nil, err
		}
		counted[of.By+" "+what] = slices.Contains(with, of.By)
	}
	var all []run.Voice
	for _, it := range p.Items {
		var r approvalRecord
		if err := json.Unmarshal(it.Body, &r); err != nil {
			return nil, fmt.Errorf("read the approvals of %s: %w", decided.ID, store.Damaged(it.Key, "%w", err))
		}
		if counted[r.By+" "+r.About] {
			all = append(all, r.Voice)
		}
	}
	slices.SortStableFunc(all, func(a, b run.Voice) int { return a.At.Compare(b.At) })
	return append(all, last), nil
}

// isDecided reports whether nothing is left to decide of what r decides, and whether the outcome is the same as r's.
func (a Approval) isDecided(r DecisionInput) (ended, same bool) {
	if a.Kind != KindTools {
		return a.Status != Pending, isSameDecision(a, r)
	}
	places := a.toolPlaces(r.Tool)
	return a.Status != Pending || len(a.undecidedPlaces(places)) == 0, hasSameVerdicts(a, r, places)
}

// hasRecorded reports whether a pending request has recorded the same decision of the same person already.
func (a Approval) hasRecorded(r DecisionInput) bool {
	if a.Kind == KindTools {
		return r.Action == Approve && !a.hasOtherBounds(r) &&
			!slices.ContainsFunc(a.undecidedPlaces(a.toolPlaces(r.Tool)), func(i int) bool {
				return !hasDecisionBy(a.ToolApprovals(i), r.By.ID)
			})
	}
	switch {
	case r.Action == Edit: // the digest that the person was shown is no matter: their edit has replaced the action
		counted := a.CountedApprovals()
		return len(counted) > 0 && counted[0].By == r.By.ID && counted[0].matches(a.Kind, r)
	case r.Digest != "" && r.Digest != a.Digest:
		return false
	case r.Action == Approve || r.Action == Rerun:
		return hasDecisionBy(a.approvalsCountedWith(r), r.By.ID) && !a.hasOtherBounds(r)
	default:
		return false
	}
}

func hasDecisionBy(all []Decision, person string) bool {
	return slices.ContainsFunc(all, func(d Decision) bool { return d.By == person })
}

// isSameDecision reports whether r repeats the decision on the request. If several people approved, it may repeat any
// of their approvals.
func isSameDecision(a Approval, r DecisionInput) bool {
	otherAction := a.Kind == KindCall && r.Action == Approve && r.Digest != "" && r.Digest != a.Digest
	if len(a.Decisions) == 0 || otherAction {
		return false
	}
	decisions := a.Decisions[len(a.Decisions)-1:]
	switch {
	case a.Status == Approved && a.Kind != KindOutcome:
		decisions = a.CountedApprovals()
	case !a.wasDecidedByPeople(): // the approvals had no effect: only the same person repeats one
		decisions = slices.DeleteFunc(a.CountedApprovals(), func(d Decision) bool { return d.By != r.By.ID })
	}
	return slices.ContainsFunc(decisions, func(d Decision) bool { return d.matches(a.Kind, r) })
}

// wasDecidedByPeople reports whether people decided the request, or some of the tools of one about tools. It is false
// for a request that is pending, has expired, was cancelled with its run or voided, even if some of several people had
// approved it by then.
func (a Approval) wasDecidedByPeople() bool {
	if len(a.Decisions) == 0 {
		return false
	}
	switch last := a.Decisions[len(a.Decisions)-1]; a.Status {
	case Approved, Denied:
		return true
	case Cancelled:
		return last.Action == Cancel || last.Action == Fail
	case Pending:
		return a.Kind == KindTools
	default:
		return false
	}
}

func (d Decision) matches(k Kind, r DecisionInput) bool {
	if d.Action != r.Action || !equalBounds(d.Grant, r.Grant) {
		return false
	}
	switch {
	case r.Action == Approve && k == KindInput:
		answer, err := policy.CompactAnswer(r.Result)
		return err == nil && bytes.Equal(answer, d.Args)
	case k == KindOutcome:
		return bytes.Equal(r.reported(), d.Args)
	case r.Action != Edit:
		return true
	}
	args, err := jsonx.CompactJSON(r.Args, jsonx.JSONLimits{})
	return err == nil && bytes.Equal(args, d.Args)
}
