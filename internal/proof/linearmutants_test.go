package proof

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/store"
)

// maxHistories is the largest number of histories in which the check must find a mutant. Most need only a few.
const maxHistories = 200

// wrongTable is a table that changes operations.
type wrongTable struct {
	store.Table
	ops func([]store.Op) []store.Op
}

func (w wrongTable) Write(ctx context.Context, ops ...store.Op) error {
	if ops = w.ops(slices.Clone(ops)); len(ops) == 0 {
		return nil
	}
	return w.Table.Write(ctx, ops...)
}

// dropConditions drops the matching conditions on attributes of requests' items.
func dropConditions(t store.Table, drop func(store.Op, store.Cond) bool) store.Table {
	return wrongTable{t, func(ops []store.Op) []store.Op {
		for i := range ops {
			if strings.Contains(ops[i].Item.PK, "#APPROVAL#") {
				ops[i].If = slices.DeleteFunc(slices.Clone(ops[i].If), func(c store.Cond) bool { return drop(ops[i], c) })
			}
		}
		return ops
	}}
}

// outdated is a table that answers reads of requests with what it answered before, every other time.
type outdated struct {
	store.Table
	mu    sync.Mutex
	seen  map[store.Key]store.Item
	reads int
}

func (o *outdated) Get(ctx context.Context, k store.Key) (store.Item, bool, error) {
	it, found, err := o.Table.Get(ctx, k)
	if err != nil || !found || !strings.Contains(k.PK, "#APPROVAL#") {
		return it, found, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reads++
	if old, ok := o.seen[k]; ok && o.reads%2 == 0 {
		return old, true, nil
	}
	o.seen[k] = it
	return it, found, err
}

func overTable(f func(store.Table) store.Table) variant { return variant{table: f} }

// wrongDesks are the ways in which a desk could be wrong that a history shows.
var wrongDesks = map[string]variant{
	"a decision does not ask whether somebody was first": overTable(func(t store.Table) store.Table {
		return dropConditions(t, func(op store.Op, _ store.Cond) bool {
			return op.Kind == store.Put && len(op.If) > 0 && op.If[0].Op != store.ItemAbsent
		})
	}),
	"an approval writes over another that came between": overTable(func(t store.Table) store.Table {
		return dropConditions(t, func(_ store.Op, c store.Cond) bool { return c.Attr == "rev" })
	}),
	"expiry writes over a decision": {
		table: func(t store.Table) store.Table {
			return dropConditions(t, func(op store.Op, _ store.Cond) bool { return op.Kind == store.Update && op.Item.Index != "" })
		},
		change: (*deskFixture).slowDownClock,
	},
	"reads are older than what was read before": overTable(func(t store.Table) store.Table {
		return &outdated{Table: t, seen: map[store.Key]store.Item{}}
	}),
	"a decision is taken after its time": {
		table: func(t store.Table) store.Table {
			return dropConditions(t, func(op store.Op, c store.Cond) bool { return op.Kind == store.Put && c.Attr == "expires" })
		},
		change: func(o *deskFixture) { o.desk.Clock, o.lags = clock.System(), false },
	},
	"nobody compares what was shown": {change: func(o *deskFixture) {
		o.decide = func(ctx context.Context, r approval.DecisionInput) (approval.Approval, error) {
			r.Digest = ""
			return o.desk.Decide(ctx, r)
		}
	}},
	"who came too late is told that they won": {change: func(o *deskFixture) {
		o.decide = func(ctx context.Context, r approval.DecisionInput) (approval.Approval, error) {
			a, err := o.desk.Decide(ctx, r)
			if decided, ok := errors.AsType[*approval.DecidedError](err); ok {
				return decided.Approval, nil
			}
			return a, err
		}
	}},
	"a lost answer is an answer": {change: func(o *deskFixture) {
		o.decide = func(ctx context.Context, r approval.DecisionInput) (approval.Approval, error) {
			a, err := o.desk.Decide(ctx, r)
			if err != nil && outcomeOf(a, err).answer == uncertain {
				return approval.Get(ctx, o.plain, r.Tenant, r.ID)
			}
			return a, err
		}
	}},
}

// TestWrongDesksAreFound: each of them makes a history that no order explains.
func TestWrongDesksAreFound(t *testing.T) {
	for name, v := range wrongDesks {
		t.Run(name, func(t *testing.T) {
			unexplained(t, func(t *testing.T, seed int64) porcupine.CheckResult {
				o := newDeskFixture(t, store.NewMemory(), seed, v)
				o.runConcurrently()
				return o.check(deskModel(o.quorum, initial))
			})
		})
	}
}

func unexplained(t *testing.T, history func(t *testing.T, seed int64) porcupine.CheckResult) {
	t.Helper()
	for seed := range int64(maxHistories) {
		if history(t, seed) == porcupine.Illegal {
			t.Logf("found by history %d", seed+1)
			return
		}
	}
	t.Fatalf("%d histories, and each can be explained", maxHistories)
}

// unconditional drops all conditions of the matching operations.
func unconditional(matches func(store.Item) bool) func(store.Table) store.Table {
	return func(t store.Table) store.Table {
		return wrongTable{t, func(ops []store.Op) []store.Op {
			for i := range ops {
				if matches(ops[i].Item) {
					ops[i].If = nil
				}
			}
			return ops
		}}
	}
}

func closes(it store.Item) bool { return it.Attrs["closed"].Int() == 1 }

// wrongInboxes are the ways in which an inbox could be wrong.
var wrongInboxes = map[string]func(store.Table) store.Table{
	"the same message is taken twice": unconditional(func(it store.Item) bool { return strings.HasPrefix(it.SK, "I#") }),
	"a message takes the place of another": unconditional(func(it store.Item) bool {
		return strings.HasPrefix(it.SK, "K#") && !closes(it)
	}),
	"the end leaves the inbox open": func(t store.Table) store.Table {
		return wrongTable{t, func(ops []store.Op) []store.Op {
			return slices.DeleteFunc(ops, func(op store.Op) bool { return closes(op.Item) })
		}}
	},
	"the end does not look whether something came": unconditional(closes),
}

// TestWrongInboxesAreFound is TestWrongDesksAreFound of what is said to runs.
func TestWrongInboxesAreFound(t *testing.T) {
	for name, wrap := range wrongInboxes {
		t.Run(name, func(t *testing.T) {
			unexplained(t, func(t *testing.T, seed int64) porcupine.CheckResult {
				p := newInboxFixture(t, store.NewMemory(), seed, wrap)
				p.runConcurrently()
				return p.check(inboxModel())
			})
		})
	}
}
