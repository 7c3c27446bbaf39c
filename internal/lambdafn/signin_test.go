package lambdafn_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

func TestMain(m *testing.M) { os.Exit(standins.BrowserTests{M: m}.Run()) }

// provider is an OpenID provider. It signs in whoever is its user at once, and gives each code once, to who has begun.
type provider struct {
	*httptest.Server
	key  *ecdsa.PrivateKey
	mu   sync.Mutex
	user map[string]any              // the claims of who sits at the browser; refused = what the token endpoint answers; nil = nobody is let in
	bend func(claims map[string]any) // changes what is signed; nil = nothing
	open map[string]url.Values       // the requests whose codes were not used yet
	asks []url.Values                // what people were sent with

	keysAway atomic.Bool // nobody gets the keys that tokens are signed with
}

const clientID, clientSecret = "console", "hush-hush"

func newProvider(t *testing.T) *provider {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	p := &provider{key: key, open: map[string]url.Values{}}
	wellKnown := &oidctest.Server{Algorithms: []string{oidc.ES256},
		PublicKeys: []oidctest.PublicKey{{PublicKey: key.Public(), KeyID: "k", Algorithm: oidc.ES256}}}
	mux := http.NewServeMux()
	mux.Handle("/", wellKnown)
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, r *http.Request) {
		if p.keysAway.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		wellKnown.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /auth", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	wellKnown.SetIssuer(p.URL)
	return p
}

func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := r.URL.Query()
	p.asks = append(p.asks, q)
	back := url.Values{"state": q["state"]}
	switch {
	case q.Get("response_type") != "code" || q.Get("client_id") != clientID || q.Get("code_challenge_method") != "S256" ||
		!strings.Contains(q.Get("scope"), "openid") || len(q.Get("state")) < 40 || len(q.Get("nonce")) < 40:
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	case p.user == nil:
		back.Set("error", "access_denied")
		back.Set("error_description", "<b>call 555-0100</b>")
	default:
		code := clock.NewIDs(clock.System()).Token()
		p.open[code] = q
		back.Set("code", code)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if answer, refused := p.user["refused"].(string); refused {
		if json.Valid([]byte(answer)) {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, answer)
		return
	}
	asked, known := p.open[r.FormValue("code")]
	delete(p.open, r.FormValue("code"))
	id, secret, _ := r.BasicAuth()
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !known || id != clientID || secret != clientSecret || r.FormValue("redirect_uri") != asked.Get("redirect_uri") ||
		base64.RawURLEncoding.EncodeToString(sum[:]) != asked.Get("code_challenge") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":"invalid_grant"}`)
		return
	}
	claims := map[string]any{"iss": p.URL, "aud": clientID, "nonce": asked.Get("nonce"), "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(claims, p.user)
	if p.bend != nil {
		p.bend(claims)
	}
	key := p.key
	if claims["forged"] != nil {
		var err error
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			panic(err)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"access_token": "a", "token_type": "Bearer",
		"id_token": oidctest.SignIDToken(key, "k", oidc.ES256, string(mustJSON(claims)))})
}

// sit changes who sits at the browser.
func (p *provider) sit(user map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.user = user
}

// site is functions/http behind a gateway that asks nobody who they are, as people's browsers see it.
type site struct {
	*stack
	*httptest.Server
	provider *provider
	clock    *shiftedClock
	links    *approval.Links
}

// shiftedClock is the system's clock, moved by the test.
type shiftedClock struct {
	clock.Clock
	by atomic.Int64
}

func (c *shiftedClock) Now() time.Time { return c.Clock.Now().Add(time.Duration(c.by.Load())) }

func newSite(t *testing.T, rule agent.Rule, change ...func(*lambdafn.Deployment)) *site {
	t.Helper()
	return newSiteOn(t, httptest.NewTLSServer, rule, change...)
}

// serving makes the server of a site.
type serving = func(http.Handler) *httptest.Server

