package person

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/store"
)

// The bounds of duties.
const (
	MaxDuty   = 90 * 24 * time.Hour // the longest, and how far ahead one may begin
	MaxDuties = 20                  // that one person has given and that are not over
	MaxNote   = 500                 // characters
)

// ErrNoDuty says that the person neither gives nor has such a duty. It is the answer for another's, and for another tenant's, too.
var ErrNoDuty = errors.New("no such duty")

// Duty is a person's permission for another to decide in their place, for a time. It hands over the giver's own right, as it was when they
// gave it and at most as it is: never what somebody else has let the giver do.
type Duty struct {
	ID      string    `json:"id"`
	By      string    `json:"by"` // whose right it is: user:ana
	To      string    `json:"to"` // who decides meanwhile: user:ben
	From    time.Time `json:"from"`
	Until   time.Time `json:"until"` // it holds before then
	Note    string    `json:"note,omitempty"`
	Groups  []string  `json:"groups"` // that By was in when they gave it
	GivenAt time.Time `json:"givenAt"`
	EndedAt time.Time `json:"endedAt,omitzero"` // before Until; zero = it was not
}

// holds reports whether the duty does at that time.
func (d Duty) holds(now time.Time) bool {
	return d.EndedAt.IsZero() && !now.Before(d.From) && now.Before(d.Until)
}

// over reports whether the duty holds no more, ever.
func (d Duty) over(now time.Time) bool { return !d.EndedAt.IsZero() || !now.Before(d.Until) }

// Duties are the duties on record. A duty is two items, in the partitions of who gives and of who has it, written together; a third counts
// the giver's changes, so that no two at once exceed the bound:
//
//	T#tenant#DUTY#user:ana   G#until#id   given
//	T#tenant#DUTY#user:ben   R#until#id   received
//	T#tenant#DUTY#user:ana   HEAD
//
// The zero value but for its Table is ready. Safe for concurrent use.
type Duties struct {
	Table     store.Table
	Directory Directory // holds givers to the groups they are in now, where it knows them; nil = those of when they gave it
}

// Give lets to decide in the place of by, who is authenticated, from a time until another: at most MaxDuty long and ahead. The same duty again
// is the one there is. Of d, To, From, Until and Note are read; a zero From is now.
//
// Errors: *RefusedError; store.ErrConflict where the same person keeps giving others. An error of any other kind is uncertain, and the same
// duty may be given again.
func (s Duties) Give(ctx context.Context, tenant string, by agent.Principal, d Duty, now time.Time) (Duty, error) {
	now = now.UTC().Truncate(time.Millisecond)
	d = Duty{
		By: by.ID, To: d.To, From: d.From.UTC().Truncate(time.Millisecond), Until: d.Until.UTC().Truncate(time.Millisecond), Note: d.Note,
		Groups: slices.DeleteFunc(slices.Clone(by.Groups), func(g string) bool { return !isGroup(g) }), GivenAt: now,
	}
	if d.From.IsZero() {
		d.From = now
	}
	if err := d.check(now); err != nil {
		return Duty{}, err
	}
	if d.Groups == nil {
		d.Groups = []string{}
	}
	d.ID = dutyID(tenant, d)
	for range maxRaces {
		have, err := s.give(ctx, tenant, d, now)
		var raced *store.ConditionError
		if !errors.As(err, &raced) {
			return have, wrapped(err, "give a duty to %s", d.To)
		}
	}
	return Duty{}, fmt.Errorf("give a duty to %s: %w", d.To, store.ErrConflict)
}

// maxRaces is how often a duty is given again because the same person gave another meanwhile.
const maxRaces = 10

func (d Duty) check(now time.Time) error {
	switch {
	case !isUser(d.By):
		return refuse("to", "%q is no person who could give a duty", agent.Bounded(d.By))
	case !isUser(d.To):
		return refuse("to", "got %.64q, want user:NAME", d.To)
	case d.To == d.By:
		return refuse("to", "got %s, want somebody else", d.To)
	case d.From.After(now.Add(MaxDuty)):
		return refuse("from", "got %s, want at most %d days from now", d.From.Format(time.RFC3339), int(MaxDuty.Hours()/24))
	case !d.Until.After(d.From) || !d.Until.After(now):
		return refuse("until", "got %s, want a time after from and after now", d.Until.Format(time.RFC3339))
	case d.Until.Sub(d.From) > MaxDuty:
		return refuse("until", "got %s, want at most %d days after from", d.Until.Format(time.RFC3339), int(MaxDuty.Hours()/24))
	case utf8.RuneCountInString(d.Note) > MaxNote:
		return refuse("note", "got %d characters, want at most %d", utf8.RuneCountInString(d.Note), MaxNote)
	}
	return nil
}

