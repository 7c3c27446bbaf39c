package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// The errors of a Journal. Every one of the first three means: reload, plan again (rule 2).
var (
	ErrSequenceTaken = errors.New("another writer has committed this entry's sequence")
	ErrInboxMoved    = errors.New("an input arrived before the run could end")
	ErrGuardFailed   = errors.New("what the entry depends on has changed")
	ErrNoRun         = errors.New("no such run")
	ErrWaitOver      = errors.New("the wait is over")
)

// Journal keeps runs in a Table: entries, inbox and head, by the rules of protocol.md. Safe for concurrent use.
type Journal struct {
	Clock clock.Clock // nil = ListSince reads one shard after the other
	table Table
	cache *cache
}

// NewJournal makes a journal over t that keeps the folded state of up to warm recently used runs; 0 keeps none.
func NewJournal(t Table, warm int) *Journal { return &Journal{table: t, cache: &cache{limit: warm}} }

// Loaded is a run as one consistent read found it.
type Loaded struct {
	State run.AgentState
	Inbox []run.Event // accepted and not yet drained, in slot order
	// Full says that the inbox takes an entry of its own: it is so large that another could not hold it besides, or it is
	// the beginning of one that no single entry could hold.
	Full bool
}

// Load reads a whole run: one query over the journal's tail and the undrained inbox, and where it began from another
// run, what that was then (see seed). A warm run is read from its newest known entry on, inclusive; if that is not what
// it was, what was known is forgotten (rule 15). A run that does not exist is ErrNoRun.
func (j *Journal) Load(ctx context.Context, tenant, run string) (Loaded, error) {
	l, err := j.loadWarm(ctx, tenant, run, true)
	if errors.Is(err, errStale) {
		return j.loadFrom(ctx, tenant, run, warm{}, true)
	}
	return l, err
}

// LoadAt is Load for whoever goes on with a run: at is a hint, from AgentState.ReadFrom, where its live part begins.
// The state may be Partial. A hint that is stale costs a second query and nothing else.
func (j *Journal) LoadAt(ctx context.Context, tenant, run string, at int64) (Loaded, error) {
	l, err := j.loadWarm(ctx, tenant, run, false)
	if !errors.Is(err, errStale) {
		return l, err
	}
	if at > 0 {
		if l, ok, err := j.loadTail(ctx, tenant, run, at); ok || err != nil {
			return l, err
		}
	}
	return j.loadFrom(ctx, tenant, run, warm{}, false)
}

// loadWarm goes on from what is known of the run; errStale where nothing is, where it has turned out wrong, or where it
// is partial and the whole is wanted.
func (j *Journal) loadWarm(ctx context.Context, tenant, run string, whole bool) (Loaded, error) {
	known, ok := j.cache.get(tenant, run)
	if !ok || whole && known.state.Partial {
		return Loaded{}, errStale
	}
	l, err := j.loadFrom(ctx, tenant, run, known, whole)
	if errors.Is(err, errStale) {
		j.cache.drop(tenant, run)
	}
	return l, err
}

// loadTail reads a cold run from a snapshot at or after the hint; ok is false where there is none.
func (j *Journal) loadTail(ctx context.Context, tenant, runID string, at int64) (l Loaded, ok bool, err error) {
	items, err := j.items(ctx, Range{PK: runPK(tenant, runID), From: entrySK(at), To: slotSK(1)})
	if err != nil {
		return Loaded{}, false, fmt.Errorf("load run %s: %w", runID, err)
	}
	f := fold{}
	var entries []run.Entry
	for _, it := range items {
		if strings.HasPrefix(it.SK, inboxSK) {
			err = f.slot(it)
		} else {
			var e run.Entry
			e, err = readEntry(it)
			entries, f.body = append(entries, e), it.Body
		}
		if err != nil {
			return Loaded{}, false, fmt.Errorf("load run %s: %w", runID, err)
		}
	}
	f.state, ok, err = run.Restore(entries)
	if err == nil && ok {
		err = ofRun(&f.state, tenant, runID)
	}
	if err != nil {
		return Loaded{}, false, fmt.Errorf("load run %s: %w", runID, broken(runPK(tenant, runID), err))
	}
	if !ok {
		return Loaded{}, false, nil
	}
	j.cache.put(f.warm)
	return f.loaded(), true, nil
}

// readEntry reads an entry, which must be the one that its key says. A *DeletedError stands where the run's first entry
// was.
func readEntry(it Item) (run.Entry, error) {
	if d, deleted, err := readDeletion(it); err != nil {
		return run.Entry{}, err
	} else if deleted {
		return run.Entry{}, &DeletedError{d}
	}
	e, err := run.UnmarshalEntry(it.Body)
	if err == nil && it.SK != entrySK(e.Seq) {
		err = fmt.Errorf("s: it holds entry %d", e.Seq)
	}
	if err != nil {
		return run.Entry{}, Damaged(it.Key, "%w", err)
	}
	return e, nil
}

