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
	"github.com/countersign/countersign/internal/run"
)

// Head is a run's view for lists and waits. Only three write it: the transaction of an entry that changes it, the
// waiter (StoreToken), and a run that begins from this one (BranchOps). The journal decides what a run is (rule 1).
type Head struct {
	Tenant, Run, Agent string
	Status             run.RunStatus
	Reason             run.Reason
	Owner              string
	WaitSeq            int64  // while waiting: the sequence of the parking entry
	Drained            int64  // inbox slots that the journal had applied when this was written
	Token              string // while waiting: the task token that wakes the run; "" until the waiter has stored it
	Expires            time.Time
	StartedAt          time.Time
	UpdatedAt          time.Time
	Parent             *run.Parent // nil = not delegated; only Run, Call and Root are set
	Seq                int64       // sequence of the newest entry when this was written
	Hash               string      // hash of that entry
	Trace              *run.Trace  // nil = the run is not traced; only the context of the run's own span
}

// Equal reports whether two views are equal.
func (h Head) Equal(o Head) bool { return reflect.DeepEqual(h, o) }

// headOp returns the write of the view of s, without a token.
func headOp(s *run.AgentState) Op {
	attrs := map[string]Value{
		"agent": Str(s.Agent), "status": Str(string(s.Status)), "reason": Str(string(s.Reason)), "owner": Str(s.Owner),
		"waitSeq": Num(s.WaitSeq), "drained": Num(s.Drained), "attempt": Num(-1), "token": Str(""),
		"started": Num(s.StartedAt.UnixMilli()), "updated": Num(s.UpdatedAt.UnixMilli()), "expires": Num(0),
		"seq": Num(s.Seq()), "hash": Str(s.Hash()), attrBranch: Str(""),
	}
	if s.Status == run.RunWaiting {
		attrs["expires"] = Num(s.EarliestExpiry().UnixMilli())
	}
	if p := s.Parent; p != nil {
		attrs["root"], attrs["parent"], attrs["parentCall"] = Str(p.Root), Str(p.Run), Str(p.Call)
	}
	if s.Trace != nil {
		attrs["traceparent"], attrs["tracestate"] = Str(s.Trace.Traceparent), Str(s.Trace.Tracestate)
	}
	return Op{Kind: Put, Item: Item{
		Key: RunKey(s.Tenant, s.Run), Attrs: attrs, Body: []byte(s.Run),
		Index:     Shard(runsIndex(s.Tenant, string(s.Status)), s.Run),
		IndexSort: Head{Run: s.Run, StartedAt: s.StartedAt}.indexSort(),
	}}
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
	runID := it.PK[min(len(runPK(tenant, "")), len(it.PK)):]
	r := headReader{it: it}
	if it.Key != RunKey(tenant, runID) || string(it.Body) != runID {
		r.fail("body: want the id of the run under whose key it stands")
	}
	h := Head{
		Tenant: tenant, Run: runID, Agent: r.text("agent"), Status: run.RunStatus(r.text("status")),
		Reason: run.Reason(r.text("reason")),
		Owner:  r.text("owner"), WaitSeq: r.number("waitSeq"), Drained: r.number("drained"), Token: r.text("token"),
		Seq: r.number("seq"), Hash: r.text("hash"),
		StartedAt: time.UnixMilli(r.number("started")).UTC(), UpdatedAt: time.UnixMilli(r.number("updated")).UTC(),
	}
	r.number("attempt") // compared by StoreToken
	if r.err == nil && !h.Status.Valid() {
		r.fail("status: want running, waiting or done")
	}
	if ms := r.number("expires"); ms != 0 {
		h.Expires = time.UnixMilli(ms).UTC()
	}
	if r.has("root") {
		h.Parent = &run.Parent{Root: r.text("root"), Run: r.text("parent"), Call: r.text("parentCall")}
	}
	if r.has("traceparent") {
		h.Trace = &run.Trace{Traceparent: r.text("traceparent"), Tracestate: r.text("tracestate")}
	}
	if r.err != nil {
		return Head{}, fmt.Errorf("read head of run %s: %w", runID, r.err)
	}
	return h, nil
}

// headReader reads attributes and keeps the first error.
type headReader struct {
	it  Item
	err error
}

func (r *headReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = Damaged(r.it.Key, format, args...)
	}
}

func (r *headReader) has(name string) bool {
	v, ok := r.it.Attrs[name]
	return ok && (!v.isStr || v.s != "")
}

func (r *headReader) text(name string) string {
	s, err := r.it.Text(name)
	r.err = cmp.Or(r.err, err)
	return s
}

func (r *headReader) number(name string) int64 {
	n, err := r.it.Number(name)
	r.err = cmp.Or(r.err, err)
	return n
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
