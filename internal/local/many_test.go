package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http/httptest"
	netmail "net/mail"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/store"
)

// paying is a model that asks for so many payments in its first reply, then in its second one, and so on.
type paying []int

func (p paying) Generate(_ context.Context, r agent.Request) (agent.Reply, error) {
	n := int(r.Inference) - 1
	if n >= len(p) {
		return agent.Reply{Model: "m", Text: "Paid."}, nil
	}
	reply := agent.Reply{Model: "m"}
	for i := range p[n] {
		reply.Calls = append(reply.Calls, agent.ReplyCall{
			ID: fmt.Sprintf("c%d-%d", n, i), Name: "pay", Input: json.RawMessage(fmt.Sprintf(`{"to": "<payee %d>"}`, i)),
		})
	}
	return reply, nil
}

// pager is a channel that keeps what it carries.
type pager struct {
	mu      sync.Mutex
	meets   func(n int) error // is called before the n-th message, from 1
	takes   time.Duration     // to send a message
	n       int
	told    []page
	updates []string // statuses
}

// failing has the first messages fail.
func failing(messages int) func(n int) error {
	return func(n int) error {
		if n <= messages {
			return errors.New("out of reach")
		}
		return nil
	}
}

// page is one message that got through.
type page struct {
	to       string
	occasion people.Occasion
	requests []string
}

func (*pager) Name() string { return "slack" }

func (*pager) Reaches(p people.Person) bool { return p.Slack != "" }

func (p *pager) Send(ctx context.Context, m people.Message) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := clock.System().Sleep(ctx, p.takes); err != nil {
		return "", err
	}
	if p.n++; p.meets != nil {
		if err := p.meets(p.n); err != nil {
			return "", err
		}
	}
	got := page{to: m.To.ID, occasion: m.Occasion, requests: []string{m.Approval.ID}}
	for _, o := range m.Others {
		got.requests = append(got.requests, o.Approval.ID)
	}
	p.told = append(p.told, got)
	return fmt.Sprint("ref", p.n), nil
}

func (p *pager) Update(_ context.Context, _ string, m people.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updates = append(p.updates, string(m.Approval.Status))
	return nil
}

// said gives the occasions of the messages, and behind them the statuses of their updates.
func (p *pager) said() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	said := []string{}
	for _, m := range p.told {
		said = append(said, string(m.occasion))
	}
	return append(said, p.updates...)
}

// drain gives what got through since it was asked last: person, occasion and number of requests.
func (p *pager) drain() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []string{}
	for _, m := range p.told {
		out = append(out, fmt.Sprint(m.to, " ", m.occasion, " ", len(m.requests)))
	}
	p.told = nil
	return out
}

// slowTable returns a table whose writes take their time, so that no two requests are made in the same moment, and that
// can refuse them.
func slowTable() (table *fault.Table, die func(dead bool)) {
	var isDead atomic.Bool
	table = fault.NewTable(store.NewMemory())
	table.Use(fault.OnlyIf(fault.IsWrite, fault.Before(func() error {
		time.Sleep(7 * time.Millisecond)
		if isDead.Load() {
			return errors.New("the process is dead")
		}
		return nil
	})))
	return table, isDead.Store
}

// crew is an office of several approvers whose model asks for many payments, and the directory of its mails.
func crew(t *testing.T, table store.Table, blobs store.Blobs, p people.Channel, asks ...int) (o *office, mails string) {
	t.Helper()
	staff, err := people.Read([]byte(`{"tenants": {"` + Tenant + `": {
		"user:ana": {"groups": ["group:operators"], "email": "ana@acme.example", "slack": "U0ANA"},
		"user:ben": {"groups": ["group:operators"], "email": "ben@acme.example"},
		"user:cleo": {"groups": ["group:operators"], "slack": "U0CLEO"}}}}`))
	require.NoError(t, err)
	mails = filepath.Join(t.TempDir(), people.OutboxDir)
	o = newOfficeOf(t, Config{
		Table: table, Blobs: blobs, Executions: NewExecutions(store.NewMemory()), People: staff, Model: paying(asks),
		Notify: &people.Notifier{
			Channels: []people.Channel{people.Outbox{Path: mails, Clock: clock.System()}, p}, Links: linksOver(t, table),
		},
	})
	o.def.Limits.Open = 200
	o.def.Permission.Rules = []agent.Rule{
		{Tool: "pay", Verdict: agent.VerdictAsk, Remind: time.Hour, Expires: 24 * time.Hour},
	}
	return o, mails
}

