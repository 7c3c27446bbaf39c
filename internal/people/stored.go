package people

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/store"
)

// The people of a deployment are items of its table: PK T#tenant#PEOPLE, SK the person's id, body what stands under the
// id in a document of people. A Slack workspace is PK PEOPLE, SK its id, body {"tenant": …}. Who was removed has the
// body null.
const teamsPK = "PEOPLE"

func peoplePK(tenant string) string { return "T#" + tenant + "#PEOPLE" }

type team struct {
	Tenant string `json:"tenant"`
}

// keptFor is how long a Stored goes by what it has read: somebody who is removed can act for no longer.
const keptFor = 30 * time.Second

// Stored is the Directory of the people in a table. It reads a tenant as a whole and keeps it for half a minute. An
// item that cannot be read is an error, and lets nobody of its tenant do anything. Safe for concurrent use.
type Stored struct {
	Table store.Table
	Clock clock.Clock

	mu      sync.Mutex
	tenants map[string]keptBook
}

type keptBook struct {
	*Book
	until time.Time
}

// Person implements Directory.
func (s *Stored) Person(ctx context.Context, tenant, id string) (p Person, found bool, err error) {
	book, err := s.load(ctx, tenant)
	if err == nil {
		p, found, err = book.Person(ctx, tenant, id)
	}
	return p, found, err
}

// Members implements Directory.
func (s *Stored) Members(ctx context.Context, tenant string, principals []string) (list []Person, err error) {
	book, err := s.load(ctx, tenant)
	if err == nil {
		list, err = book.Members(ctx, tenant, principals)
	}
	return list, err
}

// Removed implements Directory.
func (s *Stored) Removed(ctx context.Context, tenant, id string) (removed bool, err error) {
	book, err := s.load(ctx, tenant)
	if err == nil {
		removed, err = book.Removed(ctx, tenant, id)
	}
	return removed, err
}

// Slack finds who a workspace's member is. It reads the workspace each time.
func (s *Stored) Slack(ctx context.Context, id, member string) (string, Person, bool, error) {
	if !isSlackID(id, "TE") {
		return "", Person{}, false, nil
	}
	it, found, err := s.Table.Get(ctx, store.Key{PK: teamsPK, SK: id})
	var of team
	if err == nil && found {
		err = json.Unmarshal(it.Body, &of)
	}
	if err != nil || of.Tenant == "" {
		return "", Person{}, false, wrapRead(err, "workspace "+id)
	}
	book, err := s.load(ctx, of.Tenant)
	if err != nil {
		return "", Person{}, false, err
	}
	return (&Book{tenants: book.tenants, teams: map[string]string{id: of.Tenant}}).Slack(ctx, id, member)
}

func (s *Stored) load(ctx context.Context, tenant string) (*Book, error) {
	s.mu.Lock()
	kept, ok := s.tenants[tenant]
	s.mu.Unlock()
	now := s.Clock.Now()
	if ok && now.Before(kept.until) {
		return kept.Book, nil
	}
	book, err := readBook(ctx, s.Table, tenant)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tenants == nil {
		s.tenants = map[string]keptBook{}
	}
	s.tenants[tenant] = keptBook{book, now.Add(keptFor)}
	return book, nil
}

func readBook(ctx context.Context, t store.Table, tenant string) (book *Book, err error) {
	people, err := storedBodies(ctx, t, peoplePK(tenant))
	if err == nil {
		book, err = bookOf(tenant, people)
	}
	return book, wrapRead(err, "people of "+tenant)
}

func bookOf(tenant string, bodies map[string]json.RawMessage) (*Book, error) {
	book, people := &Book{tenants: map[string]map[string]Person{}}, maps.Clone(bodies)
	for id, body := range bodies {
		if isNull(body) {
			book.removed = append(book.removed, id)
			delete(people, id)
		}
	}
	return book, book.readPeople(tenant, people)
}

func wrapRead(err error, what string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read %s: %w", what, err)
}

// Count returns how many people a tenant has.
func Count(ctx context.Context, t store.Table, tenant string) (n int, err error) {
	people, err := storedBodies(ctx, t, peoplePK(tenant))
	maps.DeleteFunc(people, func(_ string, body json.RawMessage) bool { return isNull(body) })
	return len(people), wrapRead(err, "the people of tenant "+tenant)
}

func storedBodies(ctx context.Context, t store.Table, pk string) (map[string]json.RawMessage, error) {
	items, err := store.ReadAll(ctx, t, store.Range{PK: pk})
	out := map[string]json.RawMessage{}
	for _, it := range items {
		out[it.SK] = it.Body
	}
	return out, err
}

func putBody(pk, sk string, body json.RawMessage) store.Op {
	return store.Op{Kind: store.Put, Item: store.Item{Key: store.Key{PK: pk, SK: sk}, Body: body}}
}

// List returns the people of a tenant, sorted by id.
func List(ctx context.Context, t store.Table, tenant string) ([]Person, error) {
	book, err := readBook(ctx, t, tenant)
	if err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(book.tenants[tenant]), byID), nil
}

