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

// notice records who was told of one request. Its key is the request's PK and SK "N". It is in the index partition DUE
// as long as it has timed work. It holds people's ids and the channels' message ids, and no content of the request
// (A2).
type notice struct {
	Tenant        string    `json:"-"`
	ID            string    `json:"-"` // of the request
	Run           string    `json:"-"` // of the request; part of the index key
	Contacts      []contact `json:"told,omitempty"`
	Remarks       int       `json:"remarks,omitempty"`   // how many remarks of the thread people were told of
	RemarkTries   int       `json:"heard,omitempty"`     // failed attempts in a row to tell of the next remark
	NextRemarkTry time.Time `json:"hearNext,omitzero"`   // no attempt before this time
	Failures      int       `json:"troubles,omitempty"`  // failed attempts in a row at the whole notice
	Reminded      int64     `json:"reminders,omitempty"` // reminders sent; for people who read the item
	Due           time.Time `json:"due,omitzero"`        // next check; zero = never, and the notice is not in the index
	rev           int64     // revision of the item as read; 0 = there is none
	stored        time.Time // Due as it was read
}

// contact is the state of one person on one channel.
type contact struct {
	To          string          `json:"to"`
	Channel     string          `json:"channel"`
	First       Occasion        `json:"as"`             // asked, or escalated
	Refs        []string        `json:"refs,omitempty"` // updatable messages: the first and the newest
	At          time.Time       `json:"at,omitzero"`    // of the newest message; zero = none was sent yet
	Round       int64           `json:"round"`          // newest reminder that was sent; -1 = not even the first message
	Tries       int             `json:"tries,omitempty"`
	Next        time.Time       `json:"next,omitzero"`   // no retry before this time
	Shows       approval.Status `json:"shows,omitempty"` // outcome that the messages show; "" = pending
	AskedDigest string          `json:"asks,omitempty"`  // digest of the action in the newest message
}

const (
	// maxRefs bounds the updatable messages of a contact: the first one and the newest.
	maxRefs = 4
	// duePartition is the index partition of all tenants.
	duePartition = "DUE"
	revAttr      = "rev"
)

func noticeKey(tenant, id string) store.Key {
	return store.Key{PK: "T#" + tenant + "#APPROVAL#" + id, SK: "N"}
}

// loadNotice reads a notice consistently; if there is none, it returns an empty one of rev 0. A notice that cannot be
// read starts anew, and people are told again.
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

// errStaleNotice says that another process has written the notice since it was read.
var errStaleNotice = errors.New("the notice was written by somebody else")

// save writes the notice if nobody has written it since it was read. After an error the outcome may be unknown; the
// next pass finds what is due.
func (n *notice) save(ctx context.Context, t store.Table) error {
	if up := n.Due.Truncate(time.Millisecond); !up.Equal(n.Due) {
		// the index has milliseconds; both must agree on what is due
		n.Due = up.Add(time.Millisecond)
	}
	body, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("marshal the notice of approval %s: %w", n.ID, err)
	}
	it := store.Item{Key: noticeKey(n.Tenant, n.ID), Body: body,
		Attrs: map[string]store.Value{revAttr: store.Num(n.rev + 1)}}
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

// dueSortKey orders the index by time. It names the run so that its requests are grouped.
func dueSortKey(at time.Time, tenant, run, id string) string {
	return fmt.Sprintf("%013d#%s#%s#%s", max(0, at.UnixMilli()), tenant, run, id)
}

func parseDueSortKey(sort string) (at time.Time, tenant, run, id string, err error) {
	parts := strings.SplitN(sort, "#", 4)
	ms, err := strconv.ParseInt(parts[0], 10, 64)
	if len(parts) != 4 || err != nil || ms < 0 {
		return time.Time{}, "", "", "", fmt.Errorf("read the index DUE: %q is no place of it", sort)
	}
	return time.UnixMilli(ms).UTC(), parts[1], parts[2], parts[3], nil
}

// contact returns the state of a person on a channel; nil = none. The pointer is valid until a contact is added.
func (n *notice) contact(to, channel string) *contact {
	i := slices.IndexFunc(n.Contacts, func(t contact) bool { return t.To == to && t.Channel == channel })
	if i < 0 {
		return nil
	}
	return &n.Contacts[i]
}