// linksOver are links to approval pages of a table.
func linksOver(t *testing.T, table store.Table) *approval.Links {
	t.Helper()
	c := clock.System()
	text, err := secrets.Mint(strings.Repeat("k", 32))
	require.NoError(t, err)
	ring, err := secrets.Parse(text)
	require.NoError(t, err)
	return &approval.Links{
		Table: table, Ring: func() (*secrets.Ring, error) { return ring, nil }, Clock: c, IDs: clock.NewIDs(c),
		Base: func() string { return "https://countersign.example" },
	}
}

// read gives the plain text of every mail, and takes them away.
func read(t *testing.T, dir string) (texts []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.eml"))
	require.NoError(t, err)
	for _, name := range all {
		f, err := os.Open(name)
		require.NoError(t, err)
		m, err := netmail.ReadMessage(f)
		require.NoError(t, err)
		_, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
		require.NoError(t, err)
		part, err := multipart.NewReader(m.Body, params["boundary"]).NextPart()
		require.NoError(t, err)
		text, err := io.ReadAll(part)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.NoError(t, os.Remove(name))
		texts = append(texts, strings.ReplaceAll(string(text), "\r\n", "\n"))
	}
	return texts
}

var anyPage = regexp.MustCompile(`https://countersign\.example/\S+`)

// People get one message for many requests of a reply, and one reminder; nothing is updated when the run is cancelled.
func TestOneMessageTellsOfManyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pager{}
		table, _ := slowTable()
		var queries atomic.Int64
		table.Use(func(_ context.Context, c fault.Call, call func() error) error {
			if c.Port == fault.TableQuery {
				queries.Add(1)
			}
			return call()
		})
		o, mails := crew(t, table, store.NewMemoryBlobs(), p, 180)
		s, err := o.startRun(t)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Less(t, queries.Load(), int64(100), "the run is not read for each request")
		require.Equal(t, []string{"user:ana asked 180", "user:cleo asked 180"}, p.drain())
		texts := read(t, mails)
		require.Len(t, texts, 2, "ana and ben")
		for _, text := range texts {
			require.Contains(t, text, "180 calls of run "+s.Run)
			require.Contains(t, text, `180. pay(to: "<payee 179>")`)
			require.Contains(t, text, "Each is decided by itself, the first until 2000-01-02 00:00:")
			links := anyPage.FindAllString(text, -1)
			slices.Sort(links)
			require.Len(t, slices.Compact(links), 180, "each request has a page of its own")
		}

		time.Sleep(time.Hour)
		require.Equal(t, []string{"user:ana reminder 180", "user:cleo reminder 180"}, p.drain())
		texts = read(t, mails)
		require.Len(t, texts, 2)
		require.Contains(t, texts[0], "Still waiting for a decision: 180 calls of run "+s.Run)

		_, err = o.Canceller.Cancel(t.Context(), Tenant, s.Run, "user:ana", "enough")
		require.NoError(t, err)
		time.Sleep(24 * time.Hour)
		require.Empty(t, p.drain())
		require.Empty(t, read(t, mails))
		require.Empty(t, p.updates)
		require.NoError(t, o.Close())
	})
}

// Few requests are told of one by one, and one that comes later is told of alone.
func TestFewRequestsAreToldOfOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pager{}
		table, _ := slowTable()
		o, mails := crew(t, table, store.NewMemoryBlobs(), p, 3)
		o.start(t)
		time.Sleep(time.Minute)
		require.Equal(t, slices.Repeat([]string{"user:ana asked 1", "user:cleo asked 1"}, 3), p.drain())
		require.Len(t, read(t, mails), 6)
		require.NoError(t, o.Close())
	})
	synctest.Test(t, func(t *testing.T) {
		p := &pager{}
		table, _ := slowTable()
		o, mails := crew(t, table, store.NewMemoryBlobs(), p, 4, 1)
		o.def.Wait, o.def.Resume = run.WaitAllSuspended, run.ResumeEach // the model goes on while calls wait
		o.start(t)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"user:ana asked 4", "user:cleo asked 4"}, p.drain())
		require.Len(t, read(t, mails), 2)
		open, _, err := approval.List(t.Context(), o.Ports.Table, Tenant, approval.Query{Status: approval.Pending, Limit: 200})
		require.NoError(t, err)
		_, err = o.Desk.Decide(t.Context(), approval.DecisionInput{
			Tenant: Tenant, ID: open[0].ID, Action: approval.Deny, By: clerks,
		})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"user:ana asked 1", "user:cleo asked 1"}, p.drain())
		require.Len(t, read(t, mails), 2)
		require.NoError(t, o.Close())
	})
}

