package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Executions keeps the engine's records in a table: PK X#open or X#closed, SK the execution's name.
type Executions struct{ table store.Table }

const (
	openExecutions   = "X#open"
	closedExecutions = "X#closed"
)

// NewExecutions makes the records of an engine over t.
func NewExecutions(t store.Table) *Executions { return &Executions{table: t} }

// Save writes a record; a closed one beside what it was when open.
func (x *Executions) Save(ctx context.Context, r asl.Record) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("save execution %s: %w", r.Name, err)
	}
	pk := openExecutions
	if r.Status.Terminal() {
		pk = closedExecutions
	}
	if err := x.table.Write(ctx, store.Op{Kind: store.Put, Item: store.Item{Key: store.Key{PK: pk, SK: r.Name}, Body: body}}); err != nil {
		return fmt.Errorf("save execution %s: %w", r.Name, err)
	}
	return nil
}

// Load implements asl.Store: an execution whose record cannot be read is as one that never began.
func (x *Executions) Load(ctx context.Context) ([]asl.Record, error) {
	byName := map[string]asl.Record{}
	var unread error
	for _, pk := range []string{openExecutions, closedExecutions} { // what has ended hides what was open
		for r := (store.Range{PK: pk}); ; {
			page, next, err := store.ReadPage(ctx, x.table, r, readExecution)
			if err != nil && !errors.Is(err, store.ErrDamaged) {
				return nil, fmt.Errorf("load executions: %w", err)
			}
			unread = errors.Join(unread, err)
			for _, rec := range page {
				byName[rec.Name] = rec
			}
			if r.Cursor = next; next == "" {
				break
			}
		}
	}
	return slices.Collect(maps.Values(byName)), unread
}

// readExecution reads a record, which must be the one that its key says.
func readExecution(it store.Item) (asl.Record, error) {
	var rec asl.Record
	err := run.ReadStored("execution", it.Body, &rec)
	switch {
	case err != nil:
	case rec.Name != it.SK:
		err = errors.New("name: want that of the key")
	case !rec.Status.Valid() || rec.Status.Terminal() != (it.PK == closedExecutions):
		err = errors.New("status: want one that executions under this key have")
	case rec.Wait != nil && rec.Wait.State == "":
		err = errors.New("wait: state: got nothing, want where it waits")
	}
	if err != nil {
		return asl.Record{}, fmt.Errorf("load execution %s: %w", it.SK, store.Damaged(it.Key, "%w", err))
	}
	return rec, nil
}
