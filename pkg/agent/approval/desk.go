package approval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/clock"
	"github.com/countersign/countersign/pkg/agent/store"
)

// The errors of Decide and Settle beside a table's.
var (
	ErrForbidden = errors.New("not one of the approvers")
	ErrExpired   = errors.New("the request has expired")
	ErrFinished  = errors.New("the run has ended")
	ErrKind      = errors.New("the request cannot be decided like that")
	ErrNothing   = errors.New("the call waits for nobody")
	ErrNoCall    = errors.New("the run has no such call")
	ErrIgnored   = errors.New("the call has ended: the decision changes nothing")
	ErrKept      = errors.New("too many decisions are kept already")
)

// DecidedError says that somebody else's other decision came first (A12).
type DecidedError struct{ Approval Approval }

func (e *DecidedError) Error() string {
	if n := len(e.Approval.Decisions); n > 0 {
		d := e.Approval.Decisions[n-1]
		return fmt.Sprintf("approval %s is %s: %s by %s", e.Approval.ID, e.Approval.Status, d.Action, d.By)
	}
	return fmt.Sprintf("approval %s is %s", e.Approval.ID, e.Approval.Status)
}

// EditError says why edited arguments are not taken; Problem is fit to be shown.
type EditError struct{ Problem string }

func (e *EditError) Error() string { return "edited arguments refused: " + e.Problem }

// Desk records decisions. All fields but Decided are required. Safe for concurrent use.
type Desk struct {
	Table       store.Table
	Journal     *store.Journal
	Clock       clock.Clock
	Definitions func(ctx context.Context, tenant, digest string) (*agent.Definition, error)
	Valid       agent.Validator
	Wake        func(ctx context.Context, tenant, run string) error // completes the parked run's task token, if it has one

	// Decided is told of a decision once it is recorded, before the run is woken. Nil = nobody is.
	Decided func(ctx context.Context, a Approval)
}

// Request is one person's decision as it reaches the choke point. By comes from what authenticated the person, never from
// what they sent.
type Request struct {
	Tenant, ID string
	Action     Action
	Tool       string          // of a request about tools: the one it decides, by either name; "" = all that nobody has decided about
	Args       json.RawMessage // Edit
	Result     json.RawMessage // Approve, of KindInput: the answer; nil and null are true
	Note       string
	By         agent.Principal
	Via        Via // for the record

	Grant *agent.GrantBounds // Approve and Edit, where what is granted stands: how far it goes; nil = as far as the policy lets it

	Key string // under which the run's inbox takes it once, on whatever request; empty = none. Another use is store.ErrOtherInput
}

// Decide records a decision once and wakes the run. The same decision again gives the same answer and wakes again; another one is
// a *DecidedError. Nothing is changed by any error but an uncertain one of the table, after which Decide may be repeated.
func (d *Desk) Decide(ctx context.Context, r Request) (Approval, error) {
	a, err := Get(ctx, d.Table, r.Tenant, r.ID)
	if err != nil {
		return Approval{}, err
	}
	if err := authorise(a, r); err != nil {
		return Approval{}, err
	}
	if a.Kind == KindTools {
		return d.decideTools(ctx, a, r)
	}
	if a.Status == Pending {
		if a, err = d.record(ctx, a, r); err != nil {
			return Approval{}, err
		}
		if d.Decided != nil {
			d.Decided(ctx, a)
		}
	} else if !sameDecision(a, r) {
		return Approval{}, &DecidedError{Approval: a}
	}
	return a, d.wake(ctx, a)
}