// give writes the duty, unless it is there. Its error is a *store.ConditionError where the giver has changed another since.
func (s Duties) give(ctx context.Context, tenant string, d Duty, now time.Time) (Duty, error) {
	head, found, err := s.Table.Get(ctx, headKey(tenant, d.By))
	if err != nil {
		return Duty{}, err
	}
	open, err := s.Given(ctx, tenant, d.By, now)
	unread, err := store.Spared(err)
	if err != nil {
		return Duty{}, err
	}
	if i := slices.IndexFunc(unread, func(u store.UnreadItem) bool { return u.Key == d.key(tenant, given) }); i >= 0 {
		return Duty{}, unread[i].Err
	}
	if i := slices.IndexFunc(open, func(have Duty) bool { return have.ID == d.ID }); i >= 0 {
		return open[i], nil
	}
	if n := len(open) + len(unread); n >= MaxDuties {
		return Duty{}, refuse("to", "there are %d duties that are not over: end one first", n)
	}
	body, err := agent.MarshalVerbatim(d)
	if err != nil {
		return Duty{}, err
	}
	attrs := map[string]store.Value{"ended": store.Num(0)}
	rev := int64(0)
	if found {
		if rev, err = head.Number("rev"); err != nil {
			return Duty{}, err
		}
	}
	return d, s.Table.Write(ctx, counted(tenant, d.By, rev),
		store.Op{Kind: store.Put, Item: store.Item{Key: d.key(tenant, given), Body: body, Attrs: attrs}},
		store.Op{Kind: store.Put, Item: store.Item{Key: d.key(tenant, received), Body: body, Attrs: attrs}})
}

// counted counts a change of a giver's duties. It fails where there was another since rev; 0 = there was none ever.
func counted(tenant, id string, rev int64) store.Op {
	op := store.Op{Kind: store.Put, If: []store.Cond{{Attr: "rev", Op: store.Equal, Value: store.Num(rev)}},
		Item: store.Item{Key: headKey(tenant, id), Attrs: map[string]store.Value{"rev": store.Num(rev + 1)}}}
	if rev == 0 {
		op.If = []store.Cond{{Op: store.ItemAbsent}}
	}
	return op
}

// End ends a duty that by has given, or was given: at once, and for good. One that has ended already is no error.
//
// Errors: ErrNoDuty. An error of any other kind is uncertain, and it may be repeated.
func (s Duties) End(ctx context.Context, tenant string, by agent.Principal, id string, now time.Time) error {
	now = now.UTC().Truncate(time.Millisecond)
	d, err := s.find(ctx, tenant, by.ID, id, now)
	if err != nil || !d.EndedAt.IsZero() {
		return wrapped(err, "end duty %s", id)
	}
	var ops []store.Op
	for _, side := range []string{given, received} {
		ops = append(ops, store.Op{Kind: store.Update, If: []store.Cond{{Attr: "ended", Op: store.Equal, Value: store.Num(0)}},
			Item: store.Item{Key: d.key(tenant, side), Attrs: map[string]store.Value{"ended": store.Num(now.UnixMilli())}}})
	}
	err = s.Table.Write(ctx, ops...)
	var raced *store.ConditionError
	if errors.As(err, &raced) { // somebody has ended it since
		return nil
	}
	return wrapped(err, "end duty %s", id)
}

func (s Duties) find(ctx context.Context, tenant, person, id string, now time.Time) (Duty, error) {
	for _, side := range []string{given, received} {
		list, err := s.list(ctx, tenant, person, side, now)
		unread, err := store.Spared(err)
		if err != nil {
			return Duty{}, err
		}
		if i := slices.IndexFunc(unread, func(u store.UnreadItem) bool { return strings.HasSuffix(u.Key.SK, "#"+id) }); i >= 0 {
			return Duty{}, unread[i].Err
		}
		if i := slices.IndexFunc(list, func(d Duty) bool { return d.ID == id }); i >= 0 {
			return list[i], nil
		}
	}
	return Duty{}, ErrNoDuty
}

// Given are the duties that a person has given and that are not over, those that end first before the others. Those that cannot be read are
// store.UnreadItems beside them.
func (s Duties) Given(ctx context.Context, tenant, by string, now time.Time) ([]Duty, error) {
	list, err := s.list(ctx, tenant, by, given, now)
	return slices.DeleteFunc(list, func(d Duty) bool { return d.over(now) }), err
}

// Received are those that a person has, likewise.
func (s Duties) Received(ctx context.Context, tenant, to string, now time.Time) ([]Duty, error) {
	list, err := s.list(ctx, tenant, to, received, now)
	return slices.DeleteFunc(list, func(d Duty) bool { return d.over(now) }), err
}