func newSiteOn(t *testing.T, serve serving, rule agent.Rule, change ...func(*lambdafn.Deployment)) *site {
	t.Helper()
	s := &site{provider: newProvider(t), clock: &shiftedClock{Clock: clock.System()}}
	s.stack = deploy(t, pay, func(d *agent.Definition) { d.Permission.Rules = []agent.Rule{rule} })
	ports := s.machine.Ports
	ports.Table, ports.Journal, ports.Model, ports.Tools = s.table, store.NewJournal(s.table, 8), nil, nil
	d := s.deployment(ports)
	s.Server = serve(http.HandlerFunc(s.forward))
	t.Cleanup(s.Close)
	loadRing := func() (*secrets.Ring, error) { return ring, nil }
	s.links = &approval.Links{Table: s.table, Ring: loadRing, Clock: s.clock, IDs: clock.NewIDs(s.clock), Base: func() string { return s.URL }}
	people, err := people.Read([]byte(`{"tenants": {"acme": {"user:ana": {"groups": ["group:operators"], "name": "Ana Lima"},
		"user:eve": ["group:operators"]}}}`))
	require.NoError(t, err)
	d.Links, d.People, d.Live = s.links, people, s.table
	d.SignIn = &web.OIDC{
		Issuer: s.provider.URL, ClientID: clientID, Secret: func(context.Context) (string, error) { return clientSecret, nil }, Base: s.URL, Ring: loadRing, Clock: s.clock,
		IDs: clock.NewIDs(s.clock), Identify: lambdafn.Identity{}.TokenCaller, Admit: d.Admit, Client: s.provider.Client(), Log: s.log(),
	}
	for _, c := range change {
		c(d)
	}
	s.api = d.Serve(s.agents, lambdafn.Identity{})
	return s
}

// forward makes an event of a request, as API Gateway does, and a response of the answer.
func (s *site) forward(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	e := events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: r.URL.EscapedPath(), RawQueryString: r.URL.RawQuery,
		Body: base64.StdEncoding.EncodeToString(body), IsBase64Encoded: true, Headers: map[string]string{}}
	e.RequestContext.HTTP.Method, e.RequestContext.DomainName, e.RequestContext.Stage = r.Method, r.Host, "$default"
	for name := range r.Header {
		e.Headers[strings.ToLower(name)] = r.Header.Get(name)
	}
	delete(e.Headers, "cookie")
	for _, c := range r.Cookies() {
		e.Cookies = append(e.Cookies, c.Name+"="+c.Value)
	}
	out, err := s.api(r.Context(), mustJSON(e))
	if err != nil {
		panic(err)
	}
	var a events.APIGatewayV2HTTPResponse
	if err := json.Unmarshal(out, &a); err != nil {
		panic(err)
	}
	for name, value := range a.Headers {
		w.Header().Set(name, value)
	}
	for _, c := range a.Cookies {
		w.Header().Add("Set-Cookie", c)
	}
	text := []byte(a.Body)
	if a.IsBase64Encoded {
		text, _ = base64.StdEncoding.DecodeString(a.Body)
	}
	w.WriteHeader(a.StatusCode)
	_, _ = w.Write(text)
}

// pending starts a run and returns its request, once it is there.
func (s *site) pending() approval.Approval {
	s.t.Helper()
	a := read[web.Accepted](s.stack, ana, 202, "POST /v1/runs", `{"agent":"payer","message":"pay 5"}`)
	var r web.Run
	require.Eventually(s.t, func() bool {
		r = read[web.Run](s.stack, ana, 200, "GET /v1/runs/"+a.ID, "")
		return r.Status == run.RunWaiting
	}, 2*time.Minute, 5*time.Millisecond)
	return s.reload(r.Waiting[0].Approval)
}

// until waits until something holds, or for two minutes.
func (s *site) until(holds func() bool) {
	s.t.Helper()
	for i := 0; i < 1200 && !holds(); i++ {
		require.NoError(s.t, s.clock.Sleep(s.t.Context(), 100*time.Millisecond))
	}
}

func (s *site) reload(id string) approval.Approval {
	s.t.Helper()
	a := must(approval.Get(s.t.Context(), s.table, "acme", id))
	return a
}

// linked starts a run, and gives its request and ana's link to it.
func (s *site) linked() (a approval.Approval, at string) {
	s.t.Helper()
	a = s.pending()
	at = must(s.links.URL(s.t.Context(), a, "user:ana", "email"))
	return a, at
}

