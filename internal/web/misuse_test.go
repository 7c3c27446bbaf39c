package web_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
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
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

// A cursor of another tenant's list bounds a list of one's own, and tells nothing of the store.
func TestForgedCursors(t *testing.T) {
	b := newBench(t, pay)
	b.start("k")
	b.backend.Local = false
	b.serve()
	foreign := base64.RawURLEncoding.EncodeToString([]byte("x\x00T#globex#RUN#r\x00HEAD"))
	got := b.ask("GET /v1/runs?cursor="+foreign, "", 200)
	require.NotContains(t, got.body, "globex")
}

// Until the backend is ready nothing is done. Deployed, an error says what a client is to do; what the infrastructure
// said of itself is for the log alone, which names the route and nothing of the request.
func TestUntilTheBackendIsReady(t *testing.T) {
	const said = "arn:aws:dynamodb:eu-central-1:123456789012:table/runs"
	b, run := newWaiting(t)
	for _, c := range []struct {
		err    error
		status int
		kind   web.ProblemType
	}{
		{errors.New(said), 500, web.InternalError}, {fmt.Errorf("%w: %s", store.ErrThrottled, said), 503, web.Unavailable},
	} {
		for _, local := range []bool{false, true} {
			var logged bytes.Buffer
			b.backend.Log, b.backend.Local = slog.New(slog.NewTextHandler(&logged, nil)), local
			b.backend.Ready = func(context.Context) error { return c.err }
			b.serve()
			p := problemIn(t, b.do("POST /v1/runs/"+run.ID+"/cancel", ""), c.status, c.kind)
			require.Equal(t, local, strings.Contains(p.Detail, said))
			require.Contains(t, logged.String(), said, "an operator sees why clients are sent away")
			require.Contains(t, logged.String(), "POST /v1/runs/{id}/cancel")
			require.NotContains(t, logged.String(), run.ID)
			require.Equal(t, run, b.waitUntilParked(run.ID), "looking needs nothing")
		}
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
	web.APIHandler(b.backend).ServeHTTP(httptest.NewRecorder(), r)
	require.Empty(t, logged.String())
}

// A path that is not written as it should be is not there: it is neither cleaned nor answered with a redirect.
func TestOddPaths(t *testing.T) {
	b := newUnserved(t, pay)
	h := web.APIHandler(b.backend)
	for _, path := range []string{
		"/v1/nothing", "/slack/interactions",
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
			problemIn(t, answer{w.Code, w.Header(), w.Body.String()}, 404, web.NoSuchPath)
			require.Empty(t, w.Header().Get("Location"))
		}
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodOptions, "/", nil)
	r.RequestURI, r.URL.Path = "*", "*"
	h.ServeHTTP(w, r)
	problemIn(t, answer{w.Code, w.Header(), w.Body.String()}, 404, web.NoSuchPath)
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
	b, run := newWaiting(t)
	body := `{"messages":` + many(60, `"x"`) + `,"answers":` + many(41, `{"call":"c1","error":"x"}`) + `}`
	p := problemIn(t, b.do("POST /v1/runs/"+run.ID+"/input", body), 413, web.TooLarge)
	require.Contains(t, p.Detail, "got 101 messages, decisions and answers, want at most 100")
	media := `{"type":"media","mediaType":"image/png","blob":"` + xDigest + `"}`
	problemIn(t, b.do("POST /v1/runs", `{"agent":"payer","message":`+many(101, media)+`}`), 413, web.TooLarge)
	require.Equal(t, run, b.waitUntilParked(run.ID), "nothing was done")
	require.Equal(t, 202, b.do("POST /v1/runs/"+run.ID+"/input", `{"messages":`+many(100, `"x"`)+`}`).status)
}

// listed is a journal with nothing of the agent that is asked for.
type listed struct {
	web.Journal
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
		p := must(b.client.Runs(t.Context(), web.RunQuery{Agent: "payer", Limit: limit}))
		require.Empty(t, p.Items)
		require.NotEmpty(t, p.Cursor)
		require.LessOrEqual(t, journal.asked, 20)
	}
}

