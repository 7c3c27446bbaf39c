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

// The errors of a Journal. After each of the first three the caller has to reload and plan again (rule 2).
var (
	ErrSequenceTaken = errors.New("another writer has committed this entry's sequence")
	ErrInboxMoved    = errors.New("an input arrived before the run could end")
	ErrGuardFailed   = errors.New("what the entry depends on has changed")
	ErrNoRun         = errors.New("no such run")
	ErrWaitOver      = errors.New("the wait is over")
)

// Journal stores runs in a Table: entries, inbox and head, by the rules of docs/protocol.md. Safe for concurrent use.
type Journal struct {
	Clock clock.Clock // nil = ListSince reads the shards one after the other
	table Table
	cache *cache
}

// NewJournal returns a journal over t that caches the folded state of up to warm recently used runs; 0 caches none.
func NewJournal(t Table, warm int) *Journal { return &Journal{table: t, cache: &cache{limit: warm}} }

// Loaded is a run as one consistent read found it.
type Loaded struct {
	State run.AgentState
	Inbox []run.Event // accepted but not yet drained, in slot order
	// Full says that the inbox needs an entry of its own: it leaves too little room for anything else, or Inbox is only
	// the first part, since no single entry can hold it all.
	Full bool
}

// Load reads a whole run: one query over the journal's tail and the undrained inbox, and the run's origin, if any, in
// its state of that time (see seed). A cached run is read from its newest known entry on, inclusive. If that entry has
// changed, the cached state is dropped (rule 15). An unknown run is ErrNoRun.
func (j *Journal) Load(ctx context.Context, tenant, run string) (Loaded, error) {
	l, err := j.loadWarm(ctx, tenant, run, true)
	if errors.Is(err, errStale) {
		return j.loadFrom(ctx, tenant, run, warm{}, true)
	}
	return l, err
}

// LoadAt is Load for a caller that carries a run on. at is a hint, from AgentState.ReadFrom, where the run's live part
// begins. The state may be Partial. A stale hint only costs a second query.
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

// loadWarm continues from the cached state of the run. It returns errStale if there is none, if the cached state is
// wrong, or if it is partial and the whole run is wanted.
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

// loadTail reads an uncached run from a snapshot at or after the hint; ok is false if there is none.
func (j *Journal) loadTail(ctx context.Context, tenant, runID string, at int64) (l Loaded, ok bool, err error) {
	items, err := ReadAll(ctx, j.table, Range{PK: runPK(tenant, runID), From: entrySK(at), To: slotSK(1)})
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
		err = checkRun(&f.state, tenant, runID)
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

// readEntry parses an entry and checks that it fits its key. If the run's first entry has been replaced by the record
// of a deletion, the error is a *DeletedError.
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

// broken returns the error of a journal that does not fold, even if each of its items is valid by itself.
func broken(pk string, err error) error {
	if _, ok := errors.AsType[*DamagedError](err); ok {
		return err
	}
	return &DamagedError{Key: Key{PK: pk, SK: journalSK}, Err: err}
}

// checkRun returns an error if a folded journal belongs to another run than its key says.
func checkRun(s *run.AgentState, tenant, run string) error {
	if s.Tenant != tenant || s.Run != run {
		return errors.New("run_started: it is of another run, or of another tenant's")
	}
	return nil
}

var errStale = errors.New("the cached state is not the journal's")

// loadFrom continues from the cached state w, or from the beginning. whole says whether the run's origin is read
// completely.
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
	if err := checkRun(&f.state, tenant, runID); err != nil {
		j.cache.drop(tenant, runID)
		return Loaded{}, fmt.Errorf("load run %s: %w", runID, broken(r.PK, err))
	}
	j.cache.put(f.warm)
	return f.loaded(), nil
}

// fold is a running load: the cached state with the pages read so far.
type fold struct {
	warm
	known int64 // number of cached entries
	slots []slot
	seed  func(first run.Entry) (run.AgentState, error) // returns the state to which the first entry is applied
}

// slot is an accepted input and its stored size in bytes.
type slot struct {
	fact run.Event
	size int
}

// page applies a page of entries and collects the inbox slots that follow them.
func (f *fold) page(items []Item) error {
	for _, it := range items {
		add := f.entry
		if strings.HasPrefix(it.SK, inboxSK) {
			add = f.slot
		}
		if err := add(it); err != nil {
			return err
		}
	}
	return nil
}