// browser is a person's browser, with the cookies that it was given.
type browser struct {
	*http.Client
	s   *site
	jar *cookiejar.Jar
}

func (s *site) newBrowser() *browser {
	jar := must(cookiejar.New(nil))
	return &browser{&http.Client{Transport: s.Client().Transport, Jar: jar}, s, jar}
}

// page is what a browser shows.
type page struct {
	status int
	at     *url.URL
	header http.Header
	text   string
}

func (b *browser) show(resp *http.Response, err error) page {
	b.s.t.Helper()
	require.NoError(b.s.t, err)
	defer resp.Body.Close()
	text := must(io.ReadAll(resp.Body))
	return page{resp.StatusCode, resp.Request.URL, resp.Header, string(text)}
}

func (b *browser) get(path string) page {
	b.s.t.Helper()
	return b.show(b.Get(b.s.at(path)))
}

func (s *site) at(path string) string {
	if strings.HasPrefix(path, "https://") {
		return path
	}
	return s.URL + path
}

func (b *browser) post(path string, pairs ...string) page {
	b.s.t.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return b.show(b.PostForm(b.s.at(path), form))
}

// signIn follows the page's link to sign in.
func (b *browser) signIn(p page) page {
	b.s.t.Helper()
	found := regexp.MustCompile(`<a href="(/signin[^"]*)">Sign in</a>`).FindStringSubmatch(p.text)
	require.NotNil(b.s.t, found, p.text)
	return b.get(html.UnescapeString(found[1]))
}

// cookies are the names of the browser's cookies.
func (b *browser) cookies() (names []string) {
	at := must(url.Parse(b.s.URL))
	for _, c := range b.jar.Cookies(at) {
		names = append(names, c.Name)
	}
	return names
}

func field(t *testing.T, p page, name string) string {
	t.Helper()
	found := regexp.MustCompile(`name="` + name + `" value="([^"]+)"`).FindStringSubmatch(p.text)
	require.NotNil(t, found, p.text)
	return html.UnescapeString(found[1])
}

var (
	askAll       = agent.Rule{Tool: "*", Verdict: agent.VerdictAsk}
	askConfirmed = agent.Rule{Tool: "*", Verdict: agent.VerdictAsk, Confirm: agent.ConfirmOIDC}

	anaClaims = map[string]any{"sub": "ana", "tenant": "acme", "groups": []string{"operators", "staff"}}
	eveClaims = map[string]any{"sub": "eve", "tenant": "acme", "groups": []string{"operators"}}
)

// Somebody signs in by the provider, sees the console as who they are, decides with the proof that the page holds, and
// signs out. A session opens the console and nothing of the API, and ends by itself.
func TestPeopleSignInToTheConsole(t *testing.T) {
	s := newSite(t, askAll)
	a := s.pending()
	s.provider.user = anaClaims
	b := s.newBrowser()
	asked := b.get("/runs/" + a.Run)
	require.Equal(t, http.StatusUnauthorized, asked.status)
	require.Contains(t, asked.text, "<h1>Sign in</h1>")
	shown := b.signIn(asked)
	require.Equal(t, http.StatusOK, shown.status, shown.text)
	require.Equal(t, "/runs/"+a.Run, shown.at.Path)
	require.Contains(t, shown.text, "user:ana")
	require.Contains(t, shown.text, "I will pay.")
	require.Equal(t, []string{"__Host-countersign-signin", "__Host-countersign"}, b.cookies())
	require.Equal(t, http.StatusOK, b.get("/").status)
	require.Equal(t, http.StatusUnauthorized, b.get("/v1/runs").status, "the API takes no cookie")

	at := "/approvals/" + a.ID
	request := b.get(at)
	form, key := field(t, request, "form"), field(t, request, "key")
	require.Equal(t, http.StatusForbidden, b.post(at, "form", form, "action", "approve").status, "no proof")
	require.Equal(t, http.StatusForbidden, b.post(at, "form", form, "key", key+"x", "action", "approve").status)
	require.Equal(t, http.StatusUnauthorized, s.newBrowser().post(at, "form", form, "key", key, "action", "approve").status)
	require.Equal(t, http.StatusForbidden, b.post("/signout").status, "no proof")
	require.Equal(t, approval.Pending, s.reload(a.ID).Status)
	require.Equal(t, http.StatusOK, b.post(at, "form", form, "key", key, "action", "approve").status)
	d := s.reload(a.ID).Decisions[0]
	require.Equal(t, []any{"user:ana", agent.ViaConsole}, []any{d.By, d.Via})
	require.Equal(t, payment{Amount: 5}, <-s.paid)

	other := s.newBrowser()
	require.Equal(t, http.StatusOK, other.signIn(other.get("/")).status)
	s.clock.by.Store(int64(4 * time.Hour))
	require.Equal(t, http.StatusUnauthorized, other.get("/").status, "sessions end")
	s.clock.by.Store(0)
	require.Contains(t, b.post("/signout", "key", key).text, "You are signed out")
	require.NotContains(t, b.cookies(), "__Host-countersign")
	require.Equal(t, http.StatusUnauthorized, b.get("/").status)
	for _, ask := range s.provider.asks {
		require.NotContains(t, ask.Encode(), a.Run, "the provider does not learn what is looked at")
	}
	require.NotContains(t, s.logs.String(), "ana")
}