// Behind the end of a run that is done there is nothing to wait for: 204 tells an EventSource so, which else asks again for ever.
func TestNothingBehindTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newUnserved(t, `{"text": "Done."}`)
		id := b.begun()
		l := must(b.backend.Journal.Load(t.Context(), "default", id))
		require.Equal(t, run.RunDone, l.State.Status)
		last := l.State.Entries - 1
		for _, c := range []struct {
			at     string
			status int
		}{{"-1", 200}, {fmt.Sprint(last - 1), 200}, {fmt.Sprint(last), 204}, {fmt.Sprint(last + 1), 204}, {"99999.7", 204}} {
			header, query := httptest.NewRecorder(), httptest.NewRecorder()
			require.Zero(t, <-b.followed(id, "", header, "Last-Event-ID", c.at), c.at)
			require.Zero(t, <-b.followed(id, "cursor="+c.at, query), c.at)
			for _, w := range []*httptest.ResponseRecorder{header, query} {
				require.Equal(t, c.status, w.Code, c.at)
				require.Equal(t, c.status == 204, w.Body.Len() == 0)
			}
		}
	})
}

// A 401 says how one makes oneself known (RFC 9110, 11.6.1).
func TestUnauthenticatedSaysHow(t *testing.T) {
	b := newBench(t, pay)
	b.backend.Caller = func(*http.Request) (web.Caller, error) {
		return web.Caller{}, web.NewProblem(web.Unauthenticated, "want a token")
	}
	b.serve()
	got := b.do("GET /v1/runs", "")
	problemIn(t, got, 401, web.Unauthenticated)
	require.Equal(t, "Bearer", got.header.Get("WWW-Authenticate"))
}

// Every route refuses another method and names its own, and refuses who is nobody, or has no token of the guard.
// Nothing is done. TestA9OtherTenantsAreNobodys has what is another tenant's, TestBadBodies and the others what is
// malformed.
func TestEveryRouteRefuses(t *testing.T) {
	d, b := readDocument(t), newBench(t, pay)
	own := b.start("k")
	refused := func(op, line string, status int, kind web.ProblemType, headers ...string) (http.Header, web.Problem) {
		t.Helper()
		got := b.do(line, d.example(op), headers...)
		return got.header, problemIn(t, got, status, kind)
	}
	hasCaller := func(op string) bool { return !strings.Contains(op, "{token}") }
	for _, op := range web.APIRoutes() {
		line := real(op, own)
		method, path, _ := strings.Cut(line, " ")
		header, _ := refused(op, "PATCH "+path, http.StatusMethodNotAllowed, web.BadMethod)
		require.Contains(t, strings.Split(header.Get("Allow"), ", "), method, op)
		if method == http.MethodGet { // HEAD is it without a body, and no stream
			head := b.do("HEAD "+path, "", "Accept", "text/event-stream")
			require.Equal(t, b.do(line, "").status, head.status, op)
			require.Empty(t, head.body)
		}
		if hasCaller(op) {
			refused(op, line, http.StatusForbidden, web.NotAllowed, web.AsHeader, "nobody")
		}
	}
	require.Equal(t, own, b.waitUntilParked(own.ID), "nothing was done")
	require.Empty(t, b.paid)

	b.server.Close()
	b.server = httptest.NewUnstartedServer(nil)
	_, port, _ := strings.Cut(b.server.Listener.Addr().String(), ":")
	b.server.Config.Handler = web.Guard{Token: devToken, Port: port}.Protect(web.APIHandler(b.backend))
	b.server.Start()
	for _, op := range web.APIRoutes() {
		if hasCaller(op) {
			header, p := refused(op, real(op, own), http.StatusUnauthorized, web.Unauthenticated)
			require.NotEmpty(t, header.Get("WWW-Authenticate"))
			require.Contains(t, p.Detail, "want the token", op)
		}
	}
}

const devToken = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// guarded answers a request line behind a guard of port 8420. The header Host sets the host.
func guarded(t *testing.T, g web.Guard, line string, headers ...string) (*http.Response, string) {
	t.Helper()
	g.Token, g.Port = devToken, "8420"
	method, path, _ := strings.Cut(line, " ")
	r := httptest.NewRequest(method, path, nil)
	r.Host = "127.0.0.1:8420"
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	g.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("through")) })).ServeHTTP(w, r)
	return w.Result(), w.Body.String()
}

// lookCookie is the value that the printed link puts into a browser.
func lookCookie(t *testing.T) string {
	t.Helper()
	resp, _ := guarded(t, web.Guard{}, "GET /?token="+devToken)
	require.Len(t, resp.Cookies(), 1)
	require.NotContains(t, resp.Cookies()[0].Value, devToken, "whatever listens on another port of localhost is shown it")
	return resp.Cookies()[0].Value
}

