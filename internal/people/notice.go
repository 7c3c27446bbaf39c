package people

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
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/store"
)

// notice records who was told of one request. Its key is the request's PK and SK "N". It is in the index list DUE
// as long as it has timed work. It holds people's ids and the channels' message ids, and no content of the request
// (A2).
type notice struct {
	Tenant   string    `json:"-"`
	ID       string    `json:"-"` // of the request
	Run      string    `json:"-"` // of the request; part of the index key
	Contacts []contact `json:"contacts,omitempty"`
	Remarks  int       `json:"remarks,omitempty"`   // remarks of the thread that were sent, or are in Missed
	Missed   []missed  `json:"missed,omitempty"`    // failed messages about remarks
	Failures int       `json:"failures,omitempty"`  // failures in a row to process the notice
	Reminded int64     `json:"reminders,omitempty"` // reminders sent; only for people who read the item
	Due      time.Time `json:"due,omitzero"`        // next check; zero = never, and the notice is not in the index
	rev      int64     // revision of the item as read; 0 = there is none
	stored   time.Time // Due as it was read
}

// missed is a message about a remark that is tried again.
type missed struct {
	To      string `json:"to"`
	Channel string `json:"channel"`
	Remark  int    `json:"remark"` // from 1
	attempts
}

// attempts are the failed attempts at a message.
type attempts struct {
	Tries int       `json:"tries,omitempty"`
	Next  time.Time `json:"next,omitzero"` // no retry before this time
}

// contact is the state of one person on one channel.
type contact struct {
	To          string          `json:"to"`
	Channel     string          `json:"channel"`
	First       Occasion        `json:"as"`              // asked, or escalated
	Refs        []string        `json:"refs,omitempty"`  // updatable messages: the first and the newest
	At          time.Time       `json:"at,omitzero"`     // of the newest message; zero = none was sent yet
	Round       int64           `json:"round"`           // newest reminder that was sent; -1 = not even the first message
	Shows       approval.Status `json:"shows,omitempty"` // outcome that the messages show; "" = pending
	AskedDigest string          `json:"asks,omitempty"`  // digest of the action in the newest message
	attempts
}