// Whoever is taken out of the people of a deployment is out within a minute: the session has ended, the provider's word
// begins no other, a token is refused, and so are links. Whoever was never among them is as before.
func TestRemovedPeopleAreOut(t *testing.T) {
	table := store.NewMemory()
	importPeople := func(staff string) {
		_, _, err := people.Import(t.Context(), table, []byte(`{"tenants": {"acme": {`+staff+`}}}`))
		require.NoError(t, err)
	}
	importPeople(`"user:ana": ["group:operators"], "user:eve": ["group:operators"]`)
	s := newSite(t, askAll, func(d *lambdafn.Deployment) {
		d.People = &people.Stored{Table: table, Clock: d.SignIn.Clock}
	})
	answered := ""
	status := func() int {
		out := s.do(map[string]string{"tenant": "acme", "sub": "ana", "groups": "operators"}, "GET /v1/runs", "")
		answered = out.Body
		return out.StatusCode
	}
	a := s.pending()
	s.provider.user = anaClaims
	b := s.newBrowser()
	require.Equal(t, http.StatusOK, b.signIn(b.get("/")).status)
	require.Equal(t, http.StatusOK, status())
	at := "/approvals/" + a.ID
	request := b.get(at)

	importPeople(`"user:eve": ["group:operators"]`)
	s.clock.by.Store(int64(time.Minute))
	require.Equal(t, http.StatusUnauthorized, b.get("/").status)
	require.Equal(t, http.StatusUnauthorized,
		b.post(at, "form", field(t, request, "form"), "key", field(t, request, "key"), "action", "approve").status)
	require.Equal(t, approval.Pending, s.reload(a.ID).Status)
	require.Equal(t, http.StatusForbidden, status())
	again := s.newBrowser()
	refused := again.signIn(again.get("/"))
	require.Equal(t, http.StatusForbidden, refused.status)
	require.Contains(t, refused.text, "user:ana was removed from the people of this deployment")

	importPeople(`"user:ana": ["group:operators"], "user:eve": ["group:operators"]`)
	s.clock.by.Store(int64(2 * time.Minute))
	require.Equal(t, http.StatusOK, b.get("/").status)
	require.Equal(t, http.StatusOK, status())

	// Where the people cannot be read, nobody is let in, and nobody is told why.
	require.NoError(t, table.Write(t.Context(), store.Op{Kind: store.Put, Item: store.Item{
		Key: store.Key{PK: "T#acme#PEOPLE", SK: "user:eve"}, Body: []byte(`["operators"]`)}}))
	s.clock.by.Store(int64(3 * time.Minute))
	require.Equal(t, http.StatusServiceUnavailable, status())
	require.NotContains(t, answered, "PEOPLE")
	require.Equal(t, http.StatusUnauthorized, b.get("/").status)
	again = s.newBrowser()
	require.Equal(t, http.StatusServiceUnavailable, again.signIn(again.get("/")).status)
}

