package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/web"
)

// payment is the argument of the one tool that asks.
type payment struct {
	Amount int    `json:"amount"`
	To     string `json:"to,omitempty"`
}

// pay is the script most tests use: one call that waits, then the end.
const pay = `{"calls": [{"id": "c1", "name": "pay", "input": {"amount": 5}}], "text": "I will pay."}
{"text": "Paid."}`

// bench is a machine behind a handler, all of it real but the model.
type bench struct {
	*local.Machine
	t       *testing.T
	paid    chan int // what the tool was entered with
	backend web.Backend
	feed    *web.Feed
	server  *httptest.Server
	client  *web.Client

	table      *store.Memory
	blobs      string // a folder
	executions *local.Executions
}

// change is made to the agent's definition.
func newBench(t *testing.T, lines string, change ...func(*agent.Definition)) *bench {
	t.Helper()
	b := newUnserved(t, lines, change...)
	b.serve()
	t.Cleanup(func() {
		b.feed.Close()
		b.server.Close()
	})
	return b
}

// newWaiting is a bench, and a run of it that waits for its one call to be approved.
func newWaiting(t *testing.T) (*bench, web.Run) {
	t.Helper()
	b := newBench(t, pay)
	return b, b.start("k")
}

// newUnserved is a bench without a server.
func newUnserved(t *testing.T, lines string, change ...func(*agent.Definition)) *bench {
	t.Helper()
	b := &bench{t: t, paid: make(chan int, 10), table: store.NewMemory(), blobs: t.TempDir(), executions: local.NewExecutions(store.NewMemory())}
	payTool := tool.Must(tool.New("pay", "Pays.", run.EffectNonIdempotent, func(ctx context.Context, c tool.Call, in payment) (agent.ToolResultData, error) {
		if in.Amount == 7 && c.Resume == nil {
			return agent.ToolResultData{Suspend: &run.Ticket{ID: "from-where", Message: "From where?", ResponseSchema: json.RawMessage(`{"type":"string"}`)}}, nil
		}
		if in.Amount == 0 { // never comes back in time
			<-ctx.Done()
			return agent.ToolResultData{}, ctx.Err()
		}
		b.paid <- in.Amount
		return tool.Text("paid"), nil
	}, &tool.Options[payment]{Timeout: payTimeout(lines)}))
	reg := registry.Must(registry.New(payTool))
	def := definition(t, payTool.Spec())
	for _, f := range change {
		f(&def)
	}
	require.NoError(t, reg.Add(def))
	s := must(script.Parse("model.jsonl", []byte(lines)))
	blobs := must(bolt.OpenFolder(b.blobs))
	c := clock.System()
	b.feed = web.NewFeed(c)
	var err error
	b.Machine, err = local.New(local.Config{
		Table: b.table, Blobs: blobs, Model: script.New(s), Tools: reg.Tools(), Agents: reg.Agent, Clock: c, IDs: clock.NewIDs(c),
		Executions: b.executions, Sink: b.feed, Warm: 10,
	})
	require.NoError(t, err)
	b.backend = b.Backend()
	b.backend.Agents, b.backend.Feed = reg, b.feed
	b.backend.Caller = func(r *http.Request) (web.Caller, error) {
		who := "user:local,group:operators"
		if as := r.Header.Get(web.AsHeader); as != "" {
			who = as
		}
		p, err := policy.ParsePrincipal(who)
		return web.Caller{Tenant: local.Tenant, Principal: p}, err
	}
	b.backend.PeopleAdmins = "group:operators"
	b.backend.Callbacks = func() (*secrets.Ring, error) { return ring, nil }
	t.Cleanup(func() { require.NoError(t, b.Engine.Close()) })
	return b
}

// payTimeout is short only where a payment never comes back: on a busy machine one that does can take its time.
func payTimeout(lines string) time.Duration {
	if strings.Contains(lines, `"amount": 0`) {
		return 50 * time.Millisecond
	}
	return time.Minute
}

// serve begins to serve the backend as it is now.
func (b *bench) serve() {
	if b.server != nil {
		b.server.Close()
	}
	b.server = httptest.NewServer(web.APIHandler(b.backend))
	b.client = web.NewURLClient(b.server.URL, b.server.Client())
}

func definition(t *testing.T, tools ...agent.ToolSpec) agent.Definition {
	t.Helper()
	d := must(agent.PresetDefaults(agent.PresetCountersign))
	d.Name, d.Version, d.System, d.Tools = "payer", "1", "You pay.", tools
	d.Model.Provider, d.Model.File = "script", "model.jsonl"
	require.NoError(t, d.Check())
	return d
}

// agent is the definition of the bench's agent.
func (b *bench) agent() *agent.Definition {
	d, ok := b.Agents("payer")
	require.True(b.t, ok)
	return d
}

