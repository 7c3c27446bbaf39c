package approval

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// ErrNotFound says that the tenant has no such request. A request of another tenant is not found either.
var ErrNotFound = errors.New("no such approval")

func itemKey(tenant, id string) store.Key {
	return store.Key{PK: "T#" + tenant + "#APPROVAL#" + id, SK: "A"}
}

// Delete deletes a request and its notice. It returns how many items there were.
func Delete(ctx context.Context, t store.Table, tenant, id string) (int64, error) {
	return store.DeleteRange(ctx, t, store.Range{PK: itemKey(tenant, id).PK}, nil)
}

func indexKey(tenant string, s Status) string { return "T#" + tenant + "#APPROVALS#" + string(s) }

func indexSortKey(at time.Time, id string) string { return fmt.Sprintf("%013d#%s", at.UnixMilli(), id) }

func putOp(a Approval) (store.Op, error) {
	body, err := jsonx.MarshalVerbatim(a.withListedArgs(a.Args, noArgs).withRepeatedArgs(a.Args, nil))
	if err != nil {
		return store.Op{}, fmt.Errorf("marshal approval %s: %w", a.ID, err)
	}
	attrs := map[string]store.Value{}
	for i, p := range a.Permissions {
		attrs[verdictAttr(i)], attrs[digestAttr(i)] = store.Str(p.storedVerdict()), store.Str(policy.PermitDigest(p.Digests))
	}
	attrs["status"], attrs["digest"] = store.Str(string(a.Status)), store.Str(cmp.Or(a.Digest, noDigest))
	attrs["expires"], attrs["consumed"] = store.Num(a.ExpiresAt.UnixMilli()), store.Num(0)
	attrs["rev"], attrs["seal"] = store.Num(a.rev), store.Str(store.BlobDigest(body))
	return store.Op{Kind: store.Put, Item: store.Item{
		Key: itemKey(a.Tenant, a.ID), Body: body, Index: indexKey(a.Tenant, a.Status),
		IndexSort: indexSortKey(a.RequestedAt, a.ID), Attrs: attrs,
	}}, nil
}

// noArgs replaces a copy of the arguments in a stored item, which has no room for long arguments twice.
var noArgs = json.RawMessage("null")

// withListedArgs replaces the arguments in the permission of the request's only call, if they equal was.
func (a Approval) withListedArgs(was, is json.RawMessage) Approval {
	if a.Kind != KindCall || len(a.Permissions) != 1 || len(a.Permissions[0].Calls) != 1 ||
		!bytes.Equal(a.Permissions[0].Calls[0].Args, was) {
		return a
	}
	p := a.Permissions[0]
	p.Calls = slices.Clone(p.Calls)
	p.Calls[0].Args = is
	a.Permissions = []Permission{p}
	return a
}

// withRepeatedArgs replaces the arguments in the request's edits and in the ticket of the tool that asks, if they equal
// was.
func (a Approval) withRepeatedArgs(was, is json.RawMessage) Approval {
	a.Decisions = slices.Clone(a.Decisions)
	for i, d := range a.Decisions {
		if d.Action == Edit && bytes.Equal(d.Args, was) {
			a.Decisions[i].Args = is
		}
	}
	if a.Ticket == nil {
		return a
	}
	t := *a.Ticket
	for _, args := range []*json.RawMessage{&t.Parameters, &t.Pending.Arguments} {
		if bytes.Equal(*args, was) {
			*args = is
		}
	}
	a.Ticket = &t
	return a
}

// noDigest is the digest that conditions compare where a request has none.
const noDigest = "none"

func equals(attr string, v store.Value) store.Cond {
	return store.Cond{Attr: attr, Op: store.Equal, Value: v}
}

func expiresAfter(t time.Time) store.Cond {
	return store.Cond{Attr: "expires", Op: store.Above, Value: store.Num(t.UnixMilli())}
}

// CreateOp writes a new request, in the transaction of the entry that suspends its call (A19).
func CreateOp(a Approval) (store.Op, error) {
	op, err := putOp(a)
	op.If = []store.Cond{{Op: store.ItemAbsent}}
	return op, err
}

