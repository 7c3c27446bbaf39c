package approval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	Note       string
	By         agent.Principal
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
	if !agent.MayDecide(a.Approvers, r.By) {
		return fmt.Errorf("decide approval %s as %s: %w", a.ID, r.By.ID, ErrForbidden)
	}
	if a.Kind == KindOutcome {
		return fmt.Errorf("decide approval %s: it asks what became of call %s; answer it with a result, an error or a rerun: %w", a.ID, a.Call(), ErrKind)
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
	op, err := put(decided)
	if err != nil {
		return Approval{}, err
	}
	op.If = []store.Cond{
		{Attr: "status", Op: store.Equal, Value: store.Str(string(Pending))},
		{Attr: "expires", Op: store.Above, Value: store.Num(now.UnixMilli())},
	}
	got, err := d.Journal.Accept(ctx, a.Tenant, a.Run, "", fact, op)
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

// plan is the fact for the run and the request as it will stand.
func (d *Desk) plan(ctx context.Context, a Approval, r Request, now time.Time) (agent.Decided, Approval, error) {
	fact := agent.Decided{Call: a.Call(), Approval: a.ID, Action: agent.ActionApprove, By: r.By.ID, Note: r.Note, Digest: a.Digest}
	said := Decision{By: r.By.ID, Action: r.Action, At: now, Note: r.Note}
	a.Status = Approved
	switch r.Action {
	case Deny:
		fact.Action, fact.Text, a.Status = agent.ActionDeny, agent.TextDenied(r.By.ID, r.Note), Denied
	case Cancel:
		fact.Action, fact.Text, a.Status = agent.ActionCancel, agent.TextCallCancelled(r.By.ID, r.Note), Cancelled
	case Edit:
		args, digest, err := d.edit(ctx, a, r)
		if err != nil {
			return agent.Decided{}, Approval{}, err
		}
		fact.Args, fact.Digest, said.Args, a.Digest = args, digest, args, digest
	}
	a.ofTool(&fact, r.Action)
	a.Decisions = append(a.Decisions[:len(a.Decisions):len(a.Decisions)], said)
	return fact, a, nil
}

// ofTool makes a decision on a call one on its tool, where that is what is decided. An edit is of its own arguments alone.
func (a *Approval) ofTool(fact *agent.Decided, by Action) {
	if a.Scope != agent.ScopeTool || len(a.Permissions) != 1 || by != Approve && by != Deny {
		return
	}
	a.Permissions = slices.Clone(a.Permissions)
	a.Permissions[0].Verdict = verdictOf(by)
	fact.Permit, fact.Once = a.Permissions[0].Digests[0], by == Approve && a.Grants == agent.GrantsOnce
	if fact.Once { // the approval of the call is all there is
		a.Permissions[0].Verdict = ""
	}
}

// edit makes a new action of the call: checked against schema and deny rules as if the model had asked for it, with its own
// digest (A8).
func (d *Desk) edit(ctx context.Context, a Approval, r Request) (json.RawMessage, string, error) {
	args, err := agent.CompactJSON(r.Args, agent.JSONLimits{})
	if err != nil {
		return nil, "", &EditError{Problem: err.Error()}
	}
	l, err := d.Journal.Load(ctx, a.Tenant, a.Run)
	if err != nil {
		return nil, "", err
	}
	def, err := d.Definitions(ctx, a.Tenant, l.State.Definition)
	if err != nil {
		return nil, "", fmt.Errorf("edit approval %s: %w", a.ID, err)
	}
	c, ok := l.State.Call(a.Call())
	if !ok {
		return nil, "", fmt.Errorf("edit approval %s: call %s: %w", a.ID, a.Call(), ErrNothing)
	}
	t, known := def.Tool(c.Tool)
	if !known {
		return nil, "", &EditError{Problem: "the agent has no tool " + c.Tool}
	}
	dec := agent.DecideIn(def, &l.State, t, args)
	if dec.Verdict == agent.VerdictDeny {
		return nil, "", &EditError{Problem: "the agent's policy denies them"}
	}
	if dec.Verdict == agent.VerdictAsk && !agent.MayDecide(dec.Approvers, r.By) {
		return nil, "", fmt.Errorf("edit approval %s as %s: the edited call has other approvers: %w", a.ID, r.By.ID, ErrForbidden)
	}
	if err := d.Valid(t, args); err != nil {
		return nil, "", &EditError{Problem: err.Error()}
	}
	c.Input = args
	return args, agent.ActionDigest(def, &l.State, c, t, dec.Approvers), nil
}

// sameDecision reports whether r says what the request's own decision said.
func sameDecision(a Approval, r Request) bool {
	if len(a.Decisions) == 0 {
		return false
	}
	d := a.Decisions[len(a.Decisions)-1]
	if d.Action != r.Action {
		return false
	}
	if r.Action != Edit {
		return true
	}
	args, err := agent.CompactJSON(r.Args, agent.JSONLimits{})
	return err == nil && bytes.Equal(args, d.Args)
}
