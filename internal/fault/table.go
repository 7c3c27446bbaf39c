package fault

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
)

// Table puts the injector before a table that is empty. Its index can be made to lag.
func (in *Injector) Table(next store.Table) store.Table { return &table{in: in, next: next} }

type table struct {
	in   *Injector
	next store.Table

	mu      sync.Mutex
	written [][]store.Op // every write that succeeded, in order
}

func (t *table) Get(ctx context.Context, k store.Key) (it store.Item, found bool, err error) {
	err = t.in.through(ctx, Call{Port: "table.Get", What: k.SK}, func() (err error) {
		it, found, err = t.next.Get(ctx, k)
		return err
	})
	return it, found, err
}

func (t *table) Query(ctx context.Context, r store.Range) (p store.Page, err error) {
	err = t.in.through(ctx, Call{Port: "table.Query", What: r.From, Lags: r.Index}, func() (err error) {
		from := t.next
		if i := invocationOf(ctx); r.Index && i != nil && i.lag > 0 {
			if from, err = t.before(ctx, i.lag); err != nil {
				return err
			}
		}
		p, err = from.Query(ctx, r)
		return err
	})
	return p, err
}

func (t *table) Write(ctx context.Context, ops ...store.Op) error {
	keys := make([]string, len(ops))
	for i, op := range ops {
		keys[i] = op.Item.SK
	}
	return t.in.through(ctx, Call{Port: "table.Write", What: strings.Join(keys, "+")}, func() error {
		err := t.next.Write(ctx, ops...)
		if err == nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.written = append(t.written, slices.Clone(ops))
		}
		return err
	})
}

// before is the table as it was so many writes ago.
func (t *table) before(ctx context.Context, writes int) (store.Table, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := memory.New()
	for _, ops := range t.written[:max(0, len(t.written)-writes)] {
		ops = slices.Clone(ops)
		for i := range ops {
			ops[i].If = nil
		}
		if err := old.Write(context.WithoutCancel(ctx), ops...); err != nil {
			return nil, fmt.Errorf("read an older state of the index: %w", err)
		}
	}
	return old, nil
}
