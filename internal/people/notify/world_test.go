package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
)

const acme = "acme"

var day = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// errBlown is what a channel says that does not get through.
var errBlown = errors.New("connection reset")

// town is a directory of people.
type town struct {
	people []person.Person
	gone   bool
}

func (d *town) Person(_ context.Context, _, id string) (person.Person, bool, error) {
	i := slices.IndexFunc(d.people, func(p person.Person) bool { return p.ID == id })
	if d.gone || i < 0 {
		return person.Person{}, false, d.err()
	}
	return d.people[i], true, nil
}

func (d *town) err() error {
	if d.gone {
		return errBlown
	}
	return nil
}

func (d *town) Members(_ context.Context, tenant string, principals []string) ([]person.Person, error) {
	var out []person.Person
	for _, p := range d.people {
		if tenant == acme && slices.ContainsFunc(append([]string{p.ID}, p.Groups...), func(s string) bool { return slices.Contains(principals, s) }) {
			out = append(out, p)
		}
	}
	return out, d.err()
}

func (d *town) Slack(context.Context, string, string) (string, person.Person, bool, error) {
	return "", person.Person{}, false, d.err()
}

// box is a channel that keeps what it is given.
type box struct {
	name  string
	w     *world
	fails int          // so many messages do not get through
	meets func() error // is called before each message
}

func (b *box) Name() string { return b.name }

func (b *box) Reaches(p person.Person) bool {
	return b.name == "email" && p.Email != "" || b.name == "slack" && p.Slack != ""
}

func (b *box) Send(_ context.Context, m Message) (string, error) {
	if err := b.try(); err != nil {
		return "", err
	}
	b.w.sent = append(b.w.sent, message{m.To.ID, b.name, m.Occasion, b.w.clock.Now(), m.Link, m.Shown.ID, m.Approval.Status})
	if b.name == "email" {
		return "", nil
	}
	b.w.refs++
	return fmt.Sprintf("C%d", b.w.refs), nil
}

func (b *box) Update(_ context.Context, ref string, m Message) error {
	if err := b.try(); err != nil {
		return err
	}
	b.w.updated = append(b.w.updated, ref+" "+string(m.Approval.Status))
	return nil
}

func (b *box) try() error {
	if b.meets != nil {
		if err := b.meets(); err != nil {
			return err
		}
	}
	if b.fails > 0 {
		b.fails--
		return errBlown
	}
	return nil
}

// message is one that got through.
type message struct {
	to, channel string
	occasion    Occasion
	at          time.Time
	link, shown string
	status      approval.Status // as whoever sent it had read it
}

// world is the people of acme, and the table.
type world struct {
	t       *testing.T
	table   *faulty
	clock   *clock.Virtual
	people  *town
	email   *box
	slack   *box
	sent    []message
	updated []string
	refs    int
	warned  []string
	n       *Notifier
}

// faulty is a table that goes wrong when it is told to.
type faulty struct {
	store.Table
	before func(ops []store.Op) error
	after  func(ops []store.Op) error
	writes int
	reads  int
}

func (f *faulty) Get(ctx context.Context, k store.Key) (store.Item, bool, error) {
	f.reads++
	return f.Table.Get(ctx, k)
}

func (f *faulty) Query(ctx context.Context, r store.Range) (store.Page, error) {
	f.reads++
	return f.Table.Query(ctx, r)
}

func (f *faulty) Write(ctx context.Context, ops ...store.Op) error {
	f.writes++
	if f.before != nil {
		if err := f.before(ops); err != nil {
			return err
		}
	}
	err := f.Table.Write(ctx, ops...)
	if f.after != nil && err == nil {
		return f.after(ops)
	}
	return err
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, table: &faulty{Table: memory.New()}, clock: clock.NewVirtual(day), people: &town{people: []person.Person{
		{ID: "user:ana", Groups: []string{"group:finance"}, Email: "ana@acme.example", Slack: "U1"},
		{ID: "user:ben", Groups: []string{"group:finance"}, Email: "ben@acme.example"},
		{ID: "user:cleo", Groups: []string{"group:board"}, Slack: "U3"},
		{ID: "user:dan", Groups: []string{"group:sales"}, Email: "dan@acme.example"},
	}}}
	w.email, w.slack = &box{name: "email", w: w}, &box{name: "slack", w: w}
	w.n = w.notifier()
	return w
}

