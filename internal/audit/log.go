package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// ErrContended says that others kept writing to the tenant's chain. Nothing is lost: the same records may be handed in
// again.
var ErrContended = errors.New("the audit chain is contended")

// ErrBroken says that the chain cannot be continued: its head does not fit its lines. Verify it.
var ErrBroken = errors.New("the audit chain is broken")

// errMoved says that what was to be written beside the records did not fit any more.
var errMoved = errors.New("somebody else has audited meanwhile")

const (
	// batch is how many records are one transaction: a line and a marker each, the head, and what is beside.
	batch = (store.MaxOps - 4) / 2
	// The pauses between attempts double between these bounds; at worst an append waits for 20 s.
	firstPause  = 5 * time.Millisecond
	lastPause   = 400 * time.Millisecond
	maxAttempts = 60
	// maxUncertain is how many writes in a row of which nobody knows whether they were done are looked into.
	maxUncertain = 4
)

// Log keeps records in tenants' chains. Table and Clock are required. Safe for concurrent use.
type Log struct {
	Table  store.Table
	Clock  clock.Clock
	Jitter func(limit time.Duration) time.Duration // draws from 0 to limit; nil = pauses are not varied
}

func partition(tenant string) string { return "T#" + tenant + "#AUDIT" }

func lineSK(seq int64) string { return fmt.Sprintf("E#%012d", seq) }

const pastLines = "E#~"

func headKey(tenant string) store.Key { return store.Key{PK: partition(tenant), SK: "HEAD"} }

func markerKey(tenant, id string) store.Key { return store.Key{PK: partition(tenant), SK: "I#" + id} }

// Record appends records in their order, each once for its id. Errors: ErrContended, ErrBroken, a record that cannot be
// kept, the context's and the table's; some of the records may be kept then, and all of them may be handed in again.
func (l *Log) Record(ctx context.Context, tenant string, records ...Record) error {
	for chunk := range slices.Chunk(records, batch) {
		if err := l.append(ctx, tenant, chunk); err != nil {
			return err
		}
	}
	return nil
}

// Head is the newest line of a tenant's chain.
func (l *Log) Head(ctx context.Context, tenant string) (Head, error) {
	it, found, err := l.Table.Get(ctx, headKey(tenant))
	if err != nil || !found {
		return Head{}, wrapped(err, tenant)
	}
	h, err := readHead(it)
	return h, wrapped(err, tenant)
}

func wrapped(err error, tenant string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read audit chain of %s: %w", tenant, err)
}

func readHead(it store.Item) (Head, error) {
	seq, err := it.Number("seq")
	if err != nil {
		return Head{}, err
	}
	hash, err := it.Text("hash")
	switch {
	case err != nil:
		return Head{}, err
	case seq < 0 || seq > 0 && !run.ValidDigest(hash):
		return Head{}, store.Damaged(it.Key, "seq and hash: want those of an entry")
	}
	return Head{Seq: seq, Hash: hash}, nil
}

// Lines reads up to limit lines that follow one in the order of the chain, as they are stored.
func (l *Log) Lines(ctx context.Context, tenant string, after int64, limit int) ([][]byte, error) {
	var out [][]byte
	r := store.Range{PK: partition(tenant), From: lineSK(max(0, after) + 1), To: pastLines, Limit: limit}
	for len(out) < limit {
		p, err := l.Table.Query(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("read audit chain of %s: %w", tenant, err)
		}
		for _, it := range p.Items {
			out = append(out, it.Body)
		}
		if r.Cursor = p.Cursor; r.Cursor == "" {
			break
		}
	}
	return out[:min(limit, len(out))], nil
}

// append writes at most batch records in one transaction, with what is beside them: operations that are written though
// all records are kept already. It is errMoved where a condition of those does not hold.
func (l *Log) append(ctx context.Context, tenant string, records []Record, beside ...store.Op) error {
	records, err := l.cleaned(records)
	if err != nil {
		return fmt.Errorf("audit %s: %w", tenant, err)
	}
	var taken *Head // the head behind which there was a line already, at the last attempt; nil = there was none
	pause, uncertain := firstPause, 0
	for range maxAttempts {
		if len(records)+len(beside) == 0 {
			return nil
		}
		head, err := l.Head(ctx, tenant)
		if err != nil {
			return err
		}
		if taken != nil && *taken == head { // it was read after the line was met, and they are written at once
			return fmt.Errorf("audit %s: line %d is there, and the head says %d: %w", tenant, head.Seq+1, head.Seq, ErrBroken)
		}
		a, err := l.attempt(ctx, tenant, head, records, beside)
		switch {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			if uncertain++; uncertain == maxUncertain {
				return err
			}
		case a.moved:
			return errMoved
		case a.done:
			return nil
		}
		records, taken = a.left, nil
		if a.taken {
			taken = &head
		}
		if !a.contended && err == nil { // only records that were kept before stood in the way
			continue
		}
		if err := l.Clock.Sleep(ctx, pause/2+l.jitter(pause/2)); err != nil {
			return fmt.Errorf("audit %s: %w", tenant, err)
		}
		pause = min(2*pause, lastPause)
	}
	return fmt.Errorf("audit %s: %w", tenant, ErrContended)
}