// authorise is the one place that says who may decide what (A9).
func authorise(a Approval, r Request) error {
	if !r.Action.Valid() {
		return fmt.Errorf("decide approval %s: action %q: %w", a.ID, r.Action, ErrKind)
	}
	if !agent.MayDecideEach(r.By, a.Approvers, a.Above) {
		return fmt.Errorf("decide approval %s as %s: %w", a.ID, r.By.ID, ErrForbidden)
	}
	if a.Kind == KindOutcome {
		return fmt.Errorf("decide approval %s: it asks what became of call %s; answer it with a result, an error or a rerun: %w", a.ID, a.Call(), ErrKind)
	}
	if a.Kind == KindInput && r.Action == Edit {
		return fmt.Errorf("decide approval %s: it asks for input, which is no edit: approve it with a result: %w", a.ID, ErrKind)
	}
	if r.Result != nil && (r.Action != Approve || a.Kind != KindInput && string(r.Result) != "true") {
		return fmt.Errorf("decide approval %s: a result answers what a tool asks and goes with nothing else: %w", a.ID, ErrKind)
	}
	if a.Kind != KindTools && (r.Action == Fail || r.Tool != "") {
		return fmt.Errorf("decide approval %s: it is about call %s, not about tools: %w", a.ID, a.Call(), ErrKind)
	}
	if (r.Action == Edit) != (r.Args != nil) {
		return fmt.Errorf("decide approval %s: arguments go with an edit and with nothing else: %w", a.ID, ErrKind)
	}
	return nil
}

// record writes the decision into the request and the run's inbox at once (rules 3 and 8).
func (d *Desk) record(ctx context.Context, a Approval, r Request) (Approval, error) {
	now := d.Clock.Now().Truncate(time.Millisecond)
	if !now.Before(a.ExpiresAt) {
		return Approval{}, fmt.Errorf("decide approval %s: %w", a.ID, ErrExpired)
	}
	fact, decided, err := d.plan(ctx, a, r, now)
	if err != nil {
		return Approval{}, err
	}
	op, err := SettleOp(decided, now)
	if err != nil {
		return Approval{}, err
	}
	grants, err := d.grants(ctx, decided)
	if err != nil {
		return Approval{}, err
	}
	got, err := d.Journal.Accept(ctx, a.Tenant, a.Run, r.Key, fact, append([]store.Op{op}, grants...)...)
	if err != nil {
		return d.raced(ctx, a, r, err)
	}
	if got.Closed {
		return Approval{}, fmt.Errorf("decide approval %s: %w", a.ID, ErrFinished)
	}
	return decided, nil
}

// raced looks who won where the write failed or nobody knows whether it did.
func (d *Desk) raced(ctx context.Context, a Approval, r Request, cause error) (Approval, error) {
	now, err := Get(ctx, d.Table, a.Tenant, a.ID)
	switch {
	case err != nil:
		return Approval{}, errors.Join(cause, err)
	case now.Status == Pending && errors.Is(cause, store.ErrGuardFailed):
		return Approval{}, fmt.Errorf("decide approval %s: %w", a.ID, ErrExpired)
	case now.Status == Pending:
		return Approval{}, fmt.Errorf("decide approval %s: %w", a.ID, cause)
	case sameDecision(now, r):
		return now, nil
	default:
		return Approval{}, &DecidedError{Approval: now}
	}
}

// plan is the fact for the run and the request as it will stand. Where tools are decided about, it is one on the call's tool; but an edit is of
// its own arguments alone. Where an approval stands for the very arguments, an edit's does for the edited ones, and a denial for none.
func (d *Desk) plan(ctx context.Context, a Approval, r Request, now time.Time) (agent.Decided, Approval, error) {
	fact := agent.Decided{Call: a.Call(), Approval: a.ID, Action: agent.ActionApprove, By: r.By.ID, Digest: a.Digest}
	var err error
	switch {
	case r.Action == Deny:
		fact.Action, fact.Text = agent.ActionDeny, agent.TextDenied(r.By.ID, r.Note)
	case r.Action == Cancel:
		fact.Action, fact.Text = agent.ActionCancel, agent.TextCallCancelled(r.By.ID, r.Note)
	case r.Action == Edit:
		fact.Args, fact.Digest, a.Permissions, err = d.edit(ctx, a, r)
	case a.Kind == KindInput:
		fact, err = d.answer(ctx, a, r)
	}
	if a.Scope == agent.ScopeTool && len(a.Permissions) == 1 && (r.Action == Approve || r.Action == Deny) {
		fact.Permit, fact.Once = a.Permissions[0].Digests[0], r.Action == Approve && a.Grants == agent.GrantsOnce
		fact.Standing = r.Action == Approve && a.Grants == agent.GrantsStanding
	}
	if a.Scope != agent.ScopeTool && len(a.Permissions) == 1 && (r.Action == Approve || r.Action == Edit) {
		fact.Permit, fact.Standing = a.Permissions[0].Digests[0], true
	}
	fact.Note = r.Note
	if err != nil {
		return fact, a, err
	}
	return a.bounded(fact, r, now)
}