// slot adds the content of an inbox slot.
func (f *fold) slot(it Item) error {
	fact, err := readSlot(it)
	if err == nil && fact != nil {
		f.slots = append(f.slots, slot{fact, len(it.Body)})
	}
	return err
}

// entry applies one entry. The newest cached entry has to be unchanged, byte for byte; it includes its writer's id.
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

// loaded returns the run with its undrained inbox, oldest first, as far as one entry can hold it. The table has slots
// newest first.
func (f *fold) loaded() Loaded {
	l := Loaded{State: f.state}
	slices.Reverse(f.slots)
	size, closing := 0, 0
	for _, s := range f.slots {
		if run.InboxSlot(s.fact) <= f.state.Drained {
			continue
		}
		switch e := s.fact.(type) { // draining it may close or open a request to people
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

// Append commits the draft as the entry after before. An entry that starts, parks, resumes, ends or hands over a run
// also writes HEAD. The one that ends the run closes the inbox. guards are written in the same transaction (rules 1, 4,
// 5). After an error the outcome is unknown except for what the error says, and the caller has to reload.
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
		head, err := headOp(&after)
		if err != nil {
			return fmt.Errorf("append to run %s: %w", after.Run, err)
		}
		ops = append(ops, head)
	}
	if after.Status == run.RunDone {
		closed = len(ops)
		// The closed slot ends the inbox forever (rule 4).
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

// Entries reads a run's own entries from a sequence on, in order, for people and replay. Entries of its origin belong
// to that run. It reads at most count entries; 0 = all.
func (j *Journal) Entries(ctx context.Context, tenant, run string, from int64, count int) ([]run.Entry, error) {
	from = max(0, from)
	r := Range{PK: runPK(tenant, run), From: entrySK(from), To: inboxSK}
	if count > 0 {
		r.To = entrySK(from + int64(count) - 1) // sequences have no gaps
	}
	return j.readEntries(ctx, run, r)
}

// Stored reads up to count of a run's own entries from a sequence on, in order, in stored form.
func (j *Journal) Stored(ctx context.Context, tenant, runID string, from int64, count int) ([][]byte, error) {
	r := Range{PK: runPK(tenant, runID), From: entrySK(from), To: entrySK(from + int64(count) - 1)}
	items, err := ReadAll(ctx, j.table, r)
	if err != nil {
		return nil, fmt.Errorf("read journal of run %s: %w", runID, err)
	}
	return run.Map(items, func(it Item) []byte { return it.Body }), nil
}

// HasEntry reports whether a run has an entry of that sequence. It is one consistent read of one key.
func (j *Journal) HasEntry(ctx context.Context, tenant, run string, seq int64) (bool, error) {
	_, found, err := j.table.Get(ctx, entryKey(tenant, run, seq))
	if err != nil {
		return false, fmt.Errorf("read entry %d of run %s: %w", seq, run, err)
	}
	return found, nil
}

// Conversation returns every message of the run s, oldest first: the evicted ones, from the journals that hold them,
// and the live ones. s must have been read whole. Without evicted messages it reads nothing.
func (j *Journal) Conversation(ctx context.Context, tenant string, s *run.AgentState) ([]policy.SeenMessage, error) {
	if s.EvictedMessages == 0 {
		return policy.WithSeenCounts(s.Messages.All(), s.Inferences), nil
	}
	evicted, _, err := j.evictedMessages(ctx, tenant, s.Run, s.Seq())
	return append(evicted, policy.WithSeenCounts(s.Messages.All(), s.Inferences)...), err
}

// evictedMessages returns the messages that had been evicted from a run's conversation up to its entry seq, including
// those of its origin, and the run's state at seq.
func (j *Journal) evictedMessages(
	ctx context.Context, tenant, runID string, seq int64,
) (evicted []policy.SeenMessage, s run.AgentState, err error) {
	entries, err := j.entryRange(ctx, tenant, runID, 0, seq)
	if err != nil || len(entries) == 0 {
		return nil, s, err
	}
	if from := policy.OriginOf(entries[0]); from != nil {
		var past run.AgentState
		if evicted, past, err = j.evictedMessages(ctx, tenant, from.Run, from.Seq); err != nil {
			return nil, s, err
		}
		s = run.Seed(past)
	}
	for _, e := range entries {
		var dropped []policy.SeenMessage
		if dropped, s, err = policy.ApplyWithEvicted(s, e); err != nil {
			return nil, s, err
		}
		evicted = append(evicted, dropped...)
	}
	return evicted, s, nil
}