func TestGuard(t *testing.T) {
	bearer := func(more ...string) []string { return append([]string{"Authorization", "Bearer " + devToken}, more...) }
	cookie := func(more ...string) []string {
		return append([]string{"Cookie", "countersign-8420=" + lookCookie(t)}, more...)
	}
	public := web.Guard{Public: []string{"tunnel.example"}}
	open := web.Guard{Open: true, Name: "dev.example"}
	forms := web.Guard{HasFormProof: func(r *http.Request) bool { return r.URL.Path == "/form" }}
	for name, c := range map[string]struct {
		guard   web.Guard
		request string
		headers []string
		want    int
	}{
		"bearer":                         {request: "GET /x", headers: bearer(), want: 200},
		"bearer in small letters":        {request: "GET /x", headers: []string{"Authorization", "bearer " + devToken}, want: 200},
		"cookie":                         {request: "GET /x", headers: cookie(), want: 200},
		"cookie, of a health check":      {request: "HEAD /x", headers: cookie(), want: 200},
		"the second of two cookies":      {request: "GET /x", headers: []string{"Cookie", "countersign-8420=old; countersign-8420=" + lookCookie(t)}, want: 200},
		"nothing":                        {request: "GET /x", want: 401},
		"an empty bearer":                {request: "GET /x", headers: []string{"Authorization", "Bearer "}, want: 401},
		"a longer bearer":                {request: "GET /x", headers: []string{"Authorization", "Bearer " + devToken + "a"}, want: 401},
		"another bearer":                 {request: "GET /x", headers: []string{"Authorization", "Bearer b" + devToken[1:]}, want: 401},
		"another scheme":                 {request: "GET /x", headers: []string{"Authorization", "Basic " + devToken}, want: 401},
		"a wrong bearer beside a cookie": {request: "GET /x", headers: cookie("Authorization", "Bearer x"), want: 401},
		"the cookie of another port":     {request: "GET /x", headers: []string{"Cookie", "countersign-8421=" + lookCookie(t)}, want: 401},
		"the token as a cookie":          {request: "GET /x", headers: []string{"Cookie", "countersign-8420=" + devToken}, want: 401},
		"the cookie as a token":          {request: "GET /x", headers: []string{"Authorization", "Bearer " + lookCookie(t)}, want: 401},
		"an act with the cookie":         {request: "POST /x", headers: cookie(), want: 401},
		"a form that proves itself":      {guard: forms, request: "POST /form", headers: cookie(), want: 200},
		"another form":                   {guard: forms, request: "POST /x", headers: cookie(), want: 401},
		"another method of that form":    {guard: forms, request: "PUT /form", headers: cookie(), want: 401},
		"that form without a cookie":     {guard: forms, request: "POST /form", want: 401},
		"that form, with a wrong bearer": {guard: forms, request: "POST /form", headers: cookie("Authorization", "Bearer x"), want: 401},
		"that form of another site":      {guard: forms, request: "POST /form", headers: cookie("Origin", "http://evil.example"), want: 403},
		"a token in the query of a POST": {request: "POST /x?token=" + devToken, want: 401},
		"a wrong token in the query":     {request: "GET /x?token=x", want: 401},

		"localhost":                {request: "GET /x", headers: bearer("Host", "localhost:8420"), want: 200},
		"LOCALHOST":                {request: "GET /x", headers: bearer("Host", "LOCALHOST:8420"), want: 200},
		"::1":                      {request: "GET /x", headers: bearer("Host", "[::1]:8420"), want: 200},
		"another port":             {request: "GET /x", headers: bearer("Host", "127.0.0.1:80"), want: 403},
		"no port":                  {request: "GET /x", headers: bearer("Host", "127.0.0.1"), want: 403},
		"no host":                  {request: "GET /x", headers: bearer("Host", ""), want: 403},
		"a rebound name":           {request: "GET /x", headers: bearer("Host", "evil.example:8420"), want: 403},
		"a name that begins right": {request: "GET /x", headers: bearer("Host", "localhost.evil.example:8420"), want: 403},
		"an address of the net":    {request: "GET /x", headers: bearer("Host", "192.0.2.7:8420"), want: 403},
		"a wrong host, no token":   {request: "GET /x", headers: []string{"Host", "evil.example:8420"}, want: 403},
		"open: an address":         {guard: open, request: "GET /x", headers: bearer("Host", "192.0.2.7:8420"), want: 200},
		"open: its name":           {guard: open, request: "GET /x", headers: bearer("Host", "dev.example:8420"), want: 200},
		"open: another name":       {guard: open, request: "GET /x", headers: bearer("Host", "evil.example:8420"), want: 403},
		"open: no token":           {guard: open, request: "GET /x", headers: []string{"Host", "192.0.2.7:8420"}, want: 401},
		"its name, but not open":   {guard: web.Guard{Name: "dev.example"}, request: "GET /x", headers: bearer("Host", "dev.example:8420"), want: 403},

		"public: a link":          {guard: public, request: "GET /a/x", headers: []string{"Host", "tunnel.example"}, want: 200},
		"public: an answer":       {guard: public, request: "POST /a/x", headers: []string{"Host", "tunnel.example", "Origin", "https://tunnel.example"}, want: 200},
		"public: of another site": {guard: public, request: "POST /a/x", headers: []string{"Host", "tunnel.example", "Origin", "https://evil.example"}, want: 403},
		"public: another port":    {guard: public, request: "GET /a/x", headers: []string{"Host", "tunnel.example:81"}, want: 403},
		"public: a rebound name":  {guard: public, request: "GET /a/x", headers: []string{"Host", "evil.example"}, want: 403},
		"public: nothing else":    {guard: public, request: "GET /x", headers: bearer("Host", "tunnel.example"), want: 403},

		"its own page":                   {request: "POST /x", headers: bearer("Origin", "http://127.0.0.1:8420", "Sec-Fetch-Site", "same-origin"), want: 200},
		"its own page, an old browser":   {request: "POST /x", headers: bearer("Origin", "http://127.0.0.1:8420"), want: 200},
		"a page of another site":         {request: "POST /x", headers: cookie("Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"), want: 403},
		"… that says no more":            {request: "POST /x", headers: cookie("Sec-Fetch-Site", "cross-site"), want: 403},
		"… in an old browser":            {request: "POST /x", headers: cookie("Origin", "http://evil.example"), want: 403},
		"a page of another port":         {request: "POST /x", headers: cookie("Origin", "http://127.0.0.1:3000", "Sec-Fetch-Site", "same-site"), want: 403},
		"a sandboxed page":               {request: "PUT /x", headers: cookie("Origin", "null"), want: 403},
		"another site, with the token":   {request: "DELETE /x", headers: bearer("Origin", "http://evil.example"), want: 403},
		"a link from another site":       {request: "GET /x", headers: cookie("Sec-Fetch-Site", "cross-site"), want: 200},
		"a preflight from another site":  {request: "OPTIONS /x", headers: []string{"Origin", "http://evil.example"}, want: 401},
		"a page of another site, openly": {guard: open, request: "POST /x", headers: cookie("Host", "192.0.2.7:8420", "Origin", "http://evil.example"), want: 403},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := guarded(t, c.guard, c.request, c.headers...)
			require.Equal(t, c.want, resp.StatusCode, body)
			require.Equal(t, c.want == 200, body == "through")
			require.NotContains(t, body, devToken)
			require.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"))
			require.Empty(t, resp.Header.Get("Set-Cookie"))
			require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
			require.Equal(t, c.want == 401, resp.Header.Get("WWW-Authenticate") != "")
			if c.want != 200 {
				require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
			}
		})
	}
}