// A message about many requests that does not get through, or of which it is not recorded that it has, is sent again as
// one message.
func TestAMessageAboutManyRequestsIsSentAgain(t *testing.T) {
	everybody := func(t *testing.T, p *pager) {
		t.Helper()
		p.mu.Lock()
		defer p.mu.Unlock()
		told := map[string]map[string]bool{"user:ana": {}, "user:cleo": {}}
		for _, m := range p.told {
			for _, id := range m.requests {
				told[m.to][id] = true
			}
		}
		for who, requests := range told {
			require.Len(t, requests, 40, "%s was told of every request", who)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		p := &pager{meets: failing(5)}
		table, _ := slowTable()
		o, mails := crew(t, table, store.NewMemoryBlobs(), p, 40)
		o.start(t)
		time.Sleep(30 * time.Minute)
		everybody(t, p)
		require.Equal(t, []string{"user:cleo asked 40", "user:ana asked 40"}, p.drain())
		require.Len(t, read(t, mails), 2, "whom another channel reached is not told again")
		require.NoError(t, o.Close())
	})
	synctest.Test(t, func(t *testing.T) {
		table, die := slowTable()
		p := &pager{}
		p.meets = func(n int) error {
			if n == 2 { // the last message: nothing that was sent is recorded
				die(true)
			}
			return nil
		}
		o, _ := crew(t, table, store.NewMemoryBlobs(), p, 40)
		_, err := o.startRun(t)
		require.NoError(t, err)
		time.Sleep(20 * time.Second)
		die(false)
		time.Sleep(10 * time.Minute)
		everybody(t, p)
		got := p.drain()
		require.Equal(t, []string{"user:ana asked 40", "user:cleo asked 40", "user:ana asked 40", "user:cleo asked 40"}, got)
		require.NoError(t, o.Close())
	})
}

// Of requests of which nobody began to tell, the next process tells by one message.
func TestResumeTellsOfManyRequestsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, blobs, p := store.NewMemory(), store.NewMemoryBlobs(), &pager{}
		o, _ := crew(t, table, blobs, p, 40)
		o.notices.Notifier.Channels = nil // it tells nobody, as one that died would
		o.start(t)
		require.NoError(t, o.Close())
		require.Empty(t, p.drain())
		next, mails := crew(t, table, blobs, p, 40)
		require.NoError(t, next.Resume(t.Context(), Tenant, ""))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"user:ana asked 40", "user:cleo asked 40"}, p.drain())
		require.Len(t, read(t, mails), 2)
		require.NoError(t, next.Close())
	})
}

// Slack takes a message about 180 requests: what there is no room for is counted, each line has its page, and nothing
// is decided by a click.
func TestSlackListsManyRequests(t *testing.T) {
	workspace := &standins.Slack{Token: "xoxb-1-canary", Team: "T0ACME", Members: []string{"U0ANA", "U0CLEO"}}
	at := httptest.NewServer(workspace)
	t.Cleanup(at.Close)
	channel := people.NewSlackChannel(people.SlackOptions{Token: people.StaticSlackToken(workspace.Token), Base: at.URL + "/api/", Clock: clock.System()})
	o, mails := crew(t, store.NewMemory(), store.NewMemoryBlobs(), channel, 180)
	s, err := o.startRun(t)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(workspace.Messages()) == 2 }, 2*time.Minute, 5*time.Millisecond)
	require.NoError(t, o.Close())
	require.Len(t, workspace.Messages(), 2)
	require.Len(t, read(t, mails), 2)
	open, _, err := approval.List(t.Context(), o.Ports.Table, Tenant, approval.Query{Status: approval.Pending, Limit: 200})
	require.NoError(t, err)
	require.Len(t, open, 180)
	for _, m := range workspace.Messages() {
		lines, links := 0, map[string]bool{}
		var shown []string
		for _, b := range m.Blocks {
			shown = append(shown, b.Shown()...)
			require.NotEqual(t, "actions", b.Type)
			if b.Accessory != nil {
				lines++
				links[b.Accessory.URL] = true
				require.Empty(t, b.Accessory.Value)
			}
		}
		all := strings.Join(shown, "\n")
		require.Greater(t, lines, 10)
		require.Len(t, links, lines)
		require.Contains(t, shown[0], "180 calls of run "+s.Run)
		require.Contains(t, all, `1. pay(to: "<payee 0>")`)
		require.Contains(t, all, fmt.Sprintf("And %d more: open the console, or `countersign approvals --run %s`.",
			180-lines, s.Run))
	}
}
