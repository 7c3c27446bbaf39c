package web_test

import (
	"context"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/web"
)

func TestMain(m *testing.M) { os.Exit(standins.BrowserTests{M: m}.Run()) }

// madePayment is the argument of the tool that asks.
type madePayment struct {
	Amount int    `json:"amount"`
	To     string `json:"to,omitempty"`
}

// answers are the schemas of what the tool asks for some amounts.
var answers = map[int]string{7: `{"type":"string"}`, 8: `{"type": "object", "additionalProperties": false, "required": ["from"],
	"properties": {"from": {"enum": ["till", "bank"]}, "day": {"type": "integer", "minimum": 1}}}`}

// describePayment has a sentence for some payments, and is broken for others.
func describePayment(p madePayment) string {
	switch p.Amount {
	case 1:
		return " Pay one coin to " + p.To + "."
	case 2:
		panic("no sentence for " + p.To)
	case 3:
		return strings.Repeat("<b>\u202e ", 500)
	case 4:
		return " \xff\n"
	}
	return ""
}

// harness is a machine with a parked call and its page, all of it real but the model and the people.
type harness struct {
	t      testing.TB
	m      *local.Machine
	paid   chan madePayment
	clk    *shiftedClock
	links  *approval.Links
	pages  *web.Pages
	people staff
	server *httptest.Server
	run    string
	rows   *store.Memory
}

// shiftedClock is the system's clock, moved by the test.
type shiftedClock struct {
	clock.Clock
	mu sync.Mutex
	by time.Duration
}

func (s *shiftedClock) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Clock.Now().Add(s.by)
}

func (s *shiftedClock) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by += d
}

// staff is a directory.
type staff map[string]people.Person

func (p staff) Person(_ context.Context, tenant, id string) (people.Person, bool, error) {
	one, ok := p[id]
	return one, ok && tenant == local.Tenant, nil
}
func (p staff) Members(context.Context, string, []string) ([]people.Person, error) { return nil, nil }
func (p staff) Removed(context.Context, string, string) (bool, error)              { return false, nil }
func (p staff) Slack(context.Context, string, string) (string, people.Person, bool, error) {
	return "", people.Person{}, false, nil
}

// asksToPay is a script of one call with that input, and the end.
func asksToPay(input string) string {
	return `{"calls": [{"id": "c1", "name": "pay", "input": ` + input + `}], "text": "I will pay."}
{"text": "Paid."}`
}

func newHarness(t testing.TB, lines string, change ...func(*agent.Definition)) *harness {
	t.Helper()
	w := &harness{t: t, paid: make(chan madePayment, 10), clk: &shiftedClock{Clock: clock.System()}, rows: store.NewMemory()}
	w.people = staff{
		"user:ana": {ID: "user:ana", Name: "Ana Lima", Groups: []string{"group:operators"}},
		"user:bob": {ID: "user:bob", Groups: []string{"group:operators"}},
		"user:eve": {ID: "user:eve", Groups: []string{"group:guests"}},
	}
	pay := tool.Must(tool.New("pay", "Pays.", run.EffectNonIdempotent, func(_ context.Context, c tool.Call, in madePayment) (agent.ToolResultData, error) {
		if schema := answers[in.Amount]; schema != "" && c.Resume == nil {
			return agent.ToolResultData{Suspend: &run.Ticket{ID: "from-where", Message: "From where?", ResponseSchema: json.RawMessage(schema)}}, nil
		}
		if c.Resume != nil {
			in.To = string(c.Resume)
		}
		w.paid <- in
		return tool.Text("paid"), nil
	}, &tool.Options[madePayment]{Describe: describePayment}))
	reg := registry.Must(registry.New(pay))
	def, err := agent.PresetDefaults(agent.PresetCountersign)
	require.NoError(t, err)
	def.Name, def.Version, def.System, def.Tools = "payer", "1", "You pay.", []agent.ToolSpec{pay.Spec()}
	def.Model.Provider, def.Model.File = "script", "model.jsonl"
	for _, f := range change {
		f(&def)
	}
	require.NoError(t, def.Check())
	require.NoError(t, reg.Add(def))
	s, err := script.Parse("model.jsonl", []byte(lines))
	require.NoError(t, err)
	blobs, err := bolt.OpenFolder(t.TempDir())
	require.NoError(t, err)
	w.m, err = local.New(local.Config{
		Table: w.rows, Blobs: blobs, Model: script.New(s), Tools: reg.Tools(), Agents: reg.Agent, Clock: w.clk, IDs: clock.NewIDs(w.clk),
		Executions: local.NewExecutions(store.NewMemory()), Warm: 10,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.m.Engine.Close()) })
	w.servePages()
	started, err := w.m.Starter.Start(t.Context(), runtime.Start{Tenant: local.Tenant, Agent: &def, Key: "k1", Message: []run.UserBlock{{Block: run.Text{Text: "pay"}}}})
	require.NoError(t, err)
	w.run = started.Run
	return w
}

func (w *harness) servePages() {
	ring, err := secrets.Parse(`{"id":"1","key":"0123456789abcdef0123456789abcdef"}`)
	require.NoError(w.t, err)
	w.links = &approval.Links{
		Table: w.m.Ports.Table, Ring: func() (*secrets.Ring, error) { return ring, nil }, Clock: w.clk, IDs: clock.NewIDs(w.clk),
		Base: func() string { return w.server.URL },
	}
	w.pages = &web.Pages{
		Links: w.links, Desk: w.m.Desk, People: w.people, Clock: w.clk,
		View: (&people.Viewer{Runs: w.m.Ports.Journal, Definitions: w.m.Definitions}).View,
		Get:  w.m.Desk.Get,
	}
	w.server = httptest.NewServer(w.pages.Handler())
	w.t.Cleanup(w.server.Close)
}

