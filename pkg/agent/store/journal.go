package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/pkg/agent"
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
	table Table
	cache *cache
}

// NewJournal makes a journal over t that keeps the folded state of up to warm recently used runs; 0 keeps none.
func NewJournal(t Table, warm int) *Journal {
	return &Journal{table: t, cache: newCache(warm)}
}

// Loaded is a run as one consistent read found it.
type Loaded struct {
	State agent.AgentState
	Inbox []agent.Event // accepted and not yet drained, in slot order
}

// Load reads a run: one query over the journal's tail and the undrained inbox. A warm run is read from its newest known entry on,
// inclusive; if that entry has another writer, what was known is forgotten (rule 15). A run that does not exist is ErrNoRun.
func (j *Journal) Load(ctx context.Context, tenant, run string) (Loaded, error) {
	if known, ok := j.cache.get(tenant, run); ok {
		l, err := j.loadFrom(ctx, tenant, run, known)
		if !errors.Is(err, errStale) {
			return l, err
		}
		j.cache.drop(tenant, run)
	}
	return j.loadFrom(ctx, tenant, run, warm{})
}

var errStale = errors.New("the warm state is not the journal's")

func (j *Journal) loadFrom(ctx context.Context, tenant, run string, w warm) (Loaded, error) {
	f := fold{warm: w, known: w.state.Entries}
	r := Range{PK: runPK(tenant, run), From: entrySK(max(0, w.state.Seq())), To: slotSK(w.state.Drained + 1)}
	for {
		p, err := j.table.Query(ctx, r)
		if err != nil {
			return Loaded{}, fmt.Errorf("load run %s: %w", run, err)
		}
		if r.Cursor == "" && f.known > 0 && (len(p.Items) == 0 || p.Items[0].SK != r.From) {
			return Loaded{}, errStale
		}
		if err = f.page(p.Items); err != nil {
			j.cache.drop(tenant, run)
			return Loaded{}, fmt.Errorf("load run %s: %w", run, err)
		}
		if r.Cursor = p.Cursor; r.Cursor == "" {
			break
		}
	}
	if f.state.Entries == 0 {
		return Loaded{}, fmt.Errorf("load run %s: %w", run, ErrNoRun)
	}
	j.cache.put(f.warm)
	return Loaded{State: f.state, Inbox: undrained(f.slots, f.state.Drained)}, nil
}

// fold is a load under way: what the pages so far have made of what was warm.
type fold struct {
	warm
	known int64 // entries that were warm
	slots []agent.Event
}

// page applies a page of entries and collects the inbox slots behind them.
func (f *fold) page(items []Item) error {
	for _, it := range items {
		if !strings.HasPrefix(it.SK, inboxSK) {
			if err := f.entry(it); err != nil {
				return err
			}
			continue
		}
		fact, err := readSlot(it)
		if err != nil {
			return err
		}
		if fact != nil {
			f.slots = append(f.slots, fact)
		}
	}
	return nil
}

// entry applies one entry. The newest warm one must be what it was, to the byte; its writer's id is part of it.
func (f *fold) entry(it Item) error {
	if f.known > 0 && it.SK == entrySK(f.known-1) {
		if !bytes.Equal(it.Body, f.body) {
			return errStale
		}
		return nil
	}
	e, err := agent.UnmarshalEntry(it.Body)
	if err != nil {
		return err
	}
	if f.state, err = agent.ApplyEntry(f.state, e); err != nil {
		return err
	}
	f.body = it.Body
	return nil
}

// undrained are the slots after drained, oldest first: they lie newest first in the table.
func undrained(slots []agent.Event, drained int64) []agent.Event {
	slices.Reverse(slots)
	i := slices.IndexFunc(slots, func(e agent.Event) bool { return agent.InboxSlot(e) > drained })
	if i < 0 {
		return nil
	}
	return slots[i:]
}

// Append commits the draft as the entry after before. The entry that starts, parks, resumes, ends or hands over a run takes
// HEAD along, the one that ends it closes the inbox, and guards are written with it (rules 1, 4, 5). Anything but nil
// means that nothing is known of the outcome beyond what the error says: reload.
func (j *Journal) Append(ctx context.Context, before agent.AgentState, d *agent.Draft, guards ...Op) error {
	after := d.Committed()
	body, err := agent.MarshalEntry(d.Entry)
	if err != nil {
		return fmt.Errorf("append to run %s: %w", after.Run, err)
	}
	key := entryKey(after.Tenant, after.Run, d.Entry.Seq)
	ops := []Op{{Kind: Put, Item: Item{Key: key, Body: body}, If: []Cond{{Op: ItemAbsent}}}}
	closed := -1
	if movesHead(&before, &after) {
		ops = append(ops, headOp(&after))
	}
	if after.Status == agent.RunDone {
		closed = len(ops)
		ops = append(ops, closeOp(after.Tenant, after.Run, after.Drained+1))
	}
	if err := j.table.Write(ctx, append(ops, guards...)...); err != nil {
		j.cache.drop(after.Tenant, after.Run)
		return fmt.Errorf("append entry %d to run %s: %w", d.Entry.Seq, after.Run, appendError(err, closed))
	}
	j.cache.put(warm{after, body})
	return nil
}

func movesHead(before, after *agent.AgentState) bool {
	return before.Status != agent.RunRunning || after.Status != agent.RunRunning || before.Owner != after.Owner
}

func appendError(err error, closed int) error {
	var failed *ConditionError
	switch {
	case !errors.As(err, &failed):
		return err
	case FailedOp(err, 0):
		return ErrSequenceTaken
	case closed >= 0 && FailedOp(err, closed):
		return ErrInboxMoved
	default:
		return ErrGuardFailed
	}
}

// Entries reads a run's entries from a sequence on, in order: the record itself, for people and replay.
func (j *Journal) Entries(ctx context.Context, tenant, run string, from int64) ([]agent.Entry, error) {
	var out []agent.Entry
	r := Range{PK: runPK(tenant, run), From: entrySK(max(0, from)), To: firstInbox}
	for {
		p, err := j.table.Query(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("read journal of run %s: %w", run, err)
		}
		for _, it := range p.Items {
			e, err := agent.UnmarshalEntry(it.Body)
			if err != nil {
				return nil, fmt.Errorf("read journal of run %s at %s: %w", run, it.SK, err)
			}
			out = append(out, e)
		}
		if r.Cursor = p.Cursor; r.Cursor == "" {
			return out, nil
		}
	}
}
