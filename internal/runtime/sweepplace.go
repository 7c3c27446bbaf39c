package runtime

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/countersign/countersign/internal/store"
)

// place is how far the sweeps have come through the lists of all tenants, and what they have counted on the way. The zero value is before
// the first of them.
type place struct {
	Tenant  string  `json:"tenant,omitempty"`
	List    int     `json:"list,omitempty"` // of lists
	Cursor  string  `json:"cursor,omitempty"`
	Waiting Waiting `json:"waiting,omitzero"`
}

var placeKey = store.Key{PK: "SWEEP", SK: "CURSOR"}

// readPlace reads the place that a sweep kept, if any.
func readPlace(ctx context.Context, t store.Table) (place, error) {
	it, found, err := t.Get(ctx, placeKey)
	if err != nil {
		return place{}, fmt.Errorf("read the sweep's place: %w", err)
	}
	if !found {
		return place{}, nil
	}
	var p place
	if json.Unmarshal(it.Body, &p) != nil || p.List < 0 {
		return place{}, nil // kept by another version: the round begins again
	}
	return p, nil
}

// writePlace keeps the place. Of two sweeps at once the last one's holds; both have repaired what is before it.
func writePlace(ctx context.Context, t store.Table, p place) error {
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("keep the sweep's place: %w", err)
	}
	if err := t.Write(ctx, store.Op{Kind: store.Put, Item: store.Item{Key: placeKey, Body: body}}); err != nil {
		return fmt.Errorf("keep the sweep's place: %w", err)
	}
	return nil
}