// The cookies are for this host by https alone, and not for scripts; what was sealed for one is nothing to the other,
// nor to another client.
func TestSignInCookies(t *testing.T) {
	s := newSite(t, askAll)
	s.provider.user = anaClaims
	b := s.newBrowser()
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	begun := b.get("/signin")
	returned := b.show(b.Get(begun.header.Get("Location")))
	ended := b.show(b.Get(returned.header.Get("Location")))
	require.Equal(t, http.StatusSeeOther, ended.status)
	pattern := `^(__Host-countersign(?:-signin)?)=([\w-]+); Path=/; Max-Age=\d+; HttpOnly; Secure; SameSite=Lax$`
	sealed := map[string]string{}
	for _, set := range append(begun.header["Set-Cookie"], ended.header["Set-Cookie"]...) {
		if c := regexp.MustCompile(pattern).FindStringSubmatch(set); c != nil {
			sealed[c[1]] = c[2]
		} else {
			require.Equal(t, "__Host-countersign-signin=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Lax", set)
		}
	}
	require.Len(t, sealed, 2)
	look := func(value string) int {
		r := must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/", nil))
		r.AddCookie(&http.Cookie{Name: "__Host-countersign", Value: value})
		return s.newBrowser().show(s.Client().Do(r)).status
	}
	session := sealed["__Host-countersign"]
	require.Equal(t, http.StatusOK, look(session))
	require.Equal(t, http.StatusUnauthorized, look(sealed["__Host-countersign-signin"]))
	changed := "A"
	if session[9] == 'A' {
		changed = "B"
	}
	require.Equal(t, http.StatusUnauthorized, look(session[:9]+changed+session[10:]))
	foreign := must(ring.Seal("__Host-countersign", mustJSON(web.Session{Expires: time.Now().Add(time.Hour)})))
	require.Equal(t, http.StatusUnauthorized, look(foreign))
}

// What the provider says in another way than it was asked signs nobody in; a page says so in words.
func TestSignInIsRefused(t *testing.T) {
	s, tries := newSite(t, askAll), 0
	for name, c := range map[string]struct {
		user   map[string]any
		bend   func(claims map[string]any)
		status int
		words  string
	}{
		"another nonce":    {anaClaims, func(c map[string]any) { c["nonce"] = "x" }, 403, "could not be verified"},
		"no nonce":         {anaClaims, func(c map[string]any) { delete(c, "nonce") }, 403, "could not be verified"},
		"another audience": {anaClaims, func(c map[string]any) { c["aud"] = "other" }, 403, "could not be verified"},
		"another issuer":   {anaClaims, func(c map[string]any) { c["iss"] = "https://evil.example" }, 403, "could not be verified"},
		"expired":          {anaClaims, func(c map[string]any) { c["exp"] = time.Now().Add(-time.Minute).Unix() }, 403, "could not be verified"},
		"another key":      {anaClaims, func(c map[string]any) { c["forged"] = true }, 403, "could not be verified"},
		"no tenant":        {map[string]any{"sub": "ana"}, nil, 403, "the token&#39;s claim tenant names no tenant"},
		"odd user":         {map[string]any{"sub": "a|b", "tenant": "acme"}, nil, 403, "the token&#39;s claim sub names no user"},
		"denied":           {nil, nil, 403, "did not sign you in"},
		"another secret": {map[string]any{"refused": `{"error":"invalid_client","error_description":"555-0100"}`}, nil, 502,
			"does not accept the client of this deployment"},
		"a proxy's page": {map[string]any{"refused": "<h1>555-0100</h1>"}, nil, 502, "cannot be reached"},
		"many groups": {anaClaims, func(c map[string]any) {
			c["groups"] = strings.Fields(strings.Repeat("a-group-of-people ", 200))
		}, 403, "more groups than a session can hold"},
	} {
		s.provider.user, s.provider.bend = c.user, c.bend
		b := s.newBrowser()
		p := b.signIn(b.get("/"))
		require.Equal(t, c.status, p.status, name)
		require.Contains(t, p.text, "<h1>You were not signed in</h1>")
		require.Contains(t, p.text, c.words, name)
		require.NotContains(t, p.text, "555-0100", "nobody else's words")
		require.NotContains(t, b.cookies(), "__Host-countersign", name)
		tries++
		require.Equal(t, tries, strings.Count(s.logs.String(), "sign-in failed"), name)
	}
	require.Contains(t, s.logs.String(), `"*web.signInError","invalid_client"`)
	for _, away := range []func(p *provider){
		func(p *provider) { p.Close() }, func(p *provider) { p.user = anaClaims; p.keysAway.Store(true) },
	} {
		s = newSite(t, askAll) // which has not asked its provider yet
		away(s.provider)
		b := s.newBrowser()
		p := b.signIn(b.get("/"))
		require.Equal(t, http.StatusBadGateway, p.status)
		require.Contains(t, p.text, "The identity provider cannot be reached.")
	}
}

