package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// ErrNoEntry says that a run has no entry of that sequence.
var ErrNoEntry = errors.New("no such entry")

// At reads a whole run in its state after its entry seq. An unknown run is ErrNoRun; a sequence that it has not reached
// is ErrNoEntry.
func (j *Journal) At(ctx context.Context, tenant, run string, seq int64) (run.AgentState, error) {
	return j.stateAt(ctx, tenant, run, seq, true)
}

// Before reads a run in its state before its entry seq, which may be the next one: the state to which that entry is
// applied. The state lacks calls from before its newest snapshot (AgentState.Partial). An unknown run is ErrNoRun; a
// sequence that it has not reached is ErrNoEntry.
func (j *Journal) Before(ctx context.Context, tenant, runID string, seq int64) (run.AgentState, error) {
	switch {
	case seq > lookBack:
		return j.near(ctx, tenant, runID, seq-1-lookBack, seq-1)
	case seq > 0:
		return j.stateAt(ctx, tenant, runID, seq-1, false)
	}
	entries, err := j.entryRange(ctx, tenant, runID, 0, 0)
	if err != nil {
		return run.AgentState{}, err
	}
	if len(entries) == 0 {
		return run.AgentState{}, fmt.Errorf("read run %s: %w", runID, ErrNoRun)
	}
	return j.seed(ctx, tenant, entries[0], false)
}

// lookBack is how many entries are read to find a snapshot. A run with few live messages that needs snapshots has one
// every 32 entries.
const lookBack = 64

// near is stateAt, but begins at a snapshot after from if there is one.
func (j *Journal) near(ctx context.Context, tenant, runID string, from, seq int64) (run.AgentState, error) {
	tail, err := j.entryRange(ctx, tenant, runID, from, seq)
	if err != nil {
		return run.AgentState{}, err
	}
	s, ok, err := run.Restore(tail)
	if err != nil || ok && s.Seq() == seq {
		return s, err
	}
	return j.stateAt(ctx, tenant, runID, seq, false)
}

// stateAt reads all of a run's own entries up to seq. whole says whether its origin is read completely.
func (j *Journal) stateAt(ctx context.Context, tenant, runID string, seq int64, whole bool) (run.AgentState, error) {
	entries, err := j.entryRange(ctx, tenant, runID, 0, seq)
	if err != nil {
		return run.AgentState{}, err
	}
	if len(entries) == 0 {
		return run.AgentState{}, fmt.Errorf("read run %s: %w", runID, ErrNoRun)
	}
	if newest := entries[len(entries)-1].Seq; newest != seq {
		return run.AgentState{}, fmt.Errorf("read run %s at %d, which has entries 0 to %d: %w", runID, seq, newest,
			ErrNoEntry)
	}
	return j.foldEntries(ctx, tenant, entries, whole)
}

// Fold folds a whole journal, from its first entry on, to check a record. It also reads and folds the run's origin, and
// uses no cached state.
func (j *Journal) Fold(ctx context.Context, tenant string, entries []run.Entry) (run.AgentState, error) {
	cold := &Journal{table: j.table, cache: &cache{}}
	return cold.foldEntries(ctx, tenant, entries, true)
}

// foldEntries folds entries from the first of a run on, after the run's origin.
func (j *Journal) foldEntries(
	ctx context.Context, tenant string, entries []run.Entry, whole bool,
) (run.AgentState, error) {
	if len(entries) == 0 {
		return run.AgentState{}, nil
	}
	s, err := j.seed(ctx, tenant, entries[0], whole)
	if err != nil {
		return run.AgentState{}, err
	}
	return run.Fold(s, entries)
}

// seed returns the state to which a run's first entry is applied: the zero state, or the run's origin. It makes one
// query for every ancestor with live messages, which begins at the oldest such message. With whole it reads every
// ancestor from its first entry on.
func (j *Journal) seed(ctx context.Context, tenant string, first run.Entry, whole bool) (run.AgentState, error) {
	from := policy.OriginOf(first)
	if from == nil {
		return run.AgentState{}, nil
	}
	past, err := j.origin(ctx, tenant, *from, whole)
	// the origin is broken, but this run exists, so ErrNoRun would be wrong
	if errors.Is(err, ErrNoRun) || errors.Is(err, ErrNoEntry) {
		return run.AgentState{}, fmt.Errorf("read the run's origin: %v", err) //nolint:errorlint // see above
	}
	if err != nil {
		return run.AgentState{}, fmt.Errorf("read the run's origin: %w", err)
	}
	return run.Seed(past), nil
}

// origin returns a run in its state at a branch. A cached state is known to match the journal up to there, and entries
// never change.
func (j *Journal) origin(ctx context.Context, tenant string, from run.Origin, whole bool) (run.AgentState, error) {
	if known, ok := j.cache.get(tenant, from.Run); ok && known.state.Seq() == from.Seq &&
		(!whole || !known.state.Partial) {
		return known.state, nil
	}
	if whole || from.At == 0 {
		return j.stateAt(ctx, tenant, from.Run, from.Seq, whole)
	}
	return j.near(ctx, tenant, from.Run, from.At, from.Seq)
}

// entryRange reads a run's entries from one sequence to another, both included, as far as they exist.
func (j *Journal) entryRange(ctx context.Context, tenant, run string, from, to int64) ([]run.Entry, error) {
	return j.readEntries(ctx, run, Range{PK: runPK(tenant, run), From: entrySK(max(0, from)), To: entrySK(to)})
}

func (j *Journal) readEntries(ctx context.Context, runID string, r Range) ([]run.Entry, error) {
	items, err := ReadAll(ctx, j.table, r)
	if err != nil {
		return nil, fmt.Errorf("read journal of run %s: %w", runID, err)
	}
	out := make([]run.Entry, len(items))
	for i, it := range items {
		if out[i], err = readEntry(it); err != nil {
			return nil, fmt.Errorf("read journal of run %s: %w", runID, err)
		}
	}
	return out, nil
}

// cache holds the folded state of recently used runs, but only what was read back or acknowledged (rule 15).
type cache struct {
	mu    sync.Mutex
	limit int
	runs  []*warm // newest use last
}

// warm is the cached state of a run, with its newest entry in stored form.
type warm struct {
	state run.AgentState
	body  []byte
}

// remove removes the cached state of a run and returns it; nil = none. The caller holds the lock.
func (c *cache) remove(tenant, run string) *warm {
	for i, w := range c.runs {
		if w.state.Tenant == tenant && w.state.Run == run {
			c.runs = slices.Delete(c.runs, i, i+1)
			return w
		}
	}
	return nil
}

func (c *cache) get(tenant, run string) (warm, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.remove(tenant, run)
	if w == nil {
		return warm{}, false
	}
	c.runs = append(c.runs, w)
	return *w, true
}

// put caches w unless a newer state of the run is cached.
func (c *cache) put(w warm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	newest := &w
	if known := c.remove(w.state.Tenant, w.state.Run); known != nil && known.state.Entries > w.state.Entries {
		newest = known
	}
	c.runs = append(c.runs, newest)
	c.runs = slices.Delete(c.runs, 0, max(0, len(c.runs)-c.limit))
}

func (c *cache) drop(tenant, run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(tenant, run)
}
