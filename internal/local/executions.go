package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Executions keeps the engine's records in a table: PK X#open or X#closed, SK the execution's name. Loading at start reads the
// open ones and no more, so that it does not grow with what has been.
type Executions struct{ table store.Table }

const (
	openExecutions   = "X#open"
	closedExecutions = "X#closed"
)

// NewExecutions makes the records of an engine over t.
func NewExecutions(t store.Table) *Executions { return &Executions{table: t} }

// Save writes a record; a closed one moves.
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

// Load reads the records of executions that have not ended, and of all that have.
func (x *Executions) Load(ctx context.Context) ([]asl.Record, error) {
	byName := map[string]asl.Record{}
	for _, pk := range []string{openExecutions, closedExecutions} { // what has ended hides what was open
		if err := x.read(ctx, pk, byName); err != nil {
			return nil, err
		}
	}
	out := make([]asl.Record, 0, len(byName))
	for _, r := range byName {
		out = append(out, r)
	}
	return out, nil
}

func (x *Executions) read(ctx context.Context, pk string, into map[string]asl.Record) error {
	r := store.Range{PK: pk}
	for {
		p, err := x.table.Query(ctx, r)
		if err != nil {
			return fmt.Errorf("load executions: %w", err)
		}
		for _, it := range p.Items {
			rec, err := readExecution(it)
			if err != nil {
				return err
			}
			into[rec.Name] = rec
		}
		if r.Cursor = p.Cursor; r.Cursor == "" {
			return nil
		}
	}
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