// CloseOp ends a pending request without a decision, in the transaction of the entry that settles its call or after the
// entry that ends the run. It fails if somebody has decided the request.
func CloseOp(tenant string, w run.Wait, as Status) store.Op {
	return store.Op{Kind: store.Update,
		Item: store.Item{
			Key: itemKey(tenant, w.Approval), Attrs: map[string]store.Value{"status": store.Str(string(as))},
			Index: indexKey(tenant, as), IndexSort: indexSortKey(w.Since, w.Approval),
		},
		If: []store.Cond{equals("status", store.Str(string(Pending)))},
	}
}

// OpenRequest is a request that was pending when its run ended.
type OpenRequest struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
}

// CloseRequests cancels the requests of an ended run that are still pending. It may be repeated.
func CloseRequests(ctx context.Context, t store.Table, tenant string, open []OpenRequest) error {
	for some := range slices.Chunk(open, 90) { // in one transaction
		var ops []store.Op
		for _, o := range some {
			ops = append(ops, CloseOp(tenant, run.Wait{Approval: o.ID, Since: o.Since}, Cancelled))
		}
		for len(ops) > 0 {
			err := t.Write(ctx, ops...)
			var failed *store.ConditionError
			if err == nil {
				break
			}
			if !errors.As(err, &failed) {
				return fmt.Errorf("close %d requests of a run that has ended: %w", len(ops), err)
			}
			for _, i := range slices.Backward(failed.Failed) { // not pending any more
				ops = slices.Delete(ops, i, i+1)
			}
		}
	}
	return nil
}

// DecideOp writes a decided request in place of the pending one, in the transaction of the decision. It fails if
// somebody has decided it first, or if it has expired; the outcome of a call is taken as long as the run waits for it.
func DecideOp(decided Approval, now time.Time) (store.Op, error) {
	op, err := overwriteOp(decided, Pending)
	if decided.Kind != KindOutcome {
		op.If = append(op.If, expiresAfter(now))
	}
	return op, err
}

// overwriteOp writes a request in place of the one that was read, which must still have that status. It fails if
// anybody has written the request since, so that no approval, remark or escalation is lost.
func overwriteOp(a Approval, was Status) (store.Op, error) {
	read := a.rev
	a.rev++
	op, err := putOp(a)
	op.If = []store.Cond{equals("status", store.Str(string(was))), equals("rev", store.Num(read))}
	return op, err
}

// VoidOp voids an approval that no claim has used, because the policy that applies (A17) or the call's precondition has
// changed. It joins the transaction of the entry that requests approval again.
func VoidOp(a Approval) (store.Op, error) {
	a.Status = Voided
	op, err := overwriteOp(a, Approved)
	op.If = append(op.If, equals("consumed", store.Num(0)))
	return op, err
}

// Void ends a pending request that is not needed any more, and resumes its run. It lets no call run. A request that is
// decided meanwhile, and one of a run that has ended, stay as they are.
func (d *Desk) Void(ctx context.Context, a Approval) error {
	a.Status = Voided
	op, err := DecideOp(a, d.Clock.Now())
	if err == nil {
		fact := run.Decided{Call: a.Call(), Approval: a.ID, Action: run.ActionVoid, By: "policy"}
		_, err = d.Journal.Accept(ctx, a.Tenant, a.Run, "", fact, op)
	}
	switch {
	case lostRace(err):
		return nil
	case err != nil:
		return fmt.Errorf("void approval %s: %w", a.ID, err)
	}
	err = d.resumeRun(ctx, a)
	d.notifyChange(ctx, a)
	return err
}

// UpdatePending changes a pending request under concurrent writes. Change gets the current request and returns false if
// there is nothing to change; it is called again if somebody else wrote first. It never changes the digest or the
// approvers.
//
// Errors: ErrNotFound; *DecidedError if the request is not pending; those of change; store.ErrConflict if others keep
// writing.
func UpdatePending(
	ctx context.Context, t store.Table, tenant, id string, change func(a *Approval) (bool, error),
) (a Approval, changed bool, err error) {
	for range maxRaces {
		if a, err = Get(ctx, t, tenant, id); err != nil {
			return Approval{}, false, err
		}
		if a.Status != Pending {
			return a, false, &DecidedError{Approval: a}
		}
		if changed, err = change(&a); err != nil || !changed {
			return a, false, err
		}
		op, err := overwriteOp(a, Pending)
		if err != nil {
			return Approval{}, false, err
		}
		for i, p := range a.Permissions { // a claim that uses a grant up changes only this
			op.If = append(op.If, verdictCond(i, p.storedVerdict()))
		}
		err = t.Write(ctx, op)
		if err == nil {
			return a, true, nil
		}
		if !lostRace(err) {
			return Approval{}, false, fmt.Errorf("write approval %s: %w", id, err)
		}
	}
	return Approval{}, false, fmt.Errorf("write approval %s: %w", id, store.ErrConflict)
}

