package local

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/people/notify"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/people/slack"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/store"
)

const (
	slackToken  = "xoxb-1-canary"
	slackSecret = "canary0123456789canary0123456789"
)

// inSlack is an office whose approver is asked in Slack, and the pages behind which clicks arrive, as functions/http
// wires them.
func inSlack(t *testing.T) (o *office, workspace *standins.Slack, pages http.Handler, url string, logs *strings.Builder) {
	t.Helper()
	workspace = &standins.Slack{Token: slackToken, Team: "T0ACME", Members: []string{"U0ANA"}}
	at := httptest.NewServer(workspace)
	t.Cleanup(at.Close)
	people, err := person.Read([]byte(`{"tenants": {"` + Tenant + `": {"user:ana": {"groups": ["group:operators"], "slack": "U0ANA"}}}, "slack": {"T0ACME": "` + Tenant + `"}}`))
	require.NoError(t, err)
	c, table := clock.System(), store.NewMemory()
	links := linksOver(t, table)
	tells := &notify.Notifier{
		Channels: []notify.Channel{slack.New(slack.Options{Token: slack.Token(slackToken), Base: at.URL + "/api/", Clock: c})}, Links: links,
		Warn: func(what string, err error) { t.Errorf("%s: %v", what, err) },
	}
	o = newOfficeOf(t, Config{
		Table: table, Blobs: store.NewMemoryBlobs(), Executions: &asl.MemoryStore{}, Notify: tells, People: people,
		Trouble: func(function string, err error) { t.Errorf("%s: %v", function, err) },
	})
	t.Cleanup(func() { require.NoError(t, o.Close()) })
	logs = &strings.Builder{}
	d := *o.Deployment
	d.Links, d.Log = links, slog.New(slog.NewTextHandler(logs, nil))
	d.Slack = func(context.Context) (*slack.Interactions, error) {
		return &slack.Interactions{Secrets: []string{slackSecret}, Hooks: at.URL}, nil
	}
	return o, workspace, d.PagesHandler(), at.URL, logs
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
		Table: table, Ring: func() (*secrets.Ring, error) { return ring, nil }, Clock: c, IDs: ids.System(c),
		Base: func() string { return "https://countersign.example" },
	}
}

// asked starts a run, and waits for the message that asks about its call.
func (o *office) asked(t *testing.T, workspace *standins.Slack) standins.SlackMessage {
	t.Helper()
	_, err := o.startRun(t)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(workspace.Messages()) == 1 }, 2*time.Minute, 5*time.Millisecond)
	return workspace.Messages()[0]
}

// sendClick sends what Slack sends of a click.
func sendClick(t *testing.T, pages http.Handler, click []byte) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, slack.Path, strings.NewReader(string(click)))
	for k, v := range standins.SlackHeaders(slackSecret, time.Now(), click) {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	pages.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code)
}

// pending is the one request that waits.
func (o *office) pending(t *testing.T) approval.Approval {
	t.Helper()
	open, _, err := approval.List(t.Context(), o.Ports.Table, Tenant, approval.Query{Status: approval.Pending})
	require.NoError(t, err)
	require.Len(t, open, 1)
	return open[0]
}

// C1, C5: who is asked in Slack clicks there, the run goes on, the message says what was decided, the journal has it,
// and no log has a secret.
func TestC1ASlackButtonCarriesARunToItsEnd(t *testing.T) {
	o, workspace, pages, url, logs := inSlack(t)
	asked := o.asked(t, workspace)
	runID := o.pending(t).Run
	soon := func(what string, so func() bool) {
		t.Helper()
		require.Eventually(t, so, 2*time.Minute, 5*time.Millisecond, what)
	}
	require.Equal(t, "U0ANA", asked.To)
	click, err := workspace.Request(standins.SlackClick{Member: "U0ANA", Ref: asked.Ref, Action: "approve", Note: "seen", Answer: url + "/actions/T0ACME/1/x"})
	require.NoError(t, err)
	sendClick(t, pages, click)

	soon("the run goes on to its end", func() bool {
		l, err := o.Ports.Journal.Load(t.Context(), Tenant, runID)
		require.NoError(t, err)
		return l.State.Status == run.RunDone
	})
	soon("the message is updated", func() bool { return workspace.Messages()[0].Updates > 0 })
	now := workspace.Messages()
	require.Len(t, now, 1)
	require.Contains(t, string(now[0].Raw), "Approved by user:ana")
	require.NotContains(t, string(now[0].Raw), `"action_id":"approve"`, "it asks no more")
	soon("who clicked is told", func() bool { return len(workspace.Answers()) == 1 })
	require.Contains(t, string(workspace.Answers()[0]), "Your approval is recorded.")

	entries, err := o.Ports.Journal.Stored(t.Context(), Tenant, runID, 0, 100)
	require.NoError(t, err)
	journal, decided := store.Chain{}, []run.Decided{}
	for _, stored := range entries {
		require.NoError(t, journal.Add(stored))
		e, err := run.UnmarshalEntry(stored)
		require.NoError(t, err)
		for _, fact := range e.Events {
			if d, ok := fact.(run.Decided); ok {
				decided = append(decided, d)
			}
		}
	}
	require.True(t, journal.Done)
	require.Len(t, decided, 1)
	require.Equal(t, []string{"user:ana", "approve", "seen"}, []string{decided[0].By, string(decided[0].Action), decided[0].Note})
	a, err := approval.Get(t.Context(), o.Ports.Table, Tenant, decided[0].Approval)
	require.NoError(t, err)
	require.Equal(t, agent.ViaSlack, a.Decisions[0].Via)
	for _, secret := range []string{"canary", approval.LinkPath, "seen"} {
		require.NotContains(t, logs.String(), secret)
	}
}

// A26: whoever opens a link that came by mail is sent a code in Slack, and approves with it.
func TestA26ACodeBySlack(t *testing.T) {
	o, workspace, pages, _, logs := inSlack(t)
	o.def.Permission.Rules = []agent.Rule{{Tool: "*", Verdict: agent.VerdictAsk, Confirm: agent.ConfirmCode}}
	o.asked(t, workspace)
	open := o.pending(t)
	at, err := o.notices.Links.URL(t.Context(), open, "user:ana", "email")
	require.NoError(t, err)
	press := func(pairs url.Values) *httptest.ResponseRecorder {
		page := httptest.NewRecorder()
		pages.ServeHTTP(page, httptest.NewRequest(http.MethodGet, at, nil))
		pairs.Set("form", regexp.MustCompile(`name="form" value="([^"]+)"`).FindStringSubmatch(page.Body.String())[1])
		r := httptest.NewRequest(http.MethodPost, at, strings.NewReader(pairs.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, r)
		return w
	}
	require.Equal(t, http.StatusOK, press(url.Values{"action": {"code"}}).Code)
	require.Len(t, workspace.Messages(), 2)
	message := string(workspace.Messages()[1].Raw)
	require.NotContains(t, message, `"action_id"`, "nothing to click")
	code := regexp.MustCompile(`[0-9]{4} [0-9]{4}`).FindString(message)
	require.Equal(t, http.StatusUnprocessableEntity, press(url.Values{"action": {"approve"}, "code": {"x"}}).Code)
	require.Equal(t, http.StatusSeeOther, press(url.Values{"action": {"approve"}, "code": {code}}).Code)
	a, err := approval.Get(t.Context(), o.Ports.Table, Tenant, open.ID)
	require.NoError(t, err)
	require.Equal(t, approval.Approved, a.Status)
	require.NotContains(t, logs.String(), code)
}