// begun starts a run in a bubble of synctest, and is its id once nothing moves.
func (b *bench) begun() string {
	b.t.Helper()
	s, err := b.Starter.Start(b.t.Context(), runtime.Start{
		Tenant: local.Tenant, Agent: b.agent(), Message: []run.UserBlock{{Block: run.Text{Text: "pay"}}},
	})
	require.NoError(b.t, err)
	synctest.Wait()
	return s.Run
}

// followed serves a stream of a run's events to w. The channel gets how long that took.
func (b *bench) followed(run, query string, w http.ResponseWriter, headers ...string) chan time.Duration {
	r := httptest.NewRequest(http.MethodGet, "/v1/runs/"+run+"/events?"+query, nil)
	r.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	done, handler, begin := make(chan time.Duration, 1), web.APIHandler(b.backend), time.Now()
	go func() {
		handler.ServeHTTP(w, r)
		done <- time.Since(begin)
	}()
	return done
}

// ofTenant serves the same machine to callers of another tenant.
func (b *bench) ofTenant(tenant string) {
	ours := b.backend.Caller
	b.backend.Caller = func(r *http.Request) (web.Caller, error) {
		c, err := ours(r)
		c.Tenant = tenant
		return c, err
	}
	b.serve()
}

// everyPage reads a list to its end.
func everyPage[T any](t *testing.T, read func(cursor string) (web.Page[T], error)) (all []T) {
	t.Helper()
	for cursor := ""; ; {
		p := must(read(cursor))
		all = append(all, p.Items...)
		if cursor = p.Cursor; cursor == "" {
			return all
		}
	}
}

// problemIn reads the problem that an answer must be.
func problemIn(t *testing.T, got answer, status int, kind web.ProblemType) web.Problem {
	t.Helper()
	require.Equal(t, status, got.status, got.body)
	require.Equal(t, "application/problem+json", got.header.Get("Content-Type"))
	var p web.Problem
	require.NoError(t, json.Unmarshal([]byte(got.body), &p))
	require.Equal(t, kind, p.Type)
	require.Equal(t, status, p.Status)
	require.NotEmpty(t, p.Title)
	return p
}

// decided decides what a run asks first, and is the run afterwards.
func (b *bench) decided(r web.Run, action approval.Action) web.Run {
	b.t.Helper()
	must(b.client.Decide(b.t.Context(), r.Waiting[0].Approval, web.Verdict{Action: action}))
	return b.waitUntilParked(r.ID)
}

// finished is a run that is done: its one call was denied.
func (b *bench) finished(key string) web.Run {
	b.t.Helper()
	r := b.decided(b.start(key), approval.Deny)
	require.Equal(b.t, run.RunDone, r.Status)
	return r
}

// must is the value of a call that has to succeed.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

var errParked = errors.New("parked")

// answer is a response, read.
type answer struct {
	status int
	header http.Header
	body   string
}

// do makes a request of a method and path, with a body if there is one, and headers as pairs.
func (b *bench) do(line, body string, headers ...string) answer {
	b.t.Helper()
	method, path, _ := strings.Cut(line, " ")
	r := must(http.NewRequestWithContext(b.t.Context(), method, b.server.URL+path, strings.NewReader(body)))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp := must(b.server.Client().Do(r))
	defer resp.Body.Close()
	data := must(io.ReadAll(resp.Body))
	a := answer{resp.StatusCode, resp.Header, string(data)}
	if d := readDocument(b.t); method != http.MethodHead {
		d.check(d.served(r), a)
	}
	return a
}

// ask makes a request whose answer has the status.
func (b *bench) ask(line, body string, status int, headers ...string) answer {
	b.t.Helper()
	got := b.do(line, body, headers...)
	require.Equal(b.t, status, got.status, got.body)
	return got
}

// start starts a run and follows it until it is done or waits.
func (b *bench) start(key string) web.Run {
	b.t.Helper()
	a := must(b.client.Start(b.t.Context(), web.Start{Agent: "payer", Message: json.RawMessage(`"pay 5"`), Key: key}))
	return b.waitUntilParked(a.ID)
}

// waitUntilParked follows a run until it is done, or waits and nothing has arrived for it.
func (b *bench) waitUntilParked(run string) web.Run {
	b.t.Helper()
	after := ""
	for {
		r := must(b.client.Run(b.t.Context(), run))
		if r.Resting() {
			return r
		}
		err := b.client.Follow(b.t.Context(), run, after, func(e web.Event) error {
			after = e.ID
			if e.Type == "parked" {
				return errParked
			}
			return nil
		})
		if err != nil {
			require.ErrorIs(b.t, err, errParked)
		}
	}
}