func lostRace(err error) bool {
	var failed *store.ConditionError
	return errors.As(err, &failed) || errors.Is(err, store.ErrGuardFailed) || errors.Is(err, store.ErrConflict)
}

// MarkEscalated records once that a request has escalated, so that its new approvers are notified. Their permission
// follows from the time alone. It changes nothing if the request is decided, does not escalate, is not due yet, or has
// escalated.
func MarkEscalated(
	ctx context.Context, t store.Table, tenant, id string, now time.Time,
) (a Approval, changed bool, err error) {
	now = now.UTC().Truncate(time.Millisecond)
	a, changed, err = UpdatePending(ctx, t, tenant, id, func(a *Approval) (bool, error) {
		if a.EscalatesAt.IsZero() || now.Before(a.EscalatesAt) || !a.EscalatedAt.IsZero() || !now.Before(a.ExpiresAt) {
			return false, nil
		}
		a.EscalatedAt = now
		return true, nil
	})
	if decided, ok := errors.AsType[*DecidedError](err); ok {
		return decided.Approval, false, nil
	}
	return a, changed, err
}

// ConsumeOp uses an approval up, in the transaction of the claim (A6). It fails unless the approval is live and of
// exactly that action.
func ConsumeOp(tenant string, g run.Grant, now time.Time) store.Op {
	return store.Op{Kind: store.Update,
		Item: store.Item{Key: itemKey(tenant, g.Approval), Attrs: map[string]store.Value{"consumed": store.Num(1)}},
		If: []store.Cond{
			equals("status", store.Str(string(Approved))), equals("digest", store.Str(g.Digest)),
			equals("consumed", store.Num(0)), expiresAfter(now),
		},
	}
}

// IsGrantLive reports whether the approval still holds for the grant at that time, by a consistent read of the
// conditions of ConsumeOp.
func IsGrantLive(ctx context.Context, t store.Table, tenant string, g run.Grant, now time.Time) (bool, error) {
	return conditionsHold(ctx, t, ConsumeOp(tenant, g, now), "approval "+g.Approval)
}

// conditionsHold reports whether the conditions of an operation hold, by a consistent read of its item.
func conditionsHold(ctx context.Context, t store.Table, op store.Op, what string) (bool, error) {
	it, found, err := t.Get(ctx, op.Item.Key)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", what, err)
	}
	return store.Holds(op.If, it, found), nil
}

// Get reads one request consistently.
func Get(ctx context.Context, t store.Table, tenant, id string) (Approval, error) {
	it, found, err := t.Get(ctx, itemKey(tenant, id))
	if err != nil {
		return Approval{}, fmt.Errorf("read approval %s: %w", id, err)
	}
	if !found {
		return Approval{}, fmt.Errorf("read approval %s: %w", id, ErrNotFound)
	}
	return readItem(tenant, it)
}

// readItem decodes a request, which must match its key. A damaged one is store.ErrDamaged: nobody is shown it or
// decides it.
func readItem(tenant string, it store.Item) (a Approval, err error) {
	id := it.PK[min(len(itemKey(tenant, "").PK), len(it.PK)):]
	defer func() {
		if err != nil {
			a, err = Approval{}, fmt.Errorf("read approval %s: %w", id, err)
		}
	}()
	if it.Attrs["seal"].String() != store.BlobDigest(it.Body) {
		return a, store.Damaged(it.Key, "seal: its body is not what was written")
	}
	var f form
	if err := jsonx.ReadStored("approval", it.Body, &f); err != nil {
		return a, store.Damaged(it.Key, "%w", err)
	}
	a = f.approval()
	a = a.withListedArgs(noArgs, a.Args).withRepeatedArgs(nil, a.Args)
	a.Tenant = tenant
	if err := a.checkItem(id, it); err != nil {
		return a, err
	}
	for i := range a.Permissions {
		a.Permissions[i].usedUp = it.Attrs[verdictAttr(i)].String() == verdictUsed
	}
	return a, nil
}

