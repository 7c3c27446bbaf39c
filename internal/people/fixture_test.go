package people

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

const acme = "acme"

var day = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// errReset is the error of a failed delivery.
var errReset = errors.New("connection reset")

// testDirectory is a directory of the people of acme.
type testDirectory struct {
	Directory // the rest is not asked
	people    []Person
	failing   bool
}

func (d *testDirectory) Person(ctx context.Context, tenant, id string) (Person, bool, error) {
	if d.failing {
		return Person{}, false, errReset
	}
	return NewBook(acme, d.people...).Person(ctx, tenant, id)
}

func (d *testDirectory) Members(ctx context.Context, tenant string, principals []string) ([]Person, error) {
	if d.failing {
		return nil, errReset
	}
	return NewBook(acme, d.people...).Members(ctx, tenant, principals)
}

// testChannel is a channel that records its messages.
type testChannel struct {
	name       string
	w          *fixture
	failures   int          // so many messages do not get through
	beforeSend func() error // is called before each message
	until      time.Time    // the deadline of the newest message
}

func (b *testChannel) Name() string { return b.name }

func (b *testChannel) Reaches(p Person) bool {
	return b.name == "email" && p.Email != "" || b.name == "slack" && p.Slack != ""
}

func (b *testChannel) Send(ctx context.Context, m Message) (string, error) {
	b.until, _ = ctx.Deadline()
	if err := b.deliver(); err != nil {
		return "", err
	}
	shown := m.Shown.Title.String()
	for _, s := range m.Document().Sections { // a remark
		shown = s.Rows[0].Value.String()
	}
	b.w.sent = append(b.w.sent, message{m.To.ID, b.name, m.Occasion, b.w.clock.Now(), m.Link, shown, m.Approval.Status})
	if b.name == "email" {
		return "", nil
	}
	b.w.refs++
	return fmt.Sprintf("C%d", b.w.refs), nil
}

func (b *testChannel) Update(_ context.Context, ref string, m Message) error {
	if err := b.deliver(); err != nil {
		return err
	}
	b.w.updated = append(b.w.updated, ref+" "+string(m.Approval.Status))
	return nil
}

func (b *testChannel) deliver() error {
	if b.beforeSend != nil {
		if err := b.beforeSend(); err != nil {
			return err
		}
	}
	if b.failures > 0 {
		b.failures--
		return errReset
	}
	return nil
}

// message is a message that was delivered.
type message struct {
	to, channel string
	occasion    Occasion
	at          time.Time
	link, shown string
	status      approval.Status // as whoever sent it had read it
}

// fixture is the people of acme, and the table.
type fixture struct {
	t       *testing.T
	table   *fault.Table
	clock   *clock.Virtual
	people  *testDirectory
	email   *testChannel
	slack   *testChannel
	sent    []message
	updated []string
	refs    int
	warned  []string
	n       *Notifier
}

// writes returns how often the table was written.
func (w *fixture) writes() int64 {
	c := w.table.Counts()
	return c.Writes + c.Transactions
}

// onWrite calls f before each write; nil = nothing is called.
func (w *fixture) onWrite(f func() error) {
	w.table.Use(nil)
	if f != nil {
		w.table.Use(fault.OnlyIf(fault.IsWrite, fault.Before(f)))
	}
}

func newFixture(t *testing.T) *fixture {
	w := &fixture{t: t, table: fault.NewTable(store.NewMemory()), clock: clock.NewVirtual(day), people: &testDirectory{people: []Person{
		{ID: "user:ana", Groups: []string{"group:finance"}, Email: "ana@acme.example", Slack: "U1"},
		{ID: "user:ben", Groups: []string{"group:finance"}, Email: "ben@acme.example"},
		{ID: "user:cleo", Groups: []string{"group:board"}, Slack: "U3"},
		{ID: "user:dan", Groups: []string{"group:sales"}, Email: "dan@acme.example"},
	}}}
	w.email, w.slack = &testChannel{name: "email", w: w}, &testChannel{name: "slack", w: w}
	w.n = w.notifier()
	return w
}