// Two windows of a browser that sign in at once both come back.
func TestSignInInTwoWindows(t *testing.T) {
	s := newSite(t, askAll)
	s.provider.user = anaClaims
	b := s.newBrowser()
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	first, second := b.get("/signin?to=/agents").header.Get("Location"), b.get("/signin?to=/runs").header.Get("Location")
	for to, at := range map[string]string{"/agents": first, "/runs": second} {
		back := b.get(b.show(b.Get(at)).header.Get("Location"))
		require.Equal(t, http.StatusSeeOther, back.status, back.text)
		require.Equal(t, to, back.header.Get("Location"))
	}
}

// A code counts once, in the browser that began, with the state that it began with, and within ten minutes.
func TestSignInIsOfOneBrowserAndOnce(t *testing.T) {
	s := newSite(t, askAll)
	s.provider.user = anaClaims
	callback := func(b *browser) string { // where the provider sends the browser back to
		b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		return b.show(b.Get(b.get("/signin").header.Get("Location"))).header.Get("Location")
	}
	refused := func(p page, words string) {
		t.Helper()
		require.GreaterOrEqual(t, p.status, 400)
		require.Contains(t, p.text, words)
	}
	const notBegun, notTaken = "It was not begun in this browser", "takes this sign-in no more"
	b, other := s.newBrowser(), s.newBrowser()
	at := callback(b)
	refused(other.get(at), notBegun)
	refused(b.get(strings.Replace(at, "state=", "state=x", 1)), notBegun)
	theirs := must(url.Parse(callback(other)))
	mine := must(url.Parse(at))
	q := theirs.Query()
	q.Set("code", mine.Query().Get("code"))
	refused(other.get("/signin/callback?"+q.Encode()), notTaken) // a stolen code: PKCE
	refused(b.get(at), notTaken)                                 // which is used up

	at = callback(b)
	jar := must(cookiejar.New(nil))
	home := must(url.Parse(s.URL))
	jar.SetCookies(home, b.jar.Cookies(home))
	require.Equal(t, http.StatusSeeOther, b.get(at).status)
	refused(b.get(at), notTaken) // the code is used up
	b.Jar = jar
	refused(b.get(at), notTaken)

	at = callback(b)
	s.clock.by.Store(int64(10 * time.Minute))
	refused(b.get(at), notBegun)
}

// Whoever makes up a link to sign in cannot send people anywhere but to a page of ours.
func TestSignInIsNoOpenRedirect(t *testing.T) {
	s := newSite(t, askAll)
	s.provider.user = anaClaims
	for _, to := range []string{"", "https://evil.example/", "//evil.example/runs/", `/\evil.example`, `\/evil.example`, "/%2Fevil.example",
		"javascript:alert(1)", "/v1/runs", "/signin", "/signin/callback?x=1", "https:/runs/", "///evil.example", "/%5Cevil.example", "\t//evil.example",
		"//user@evil.example/a/x", "runs/x"} {
		b := s.newBrowser()
		require.Equal(t, s.URL+"/", b.get("/signin?"+url.Values{"to": {to}}.Encode()).at.String(), to)
	}
	b := s.newBrowser()
	require.Equal(t, s.URL+"/?status=waiting", b.get("/signin?to="+url.QueryEscape("/?status=waiting")).at.String())
	require.Equal(t, s.URL+"/runs/x%5Cy", b.get("/signin?to="+url.QueryEscape(`/runs/x\y`)).at.String())
}