// broken says that a journal does not fold: no item of it may be damaged by itself.
func broken(pk string, err error) error {
	if _, ok := errors.AsType[*DamagedError](err); ok {
		return err
	}
	return &DamagedError{Key: Key{PK: pk, SK: journalSK}, Err: err}
}

// ofRun holds a folded journal to the run under whose key it stands.
func ofRun(s *run.AgentState, tenant, run string) error {
	if s.Tenant != tenant || s.Run != run {
		return errors.New("run_started: it is of another run, or of another tenant's")
	}
	return nil
}

// items reads all pages of a range.
func (j *Journal) items(ctx context.Context, r Range) ([]Item, error) {
	var out []Item
	for {
		p, err := j.table.Query(ctx, r)
		if err != nil {
			return nil, err
		}
		out = append(out, p.Items...)
		if r.Cursor = p.Cursor; r.Cursor == "" {
			return out, nil
		}
	}
}

var errStale = errors.New("the warm state is not the journal's")

// loadFrom goes on from what is warm, or from the beginning; then whole says how much of the past is read.
func (j *Journal) loadFrom(ctx context.Context, tenant, runID string, w warm, whole bool) (Loaded, error) {
	seed := func(first run.Entry) (run.AgentState, error) { return j.seed(ctx, tenant, first, whole) }
	f := fold{warm: w, known: w.state.Entries, seed: seed}
	r := Range{PK: runPK(tenant, runID), From: entrySK(max(0, w.state.Seq())), To: slotSK(w.state.Drained + 1)}
	for {
		p, err := j.table.Query(ctx, r)
		if err != nil {
			return Loaded{}, fmt.Errorf("load run %s: %w", runID, err)
		}
		if r.Cursor == "" && f.known > 0 && (len(p.Items) == 0 || p.Items[0].SK != r.From) {
			return Loaded{}, errStale
		}
		if err = f.page(p.Items); err != nil {
			j.cache.drop(tenant, runID)
			return Loaded{}, fmt.Errorf("load run %s: %w", runID, err)
		}
		if r.Cursor = p.Cursor; r.Cursor == "" {
			break
		}
	}
	if f.state.Entries == 0 {
		return Loaded{}, fmt.Errorf("load run %s: %w", runID, ErrNoRun)
	}
	if err := ofRun(&f.state, tenant, runID); err != nil {
		j.cache.drop(tenant, runID)
		return Loaded{}, fmt.Errorf("load run %s: %w", runID, broken(r.PK, err))
	}
	j.cache.put(f.warm)
	return f.loaded(), nil
}

// fold is a load under way: what the pages so far have made of what was warm.
type fold struct {
	warm
	known int64 // entries that were warm
	slots []slot
	seed  func(first run.Entry) (run.AgentState, error) // what the first entry is applied to
}

// slot is an accepted input and its stored size in bytes.
type slot struct {
	fact run.Event
	size int
}

// page applies a page of entries and collects the inbox slots behind them.
func (f *fold) page(items []Item) error {
	for _, it := range items {
		take := f.entry
		if strings.HasPrefix(it.SK, inboxSK) {
			take = f.slot
		}
		if err := take(it); err != nil {
			return err
		}
	}
	return nil
}

// slot collects what an inbox slot holds.
func (f *fold) slot(it Item) error {
	fact, err := readSlot(it)
	if err == nil && fact != nil {
		f.slots = append(f.slots, slot{fact, len(it.Body)})
	}
	return err
}

// entry applies one entry. The newest warm one must be what it was, to the byte; its writer's id is part of it.
func (f *fold) entry(it Item) error {
	if f.known > 0 && it.SK == entrySK(f.known-1) {
		if !bytes.Equal(it.Body, f.body) {
			return errStale
		}
		return nil
	}
	e, err := readEntry(it)
	if err != nil {
		return err
	}
	if e.Seq == 0 && f.state.Entries == 0 {
		if f.state, err = f.seed(e); err != nil {
			return err
		}
	}
	if f.state, err = run.ApplyEntry(f.state, e); err != nil {
		return Damaged(it.Key, "%w", err)
	}
	f.body = it.Body
	return nil
}

// loaded is the run with its undrained inbox, oldest first (slots lie newest first in the table), as far as one entry
// can hold it.
func (f *fold) loaded() Loaded {
	l := Loaded{State: f.state}
	slices.Reverse(f.slots)
	size, closing := 0, 0
	for _, s := range f.slots {
		if run.InboxSlot(s.fact) <= f.state.Drained {
			continue
		}
		switch e := s.fact.(type) { // draining it may close a request to people or open one
		case run.LateResult, run.LateSuspended:
			closing++
		case run.Answered:
			if e.Used != nil {
				closing++
			}
		}
		if size += s.size; closing > maxClosing || len(l.Inbox) > 0 && size > maxFact {
			l.Full = true
			break
		}
		l.Inbox = append(l.Inbox, s.fact)
	}
	l.Full = l.Full || size > maxBeside
	return l
}

