package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Every repair has a record, PK T#tenant#REPAIR#run, SK sequence#kind#of, put if absent: an operator lists them (R18),
// and of several sweeps that did the same one counts it. A repair that is an entry has its record in the entry's
// transaction; the others have it right after. Whoever dies between has repaired something that nobody counted.

// Repaired is one repair of a run.
type Repaired struct {
	Run  string    `json:"run"`
	Kind Repair    `json:"kind"`
	Of   string    `json:"of,omitempty"` // the execution, or the token's name, that it was about
	Seq  int64     `json:"seq"`          // the newest entry of the run that was repaired
	At   time.Time `json:"at"`
}

func repairsIndex(tenant string) string { return "T#" + tenant + "#REPAIRS" }

func repairKey(tenant string, r Repaired) store.Key {
	return store.Key{PK: "T#" + tenant + "#REPAIR#" + r.Run, SK: fmt.Sprintf("%010d#%s#%s", r.Seq, r.Kind, r.Of)}
}

// recordOp is the record of a repair of the run as it was found.
func (sw *Sweeper) recordOp(s *run.AgentState, kind Repair, of string) store.Op {
	at := sw.Clock.Now().UTC().Truncate(time.Millisecond)
	body, err := json.Marshal(Repaired{Run: s.Run, Kind: kind, Of: of, Seq: s.Seq(), At: at})
	if err != nil { // strings, a number and a time always marshal
		body = nil
	}
	return store.Op{Kind: store.Put, If: []store.Cond{{Op: store.ItemAbsent}}, Item: store.Item{
		Key:   repairKey(s.Tenant, Repaired{Run: s.Run, Kind: kind, Of: of, Seq: s.Seq()}),
		Index: repairsIndex(s.Tenant), IndexSort: fmt.Sprintf("%013d#%s#%s", at.UnixMilli(), s.Run, kind), Body: body,
	}}
}

// record notes a repair that was made. It is none where another sweep has noted the same.
func (sw *Sweeper) record(ctx context.Context, s *run.AgentState, kind Repair, of string) (Repair, error) {
	err := sw.Table.Write(ctx, sw.recordOp(s, kind, of))
	switch {
	case err == nil:
		return kind, nil
	case store.FailedOp(err, 0):
		return RepairNone, nil
	default: // it is repaired; the count is short
		sw.warn("note that run "+s.Run+" was repaired", err)
		return kind, nil
	}
}

// hashToken names a task token without revealing it.
func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:8])
}

// ListRepaired pages through a tenant's repairs, the newest first. Limit 0 is 50. It may be late.
func ListRepaired(ctx context.Context, t store.Table, tenant string, limit int, cursor string) (list []Repaired, next string, err error) {
	if limit == 0 {
		limit = 50
	}
	r := store.Range{PK: repairsIndex(tenant), Index: true, Reverse: true, Limit: limit, Cursor: cursor}
	list, next, err = store.ReadPage(ctx, t, r, func(it store.Item) (Repaired, error) { return readRepaired(tenant, it) })
	if err != nil {
		err = fmt.Errorf("list repairs: %w", err)
	}
	return list, next, err
}

// readRepaired reads a tenant's record, which must be the one that its key says.
func readRepaired(tenant string, it store.Item) (Repaired, error) {
	var r Repaired
	if err := run.ReadStored("repair", it.Body, &r); err != nil {
		return r, store.Damaged(it.Key, "%w", err)
	}
	if it.Key != repairKey(tenant, r) || r.At.IsZero() {
		return r, store.Damaged(it.Key, "run, seq, kind and of: want those of the key, and when")
	}
	return r, nil
}