// notifier returns a notifier of another process.
func (w *fixture) notifier() *Notifier {
	return &Notifier{
		Table: w.table, Clock: w.clock, Directory: w.people, Channels: []Channel{w.email, w.slack}, Links: testLinks{},
		Show: func(_ context.Context, a approval.Approval) (Document, error) {
			return Document{Title: ForeignText(a.ID)}, nil
		},
		Warn: func(what string, _ error) { w.warned = append(w.warned, what) },
	}
}

type testLinks struct{}

func (testLinks) URL(_ context.Context, a approval.Approval, to, channel string) (string, error) {
	return "https://countersign.example/" + a.ID + "/" + to + "/" + channel, nil
}

// newRequest is a request to finance that expires after a day.
func newRequest(change ...func(a *approval.Approval)) approval.Approval {
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

func remindEvery(every time.Duration) func(a *approval.Approval) {
	return func(a *approval.Approval) { a.RemindSeconds = int64(every / time.Second) }
}

func escalatesTo(after time.Duration, to ...string) func(a *approval.Approval) {
	return func(a *approval.Approval) { a.EscalatesAt, a.EscalateTo = a.RequestedAt.Add(after), to }
}

// store stores a request.
func (w *fixture) store(a approval.Approval) approval.Approval {
	op, err := approval.CreateOp(a)
	require.NoError(w.t, err)
	require.NoError(w.t, w.table.Table.Write(context.Background(), op))
	return a
}

// closeAs ends a request as its run does, without notice.
func (w *fixture) closeAs(as approval.Status) approval.Approval {
	op := approval.CloseOp(acme, run.Wait{Approval: "a1", Since: day}, as)
	require.NoError(w.t, w.table.Table.Write(context.Background(), op))
	return w.load()
}

// load reads the stored request.
func (w *fixture) load() approval.Approval {
	a, err := approval.Get(context.Background(), w.table.Table, acme, "a1")
	require.NoError(w.t, err)
	return a
}

// update changes the stored request.
func (w *fixture) update(change func(a *approval.Approval)) approval.Approval {
	a, _, err := approval.UpdatePending(context.Background(), w.table.Table, acme, "a1", func(a *approval.Approval) (bool, error) {
		change(a)
		return true, nil
	})
	require.NoError(w.t, err)
	return a
}

// notifyPeople tells people of the request, as the state machine's waiter does.
func (w *fixture) notifyPeople() {
	w.t.Helper()
	_, err := w.n.processRequests(context.Background(), acme, passOptions{createsNotice: true, ignoresDue: true}, "a1")
	require.NoError(w.t, err)
}

// told stores a request, and tells people of it.
func told(t *testing.T, change ...func(a *approval.Approval)) *fixture {
	t.Helper()
	w := newFixture(t)
	w.store(newRequest(change...))
	w.notifyPeople()
	return w
}

// ensure lets the sweep look whether somebody was told.
func (w *fixture) ensure(a approval.Approval) map[string]int64 {
	w.t.Helper()
	did, err := w.n.EnsureNotified(context.Background(), a)
	require.NoError(w.t, err)
	return did
}

// sweep runs a sweep at that time after the request.
func (w *fixture) sweep(after time.Duration) map[string]int64 {
	w.t.Helper()
	w.clock.AdvanceTo(day.Add(after))
	did, err := w.n.ProcessDue(context.Background(), 100)
	require.NoError(w.t, err)
	return did
}

// nextDue is when the request is checked next, after it was made; -1 = never.
func (w *fixture) nextDue() time.Duration {
	w.t.Helper()
	at, found, err := w.n.NextDue(context.Background())
	require.NoError(w.t, err)
	if !found {
		return -1
	}
	return at.Sub(day)
}

// takeSent returns what was sent since its last call.
func (w *fixture) takeSent() []string {
	out := []string{}
	for _, m := range w.sent {
		out = append(out, fmt.Sprintf("%s %s %s", m.to[5:], m.channel, m.occasion))
	}
	w.sent = nil
	return out
}
