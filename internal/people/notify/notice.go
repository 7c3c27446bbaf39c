package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/store"
)

// notice is the record of who was told of one request. It stands beside the request, under SK "N", and is listed in the index's partition DUE for
// as long as anything is to be done at a time. It holds people's ids and the names that channels gave to messages, and no word of the request (A2).
type notice struct {
	Tenant        string    `json:"-"`
	ID            string    `json:"-"` // of the request
	Run           string    `json:"-"` // of the request; stands in the place in the index
	Contacts      []contact `json:"told,omitempty"`
	Remarks       int       `json:"remarks,omitempty"`   // of the request's thread: so many have been told of
	RemarkTries   int       `json:"heard,omitempty"`     // attempts in a row to tell of the next one
	NextRemarkTry time.Time `json:"hearNext,omitzero"`   // no attempt before
	Failures      int       `json:"troubles,omitempty"`  // attempts in a row at the whole notice that failed
	Reminded      int64     `json:"reminders,omitempty"` // messages that were reminders, for people who read the item
	Due           time.Time `json:"due,omitzero"`        // when to look at the request next; zero = never again, and the notice has left the index
	rev           int64     // of the item as it was read; 0 = there is none
	stored        time.Time // Due as it was read
}

// contact is one person on one channel.
type contact struct {
	To          string          `json:"to"`
	Channel     string          `json:"channel"`
	First       Occasion        `json:"as"`             // asked, or escalated
	Refs        []string        `json:"refs,omitempty"` // of messages that can be updated: the first and the newest
	At          time.Time       `json:"at,omitzero"`    // of the newest message; zero = none got through yet
	Round       int64           `json:"round"`          // of reminders, up to which nothing is owed; -1 = not even the first message was sent
	Tries       int             `json:"tries,omitempty"`
	Next        time.Time       `json:"next,omitzero"`   // after a failure, no attempt before
	Shows       approval.Status `json:"shows,omitempty"` // the outcome that the messages show; "" = they ask
	AskedDigest string          `json:"asks,omitempty"`  // the digest of the action that the newest message asks about, or was to; "" = none that anything is owed for
}

const (
	// maxRefs bounds the messages of one telling that are updated: the first one and those that came last.
	maxRefs = 4
	// duePartition is the index's, for all tenants.
	duePartition = "DUE"
	revAttr      = "rev"
)

func noticeKey(tenant, id string) store.Key {
	return store.Key{PK: "T#" + tenant + "#APPROVAL#" + id, SK: "N"}
}

// loadNotice reads a notice consistently; where there is none, an empty one of rev 0. One that cannot be read begins anew: who was told is told again.
func loadNotice(ctx context.Context, t store.Table, tenant, id string) (notice, error) {
	it, found, err := t.Get(ctx, noticeKey(tenant, id))
	if err != nil {
		return notice{}, fmt.Errorf("read the notice of approval %s: %w", id, err)
	}
	n := notice{Tenant: tenant, ID: id}
	if !found {
		return n, nil
	}
	rev, err := it.Number(revAttr)
	if err != nil {
		return notice{}, fmt.Errorf("read the notice of approval %s: %w", id, err)
	}
	at, _, run, _, err := parseDueSortKey(it.IndexSort)
	if json.Unmarshal(it.Body, &n) != nil {
		if n = (notice{Tenant: tenant, ID: id}); err == nil {
			n.Due = at
		}
	}
	if err == nil {
		n.Run = run
	}
	n.rev, n.stored = rev, n.Due
	return n, nil
}

// errStaleNotice says that somebody else has written the notice since it was read.
var errStaleNotice = errors.New("the notice was written by somebody else")

// save writes the notice if it is as it was read. A write of which nobody knows whether it was done is an error like any other: whoever comes
// next finds what is due.
func (n *notice) save(ctx context.Context, t store.Table) error {
	if up := n.Due.Truncate(time.Millisecond); !up.Equal(n.Due) { // the index has milliseconds: whoever finds it due there finds it due here
		n.Due = up.Add(time.Millisecond)
	}
	body, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("marshal the notice of approval %s: %w", n.ID, err)
	}
	it := store.Item{Key: noticeKey(n.Tenant, n.ID), Body: body, Attrs: map[string]store.Value{revAttr: store.Num(n.rev + 1)}}
	if !n.Due.IsZero() {
		it.Index, it.IndexSort = duePartition, dueSortKey(n.Due, n.Tenant, n.Run, n.ID)
	}
	op := store.Op{Kind: store.Put, Item: it, If: []store.Cond{{Attr: revAttr, Op: store.Equal, Value: store.Num(n.rev)}}}
	if n.rev == 0 {
		op.If = []store.Cond{{Op: store.ItemAbsent}}
	}
	err = t.Write(ctx, op)
	if store.FailedOp(err, 0) {
		return errStaleNotice
	}
	if err != nil {
		return fmt.Errorf("write the notice of approval %s: %w", n.ID, err)
	}
	n.rev, n.stored = n.rev+1, n.Due
	return nil
}

// dueSortKey orders the index by time, and names the run so that its requests are told of together.
func dueSortKey(at time.Time, tenant, run, id string) string {
	return fmt.Sprintf("%013d#%s#%s#%s", max(0, at.UnixMilli()), tenant, run, id)
}

// parseDueSortKey reads what a place in the index is about.
func parseDueSortKey(sort string) (at time.Time, tenant, run, id string, err error) {
	parts := strings.SplitN(sort, "#", 4)
	if len(parts) != 4 {
		return time.Time{}, "", "", "", fmt.Errorf("read the index DUE: %q is no place of it", sort)
	}
	ms, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || ms < 0 {
		return time.Time{}, "", "", "", fmt.Errorf("read the index DUE: %q is no place of it", sort)
	}
	return time.UnixMilli(ms).UTC(), parts[1], parts[2], parts[3], nil
}

// contact is the telling of a person on a channel; nil = nobody tried yet. It is good until the next one is added.
func (n *notice) contact(to, channel string) *contact {
	i := slices.IndexFunc(n.Contacts, func(t contact) bool { return t.To == to && t.Channel == channel })
	if i < 0 {
		return nil
	}
	return &n.Contacts[i]
}

// addRef adds the name of a message that can be updated.
func (t *contact) addRef(ref string) {
	if t.Refs = append(t.Refs, ref); len(t.Refs) > maxRefs {
		t.Refs = slices.Delete(t.Refs, 1, 2)
	}
}