// pendingRequest is the request, once it is there.
func (w *harness) pendingRequest() approval.Approval {
	w.t.Helper()
	for range 24000 {
		list, _, err := approval.List(w.t.Context(), w.m.Ports.Table, local.Tenant, approval.Query{Status: approval.Pending})
		require.NoError(w.t, err)
		if len(list) > 0 {
			return list[0]
		}
		require.NoError(w.t, w.clk.Sleep(w.t.Context(), 5*time.Millisecond))
	}
	w.t.Fatal("nobody was asked")
	return approval.Approval{}
}

func (w *harness) reload(a approval.Approval) approval.Approval {
	w.t.Helper()
	a, err := approval.Get(w.t.Context(), w.m.Ports.Table, local.Tenant, a.ID)
	require.NoError(w.t, err)
	return a
}

// newLink is the address of the request's page for somebody.
func (w *harness) newLink(a approval.Approval, to string) string {
	w.t.Helper()
	at, err := w.links.URL(w.t.Context(), a, to, "email")
	require.NoError(w.t, err)
	return at
}

// reading has the pages read another request than the one that is stored.
func (w *harness) reading(change func(*approval.Approval)) {
	get := w.pages.Get
	w.pages.Get = func(ctx context.Context, tenant, id string) (approval.Approval, error) {
		a, err := get(ctx, tenant, id)
		change(&a)
		return a, err
	}
}

// fakeDesk notes what it is asked, and hands it to the desk unless a test says what comes of it.
type fakeDesk struct {
	web.Desk
	asked  []approval.DecisionInput
	says   func() error // of a decision; nil = the desk does
	record error        // of an unmasking; nil = the desk does
}

func (f *fakeDesk) Decide(ctx context.Context, r approval.DecisionInput) (approval.Approval, error) {
	f.asked = append(f.asked, r)
	if f.says != nil {
		return approval.Approval{}, f.says()
	}
	return f.Desk.Decide(ctx, r)
}

func (f *fakeDesk) RecordUnmasking(
	ctx context.Context, tenant, id string, by policy.Principal, via approval.Via,
) error {
	if f.record != nil {
		return f.record
	}
	return f.Desk.RecordUnmasking(ctx, tenant, id, by, via)
}

// deskOf has the pages decide by a fake.
func (w *harness) deskOf(f *fakeDesk) *fakeDesk {
	f.Desk = w.m.Desk
	w.pages.Desk = f
	return f
}

// asked is a harness whose call has asked for 5, its request, and Ana's link to it.
func asked(t testing.TB, change ...func(*agent.Definition)) (w *harness, a approval.Approval, at string) {
	t.Helper()
	w = newHarness(t, asksToPay(five), change...)
	a = w.pendingRequest()
	return w, a, w.newLink(a, "user:ana")
}

// response is a response, read.
type response struct {
	status int
	header http.Header
	body   string
}

// do makes a request, with headers as pairs. It follows no redirect.
func (w *harness) do(method, at string, form url.Values, headers ...string) response {
	w.t.Helper()
	if form != nil {
		return w.send(method, at, strings.NewReader(form.Encode()), append([]string{"Content-Type", formType}, headers...)...)
	}
	return w.send(method, at, nil, headers...)
}

const formType = "application/x-www-form-urlencoded"

// send is do with a body as it stands.
func (w *harness) send(method, at string, body io.Reader, headers ...string) response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, at, body)
	require.NoError(w.t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(r)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	return response{resp.StatusCode, resp.Header, string(data)}
}

var hidden = regexp.MustCompile(`name="form" value="([^"]+)"`)

// fillForm is the page's form, filled in; pairs are fields.
func (w *harness) fillForm(page string, pairs ...string) url.Values {
	w.t.Helper()
	found := hidden.FindStringSubmatch(page)
	require.NotNil(w.t, found, "a form on the page: %s", page)
	v := url.Values{"form": {html.UnescapeString(found[1])}}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v
}

// pressButton opens the page and presses a button of it.
func (w *harness) pressButton(at, action string, pairs ...string) response {
	w.t.Helper()
	page := w.do("GET", at, nil)
	require.Equal(w.t, http.StatusOK, page.status)
	return w.do("POST", at, w.fillForm(page.body, append([]string{"action", action}, pairs...)...))
}

// finish is the run's status once it has ended.
func (w *harness) finish() run.RunStatus {
	w.t.Helper()
	for range 24000 {
		l, err := w.m.Ports.Journal.Load(w.t.Context(), local.Tenant, w.run)
		require.NoError(w.t, err)
		if l.State.Status == run.RunDone {
			return l.State.Status
		}
		require.NoError(w.t, w.clk.Sleep(w.t.Context(), 5*time.Millisecond))
	}
	w.t.Fatal("the run does not end")
	return ""
}

// rowsOf are the rows of a section, to be changed.
func rowsOf(d *people.Document, name people.SectionName) *[]people.Row {
	i := slices.IndexFunc(d.Sections, func(s people.Section) bool { return s.Name == name })
	return &d.Sections[i].Rows
}