// A26: whoever opens a link signs in as the person whom it was sent to before an approval counts; as anybody else they
// decide nothing.
func TestA26ASignInConfirms(t *testing.T) {
	s := newSite(t, askConfirmed)
	a, at := s.linked()
	b := s.newBrowser()
	before := b.get(at)
	require.Equal(t, http.StatusOK, before.status)
	require.Contains(t, before.text, "To approve it here, sign in first")
	require.NotContains(t, before.text, `value="approve"`)
	require.NotContains(t, before.text, `value="edit"`)
	require.Contains(t, before.text, `value="deny"`)
	form := field(t, before, "form")
	for _, action := range []string{"approve", "edit"} {
		refused := b.post(at, "form", form, "action", action, "args", `{"amount": 6}`)
		require.Equal(t, map[string]int{"approve": 403, "edit": 403}[action], refused.status, refused.text)
		require.Contains(t, refused.text, "sign in as the person whom this link was sent to")
	}

	s.provider.user = eveClaims
	others := b.signIn(before)
	require.Equal(t, at, others.at.String())
	require.Contains(t, others.text, "You have signed in as user:eve, and this link was sent to user:ana")
	require.NotContains(t, others.text, "<form")
	require.NotContains(t, others.text, "Ana Lima")
	for _, action := range []string{"approve", "deny", "remark"} {
		refused := b.post(at, "form", form, "action", action, "text", "x")
		require.Equal(t, http.StatusForbidden, refused.status)
		require.Contains(t, refused.text, "Nothing was decided.")
	}
	require.Equal(t, approval.Pending, s.reload(a.ID).Status)

	s.provider.user = map[string]any{"sub": "ana", "tenant": "globex", "groups": []string{"operators"}}
	require.Contains(t, b.signIn(others).text, "this link was sent to", "of another tenant")
	require.Equal(t, "login", s.provider.asks[len(s.provider.asks)-1].Get("prompt"), "the provider asks anew")
	s.provider.user = anaClaims
	own := b.signIn(b.get(at))
	require.Contains(t, own.text, `value="approve"`)
	require.NotContains(t, own.text, "Sign in</a>")
	require.Equal(t, http.StatusOK, b.post(at, "form", field(t, own, "form"), "action", "approve").status)
	d := s.reload(a.ID).Decisions[0]
	require.Equal(t, []any{"user:ana", agent.ViaPage, agent.ConfirmOIDC}, []any{d.By, d.Via, d.Confirmed})
	require.Equal(t, payment{Amount: 5}, <-s.paid)
}

// With a session alone, in a process that answers each request by itself: a run is started, watched by its stream and
// as JSON, forked and continued. Who has no session is shown nothing of it.
func TestTheConsoleWorksInADeployment(t *testing.T) {
	s := newSite(t, askAll)
	s.provider.user = anaClaims
	b := s.newBrowser()
	start := b.signIn(b.get("/start"))
	key := field(t, start, "key")
	require.NotContains(t, start.text, `name="model"`, "the model is the agent's")
	shown := b.post("/start", "agent", "payer", "message", "pay 5", "key", key)
	require.Equal(t, http.StatusOK, shown.status, shown.text)
	run := shown.at.Path
	require.Regexp(t, `^/runs/r[a-z2-7]{25}$`, run)
	found := regexp.MustCompile(`data-stream="([^"]+)"`).FindStringSubmatch(shown.text)
	require.NotNil(t, found)
	follow := func(at string) page {
		r := must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+at, nil))
		r.Header.Set("Accept", "text/event-stream")
		return b.show(b.Do(r))
	}
	got := follow(run + "/events?format=canonical")
	require.Equal(t, http.StatusOK, got.status, got.text)
	require.Equal(t, "text/event-stream", got.header.Get("Content-Type"))
	require.Contains(t, got.text, "event: run_start\n")
	require.Equal(t, http.StatusOK, follow(html.UnescapeString(found[1])).status, "the page's own address")
	whole := b.get(run + "/json")
	require.Equal(t, http.StatusOK, whole.status)
	require.Contains(t, whole.text, `"agent":"payer"`)
	for _, at := range []string{run + "/json", run + "/events", run} {
		require.Equal(t, http.StatusUnauthorized, s.newBrowser().get(at).status, at)
	}
	require.Equal(t, http.StatusMethodNotAllowed, b.post(run+"/json", "key", key).status)

	fork := b.post(run+"/fork", "at", "0", "key", key)
	require.Equal(t, http.StatusOK, fork.status, fork.text)
	require.NotEqual(t, run, fork.at.Path)
	require.Equal(t, http.StatusOK, b.post(run+"/cancel", "note", "enough", "key", key).status)
	again := b.post(run+"/continue", "message", "and now?", "chat", "1", "key", key)
	require.Equal(t, http.StatusOK, again.status, again.text)
	require.Regexp(t, `^/chat/r[a-z2-7]{25}$`, again.at.Path)
	require.Contains(t, again.text, "pay 5", "the conversation goes on")
}

