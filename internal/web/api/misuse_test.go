package api_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/api"
)

// problemIn reads the problem that an answer must be.
func problemIn(t *testing.T, got answer, status int, kind api.ProblemType) api.Problem {
	t.Helper()
	require.Equal(t, status, got.status, got.body)
	require.Equal(t, "application/problem+json", got.header.Get("Content-Type"))
	var p api.Problem
	require.NoError(t, json.Unmarshal([]byte(got.body), &p))
	require.Equal(t, kind, p.Type)
	return p
}

// A cursor of another tenant's list bounds a list of one's own, and tells nothing of the store.
func TestForgedCursors(t *testing.T) {
	b := newBench(t, pay)
	b.start("k")
	b.backend.Local = false
	b.serve()
	foreign := base64.RawURLEncoding.EncodeToString([]byte("x\x00T#globex#RUN#r\x00HEAD"))
	got := b.do("GET /v1/runs?cursor="+foreign, "")
	require.Equal(t, 200, got.status)
	require.NotContains(t, got.body, "globex")
}

// Deployed, an error says what a client is to do; what the infrastructure said of itself is for the log alone.
func TestUnavailableTellsNothing(t *testing.T) {
	const said = "arn:aws:dynamodb:eu-central-1:123456789012:table/runs"
	for _, local := range []bool{false, true} {
		b := newBench(t, pay)
		var logged bytes.Buffer
		b.backend.Log = slog.New(slog.NewTextHandler(&logged, nil))
		b.backend.Local = local
		broken := brokenJournal{err: fmt.Errorf("load run x: %w: %s", store.ErrThrottled, said)}
		b.backend.Journal = broken
		b.serve()
		p := problemIn(t, b.do("GET /v1/runs/"+noRun, ""), 503, api.Unavailable)
		require.Equal(t, local, strings.Contains(p.Detail, said))
		require.Contains(t, logged.String(), said, "an operator sees why clients are sent away")
		require.Contains(t, logged.String(), "GET /v1/runs/{id}")
		require.NotContains(t, logged.String(), noRun)
	}
}

// A client that goes away is nobody's trouble.
func TestGoneClientsAreNotLogged(t *testing.T) {
	b := newUnserved(t, pay)
	var logged bytes.Buffer
	b.backend.Log = slog.New(slog.NewTextHandler(&logged, nil))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.backend.Journal = brokenJournal{err: context.Canceled}
	r := httptest.NewRequest(http.MethodGet, "/v1/runs/"+noRun, nil).WithContext(ctx)
	api.Handler(b.backend).ServeHTTP(httptest.NewRecorder(), r)
	require.Empty(t, logged.String())
}

// A path that is not written as it should be is not there: it is neither cleaned nor answered with a redirect.
func TestOddPaths(t *testing.T) {
	b := newUnserved(t, pay)
	h := api.Handler(b.backend)
	for _, path := range []string{
		"//v1/runs", "/v1//runs", "/v1/runs/", "/v1/./runs", "/v1/x/../runs", "/v1/%2e%2e/v1/runs", "/v1/runs/%2e%2e/approvals", "//evil.example/v1/runs",
		"/v1/runs;x=1", "/V1/runs", "/v1/runs%2f", "/v1%2fruns", "/v1/runs/" + noRun + "/", "/v1/runs/..;/approvals", "/v1/runs\\..",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodConnect} {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(method, "/", nil)
			var err error
			r.URL, err = url.Parse("http://h" + path) // which resolves nothing
			require.NoError(t, err)
			r.RequestURI = path
			h.ServeHTTP(w, r)
			problemIn(t, answer{w.Code, w.Header(), w.Body.String()}, 404, api.NoSuchPath)
			require.Empty(t, w.Header().Get("Location"))
		}
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodOptions, "/", nil)
	r.RequestURI, r.URL.Path = "*", "*"
	h.ServeHTTP(w, r)
	problemIn(t, answer{w.Code, w.Header(), w.Body.String()}, 404, api.NoSuchPath)
}

func TestBodiesThatAreTaken(t *testing.T) {
	b := newBench(t, pay)
	body := `{"agent":"payer","message":"x"}`
	for _, c := range []string{"application/json; charset=UTF-8", "Application/JSON"} {
		require.Equal(t, 202, b.do("POST /v1/runs", body, "Content-Type", c).status, c)
	}
	require.Equal(t, 202, b.do("POST /v1/runs", body, "Content-Encoding", "identity").status)
}