// checkItem compares a request with its key and with the attributes that conditions compare.
func (a *Approval) checkItem(id string, it store.Item) error {
	status, err1 := it.Text("status")
	digest, err2 := it.Text("digest")
	expires, err3 := it.Number("expires")
	_, err4 := it.Number("consumed")
	rev, err5 := it.Number("rev")
	if err := cmp.Or(err1, err2, err3, err4, err5); err != nil {
		return err
	}
	a.rev, a.Status = rev, Status(status)
	switch {
	case it.Key != itemKey(a.Tenant, id) || a.ID != id:
		return store.Damaged(it.Key, "id: want that of the request under whose key it stands")
	case !a.Status.Valid():
		return store.Damaged(it.Key, "status: want pending, approved, denied, expired, cancelled or voided")
	case kinds[a.Kind].actions == nil:
		return store.Damaged(it.Key, "kind: want call, tools, outcome or input")
	case a.Run == "" || a.Kind != KindTools && len(a.Calls) == 0:
		return store.Damaged(it.Key, "run and calls: got nothing, want the run and the calls that ask")
	case cmp.Or(a.Digest, noDigest) != digest:
		return store.Damaged(it.Key, "digest: it is not the one that conditions compare")
	case a.ExpiresAt.UnixMilli() != expires:
		return store.Damaged(it.Key, "expiresAt: it is not the one that conditions compare")
	}
	return nil
}

// Query narrows a list of requests. With a status alone it lists the first page of all.
type Query struct {
	Status Status
	Run    string    // only requests of this run
	Root   string    // only requests of this run and of the runs delegated below it
	Since  time.Time // only requests made since then; the start of a named run saves reads
	Newest bool      // the newest first
	Limit  int       // of the requests read; 0 = 50
	Cursor string    // where the last page ended
}

// List pages through a tenant's requests that match a query, by default the oldest first. The list may lag; no gate
// reads it. If the query names a run, a page may hold fewer requests than the limit, even none, and not be the last.
// See store.ReadPage for requests that cannot be read.
func List(ctx context.Context, t store.Table, tenant string, q Query) (list []Approval, next string, err error) {
	if q.Limit == 0 {
		q.Limit = 50
	}
	r := store.Range{PK: indexKey(tenant, q.Status), Index: true, Reverse: q.Newest, Limit: q.Limit, Cursor: q.Cursor}
	if !q.Since.IsZero() {
		r.From = fmt.Sprintf("%013d", q.Since.UnixMilli())
	}
	list, next, err = store.ReadPage(ctx, t, r, func(it store.Item) (Approval, error) { return readItem(tenant, it) })
	if err != nil {
		err = fmt.Errorf("list %s approvals: %w", q.Status, err)
	}
	list = slices.DeleteFunc(list, func(a Approval) bool {
		return q.Run != "" && q.Run != a.Run || q.Root != "" && q.Root != a.Run && q.Root != a.Root
	})
	return list, next, err
}

// form is the JSON form of a request. Its args are always the model's; its edited holds the arguments of an edit.
type form Approval

// MarshalJSON writes the stored bytes of the arguments unchanged.
func (a Approval) MarshalJSON() ([]byte, error) {
	f := form(a)
	if a.OriginalArgs != nil {
		f.Args, f.OriginalArgs = a.OriginalArgs, a.Args
	}
	return jsonx.MarshalVerbatim(f)
}

// UnmarshalJSON reads what MarshalJSON of any version writes. It ignores unknown keys; readItem, which reads stored
// requests, does not.
func (a *Approval) UnmarshalJSON(data []byte) error {
	var f form
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	*a = f.approval()
	return nil
}

func (f form) approval() Approval {
	a := Approval(f)
	if f.OriginalArgs != nil {
		a.Args, a.OriginalArgs = f.OriginalArgs, f.Args
	}
	return a
}