// In a deployment, where responses are buffered and another function asks the model, the page of a run has what the
// model writes as it is written, each word once, and then the reply in its place. A real browser signs in and out
// there, and every page passes axe-core.
func TestLiveTextInTheConsoleOfADeployment(t *testing.T) {
	b := standins.StartBrowser(t)
	s := newSiteOn(t, httptest.NewServer, askAll)
	a := s.pending()
	s.provider.sit(anaClaims)
	p := b.Open("ana", standins.PageOptions{})
	p.Goto(s.URL + "/runs/" + a.Run)
	p.RequireAccessible("entrance")
	p.Click(".sign-in a")
	p.Settle()
	shows := func(want string) {
		t.Helper()
		var text string
		s.until(func() bool {
			p.Eval(`const l = document.getElementById("live"); l.hidden ? "" : document.getElementById("live-text").innerText`, &text)
			return text == want
		})
		require.Equal(t, want, text)
	}
	step := web.NewLive(s.table, clock.System(), s.log()) // as functions/step has it
	write := func(text string) {
		step.ReceiveDelta(agent.Request{Tenant: "acme", Run: a.Run, Inference: 2}, agent.Delta{Kind: agent.DeltaText, Text: text})
	}
	write("The wheel ")
	shows("The wheel ")
	require.NoError(t, s.clock.Sleep(t.Context(), time.Second))
	write("is refunded.")
	shows("The wheel is refunded.")
	p.RequireAccessible("live")
	_, err := s.machine.Desk.Decide(t.Context(), approval.DecisionInput{Tenant: "acme", ID: a.ID, Action: approval.Approve,
		By: policy.Principal{ID: "user:eve", Groups: []string{"group:operators"}}, Via: agent.ViaAPI})
	require.NoError(t, err)
	shows("")
	p.Click(".sign-out button")
	p.Settle()
	var text string
	p.Eval(`document.body.innerText`, &text)
	require.Contains(t, text, "You are signed out")
	p.RequireAccessible("signed-out")
}

// A26: where nobody can sign in, the page says so and takes a denial alone.
func TestA26NoProvider(t *testing.T) {
	s := newSite(t, askConfirmed,
		func(d *lambdafn.Deployment) { d.SignIn = nil })
	a, at := s.linked()
	b := s.newBrowser()
	p := b.get(at)
	require.Contains(t, p.text, "takes a sign-in by OIDC, which is not configured on this server")
	require.NotContains(t, p.text, "/signin")
	form := field(t, p, "form")
	require.Equal(t, http.StatusForbidden, b.post(at, "form", form, "action", "approve").status)
	require.Equal(t, approval.Pending, s.reload(a.ID).Status)
	require.Equal(t, http.StatusOK, b.post(at, "form", form, "action", "deny").status)
	require.Equal(t, approval.Denied, s.reload(a.ID).Status)
	for path, status := range map[string]int{"/": 200, "/runs/": 404, "/signin": 404, "/console.js": 404} {
		require.Equal(t, status, b.get(path).status, path)
	}
}