// list reads consistently the duties of one side whose time is not over, those that were ended included.
func (s Duties) list(ctx context.Context, tenant, person, side string, now time.Time) ([]Duty, error) {
	r := store.Range{PK: dutyPartition(tenant, person), From: fmt.Sprintf("%s#%013d", side, now.UnixMilli()), To: side + "$", Spare: true}
	var list []Duty
	var unread store.UnreadItems
	for {
		p, err := s.Table.Query(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("list duties of %s: %w", person, err)
		}
		for _, it := range p.Items {
			d, err := readDuty(tenant, side, it)
			if err != nil {
				unread = append(unread, store.UnreadItem{Key: it.Key, Err: fmt.Errorf("read duty of %s: %w", person, err)})
				continue
			}
			list = append(list, d)
		}
		if r.Cursor = p.Cursor; r.Cursor == "" {
			return list, unread.AsError()
		}
	}
}

// readDuty reads one side of a tenant's duty, which must be the one that its key says: it is a right.
func readDuty(tenant, side string, it store.Item) (Duty, error) {
	var d Duty
	if it.Broken != nil {
		return d, it.Broken
	}
	if err := agent.ReadStored("duty", it.Body, &d); err != nil {
		return Duty{}, store.Unreadable(it.Key, err)
	}
	ended, err := it.Number("ended")
	switch {
	case err != nil:
		return Duty{}, err
	case d.ID != dutyID(tenant, d) || it.Key != d.key(tenant, side): // the id follows from who gives what to whom and when
		return Duty{}, store.Damaged(it.Key, "id, by, to, from and until: want those of the duty under whose key they stand")
	}
	if ended != 0 {
		d.EndedAt = time.UnixMilli(ended).UTC()
	}
	return d, nil
}

// ActsFor are those in whose place p decides at that time, sorted by id, each once: with the groups they were in when they gave the duty, less
// those they are no longer in as far as the directory knows them. It is the Duties of an approval.Desk; whoever gets an error knows of nobody.
// A duty that cannot be read is nobody's. Nobody in whose place a giver decides is among them: what a person was given they cannot hand on.
func (s Duties) ActsFor(ctx context.Context, tenant string, p agent.Principal, now time.Time) ([]agent.Principal, error) {
	if !isUser(p.ID) {
		return nil, nil
	}
	list, err := s.Received(ctx, tenant, p.ID, now)
	if _, err = store.Spared(err); err != nil {
		return nil, err
	}
	groups := map[string][]string{}
	for _, d := range list {
		if d.To == p.ID && d.holds(now) {
			groups[d.By] = append(groups[d.By], d.Groups...)
		}
	}
	var givers []agent.Principal
	for by, had := range groups {
		g := agent.Principal{ID: by, Groups: had}
		if g.Groups, err = s.stillIn(ctx, tenant, g); err != nil {
			return nil, err
		}
		givers = append(givers, g)
	}
	slices.SortFunc(givers, func(a, b agent.Principal) int { return strings.Compare(a.ID, b.ID) })
	return givers, nil
}

// stillIn are the groups of the principal, each once, that the directory does not say they have left.
func (s Duties) stillIn(ctx context.Context, tenant string, p agent.Principal) ([]string, error) {
	slices.Sort(p.Groups)
	had := slices.Compact(p.Groups)
	if s.Directory == nil {
		return had, nil
	}
	now, known, err := s.Directory.Person(ctx, tenant, p.ID)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", p.ID, err)
	}
	if known {
		had = slices.DeleteFunc(had, func(g string) bool { return !slices.Contains(now.Groups, g) })
	}
	return had, nil
}

// The sides of a duty.
const (
	given    = "G"
	received = "R"
)

func dutyPartition(tenant, person string) string { return "T#" + tenant + "#DUTY#" + person }

func headKey(tenant, person string) store.Key {
	return store.Key{PK: dutyPartition(tenant, person), SK: "HEAD"}
}

// key is where a side of the duty is kept.
func (d Duty) key(tenant, side string) store.Key {
	owner := d.By
	if side == received {
		owner = d.To
	}
	return store.Key{PK: dutyPartition(tenant, owner), SK: fmt.Sprintf("%s#%013d#%s", side, d.Until.UnixMilli(), d.ID)}
}

// dutyID follows from who gives what to whom and when, so that to give a duty again is to give the same: "d" and 25 characters.
func dutyID(tenant string, d Duty) string {
	h := sha256.New()
	for _, part := range []string{tenant, d.By, d.To, d.From.Format(time.RFC3339Nano), d.Until.Format(time.RFC3339Nano)} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	return "d" + strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)))[:25]
}