// Append commits the draft as the entry after before. The entry that starts, parks, resumes, ends or hands over a run
// takes HEAD along, the one that ends it closes the inbox, and guards are written with it (rules 1, 4, 5). Anything but
// nil means that nothing is known of the outcome beyond what the error says: reload.
func (j *Journal) Append(ctx context.Context, before run.AgentState, d *run.Draft, guards ...Op) error {
	after := d.Committed()
	body, err := d.Stored()
	if err != nil {
		return fmt.Errorf("append to run %s: %w", after.Run, err)
	}
	key := entryKey(after.Tenant, after.Run, d.Entry.Seq)
	ops := []Op{{Kind: Put, Item: Item{Key: key, Body: body}, If: []Cond{{Op: ItemAbsent}}}}
	closed := -1
	if before.Status != run.RunRunning || after.Status != run.RunRunning || before.Owner != after.Owner {
		ops = append(ops, headOp(&after))
	}
	if after.Status == run.RunDone {
		closed = len(ops)
		// The closed slot ends the inbox for ever (rule 4).
		slot := slotKey(after.Tenant, after.Run, after.Drained+1)
		ops = append(ops, Op{Kind: Put, If: []Cond{{Op: ItemAbsent}},
			Item: Item{Key: slot, Attrs: map[string]Value{"closed": Num(1)}}})
	}
	if err := j.table.Write(ctx, append(ops, guards...)...); err != nil {
		j.cache.drop(after.Tenant, after.Run)
		var failed *ConditionError
		switch {
		case !errors.As(err, &failed):
		case FailedOp(err, 0):
			err = ErrSequenceTaken
		case closed >= 0 && FailedOp(err, closed):
			err = ErrInboxMoved
		default:
			err = ErrGuardFailed
		}
		return fmt.Errorf("append entry %d to run %s: %w", d.Entry.Seq, after.Run, err)
	}
	j.cache.put(warm{after, body})
	return nil
}

// Entries reads a run's own entries from a sequence on, in order: the record itself, for people and replay. Those of a
// run it began from are that run's. It reads at most count of them; 0 = all.
func (j *Journal) Entries(ctx context.Context, tenant, run string, from int64, count int) ([]run.Entry, error) {
	from = max(0, from)
	r := Range{PK: runPK(tenant, run), From: entrySK(from), To: inboxSK}
	if count > 0 {
		r.To = entrySK(from + int64(count) - 1) // sequences have no gaps
	}
	return j.readEntries(ctx, run, r)
}

// Stored reads up to count of a run's own entries from a sequence on, in order, as they are stored.
func (j *Journal) Stored(ctx context.Context, tenant, runID string, from int64, count int) ([][]byte, error) {
	r := Range{PK: runPK(tenant, runID), From: entrySK(from), To: entrySK(from + int64(count) - 1)}
	items, err := j.items(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("read journal of run %s: %w", runID, err)
	}
	out := make([][]byte, len(items))
	for i, it := range items {
		out[i] = it.Body
	}
	return out, nil
}

// HasEntry reports whether a run has an entry of that sequence: one consistent read of one key.
func (j *Journal) HasEntry(ctx context.Context, tenant, run string, seq int64) (bool, error) {
	_, found, err := j.table.Get(ctx, entryKey(tenant, run, seq))
	if err != nil {
		return false, fmt.Errorf("read entry %d of run %s: %w", seq, run, err)
	}
	return found, nil
}

// Conversation is every message of the run s, which was read whole: those that have left its conversation, from the
// journals that hold them, and those that are live, oldest first. Without the former it reads nothing.
func (j *Journal) Conversation(ctx context.Context, tenant string, s *run.AgentState) ([]policy.Spoken, error) {
	if s.EvictedMessages == 0 {
		return policy.Said(s.Messages.All(), s.Inferences), nil
	}
	left, _, err := j.departed(ctx, tenant, s.Run, s.Seq())
	return append(left, policy.Said(s.Messages.All(), s.Inferences)...), err
}

// departed are the messages that had left a run's conversation after its entry seq, those of before the run included,
// and the run then.
func (j *Journal) departed(
	ctx context.Context, tenant, runID string, seq int64,
) (left []policy.Spoken, s run.AgentState, err error) {
	entries, err := j.entries(ctx, tenant, runID, 0, seq)
	if err != nil || len(entries) == 0 {
		return nil, s, err
	}
	if from := policy.OriginOf(entries[0]); from != nil {
		var past run.AgentState
		if left, past, err = j.departed(ctx, tenant, from.Run, from.Seq); err != nil {
			return nil, s, err
		}
		s = run.Seed(past)
	}
	for _, e := range entries {
		var gone []policy.Spoken
		if gone, s, err = policy.Departed(s, e); err != nil {
			return nil, s, err
		}
		left = append(left, gone...)
	}
	return left, s, nil
}