const (
	// maxRefs bounds the updatable messages of a contact: the first one and the newest.
	maxRefs = 4
	// dueIndex is the list of all tenants' notices, in shards.
	dueIndex = "DUE"
	revAttr  = "rev"
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
		it.Index, it.IndexSort = store.Shard(dueIndex, n.Run), dueSortKey(n.Due, n.Tenant, n.Run, n.ID)
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
		return time.Time{}, "", "", "", fmt.Errorf("read the index DUE: %q is not one of its sort keys", sort)
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

// The times of notices.
const (
	// lease is how long a process has to record what it sent; then another process sends again.
	lease = time.Minute
	// maxTries is how often a message is tried; after that only the next reminder is sent. The first message and one about
	// an edit are then tried at longer intervals, as long as the request waits.
	maxTries = 5
	// firstRetry and lastRetry bound the delays between tries, which double.
	firstRetry = 30 * time.Second
	lastRetry  = 10 * time.Minute
	// minUpdateCheck and maxUpdateCheck bound how often a request is checked for changes that make no notice due: that it
	// was cancelled, or that somebody joined its approvers.
	minUpdateCheck = 5 * time.Minute
	maxUpdateCheck = 6 * time.Hour
	// expiryGrace is how long a run has to record that a request has expired.
	expiryGrace = time.Minute
)

// checkDelay is how long after that time a pending request is checked again. It grows with the age of the request.
func checkDelay(a approval.Approval, now time.Time) time.Duration {
	return min(max(now.Sub(a.RequestedAt)/2, minUpdateCheck), maxUpdateCheck)
}

// retryDelay is the delay after the n-th failure in a row, n from 1.
func retryDelay(n int) time.Duration {
	return min(firstRetry<<min(n-1, 10), lastRetry)
}

// remindersDue is how many reminders of a request have become due by now. Missed reminders are sent as one.
func remindersDue(a approval.Approval, now time.Time) int64 {
	if a.RemindSeconds <= 0 || now.Before(a.RequestedAt) {
		return 0
	}
	return int64(now.Sub(a.RequestedAt) / (time.Duration(a.RemindSeconds) * time.Second))
}

// delivery is a message to send, or an update of one that was sent.
type delivery struct {
	to       Person
	channel  Channel
	occasion Occasion
	round    int64  // the newest reminder that it covers
	remark   int    // number of the remark, from 1; 0 = none
	updates  string // ref of the message to update; "" = a new message

	at  time.Time // when it was tried
	ref string    // of a new message
	err error
}

// requestDeliveries returns the messages that a pending request owes to its approvers, in order.
func (n *notice) requestDeliveries(a approval.Approval, seats []recipient, now time.Time) []delivery {
	var out, former []delivery // former are the updates of messages that show other arguments
	at := remindersDue(a, now)
	for _, s := range seats {
		d := delivery{to: s.person, channel: s.channel, occasion: Asked, round: at}
		if !a.EscalatedAt.IsZero() && policy.MayDecide(a.EscalateTo, s.person.Principal()) {
			d.occasion = Escalated
		}
		if t := n.contact(s.person.ID, s.channel.Name()); t != nil {
			// an edit makes a new action that the person has not seen (A8)
			edited := !t.At.IsZero() && t.AskedDigest != "" && t.AskedDigest != a.Digest
			if t.Round >= at && !edited || now.Before(t.Next) {
				continue
			}
			if d.occasion = t.First; !t.At.IsZero() && !edited {
				d.occasion = Reminder
			}
			for _, ref := range t.Refs {
				if edited {
					former = append(former, delivery{to: s.person, channel: s.channel, occasion: d.occasion, updates: ref})
				}
			}
		}
		out = append(out, d)
	}
	return slices.Concat(out, former)
}

// updateDeliveries returns the updates of messages that do not show the request's outcome yet. A message on a channel
// that no longer exists is not updated.
func (n *notice) updateDeliveries(a approval.Approval, channel func(name string) Channel, now time.Time) []delivery {
	var out []delivery
	for i := range n.Contacts {
		t := &n.Contacts[i]
		if t.Shows == a.Status || now.Before(t.Next) {
			continue
		}
		c := channel(t.Channel)
		if c == nil || len(t.Refs) == 0 {
			t.Shows = a.Status
			continue
		}
		for _, ref := range t.Refs {
			out = append(out, delivery{to: Person{ID: t.To}, channel: c, occasion: Decided, updates: ref})
		}
	}
	return out
}

func (n *notice) apply(a approval.Approval, all []delivery) {
	for _, s := range all {
		if s.remark > 0 {
			n.applyRemarkSent(s)
		} else if s.updates == "" {
			n.applyRequestSent(a, s)
		}
	}
	n.applyUpdatesSent(a, all)
}

func (n *notice) applyRemarkSent(s delivery) {
	n.Remarks = max(n.Remarks, s.remark)
	m := missed{To: s.to.ID, Channel: s.channel.Name(), Remark: s.remark}
	if i := n.missedAt(m); i >= 0 {
		m = n.Missed[i]
		n.Missed = slices.Delete(n.Missed, i, i+1)
	}
	if s.err != nil && m.Tries+1 < maxTries {
		m.retry(s.at)
		n.Missed = append(n.Missed, m)
	}
	if s.ref != "" {
		n.ensureContact(s, Asked).addRef(s.ref)
	}
}

// missedAt returns the index in Missed of the message to that person on that channel about that remark; -1 = none.
func (n *notice) missedAt(m missed) int {
	return slices.IndexFunc(n.Missed, func(o missed) bool {
		return o.To == m.To && o.Channel == m.Channel && o.Remark == m.Remark
	})
}

// ensureContact returns the contact of a delivery. A new contact has the occasion of its first message.
func (n *notice) ensureContact(s delivery, first Occasion) *contact {
	if t := n.contact(s.to.ID, s.channel.Name()); t != nil {
		return t
	}
	n.Contacts = append(n.Contacts, contact{To: s.to.ID, Channel: s.channel.Name(), First: first, Round: -1})
	return &n.Contacts[len(n.Contacts)-1]
}

// addRef adds a message, which shows the request as pending, to those that are updated.
func (t *contact) addRef(ref string) {
	t.Shows = ""
	if t.Refs = append(t.Refs, ref); len(t.Refs) > maxRefs {
		t.Refs = slices.Delete(t.Refs, 1, 2)
	}
}

func (n *notice) applyRequestSent(a approval.Approval, s delivery) {
	t := n.ensureContact(s, s.occasion)
	switch {
	case s.err == nil:
	case t.Tries+1 < maxTries:
		t.retry(s.at)
		return
	case s.occasion != Reminder: // the person has not seen the request yet
		t.Next = s.at.Add(checkDelay(a, s.at))
		return
	}
	t.Round, t.Tries, t.Next, t.AskedDigest = max(t.Round, s.round), 0, time.Time{}, a.Digest
	if s.err != nil {
		return
	}
	t.At = s.at
	if s.occasion == Reminder {
		n.Reminded++
	}
	if s.ref != "" {
		t.addRef(s.ref)
	}
}

// applyUpdatesSent records the results of updates. A contact is done if all of its messages were updated, or after
// maxTries. Updates after an edit are tried with the new message alone.
func (n *notice) applyUpdatesSent(a approval.Approval, all []delivery) {
	if a.Status == approval.Pending {
		return
	}
	for i := range n.Contacts {
		t := &n.Contacts[i]
		tried, failed := false, false
		var at time.Time
		for _, s := range all {
			if s.updates != "" && s.to.ID == t.To && s.channel.Name() == t.Channel {
				tried, failed, at = true, failed || s.err != nil, s.at
			}
		}
		switch {
		case !tried:
		case failed && t.Tries+1 < maxTries:
			t.retry(at)
		default:
			t.Shows, t.Tries, t.Next = a.Status, 0, time.Time{}
		}
	}
}

// retry sets when a message that failed at that time is tried again.
func (t *attempts) retry(at time.Time) {
	t.Tries++
	t.Next = at.Add(retryDelay(t.Tries))
}

// nextCheck is when to check the request again; zero = never. It assumes that everything due by now has been tried.
func (n *Notifier) nextCheck(
	have *notice, a approval.Approval, seats []recipient, now time.Time,
) (at time.Time) {
	if a.Status != approval.Pending { // the next retry of a failed update
		for _, t := range have.Contacts {
			if t.Shows != a.Status && (at.IsZero() || t.Next.Before(at)) {
				at = t.Next
			}
		}
		return at
	}
	if !now.Before(a.ExpiresAt) {
		return now.Add(min(max(now.Sub(a.ExpiresAt), expiryGrace), maxUpdateCheck))
	}
	at = a.ExpiresAt
	sooner := func(t time.Time) {
		if t.After(now) && t.Before(at) {
			at = t
		}
	}
	if a.EscalatedAt.IsZero() {
		sooner(a.EscalatesAt)
	}
	if a.RemindSeconds > 0 && len(seats) > 0 {
		sooner(a.RequestedAt.Add(time.Duration(remindersDue(a, now)+1) * time.Duration(a.RemindSeconds) * time.Second))
	}
	for _, s := range seats {
		if t := have.contact(s.person.ID, s.channel.Name()); t != nil {
			sooner(t.Next)
		}
	}
	for _, m := range have.Missed {
		sooner(m.Next)
	}
	if len(n.Channels) > 0 && n.Directory != nil {
		sooner(now.Add(checkDelay(a, now)))
	}
	return at
}

// maxRecipients is how many people are told of one request. The notice is one item, so it cannot hold more.
const maxRecipients = 500

// recipient is a person on one of the channels that the person wants.
type recipient struct {
	person  Person
	channel Channel
}

// approvers returns the people who may decide a request at that time and have not decided it yet. If they are too many,
// there is room among them for those whom the escalation adds.
func (n *Notifier) approvers(ctx context.Context, a approval.Approval, now time.Time) ([]Person, error) {
	if n.Directory == nil {
		return nil, nil
	}
	last := now
	if a.EscalatesAt.After(now) {
		last = a.EscalatesAt
	}
	approvers, _ := a.ApproversAt(last)
	all, err := n.Directory.Members(ctx, a.Tenant, approvers)
	if err != nil {
		return nil, fmt.Errorf("find the approvers of approval %s: %w", a.ID, err)
	}
	all = slices.DeleteFunc(slices.Clone(all), func(p Person) bool { return !a.Awaits(p.Principal(), last) })
	if len(all) > maxRecipients {
		n.warn(fmt.Sprintf("tell everybody of approval %s: it asks %d people, of whom %d are told", a.ID, len(all),
			maxRecipients), nil)
		var first, joining []Person
		for _, p := range all {
			if policy.MayDecide(a.EscalateTo, p.Principal()) {
				joining = append(joining, p)
			} else {
				first = append(first, p)
			}
		}
		joining = joining[:min(len(joining), maxRecipients/2)]
		all = slices.Concat(first[:min(len(first), maxRecipients-len(joining))], joining)
	}
	return slices.DeleteFunc(all, func(p Person) bool { return !a.Awaits(p.Principal(), now) }), nil
}

// remarkDeliveries returns the messages about remarks that are due. A question is for the requesters, an answer for
// those who asked.
func (n *Notifier) remarkDeliveries(
	ctx context.Context, have *notice, a approval.Approval, now time.Time,
) (out []delivery, err error) {
	if n.Directory == nil {
		return nil, nil
	}
	var asked []string // people who asked and are not requesters
	for i, r := range a.Thread {
		isNew := i >= have.Remarks
		occasion, to := Question, a.Requesters
		if !slices.Contains(a.Requesters, r.By) {
			asked = append(asked, r.By)
		} else if len(asked) > 0 {
			occasion, to = Answer, asked
		}
		if !isNew && !slices.ContainsFunc(have.Missed, func(m missed) bool { return m.Remark == i+1 }) {
			continue
		}
		staff, err := n.Directory.Members(ctx, a.Tenant, to)
		if err != nil {
			return nil, fmt.Errorf("find who is told of a remark about approval %s: %w", a.ID, err)
		}
		others := slices.DeleteFunc(slices.Clone(staff), func(p Person) bool { return p.ID == r.By })
		for _, s := range n.listRecipients(others) {
			at := have.missedAt(missed{To: s.person.ID, Channel: s.channel.Name(), Remark: i + 1})
			if isNew || at >= 0 && !now.Before(have.Missed[at].Next) {
				out = append(out, delivery{to: s.person, channel: s.channel, occasion: occasion, remark: i + 1})
			}
		}
	}
	if len(out) == 0 { // nobody to tell
		have.Remarks = len(a.Thread)
	}
	return out, nil
}

// listRecipients returns people on the channels by which they want to be told, in each person's order.
func (n *Notifier) listRecipients(people []Person) (out []recipient) {
	for _, p := range people {
		channels := n.Channels
		if p.Notify != nil {
			channels = nil
			for _, name := range p.Notify {
				if c := n.findChannel(name); c != nil && !slices.Contains(channels, c) {
					channels = append(channels, c)
				}
			}
		}
		for _, c := range channels {
			if c.Reaches(p) {
				out = append(out, recipient{p, c})
			}
		}
	}
	return out
}

// findChannel returns the channel of that name; nil = this deployment has none.
func (n *Notifier) findChannel(name string) Channel {
	i := slices.IndexFunc(n.Channels, func(c Channel) bool { return c.Name() == name })
	if i < 0 {
		return nil
	}
	return n.Channels[i]
}