func TestGuardWithoutATokenLetsNobodyThrough(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/?token=", nil)
	r.Host = "localhost:8420"
	r.Header.Set("Cookie", "countersign-8420=")
	web.Guard{Port: "8420"}.Protect(http.NotFoundHandler()).ServeHTTP(w, r)
	require.Equal(t, http.StatusUnauthorized, w.Code)
}

// The printed link gives a cookie that scripts cannot read and other sites do not send, and goes to the path without the token.
func TestGuardTakesTheTokenOutOfTheAddress(t *testing.T) {
	for path, want := range map[string]string{
		"/?token=" + devToken:                       "/",
		"/v1/runs?limit=2&token=" + devToken:        "/v1/runs?limit=2",
		"//evil.example/x?token=" + devToken:        "/evil.example/x",
		"/a%2Fb?token=" + devToken + "&token=again": "/a%2Fb",
	} {
		resp, body := guarded(t, web.Guard{}, "GET http://127.0.0.1:8420"+path)
		require.Equal(t, http.StatusSeeOther, resp.StatusCode, path)
		require.Equal(t, want, resp.Header.Get("Location"), path)
		require.Empty(t, body)
		require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
		require.Equal(t, "no-referrer", resp.Header.Get("Referrer-Policy"))
		require.Equal(t, "countersign-8420="+lookCookie(t)+"; Path=/; HttpOnly; SameSite=Strict", resp.Header.Get("Set-Cookie"))
	}
	resp, _ := guarded(t, web.Guard{}, "GET /?token="+devToken, "Host", "evil.example:8420")
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	require.Empty(t, resp.Header.Get("Set-Cookie"))
}