// One request may not make the store work for tens of thousands.
func TestInputsAreBounded(t *testing.T) {
	b := newBench(t, pay)
	run := b.start("k")
	many := func(n int, one string) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
	for _, body := range []string{
		`{"messages":[` + many(101, `"x"`) + `]}`,
		`{"decisions":[` + many(101, `{"target":"c1","action":"resume"}`) + `]}`,
		`{"messages":[` + many(60, `"x"`) + `],"answers":[` + many(41, `{"call":"c1","error":"x"}`) + `]}`,
	} {
		p := problemIn(t, b.do("POST /v1/runs/"+run.ID+"/input", body), 413, api.TooLarge)
		require.Contains(t, p.Detail, "got 101 messages, decisions and answers, want at most 100")
	}
	media := `{"type":"media","mediaType":"image/png","blob":"` + xDigest + `"}`
	problemIn(t, b.do("POST /v1/runs", `{"agent":"payer","message":[`+many(101, media)+`]}`), 413, api.TooLarge)
	require.Equal(t, run, b.waitUntilParked(run.ID), "nothing was done")
	require.Equal(t, 202, b.do("POST /v1/runs/"+run.ID+"/input", `{"messages":[`+many(100, `"x"`)+`]}`).status)
}

// listed is a journal with nothing of the agent that is asked for.
type listed struct {
	api.Journal
	asked int
}

func (l *listed) ListSince(_ context.Context, _ string, status run.RunStatus, _ time.Time, limit int, _ string) ([]store.Head, string, error) {
	l.asked++
	heads := make([]store.Head, limit)
	for i := range heads {
		heads[i] = store.Head{Run: noRun, Agent: "other", Status: status}
	}
	if l.asked > 1000 {
		return heads, "", nil
	}
	return heads, fmt.Sprint(l.asked), nil
}

// A list of one agent's runs looks at so much and then says where it goes on, though it has found nothing yet.
func TestSearchingAListIsBounded(t *testing.T) {
	b := newUnserved(t, pay)
	journal := &listed{}
	b.backend.Journal = journal
	b.serve()
	t.Cleanup(b.server.Close)
	for _, limit := range []int{1, 200} {
		journal.asked = 0
		p, err := b.client.Runs(t.Context(), api.RunQuery{Agent: "payer", Limit: limit})
		require.NoError(t, err)
		require.Empty(t, p.Items)
		require.NotEmpty(t, p.Cursor)
		require.LessOrEqual(t, journal.asked, 20)
	}
}

// Behind the end of a run that is done there is nothing to wait for: 204 tells an EventSource so, which else asks again for ever.
func TestNothingBehindTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newUnserved(t, `{"text": "Done."}`)
		state, err := b.Starter.Start(t.Context(), runtime.Start{
			Tenant: "default", Agent: b.agent(), Message: []run.UserBlock{{Block: run.Text{Text: "x"}}},
		})
		require.NoError(t, err)
		synctest.Wait()
		l, err := b.backend.Journal.Load(t.Context(), "default", state.Run)
		require.NoError(t, err)
		require.Equal(t, run.RunDone, l.State.Status)
		last := l.State.Entries - 1
		for _, c := range []struct {
			at     string
			status int
		}{{"-1", 200}, {fmt.Sprint(last - 1), 200}, {fmt.Sprint(last), 204}, {fmt.Sprint(last + 1), 204}, {"99999.7", 204}} {
			for _, how := range []string{"Last-Event-ID", "cursor"} {
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodGet, "/v1/runs/"+state.Run+"/events", nil)
				r.Header.Set("Accept", "text/event-stream")
				if how == "cursor" {
					r.URL.RawQuery = "cursor=" + c.at
				} else {
					r.Header.Set(how, c.at)
				}
				begin := time.Now()
				api.Handler(b.backend).ServeHTTP(w, r)
				require.Zero(t, time.Since(begin), "%s %s", how, c.at)
				require.Equal(t, c.status, w.Code, "%s %s", how, c.at)
				require.Equal(t, c.status == 204, w.Body.Len() == 0)
			}
		}
	})
}

// A 401 says how one makes oneself known (RFC 9110, 11.6.1).
func TestUnauthenticatedSaysHow(t *testing.T) {
	b := newBench(t, pay)
	b.backend.Caller = func(*http.Request) (api.Caller, error) {
		return api.Caller{}, api.NewProblem(api.Unauthenticated, "want a token")
	}
	b.serve()
	got := b.do("GET /v1/runs", "")
	problemIn(t, got, 401, api.Unauthenticated)
	require.Equal(t, "Bearer", got.header.Get("WWW-Authenticate"))
}