// edit makes a new action of the call: checked against schema and deny rules as if the model had asked for it, with its own
// digest (A8). Permissions are what the request grants beside it then.
func (d *Desk) edit(ctx context.Context, a Approval, r Request) (args json.RawMessage, digest string, permissions []Permission, err error) {
	args, err = agent.CompactJSON(r.Args, agent.JSONLimits{})
	if err != nil {
		return nil, "", nil, &EditError{Problem: err.Error()}
	}
	def, s, c, err := d.subject(ctx, a)
	if err != nil {
		return nil, "", nil, err
	}
	if digest, err = agent.Amend(def, s, c, args, r.By, d.Valid); err != nil {
		return nil, "", nil, amended(a, r, err)
	}
	if a.Scope == agent.ScopeTool || len(a.Permissions) == 0 {
		return args, digest, a.Permissions, nil
	}
	c.Input = args
	if t, _ := def.Tool(c.Tool); agent.DecideIn(def, s, t, args).Verdict != agent.VerdictAsk { // nobody is asked about those: no one grants them
		return args, digest, nil, nil
	}
	return args, digest, []Permission{permissionOf(def, s, c)}, nil
}

// answer resumes a call whose tool asked for input.
func (d *Desk) answer(ctx context.Context, a Approval, r Request) (agent.Decided, error) {
	def, s, c, err := d.subject(ctx, a)
	if err != nil {
		return agent.Decided{}, err
	}
	if c.Wait == nil || c.Wait.Approval != a.ID { // pending, and overtaken by an entry that is on its way
		return agent.Decided{}, fmt.Errorf("decide approval %s: call %s: %w", a.ID, a.Call(), ErrNothing)
	}
	fact, err := agent.ResumeInput(def, s, c, r.Result, r.By, d.Valid)
	return fact, amended(a, r, err)
}

// subject is the call that a request is about, in its run and under its definition.
func (d *Desk) subject(ctx context.Context, a Approval) (*agent.Definition, *agent.AgentState, agent.Call, error) {
	l, err := d.Journal.Load(ctx, a.Tenant, a.Run)
	if err != nil {
		return nil, nil, agent.Call{}, err
	}
	def, err := d.Definitions(ctx, a.Tenant, l.State.Definition)
	if err != nil {
		return nil, nil, agent.Call{}, fmt.Errorf("decide approval %s: %w", a.ID, err)
	}
	c, ok := l.State.Call(a.Call())
	if !ok {
		return nil, nil, agent.Call{}, fmt.Errorf("decide approval %s: call %s: %w", a.ID, a.Call(), ErrNothing)
	}
	return def, &l.State, c, nil
}

// amended is the desk's error for one of changed arguments.
func amended(a Approval, r Request, err error) error {
	var refused *agent.AmendError
	switch {
	case errors.As(err, &refused):
		return &EditError{Problem: refused.Problem}
	case errors.Is(err, agent.ErrOtherApprovers):
		return fmt.Errorf("decide approval %s as %s: %w: %w", a.ID, r.By.ID, err, ErrForbidden)
	default:
		return err
	}
}

// sameDecision reports whether r says what the request's own decision said.
func sameDecision(a Approval, r Request) bool {
	if len(a.Decisions) == 0 {
		return false
	}
	d := a.Decisions[len(a.Decisions)-1]
	if d.Action != r.Action || !sameGrant(d.Grant, r.Grant) {
		return false
	}
	switch {
	case r.Action == Approve && a.Kind == KindInput:
		answer, err := agent.CompactAnswer(r.Result)
		return err == nil && bytes.Equal(answer, d.Args)
	case r.Action != Edit:
		return true
	}
	args, err := agent.CompactJSON(r.Args, agent.JSONLimits{})
	return err == nil && bytes.Equal(args, d.Args)
}