// notifier is one as another process has it.
func (w *world) notifier() *Notifier {
	return &Notifier{
		Table: w.table, Clock: w.clock, Directory: w.people, Channels: []Channel{w.email, w.slack}, Links: links{},
		Show: func(_ context.Context, a approval.Approval) (show.Request, error) { return show.Request{ID: a.ID}, nil },
		Warn: func(what string, _ error) { w.warned = append(w.warned, what) },
	}
}

type links struct{}

func (links) URL(_ context.Context, a approval.Approval, to, channel string) (string, error) {
	return "https://countersign.example/" + a.ID + "/" + to + "/" + channel, nil
}

// request is one of finance that lives for a day.
func request(change ...func(a *approval.Approval)) approval.Approval {
	a := approval.Approval{
		Tenant: acme, ID: "a1", Run: "r1", Agent: "clerk", Kind: approval.KindCall, Calls: []string{"c1"}, Tools: []string{"refunds.pay"},
		Args: json.RawMessage(`{"iban":"DE89 3704 0044"}`), Digest: "d1", Effect: run.EffectNonIdempotent, Status: approval.Pending,
		Approvers: []string{"group:finance"}, Quorum: 1, RequestedAt: day, ExpiresAt: day.Add(24 * time.Hour), Decisions: []approval.Decision{},
		Requesters: []string{"user:dan"}, RuleNote: "More than 100 EUR.",
	}
	for _, c := range change {
		c(&a)
	}
	return a
}

func reminds(every time.Duration) func(a *approval.Approval) {
	return func(a *approval.Approval) { a.RemindSeconds = int64(every / time.Second) }
}

func escalatesTo(after time.Duration, to ...string) func(a *approval.Approval) {
	return func(a *approval.Approval) { a.EscalatesAt, a.EscalateTo = a.RequestedAt.Add(after), to }
}

// ask writes a request.
func (w *world) ask(a approval.Approval) approval.Approval {
	op, err := approval.CreateOp(a)
	require.NoError(w.t, err)
	require.NoError(w.t, w.table.Table.Write(context.Background(), op))
	return a
}

// become ends a request as its run does, telling nobody.
func (w *world) become(as approval.Status) approval.Approval {
	op := approval.CloseOp(acme, run.Wait{Approval: "a1", Since: day}, as)
	require.NoError(w.t, w.table.Table.Write(context.Background(), op))
	return w.stands()
}

// stands is the request as it stands.
func (w *world) stands() approval.Approval {
	a, err := approval.Get(context.Background(), w.table.Table, acme, "a1")
	require.NoError(w.t, err)
	return a
}

// rewrite changes a request's body.
func (w *world) rewrite(change func(a *approval.Approval)) approval.Approval {
	a, _, err := approval.Rewrite(context.Background(), w.table.Table, acme, "a1", func(a *approval.Approval) (bool, error) {
		change(a)
		return true, nil
	})
	require.NoError(w.t, err)
	return a
}

// tell tells of the request as the state machine's waiter does, whose runs are tested elsewhere.
func (w *world) tell() {
	w.t.Helper()
	_, err := w.n.attend(context.Background(), acme, visit{begins: true, forced: true}, "a1")
	require.NoError(w.t, err)
}

// sweep is a sweep at that time of the request's life.
func (w *world) sweep(after time.Duration) map[string]int64 {
	w.t.Helper()
	w.clock.AdvanceTo(day.Add(after))
	did, err := w.n.Due(context.Background(), 100)
	require.NoError(w.t, err)
	return did
}

// due is when the request is looked at next, since it was made; -1 = never.
func (w *world) due() time.Duration {
	w.t.Helper()
	at, found, err := w.n.Next(context.Background())
	require.NoError(w.t, err)
	if !found {
		return -1
	}
	return at.Sub(day)
}

// drain gives what was sent since it was asked last.
func (w *world) drain() []string {
	out := []string{}
	for _, m := range w.sent {
		out = append(out, fmt.Sprintf("%s %s %s", m.to[5:], m.channel, m.occasion))
	}
	w.sent = nil
	return out
}
