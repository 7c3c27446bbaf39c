package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// Head is a run's view for lists and waits. Only three write it: the transaction of an entry that changes it, the
// waiter (StoreToken), and a run that begins from this one (BranchOps). The journal decides what a run is (rule 1).
// The item's attributes are what conditions compare; its body is the rest as JSON.
type Head struct {
	Tenant  string        `json:"-"`
	Run     string        `json:"run"`
	Agent   string        `json:"agent"`
	Status  run.RunStatus `json:"-"`
	Reason  run.Reason    `json:"reason,omitempty"`
	Owner   string        `json:"-"`
	WaitSeq int64         `json:"-"`                 // while waiting: the sequence of the parking entry
	Drained int64         `json:"drained,omitempty"` // inbox slots that the journal had applied when this was written
	// while waiting: the task token that wakes the run; "" until the waiter has stored it
	Token     string      `json:"-"`
	Expires   time.Time   `json:"expires,omitzero"`
	StartedAt time.Time   `json:"started"`
	UpdatedAt time.Time   `json:"updated"`
	Parent    *run.Parent `json:"parent,omitempty"` // nil = not delegated; only Run, Call and Root are set
	Seq       int64       `json:"seq"`              // sequence of the newest entry when this was written
	Hash      string      `json:"-"`                // hash of that entry
	Trace     *run.Trace  `json:"trace,omitempty"`  // nil = the run is not traced; only the run's own span
}

// Equal reports whether two views are equal.
func (h Head) Equal(o Head) bool { return reflect.DeepEqual(h, o) }

