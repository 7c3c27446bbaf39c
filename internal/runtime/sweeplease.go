package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/store"
)

// place is how far the sweeps have come through the lists of all tenants, and what they have counted on the way. The
// zero value is before the first of them.
type place struct {
	Tenant  string  `json:"tenant,omitempty"`
	List    int     `json:"list,omitempty"` // of lists
	Cursor  string  `json:"cursor,omitempty"`
	Waiting Waiting `json:"waiting,omitzero"`
}

// The place's item is a lease, too: until says until when its holder may sweep, in milliseconds; 0 = nobody does.
var placeKey = store.Key{PK: "SWEEP", SK: "LEASE"}

const (
	attrHolder = "holder"
	attrUntil  = "until"
)

// lease makes this sweep the only one until its deadline, when it ends. A process that dies keeps the others out for as
// long.
func (p *pass) lease(ctx context.Context, until time.Time) (leased bool, err error) {
	op := store.Op{Kind: store.Update, Item: store.Item{Key: placeKey, Attrs: map[string]store.Value{
		attrHolder: store.Str(p.holder), attrUntil: store.Num(until.UnixMilli()),
	}}}
	op.If = []store.Cond{{Attr: attrUntil, Op: store.AtMost, Value: store.Num(p.Sweeper.Clock.Now().UnixMilli())}}
	err = p.Sweeper.Table.Write(ctx, op)
	if store.FailedOp(err, 0) { // leased, or there was no sweep yet
		op.Kind, op.If = store.Put, []store.Cond{{Op: store.ItemAbsent}}
		err = p.Sweeper.Table.Write(ctx, op)
	}
	if store.FailedOp(err, 0) { // leased, perhaps by this one: a request may be delivered twice
		var it store.Item
		it, _, err = p.Sweeper.Table.Get(ctx, placeKey)
		if err == nil && it.Attrs[attrHolder].String() != p.holder {
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("lease the sweep: %w", err)
	}
	return true, nil
}

// load reads where the last sweep ended, and all executions that run. Where its place cannot be read, the round begins
// again.
func (p *pass) load(ctx context.Context) error {
	it, found, err := p.Sweeper.Table.Get(ctx, placeKey)
	if err != nil && !errors.Is(err, store.ErrDamaged) {
		return fmt.Errorf("read the sweep's place: %w", err)
	}
	if !found || json.Unmarshal(it.Body, &p.from) != nil || p.from.List < 0 {
		p.from = place{}
	}
	p.at = p.from
	cursor := ""
	for {
		page, next, err := p.Executions.Running(ctx, cursor)
		if err != nil {
			return fmt.Errorf("sweep: %w", err)
		}
		for _, e := range page {
			p.running[e.Name] = &runner{started: e.Started}
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

// savePlace gives the lease back, and stores the place where it has changed: the beginning when the round has ended. A
// sweep that has lost its lease stores nothing.
func (p *pass) savePlace(ctx context.Context) error {
	if p.report.Complete {
		p.at = place{}
	}
	op := store.Op{Kind: store.Update, If: []store.Cond{{Attr: attrHolder, Op: store.Equal, Value: store.Str(p.holder)}},
		Item: store.Item{Key: placeKey, Attrs: map[string]store.Value{
			attrHolder: store.Str(p.holder), attrUntil: store.Num(0),
		}}}
	var err error
	if p.at != p.from {
		op.Kind = store.Put
		op.Item.Body, err = json.Marshal(p.at)
	}
	if err == nil {
		err = p.Sweeper.Table.Write(ctx, op)
	}
	if err != nil {
		return fmt.Errorf("keep the sweep's place: %w", err)
	}
	return nil
}