func (l *Log) jitter(limit time.Duration) time.Duration {
	if l.Jitter == nil {
		return limit
	}
	return l.Jitter(limit)
}

// cleaned are the records as they are kept, each id once.
func (l *Log) cleaned(records []Record) ([]Record, error) {
	now := l.Clock.Now()
	var out []Record
	for _, r := range records {
		r, err := r.clean(now)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(out, func(have Record) bool { return have.ID == r.ID }) {
			out = append(out, r)
		}
	}
	return out, nil
}

// attempted is what one write has come to.
type attempted struct {
	left      []Record // that are still to be written
	done      bool
	moved     bool // a condition beside does not hold
	contended bool // the head has moved, or the table was busy
	taken     bool // a line is there that the head does not know
}

// attempt writes the records behind head. Its error is uncertain: the write may have been done.
func (l *Log) attempt(ctx context.Context, tenant string, head Head, records []Record, beside []store.Op) (attempted, error) {
	a := attempted{left: records}
	ops := slices.Clone(beside)
	if len(records) > 0 {
		more, err := chained(tenant, head, records)
		if err != nil {
			return a, err
		}
		ops = append(ops, more...)
	}
	err := l.Table.Write(ctx, ops...)
	var failed *store.ConditionError
	switch {
	case err == nil:
		a.done = true
	case errors.Is(err, store.ErrThrottled), errors.Is(err, store.ErrConflict):
		a.contended = true
	case !errors.As(err, &failed):
		return a, fmt.Errorf("write audit chain of %s: %w", tenant, err)
	default:
		a.judge(failed, records, len(beside))
	}
	return a, nil
}

// judge reads from the operations that failed what stood in the way: behind those beside there is the head, then a line
// and a marker a record.
func (a *attempted) judge(failed *store.ConditionError, records []Record, beside int) {
	a.left = nil
	for i, r := range records {
		line, marker := beside+1+2*i, beside+2+2*i
		if !slices.Contains(failed.Failed, marker) {
			a.left = append(a.left, r)
		}
		a.taken = a.taken || slices.Contains(failed.Failed, line)
	}
	a.moved = failed.Failed[0] < beside
	a.contended = slices.Contains(failed.Failed, beside) || a.taken
}

// chained are the writes of records behind head: the head's own, then a line and a marker for each.
func chained(tenant string, head Head, records []Record) ([]store.Op, error) {
	absent := []store.Cond{{Op: store.ItemAbsent}}
	ops := []store.Op{{}}
	last := head
	for _, r := range records {
		line, err := last.next(tenant, r)
		if err != nil {
			return nil, err
		}
		text, err := line.text()
		if err != nil {
			return nil, err
		}
		last = Head{Seq: line.Seq, Hash: line.Hash}
		ops = append(ops,
			store.Op{Kind: store.Put, Item: store.Item{Key: store.Key{PK: partition(tenant), SK: lineSK(line.Seq)}, Body: text}, If: absent},
			store.Op{Kind: store.Put, Item: store.Item{Key: markerKey(tenant, r.ID), Attrs: map[string]store.Value{"seq": store.Num(line.Seq)}}, If: absent},
		)
	}
	ops[0] = store.Op{Kind: store.Put, If: absent, Item: store.Item{
		Key: headKey(tenant), Attrs: map[string]store.Value{"seq": store.Num(last.Seq), "hash": store.Str(last.Hash)},
	}}
	if head.Seq > 0 {
		ops[0].If = []store.Cond{
			{Attr: "seq", Op: store.Equal, Value: store.Num(head.Seq)}, {Attr: "hash", Op: store.Equal, Value: store.Str(head.Hash)},
		}
	}
	return ops, nil
}
