package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// Accepted is the result of accepting an input.
type Accepted struct {
	Slot      int64 // place in the run's total order; 0 if Duplicate or Closed
	Duplicate bool  // an input with this id was accepted before
	Closed    bool  // the run has ended and accepts nothing any more
}

// An entry holds drained inputs in addition to its own facts. So a stored input has at most maxFact bytes, which leaves
// a quarter of an item. An inbox of more than maxBeside bytes is drained in an entry of its own.
const (
	maxFact   = 288 << 10
	maxBeside = 96 << 10
	// maxClosing is how many inputs that close or open a request one entry drains. Each needs up to two more writes.
	maxClosing = 40
)

// ErrOtherInput says that the id of an input was used for another input before.
var ErrOtherInput = errors.New("the id was used for another input")

// Accept puts a fact into the run's inbox, exactly once for its id, in one transaction of the marker and the next slot
// (rule 3). A fact without an id is protected by guards alone, which are the first operations of the transaction; if
// one fails, the error is ErrGuardFailed. After any other error the outcome is unknown, and the caller has to accept
// again under the same id.
func (j *Journal) Accept(ctx context.Context, tenant, run, id string, fact run.Event, guards ...Op) (Accepted, error) {
	for {
		newest, closed, err := j.newestSlot(ctx, tenant, run)
		if err != nil {
			return Accepted{}, err
		}
		n := newest + 1
		if closed { // the run has ended: the input is refused unless it was accepted before
			if id == "" {
				return Accepted{Closed: true}, nil
			}
			n = 1
		}
		slot, digest, err := slotOp(tenant, run, n, fact)
		if err != nil {
			return Accepted{}, fmt.Errorf("accept input of run %s: %w", run, err)
		}
		if closed {
			return j.sameInput(ctx, tenant, run, id, digest)
		}
		ops, marker := slices.Clone(guards), -1
		if id != "" {
			marker = len(ops)
			ops = append(ops, Op{Kind: Put, If: []Cond{{Op: ItemAbsent}},
				Item: Item{Key: markerKey(tenant, run, id), Attrs: map[string]Value{"digest": Str(digest)}}})
		}
		err = j.table.Write(ctx, append(ops, slot)...)
		var failed *ConditionError
		switch {
		case err == nil:
			return Accepted{Slot: n}, nil
		case !errors.As(err, &failed):
			return Accepted{}, fmt.Errorf("accept input of run %s: %w", run, err)
		case marker >= 0 && FailedOp(err, marker):
			return j.sameInput(ctx, tenant, run, id, digest)
		case failed.Failed[0] < len(guards):
			return Accepted{}, fmt.Errorf("accept input of run %s: %w", run, ErrGuardFailed)
		} // otherwise another input took the slot
	}
}

// sameInput returns the result for a duplicate, or ErrOtherInput if the id belongs to another input. A missing marker
// means that the inbox was closed first, because markers are never deleted.
func (j *Journal) sameInput(ctx context.Context, tenant, runID, id, digest string) (Accepted, error) {
	it, found, err := j.table.Get(ctx, markerKey(tenant, runID, id))
	var was string
	if err == nil && found {
		was, err = it.Text("digest")
		if err == nil && (!agent.ValidDigest(was) || len(it.Body) > 0) {
			err = Damaged(it.Key, "digest: want 64 hex digits and nothing beside")
		}
	}
	switch {
	case err != nil:
		return Accepted{}, fmt.Errorf("read marker %s of run %s: %w", id, runID, err)
	case !found:
		return Accepted{Closed: true}, nil
	case was != digest:
		return Accepted{}, fmt.Errorf("accept input %s of run %s: %w", id, runID, ErrOtherInput)
	}
	return Accepted{Duplicate: true}, nil
}

// slotOp returns the write of the fact to slot n. The digest is that of the fact without its slot.
func slotOp(tenant, runID string, n int64, fact run.Event) (op Op, digest string, err error) {
	bare, err := run.WithSlot(fact, 0)
	if err != nil {
		return Op{}, "", err
	}
	raw, err := run.MarshalEvent(bare)
	if err != nil {
		return Op{}, "", err
	}
	sum := sha256.Sum256(raw)
	if fact, err = run.WithSlot(fact, n); err != nil {
		return Op{}, "", err
	}
	body, err := run.MarshalEvent(fact)
	if err != nil {
		return Op{}, "", err
	}
	if len(body) > maxFact {
		return Op{}, "", fmt.Errorf("an input of %d bytes, at most %d: %w", len(body), maxFact, ErrTooLarge)
	}
	return Op{Kind: Put, Item: Item{Key: slotKey(tenant, runID, n), Body: body}, If: []Cond{{Op: ItemAbsent}}},
		hex.EncodeToString(sum[:]), nil
}

// readSlot parses the fact in a slot. It returns nil for the slot that closes the inbox.
func readSlot(it Item) (run.Event, error) {
	closed, err := isClosed(it)
	if err != nil || closed {
		return nil, err
	}
	n, err := slotNumber(it.Key)
	if err != nil {
		return nil, err
	}
	var fact run.Event
	if _, err = jsonx.CompactJSON(it.Body, jsonx.StoredLimits(it.Body)); err == nil {
		fact, err = run.UnmarshalEvent(it.Body)
	}
	if err == nil && run.InboxSlot(fact) != n {
		err = fmt.Errorf("slot: it holds the fact of slot %d", run.InboxSlot(fact))
	}
	if err != nil {
		return nil, Damaged(it.Key, "inbox slot %d: %w", n, err)
	}
	return fact, nil
}

// isClosed reports whether the item is the slot that closes the inbox. Such a slot has the attribute closed and no
// body; an input has the reverse.
func isClosed(it Item) (bool, error) {
	_, present := it.Attrs["closed"]
	if !present && len(it.Body) > 0 {
		return false, nil
	}
	n, err := it.Number("closed")
	if err == nil && (n != 1 || len(it.Body) > 0) {
		err = Damaged(it.Key, "closed: got %d and %d bytes, want 1 and none", n, len(it.Body))
	}
	return err == nil, err
}

// newestSlot reads the newest slot's number; 0 for an empty inbox.
func (j *Journal) newestSlot(ctx context.Context, tenant, run string) (n int64, closed bool, err error) {
	p, err := j.table.Query(ctx, Range{PK: runPK(tenant, run), From: inboxSK, To: pastInbox, Limit: 1})
	if err == nil && len(p.Items) > 0 {
		if n, err = slotNumber(p.Items[0].Key); err == nil {
			closed, err = isClosed(p.Items[0])
		}
	}
	if err != nil {
		return 0, false, fmt.Errorf("read inbox of run %s: %w", run, err)
	}
	return n, closed, nil
}

// SlotTaken reports whether slot n holds an input or the closing slot. It reads consistently.
func (j *Journal) SlotTaken(ctx context.Context, tenant, run string, n int64) (bool, error) {
	_, found, err := j.table.Get(ctx, slotKey(tenant, run, n))
	if err != nil {
		return false, fmt.Errorf("read inbox slot %d of run %s: %w", n, run, err)
	}
	return found, nil
}