// Put makes somebody of a tenant what form says, which is what stands under an id in a document of people. Null takes
// them out: whoever is out can do nothing, also with a token. Its error is a *ReadError where the form is wrong, and
// store.ErrConflict where somebody else was given the same Slack id meanwhile: then they are what they were, or, if
// nobody knew them, known and in no group.
func Put(ctx context.Context, t store.Table, tenant, id string, form json.RawMessage) error {
	if _, err := readPerson(id, form, nil); err != nil {
		return err
	}
	people, err := storedBodies(ctx, t, peoplePK(tenant))
	if err != nil {
		return wrapRead(err, "people of "+tenant)
	}
	before := json.RawMessage(cmp.Or(string(people[id]), "{}")) // null would keep out whoever was not known
	people[id] = form
	if _, err := bookOf(tenant, people); err != nil {
		return err
	}
	if err := t.Write(ctx, putBody(peoplePK(tenant), id, form)); err != nil {
		return fmt.Errorf("write %s: %w", id, err)
	}
	_, err = readBook(ctx, t, tenant)
	if _, wrong := errors.AsType[*ReadError](err); wrong { // a book that cannot be read lets nobody do anything
		back := t.Write(ctx, putBody(peoplePK(tenant), id, before))
		return cmp.Or(back, fmt.Errorf("%w: %w", store.ErrConflict, err))
	}
	return err
}

// Import makes the people of the tenants that a document names, and the workspaces of these, those of the document.
// What is not in it any more is removed; tenants that it does not name keep theirs. A hundred changes are one write,
// beginning with Slack ids that change hands, so that none is two people's meanwhile. It counts the items it wrote and
// removed; a document that is imported again writes none. Its error is a *ReadError where the document is wrong:
// nothing is written then. After any other error the counts mean nothing, and the same import may be repeated.
func Import(ctx context.Context, t store.Table, data []byte) (written, removed int, err error) {
	book, err := Read(data)
	if err != nil {
		return 0, 0, err
	}
	var doc peopleDocument
	if err := json.Unmarshal(data, &doc); err != nil {
		return 0, 0, err
	}
	put := func(pk string, wanted map[string]json.RawMessage, mine func(body json.RawMessage) bool) error {
		for range 3 { // an import at the same time may add to it
			stored, err := storedBodies(ctx, t, pk)
			if err != nil {
				return err
			}
			for sk, body := range stored {
				if _, ok := wanted[sk]; !ok && !isNull(body) && mine(body) {
					wanted[sk] = json.RawMessage("null")
				}
			}
			var ops []store.Op
			for _, sk := range importOrder(stored, wanted) {
				if bytes.Equal(stored[sk], wanted[sk]) {
					continue
				}
				ops = append(ops, putBody(pk, sk, wanted[sk]))
				if isNull(wanted[sk]) {
					removed++
				} else {
					written++
				}
			}
			if len(ops) == 0 {
				return nil
			}
			for some := range slices.Chunk(ops, store.MaxOps) {
				if err := t.Write(ctx, some...); err != nil {
					return fmt.Errorf("write %s to %s: %w", some[0].Item.Key.SK, some[len(some)-1].Item.Key.SK, err)
				}
			}
		}
		return fmt.Errorf("somebody else imports at the same time: %w", store.ErrConflict)
	}
	for _, tenant := range slices.Sorted(maps.Keys(doc.Tenants)) {
		people := map[string]json.RawMessage{}
		for id, form := range doc.Tenants[tenant] {
			if isNull(form) { // somebody without groups or addresses
				form = json.RawMessage("{}")
			}
			var compact bytes.Buffer
			if err := json.Compact(&compact, form); err != nil {
				return written, removed, err
			}
			people[id] = compact.Bytes()
		}
		if err := put(peoplePK(tenant), people, func(json.RawMessage) bool { return true }); err != nil {
			return written, removed, fmt.Errorf("import the people of %s: %w", tenant, err)
		}
	}
	teams := map[string]json.RawMessage{}
	for id, tenant := range book.teams {
		if teams[id], err = json.Marshal(team{tenant}); err != nil {
			return written, removed, err
		}
	}
	err = put(teamsPK, teams, func(body json.RawMessage) bool {
		var of team
		if json.Unmarshal(body, &of) != nil {
			return true
		}
		_, named := book.tenants[of.Tenant]
		return named
	})
	if err != nil {
		return written, removed, fmt.Errorf("import the workspaces: %w", err)
	}
	return written, removed, nil
}

// importOrder returns the keys of what is wanted: first the people among whom Slack ids change hands, so that one write
// has them.
func importOrder(stored, wanted map[string]json.RawMessage) []string {
	owners := func(bodies map[string]json.RawMessage) map[string]string {
		owner := map[string]string{}
		for id, body := range bodies {
			if p, err := readPerson(id, body, nil); err == nil {
				owner[p.Slack] = id
			}
		}
		return owner
	}
	before, moves := owners(stored), map[string]bool{}
	for slack, id := range owners(wanted) {
		if other := before[slack]; slack != "" && other != "" && other != id {
			moves[id], moves[other] = true, true
		}
	}
	return slices.SortedFunc(maps.Keys(wanted), func(a, b string) int {
		if moves[a] != moves[b] {
			return map[bool]int{true: -1, false: 1}[moves[a]]
		}
		return cmp.Compare(a, b)
	})
}