// headOp returns the write of the view of s, without a token.
func headOp(s *run.AgentState) (Op, error) {
	stored := func(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
	h := Head{Run: s.Run, Agent: s.Agent, Reason: s.Reason, Drained: s.Drained, StartedAt: stored(s.StartedAt),
		UpdatedAt: stored(s.UpdatedAt), Seq: s.Seq()}
	if s.Status == run.RunWaiting {
		h.Expires = stored(s.EarliestExpiry())
	}
	if p := s.Parent; p != nil {
		h.Parent = &run.Parent{Root: p.Root, Run: p.Run, Call: p.Call}
	}
	if s.Trace != nil {
		h.Trace = &run.Trace{Traceparent: s.Trace.Traceparent, Tracestate: s.Trace.Tracestate}
	}
	body, err := jsonx.MarshalVerbatim(h)
	return Op{Kind: Put, Item: Item{
		Key: RunKey(s.Tenant, s.Run), Body: body,
		Attrs: map[string]Value{
			"status": Str(string(s.Status)), "owner": Str(s.Owner), "waitSeq": Num(s.WaitSeq), "attempt": Num(-1),
			"token": Str(""), "hash": Str(s.Hash()), attrBranch: Str(""),
		},
		Index:     Shard(runsIndex(s.Tenant, string(s.Status)), s.Run),
		IndexSort: h.indexSort(),
	}}, err
}

// indexSort returns the sort key of a run in the lists of its tenant.
func (h Head) indexSort() string { return fmt.Sprintf("%013d#%s", h.StartedAt.UnixMilli(), h.Run) }

// SameStatusOp returns a condition for a transaction: the run still has the status with which h was read.
func (h Head) SameStatusOp() Op {
	return Op{Kind: Check, Item: Item{Key: RunKey(h.Tenant, h.Run)},
		If: []Cond{{Attr: "status", Op: Equal, Value: Str(string(h.Status))}}}
}

// readHead parses a run's view and checks that it fits its key.
func readHead(tenant string, it Item) (Head, error) {
	h := Head{}
	err := jsonx.ReadStored("head", it.Body, &h)
	if err == nil && it.Key != RunKey(tenant, h.Run) {
		err = errors.New("run: want the id of the run under whose key it stands")
	}
	h.Status, h.Tenant = run.RunStatus(it.Attrs["status"].String()), tenant
	if err == nil && !h.Status.Valid() {
		err = errors.New("status: want running, waiting or done")
	}
	if err != nil {
		return Head{}, fmt.Errorf("read head: %w", Damaged(it.Key, "%w", err))
	}
	var errs [5]error
	h.Owner, errs[0] = it.Text("owner")
	h.WaitSeq, errs[1] = it.Number("waitSeq")
	h.Token, errs[2] = it.Text("token")
	h.Hash, errs[3] = it.Text("hash")
	_, errs[4] = it.Number("attempt") // compared by StoreToken
	if err := cmp.Or(errs[:]...); err != nil {
		return Head{}, fmt.Errorf("read head of run %s: %w", h.Run, err)
	}
	return h, nil
}

// Head reads a run's view consistently. An unknown run is ErrNoRun, a deleted one a *DeletedError.
func (j *Journal) Head(ctx context.Context, tenant, run string) (Head, error) {
	it, found, err := j.table.Get(ctx, RunKey(tenant, run))
	if err == nil && !found {
		err = cmp.Or(j.notDeleted(ctx, tenant, run), ErrNoRun)
	}
	if err != nil {
		return Head{}, fmt.Errorf("read head of run %s: %w", run, err)
	}
	return readHead(tenant, it)
}

// TokenClaim is a waiter's claim for its task token: its wait, its execution and its attempt.
type TokenClaim struct {
	Tenant, Run string
	Execution   string // name
	WaitSeq     int64
	Attempt     int64 // larger for a later redrive or retry
	Token       string
}

// StoreToken stores the token in HEAD if the run is still in that wait under that execution, and no later attempt has
// stored its token (rule 6). Otherwise it returns ErrWaitOver.
func (j *Journal) StoreToken(ctx context.Context, c TokenClaim) error {
	err := j.table.Write(ctx, Op{Kind: Update,
		Item: Item{Key: RunKey(c.Tenant, c.Run), Attrs: map[string]Value{"token": Str(c.Token), "attempt": Num(c.Attempt)}},
		If: []Cond{
			{Attr: "status", Op: Equal, Value: Str(string(run.RunWaiting))},
			{Attr: "waitSeq", Op: Equal, Value: Num(c.WaitSeq)},
			{Attr: "owner", Op: Equal, Value: Str(c.Execution)},
			{Attr: "attempt", Op: AtMost, Value: Num(c.Attempt)},
		},
	})
	if _, ok := errors.AsType[*ConditionError](err); ok {
		err = ErrWaitOver
	}
	if err != nil {
		return fmt.Errorf("store token of run %s: %w", c.Run, err)
	}
	return nil
}

// List pages through all of a tenant's runs of one status, shard by shard. Each run is read once; the newest start
// comes first within a shard only. Limit 0 is 50. The list may be late, and no decision depends on it. ReadPage
// describes unreadable views.
func (j *Journal) List(
	ctx context.Context, tenant string, status run.RunStatus, limit int, cursor string,
) (heads []Head, next string, err error) {
	r := Range{PK: runsIndex(tenant, string(status)), Index: true, Reverse: true, Cursor: cursor,
		Limit: cmp.Or(limit, 50)}
	return ReadShards(ctx, j.table, r, readHeads(tenant))
}

// ListEnded is List for ended runs that started no later than startedBy, the oldest first within a shard.
func (j *Journal) ListEnded(
	ctx context.Context, tenant string, startedBy time.Time, limit int, cursor string,
) (heads []Head, next string, err error) {
	r := Range{PK: runsIndex(tenant, string(run.RunDone)), Index: true, Limit: limit, Cursor: cursor,
		To: fmt.Sprintf("%013d", startedBy.UnixMilli())}
	return ReadShards(ctx, j.table, r, readHeads(tenant))
}

func readHeads(tenant string) func(Item) (Head, error) {
	return func(it Item) (Head, error) { return readHead(tenant, it) }
}

// ListSince pages through a tenant's runs that have started since then, newest start first, for people. It merges all
// shards. So that few pages are short, it reads at least twice as many runs of each status as a page holds. Status
// "" is any; the zero time lists all. Limit 0 is 50. The list may be late. An unreadable view fails the page.
//
// A run has the same position in the lists of all statuses. So a run that changes its status between two pages is in
// exactly one of them. Waiting runs are read again after the running ones: a page misses a run only if the run changes
// its status twice while the page is read.
func (j *Journal) ListSince(
	ctx context.Context, tenant string, status run.RunStatus, since time.Time, limit int, cursor string,
) (heads []Head, next string, err error) {
	limit = cmp.Or(limit, 50)
	all := Range{Index: true, Reverse: true, Limit: min(limit, limit/4+4), Cursor: cursor}
	if !since.IsZero() {
		all.From = fmt.Sprintf("%013d", since.UnixMilli())
	}
	statuses := []run.RunStatus{status}
	if status == "" {
		statuses = []run.RunStatus{run.RunWaiting, run.RunRunning, run.RunWaiting, run.RunDone}
	}
	found, end := map[string]Head{}, "" // every shard has been read down to the position end
	for _, status := range statuses {
		var parts [shards]struct {
			heads []Head
			next  string
			err   error
		}
		clock.Parallel(j.Clock, shards, shards, func(i int) {
			r, p := all, &parts[i]
			r.PK = shardName(runsIndex(tenant, string(status)), i)
			p.heads, p.next, p.err = ReadPage(ctx, j.table, r, readHeads(tenant))
		})
		for _, p := range parts {
			last := ""
			if p.err == nil && p.next != "" {
				last, p.err = lastPosition(Range{Index: true, Cursor: p.next})
			}
			if p.err != nil {
				return nil, "", fmt.Errorf("list %s runs: %w", status, p.err)
			}
			for _, h := range p.heads {
				found[Position(Item{Key: RunKey(tenant, h.Run), IndexSort: h.indexSort()}, true)] = h
			}
			end = max(end, last)
		}
	}
	for _, position := range slices.Backward(slices.Sorted(maps.Keys(found))) {
		if len(heads) == limit {
			return heads, next, nil
		}
		if position < end {
			break
		}
		heads, next = append(heads, found[position]), cursorAt(position)
	}
	if end == "" {
		return heads, "", nil
	}
	return heads, cursorAt(end), nil
}
