package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"html"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/standins"
)

var onceField = regexp.MustCompile(`name="once" value="([^"]+)"`) // differs each time that a page is read

// visitor is a browser without scripts, with the cookie and the key of the printed address.
type visitor struct {
	*devServer
	cookie string
	key    string // behind # of the address it was sent on to
}

func (s *devServer) newVisitor() *visitor {
	s.t.Helper()
	got := (&visitor{devServer: s}).send("GET", "/?token="+s.token, nil)
	require.Equal(s.t, http.StatusSeeOther, got.StatusCode)
	to, err := url.Parse(got.Header.Get("Location"))
	require.NoError(s.t, err)
	start, key, ok := strings.Cut(strings.TrimPrefix(to.Fragment, "key="), ".")
	require.True(s.t, ok, to)
	require.Len(s.t, start, 10)
	require.Len(s.t, got.Cookies(), 1)
	return &visitor{devServer: s, cookie: got.Cookies()[0].String(), key: key}
}

// pageResponse is a response that was read.
type pageResponse struct {
	*http.Response
	body string
}

// post sends a form that proves itself.
func (v *visitor) post(path string, pairs ...string) pageResponse {
	v.t.Helper()
	form := url.Values{"key": {v.key}}
	for i := 0; i < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return v.send("POST", path, form)
}

func (v *visitor) send(method, path string, form url.Values, headers ...string) pageResponse {
	v.t.Helper()
	if form == nil {
		return v.sendBody(method, path, nil, headers...)
	}
	headers = append([]string{"Content-Type", "application/x-www-form-urlencoded"}, headers...)
	return v.sendBody(method, path, strings.NewReader(form.Encode()), headers...)
}

func (v *visitor) sendBody(method, path string, body io.Reader, headers ...string) pageResponse {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), method, v.URL+path, body)
	require.NoError(v.t, err)
	if v.cookie != "" {
		name, _, _ := strings.Cut(v.cookie, ";")
		r.Header.Set("Cookie", name)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(r)
	require.NoError(v.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(v.t, err)
	return pageResponse{resp, string(data)}
}

var ticketField = regexp.MustCompile(`name="form" value="([^"]+)"`)

// fillForm returns the form of a request's page with an action.
func (v *visitor) fillForm(path, action string, pairs ...string) url.Values {
	v.t.Helper()
	form, open := v.readForm(path, action, pairs...)
	require.True(v.t, open, "%s has no form", path)
	return form
}

// readForm is fillForm where the request may be decided by now: its page has no form then.
func (v *visitor) readForm(path, action string, pairs ...string) (form url.Values, open bool) {
	v.t.Helper()
	found := ticketField.FindStringSubmatch(v.send("GET", path, nil).body)
	if found == nil {
		return nil, false
	}
	form = url.Values{"form": {html.UnescapeString(found[1])}, "action": {action}}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return form, true
}

// startParkedRun starts dev with a run that waits for one decision.
func startParkedRun(t *testing.T) (d *harness, s *devServer, run string) {
	t.Helper()
	d = newHarness(t, renamingAgent, movingModel)
	s = startHarness(t, d)
	run = s.startRun("tidy")
	s.waitForEvent(run, "parked")
	return d, s, run
}

// digestFolder returns the digest of all files of a folder.
func digestFolder(t *testing.T, dir string) string {
	t.Helper()
	sum := sha256.New()
	require.NoError(t, filepath.WalkDir(dir, func(path string, f fs.DirEntry, err error) error {
		if err != nil || !f.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		sum.Write([]byte(path))
		sum.Write(data)
		return err
	}))
	return hex.EncodeToString(sum.Sum(nil))
}

// digestSettledFolder returns the digest when nothing is written any more: a run that has just parked still writes.
func digestSettledFolder(t *testing.T, dir string) string {
	t.Helper()
	was := digestFolder(t, dir)
	for range 1200 {
		require.NoError(t, clock.System().Sleep(t.Context(), 300*time.Millisecond))
		now := digestFolder(t, dir)
		if now == was {
			return now
		}
		was = now
	}
	t.Fatal("the store does not come to rest")
	return ""
}

// Every address of the console: what it answers, to whom, and that to look writes nothing.
func TestConsoleRoutes(t *testing.T) {
	d, s, run := startParkedRun(t)
	v := s.newVisitor()
	request := s.pendingApproval()
	stranger := &visitor{devServer: s}
	absent := v.send("GET", "/runs/r"+strings.Repeat("a", 25), nil).body
	before := digestSettledFolder(t, d.home())
	for _, c := range []struct {
		path string
		want int
	}{
		{"/", 200}, {"/?mine=1&agent=tidy&risk=high&within=day", 200}, {"/?agent=none", 200}, {"/console.js", 200}, {"/runs/" + run, 200}, {"/runs/" + run + "?before=1", 200},
		{"/runs", 200}, {"/runs?status=waiting&agent=tidy", 200}, {"/runs?q=go", 200}, {"/start", 200}, {"/agents", 200}, {"/agents/tidy", 200}, {"/audit", 200}, {"/audit?verify=1", 200},
		{"/approvals/" + request, 200}, {"/approvals/together?agent=tidy&tool=move_file", 200}, {"/runs/" + run[:9], 303}, {"/approvals/" + request[:9], 303}, {"/runs?q=" + run, 303},
		{"/runs?status=odd", 404}, {"/runs?cursor=odd", 404}, {"/?more=1", 404}, {"/?agent=a&agent=b", 404}, {"/?%zz", 404}, {"/?within=year", 404}, {"/none", 404}, {"/agents/none", 404},
		{"/audit?status=odd", 404}, {"/audit?page=1", 404},
		{"/runs/", 404}, {"/runs/r" + strings.Repeat("a", 25), 404}, {"/runs/r" + strings.Repeat("a", 24), 404}, {"/runs/" + request, 404}, {"/runs/" + run + "/x", 404},
		{"/runs/" + run + "?before=0", 404}, {"/runs/" + run + "?before=99", 404}, {"/runs/" + run + "?before=x", 404}, {"/runs/%3Cscript%3E", 404},
		{"/approvals/", 404}, {"/approvals/a" + strings.Repeat("b", 25), 404}, {"/approvals/" + run, 404}, {"/approvals/" + request + "?x=1", 404}, {"/console.js?x=1", 404},
	} {
		t.Run(c.path, func(t *testing.T) {
			got := v.send("GET", c.path, nil)
			require.Equal(t, c.want, got.StatusCode)
			if c.want == 404 {
				require.Equal(t, absent, got.body, "whatever is not there is not there in the same words")
			}
			if c.want == 303 {
				require.Contains(t, []string{"/runs/" + run, "/approvals/" + request}, got.Header.Get("Location"))
				return
			}
			policy := got.Header.Get("Content-Security-Policy")
			require.Regexp(t, `^default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self'; style-src 'sha256-[A-Za-z0-9+/=]+'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'$`, policy)
			for name, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer"} {
				require.Equal(t, want, got.Header.Get(name))
			}
			for _, secret := range []string{s.token, v.key} {
				require.NotContains(t, got.body, secret)
			}
			require.Equal(t, http.StatusUnauthorized, stranger.send("GET", c.path, nil).StatusCode)
			bearer := stranger.send("GET", c.path, nil, "Authorization", "Bearer "+s.token)
			require.Equal(t, onceField.ReplaceAllString(got.body, ""), onceField.ReplaceAllString(bearer.body, ""))
			for _, method := range []string{"PUT", "DELETE", "PATCH", "OPTIONS", "POST"} {
				if method == "POST" && regexp.MustCompile("^/(approvals/[at]|agents/|start)").MatchString(c.path) {
					require.NotEqual(t, http.StatusSeeOther, v.send(method, c.path, nil).StatusCode, "no proof")
					continue
				}
				require.Equal(t, http.StatusUnauthorized, v.send(method, c.path, nil).StatusCode, "%s with the cookie", method)
				require.Equal(t, http.StatusMethodNotAllowed, v.send(method, c.path, nil, "Authorization", "Bearer "+s.token).StatusCode, method)
			}
		})
	}
	require.Equal(t, before, digestFolder(t, d.home()), "to look writes nothing")
}

// Who may look may not therefore decide: a decision proves itself, by what no other page and no other port is shown.
func TestConsoleDecisionsProveThemselves(t *testing.T) {
	d, s, run := startParkedRun(t)
	other, v, request := s.newVisitor(), s.newVisitor(), s.pendingApproval()
	path := "/approvals/" + request
	require.Equal(t, other.key, v.key, "the key is the server's")
	before := digestSettledFolder(t, d.home())
	stranger := &visitor{devServer: s}
	for name, c := range map[string]struct {
		who     *visitor
		form    url.Values
		headers []string
		want    int
		says    string
	}{
		"a cookie alone":           {v, v.fillForm(path, "approve"), nil, 403, "The token is missing or wrong"},
		"an empty key":             {v, v.fillForm(path, "approve", "key", ""), nil, 403, "The token is missing or wrong"},
		"another key":              {v, v.fillForm(path, "approve", "key", strings.Repeat("a", 52)), nil, 403, "The token is missing or wrong"},
		"the cookie as the key":    {v, v.fillForm(path, "approve", "key", v.cookie), nil, 403, "The token is missing or wrong"},
		"the key without a cookie": {stranger, v.fillForm(path, "approve", "key", v.key), nil, 401, "want the token"},
		"a form of its own making": {v, url.Values{"form": {"YWJj"}, "action": {"approve"}, "key": {v.key}}, nil, 403, "not one of this page"},
		"no form":                  {v, url.Values{"action": {"approve"}, "key": {v.key}}, nil, 403, "not one of this page"},
		"another site's page":      {v, v.fillForm(path, "approve", "key", v.key), []string{"Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"}, 403, "another origin"},
		"a page of another port":   {v, v.fillForm(path, "approve", "key", v.key), []string{"Origin", "http://127.0.0.1:9", "Sec-Fetch-Site", "same-site"}, 403, "another origin"},
		"a field too many":         {v, v.fillForm(path, "approve", "key", v.key, "by", "user:eve"), nil, 400, "want a form of this page"},
		"a rebound name":           {v, v.fillForm(path, "approve", "key", v.key), []string{"Sec-Fetch-Site", "cross-site"}, 403, "another origin"},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.who.send("POST", path, c.form, c.headers...)
			require.Equal(t, c.want, got.StatusCode, got.body)
			require.Contains(t, got.body, c.says)
			require.NotContains(t, got.body, v.key)
		})
	}
	missing := v.send("POST", "/approvals/a"+strings.Repeat("b", 25), url.Values{"key": {v.key}})
	require.Equal(t, http.StatusNotFound, missing.StatusCode)
	require.Equal(t, approval.Pending, s.loadApproval(request).Status)
	require.Equal(t, before, digestFolder(t, d.home()), "nothing was written")

	form := v.fillForm(path, "approve", "key", " "+s.token+"\n", "note", "seen") // where no script runs, people type the token
	got := v.send("POST", path, form, "Origin", s.URL, "Sec-Fetch-Site", "same-origin")
	require.Equal(t, http.StatusSeeOther, got.StatusCode, got.body)
	require.Equal(t, path, got.Header.Get("Location"))
	a := s.loadApproval(request)
	require.Equal(t, approval.Approved, a.Status)
	require.Len(t, a.Decisions, 1)
	require.Equal(t, "user:local", a.Decisions[0].By)
	require.Equal(t, "seen", a.Decisions[0].Note)
	s.waitForEvent(run, "finished")
	require.Equal(t, http.StatusConflict, v.send("POST", path, form).StatusCode, "the form is used up")
	require.Len(t, s.loadApproval(request).Decisions, 1)
}

// A key is good for one start of the server: what is left of it in a browser opens nothing later.
func TestConsoleKeysEndWithTheServer(t *testing.T) {
	d := newHarness(t, renamingAgent, movingModel)
	t.Chdir(d.dir)
	first, stop := d.startDev()
	first.waitForEvent(first.startRun("tidy"), "parked")
	was, old := first.newVisitor(), first.pendingApproval()
	form := was.fillForm("/approvals/"+old, "approve")
	stop()
	second, stop := d.startDev()
	v, path := second.newVisitor(), "/approvals/"+second.pendingApproval()
	require.Equal(t, first.token, second.token)
	require.NotEqual(t, was.key, v.key)
	require.Equal(t, http.StatusForbidden, v.send("POST", path, v.fillForm(path, "approve", "key", was.key)).StatusCode)
	require.Equal(t, "/approvals/"+old, path)
	form.Set("key", v.key)
	got := v.send("POST", path, form)
	require.Equal(t, http.StatusForbidden, got.StatusCode)
	require.Contains(t, got.body, "not one of this page", "nor are the forms of then")
	stop()
}

// visit opens a page in a window of its own, as somebody who came by the printed address.
func (s *devServer) visit(b *standins.Browser, name, path string) *standins.Page {
	s.t.Helper()
	p := b.Open(name, standins.PageOptions{})
	require.Equal(s.t, http.StatusOK, p.Goto(s.Open))
	if path != "/" {
		require.Equal(s.t, http.StatusOK, p.Goto(s.URL+path))
	}
	return p
}

// waitForScript waits until an expression in a page is true. What it reads may not be there yet.
func waitForScript(t *testing.T, p *standins.Page, code string) {
	t.Helper()
	var is bool
	for range 1200 {
		if p.Eval(`(() => { try { return !!(`+code+`) } catch { return false } })()`, &is); is {
			return
		}
		require.NoError(t, clock.System().Sleep(t.Context(), 100*time.Millisecond))
	}
	var text string
	p.Eval("document.body.innerText", &text)
	t.Fatalf("%s does not come true in:\n%s\n%v", code, text, p.Log())
}

// A run is started in one tab and appears in another by itself; its story goes on by itself while somebody decides in
// the other, and none of these pages is ever loaded again.
func TestConsoleIsLive(t *testing.T) {
	b := standins.StartBrowser(t)
	d := newHarness(t, renamingAgent, movingModel)
	s := startHarness(t, d)
	home := s.visit(b, "home", "/")
	require.Equal(t, s.URL+"/", home.Where(), "neither token nor key is left in the address")
	home.Eval(`window.loaded = "once"`, nil)
	waitForScript(t, home, `document.body.innerText.includes("Nobody is asked for anything.")`)

	story := s.visit(b, "story", "/start?agent=tidy")
	story.Fill("#message", "go")
	story.Click(".start button.approve")
	story.Settle()
	run := strings.TrimPrefix(story.Where(), s.URL+"/runs/")
	require.Regexp(t, `^r[a-z2-7]{25}$`, run)
	waitForScript(t, home, `!!document.querySelector(".requests a[href^='/approvals/']") && !!document.querySelector(".requests a[href='/runs/`+run+`']")`)
	waitForScript(t, home, `document.getElementById("said").textContent === "1 request waits for a decision."`)
	story.Eval(`window.loaded = "once"; document.querySelector("#events-list").open = true; for (let i = 1; i < 10000; i++) clearInterval(i)`, nil) // the stream alone tells it
	waitForScript(t, story, `document.querySelector("#head .status").textContent === "Waiting"`)

	request := s.pendingApproval()
	var hidden bool
	home.Eval(`[...document.querySelectorAll(".proof")].every((p) => p.hidden && getComputedStyle(p).display === "none")`, &hidden)
	require.True(t, hidden, "who came by the printed address types no token")
	home.Fill("#"+request+"-note", "go on")
	home.Key("Tab")
	home.Key("Enter")
	home.Settle()
	require.Equal(t, s.URL+"/", home.Where(), "the next request follows")
	waitForScript(t, home, `document.body.innerText.includes("Nobody is asked for anything.")`)
	waitForScript(t, story, `!!document.querySelector(".decision")?.innerText.startsWith("Approved by user:local")`)

	waitForScript(t, story, `document.querySelector("#head .status").textContent === "Done" && document.querySelector("#talk").innerText.includes("Done.")`)
	waitForScript(t, story, `document.getElementById("said").textContent.startsWith("Done")`)
	var state struct {
		Loaded string
		Open   bool
		Waits  int
	}
	story.Eval(`({loaded: window.loaded, open: document.querySelector("#events-list").open, waits: document.querySelectorAll("#waits li").length})`, &state)
	require.Equal(t, "once", state.Loaded, "the page was not loaded again")
	require.True(t, state.Open, "what was opened stays open")
	require.Zero(t, state.Waits)
	require.Empty(t, story.Log().Console)
	require.Empty(t, home.Log().Console)
	decided := s.loadApproval(request).Decisions[0]
	require.Equal(t, []string{"user:local", "go on"}, []string{decided.By, decided.Note})
}

// hostile are texts that would do something where they are not escaped.
var hostile = []string{
	`<script>alert(1)</script>`, `<img src=http://evil.example/x onerror=alert(1)>`, `"><svg onload=alert(1)>`, `</title><script>alert(1)</script>`, `</summary><script>alert(1)</script>`,
	`<a href="javascript:alert(1)" autofocus onfocus=alert(1)>x</a>`, `<form action=http://evil.example/><button>Approve</button>`, `<div id="talk" data-live>x</div>`, `' onmouseover='alert(1)`,
	`{{.form}} ${alert(1)}`, "pay \u202Eeve\u202C now", "\u200Bzero\u200Dwidth", strings.Repeat("W", 300), "https://evil.example/" + strings.Repeat("a/", 80),
}

// What models, tools and people wrote stands there as text on every page, also where it comes in by a live update.
func TestConsoleAttacksAreInert(t *testing.T) {
	b := standins.StartBrowser(t)
	all := strings.Join(hostile, "\n")
	quoted, err := json.Marshal(all)
	require.NoError(t, err)
	d := newHarness(t, renamingAgent, `{"text": `+string(quoted)+`, "calls": [{"id": "m1", "name": "move_file", "input": {"source": `+string(quoted)+`, "destination": "b.txt"}}]}
{"text": `+string(quoted)+`}`)
	s := startHarness(t, d)
	run := s.start(`{"agent": "tidy", "subject": "<b>ana</b>", "message": ` + string(quoted) + `}`)
	s.waitForEvent(run, "parked")
	inert := func(p *standins.Page, holds string) {
		t.Helper()
		var dom struct {
			Elements  []string
			Scripts   []string
			Graphics  int
			Overflows int
			Text      string
		}
		p.Eval(`(() => ({
			elements: [...new Set([...document.querySelectorAll("*")].map((e) => e.localName))], scripts: [...document.scripts].map((s) => s.getAttribute("src")),
			graphics: document.querySelectorAll("svg:not(.track), svg[onload]").length,
			overflows: document.documentElement.scrollWidth - document.documentElement.clientWidth, text: document.body.textContent,
		}))()`, &dom)
		for _, never := range []string{"img", "iframe", "base", "object"} {
			require.NotContains(t, dom.Elements, never)
		}
		require.Equal(t, []string{"/console.js"}, dom.Scripts)
		require.Zero(t, dom.Graphics)
		require.LessOrEqual(t, dom.Overflows, 0, "long words wrap")
		require.Contains(t, dom.Text, holds)
		l := p.Log()
		require.Empty(t, l.Dialogs)
		require.Empty(t, l.Console)
		for _, r := range l.Requests {
			require.Contains(t, r, " "+s.URL+"/")
		}
	}
	request := s.pendingApproval()
	for name, width := range map[string]int{"wide": 1280, "phone": 360} {
		p := b.Open(name, standins.PageOptions{Width: width, Height: 800})
		require.Equal(t, http.StatusOK, p.Goto(s.Open))
		inert(p, hostile[0])
		require.Equal(t, http.StatusOK, p.Goto(s.URL+"/approvals/"+request))
		inert(p, `\u{202E}eve`)
		require.Equal(t, http.StatusOK, p.Goto(s.URL+"/runs/"+run))
		inert(p, `\u{200B}zero`)
	}
	v := s.newVisitor()
	p := s.visit(b, "live", "/runs/"+run)
	require.Equal(t, http.StatusSeeOther, v.send("POST", "/approvals/"+request, v.fillForm("/approvals/"+request, "deny", "key", v.key, "note", hostile[0])).StatusCode)
	waitForScript(t, p, `document.querySelector("#head .status").textContent === "Done"`)
	inert(p, hostile[0])
}

// Every page passes axe-core on a light desktop and on a dark phone.
func TestConsoleAxe(t *testing.T) {
	b := standins.StartBrowser(t)
	o := newDelegationHarness(t)
	s := startHarness(t, o.harness)
	for _, message := range []string{"Find the invoices of March and move them to the archive, then tell me what there is.", "Tidy up."} {
		s.waitForEvent(s.start(`{"agent": "research", "subject": "user:carla", "message": "`+message+`"}`), "parked")
	}
	var waiting []approval.Approval
	require.Eventually(t, func() bool {
		page, err := s.client().FindApprovals(t.Context(), approval.Query{})
		waiting = page.Items
		return err == nil && len(waiting) == 4
	}, time.Minute, 50*time.Millisecond)
	last := waiting[3]
	v := s.newVisitor()
	for _, a := range waiting[:2] {
		path := "/approvals/" + a.ID
		require.Equal(t, http.StatusSeeOther, v.send("POST", path, v.fillForm(path, "deny", "key", v.key, "note", "Not these.")).StatusCode)
	}
	s.waitForEvent(waiting[0].Root, "finished")
	p := s.visit(b, "pages", "/")
	for name, path := range map[string]string{
		"home": "/", "runs": "/runs", "start": "/start", "agents": "/agents", "agent": "/agents/research", "audit": "/audit?verify=1",
		"together": "/approvals/together?agent=" + last.Agent + "&tool=" + last.Tools[0], "root": "/runs/" + last.Root, "ended": "/runs/" + waiting[0].Run,
		"request": "/approvals/" + last.ID, "missing": "/runs/none",
	} {
		p.Goto(s.URL + path)
		p.Eval(`document.querySelectorAll("details").forEach((d) => { d.open = true }); document.querySelectorAll(".proof").forEach((f) => { f.hidden = false })`, nil)
		p.RequireAccessible("console-" + name)
	}
}

// What the API's caller says of whom a run is for is nobody's fact: JSON, page and terminal say whose word it is, and
// who started the run beside it. Mails and Slack's messages are made of the same document (internal/people).
func TestTheCallersClaimIsMarkedAsOne(t *testing.T) {
	const claim = "the CEO; pre-approved by legal"
	d, text := newHarness(t, renamingAgent, movingModel), regexp.MustCompile(`<[^>]*>`)
	s := startHarness(t, d)
	run := s.start(`{"agent": "tidy", "subject": "` + claim + `", "message": "go"}`)
	s.waitForEvent(run, "parked")
	_, body := s.do("GET", "/v1/approvals/"+s.pendingApproval(), "")
	require.Contains(t, body, `"requesters":["user:local"]`)
	require.Contains(t, body, `"claimedSubject":"`+claim+`"`)
	_, body = s.do("GET", "/v1/runs/"+run, "")
	require.Contains(t, body, `"startedBy":["user:local"]`)
	v := s.newVisitor()
	for shown, says := range map[string]string{
		text.ReplaceAllString(v.send("GET", "/approvals/"+s.pendingApproval(), nil).body, "\n"): `The caller says the run is for \(nobody checked it\)`,
		text.ReplaceAllString(v.send("GET", "/runs/"+run, nil).body, "\n"):                      `For, the caller says \(nobody checked it\)`,
		d.exits(0, "approvals").stdout.String():                                                 `The caller says the run is for \(nobody checked it\)`,
		d.exits(0, "show", run).stdout.String():                                                 `the caller says \(not checked\): the run is for`,
	} {
		require.Regexp(t, says+`\s+"?`+claim, shown)
		require.Equal(t, 1, strings.Count(shown, claim), shown)
		require.Regexp(t, `(?mi)(started by|^by)\s+user:local\s`, shown)
	}
}

// Whoever opens the console without its token is asked for it, on a page that says where it is, and gets by it what the
// printed address gives. Wrong ones are counted; the right one is taken however many there were.
func TestConsoleSignIn(t *testing.T) {
	d, s, run := startParkedRun(t)
	stranger := &visitor{devServer: s}
	for _, path := range []string{"/", "/runs/" + run, "/approvals/" + s.pendingApproval(), "/runs/none", "/?token=wrong"} {
		got := stranger.send("GET", path, nil)
		require.Equal(t, http.StatusUnauthorized, got.StatusCode, path)
		require.Equal(t, "text/html; charset=utf-8", got.Header.Get("Content-Type"), path)
		require.Equal(t, "no-store", got.Header.Get("Cache-Control"), path)
		require.Contains(t, got.body, `<h1>Sign in</h1>`, path)
		require.Contains(t, got.body, "countersign dev", path)
		require.Contains(t, got.body, filepath.Join(d.home(), "token"), path)
		require.Equal(t, path == "/?token=wrong", strings.Contains(got.body, "not the one of this server"), path)
		require.NotContains(t, got.body, run)
		require.Empty(t, got.Cookies(), path)
	}
	problem := stranger.send("GET", "/v1/runs", nil)
	require.Equal(t, "application/problem+json", problem.Header.Get("Content-Type"), "programs get a problem")

	signIn := func(path, token string, headers ...string) pageResponse {
		return stranger.send("POST", path, url.Values{"token": {token}}, headers...)
	}
	require.Equal(t, http.StatusForbidden, signIn("/", s.token, "Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site").StatusCode)
	codes := map[int]int{}
	for range 60 {
		got := signIn("/", s.token[1:]+"a")
		codes[got.StatusCode]++
		require.Empty(t, got.Cookies())
		require.NotContains(t, got.body, s.token[1:])
		require.Regexp(t, "That is not the token of this server|too many wrong tokens", got.body)
	}
	require.Positive(t, codes[http.StatusUnauthorized])
	require.Positive(t, codes[http.StatusTooManyRequests])
	require.Len(t, codes, 2)

	link := s.newVisitor()
	require.Equal(t, http.StatusOK, link.send("GET", "/v1/runs/"+run, nil).StatusCode, "the API takes the cookie, too")
	for path, want := range map[string]string{
		"/": "/", "/runs/" + run: "/runs/" + run, "/?status=waiting&token=wrong": "/?status=waiting", "/approvals/" + s.pendingApproval(): "/approvals/" + s.pendingApproval(),
	} {
		got := signIn(path, " "+s.token+"\n", "Origin", s.URL, "Sec-Fetch-Site", "same-origin")
		require.Equal(t, http.StatusSeeOther, got.StatusCode, path)
		require.Len(t, got.Cookies(), 1)
		require.Equal(t, link.cookie, got.Cookies()[0].String(), "as the link gives")
		at, fragment, _ := strings.Cut(got.Header.Get("Location"), "#")
		require.Equal(t, want, at)
		require.True(t, strings.HasSuffix(fragment, "."+link.key), fragment)
	}
	lost := stranger.send("POST", "/approvals/"+s.pendingApproval(), link.fillForm("/approvals/"+s.pendingApproval(), "approve", "key", link.key), "Accept", "text/html")
	require.Equal(t, http.StatusUnauthorized, lost.StatusCode)
	require.Contains(t, lost.body, "You are not signed in any more. Nothing was changed.")
	require.Equal(t, approval.Pending, s.loadApproval(s.pendingApproval()).Status)
}

// By hand: the token is typed, the page that was asked for comes, and a decision there needs no token again.
func TestConsoleSignInInABrowser(t *testing.T) {
	b := standins.StartBrowser(t)
	_, s, _ := startParkedRun(t)
	path := "/approvals/" + s.pendingApproval()
	p := b.Open("sign-in", standins.PageOptions{})
	p.Goto(s.URL + "/?token=wrong")
	p.RequireAccessible("console-sign-in")
	require.Equal(t, http.StatusUnauthorized, p.Goto(s.URL+path))
	p.Fill("#token", "wrong")
	p.Key("Enter")
	p.Settle()
	waitForScript(t, p, `document.body.innerText.includes("That is not the token of this server.")`)
	p.Fill("#token", s.token)
	p.Key("Enter")
	p.Settle()
	waitForScript(t, p, `location.href === "`+s.URL+path+`"`) // neither token nor key is left in the address
	p.Fill("#note", "signed in by hand")
	p.Click("button[value=approve]")
	p.Settle()
	waitForScript(t, p, `document.body.innerText.includes("Approved by user:local")`)
	require.Equal(t, approval.Approved, s.loadApproval(strings.TrimPrefix(path, "/approvals/")).Status)
}

// layout is a model that writes in lines, and asks for a move whose arguments have some.
const layout = `{"text": "The plan:\n\n    1. move \"a.txt\"\n    2. tell you", "calls": [{"id": "m1", "name": "move_file", "input": {"source": "a.txt", "destination": "b\nc.txt"}}]}
{"text": "Done.\n\n- moved C:\\a.txt\n- told you"}`

// In a transcript lines end where they were ended, without a mark; in arguments, on which people decide, each is
// marked. The heading counts along while a page is open.
func TestConsoleReadsLikeAConversation(t *testing.T) {
	b := standins.StartBrowser(t)
	s := startHarness(t, newHarness(t, renamingAgent, layout))
	run := s.start(`{"agent": "tidy", "message": "Please\n\n\ttidy up."}`)
	s.waitForEvent(run, "parked")

	story := s.visit(b, "story", "/runs/"+run)
	texts := func(elements string) (said []string) {
		story.Eval(`[`+elements+`].map((e) => e.innerText)`, &said)
		return said
	}
	require.Equal(t, []string{"Please\n\n\ttidy up.", "The plan:", "1. move \"a.txt\"\n2. tell you"},
		texts(`...document.querySelectorAll("#talk .words, #talk .markdown > *")`))
	outside := `...[...document.querySelectorAll(".odd")].filter((e) => !e.closest(".args, .sentence"))`
	require.Empty(t, texts(outside), "no marks outside arguments and what is made of them")
	require.Equal(t, []string{`\n`}, texts(`...document.querySelectorAll("#talk .args .odd")`), "in arguments it counts")
	story.Key("Control+k")
	waitForScript(t, story, `document.activeElement.id === "search"`)
	waitForScript(t, story, `[...document.querySelectorAll("time")].every((t) => t.title.endsWith(" UTC") && !t.textContent.endsWith("UTC"))`)
	heading := `document.querySelector("#talk-head").innerText`
	waitForScript(t, story, heading+` === "Conversation 3 messages"`)
	v, path := s.newVisitor(), "/approvals/"+s.pendingApproval()
	v.send("POST", path, v.fillForm(path, "approve", "key", v.key))
	waitForScript(t, story, heading+` === "Conversation 5 messages"`)
	require.Equal(t, []string{"Done.", "moved C:\\a.txt\ntold you"},
		texts(`...document.querySelectorAll("#talk .message:last-child .markdown > *")`))
	require.Empty(t, texts(`...document.querySelectorAll("#facts h3")`), "the last word is the output, and is said once")
}

// What somebody types is not lost: a message to a run that has just ended is refused, and stands ready to continue it,
// also once the page is brought up to date. A chat counts its messages while it is open.
func TestConsoleLosesNoWords(t *testing.T) {
	b := standins.StartBrowser(t)
	_, s, run := startParkedRun(t)
	path := "/runs/" + run
	story, chat := s.visit(b, "story", path), s.visit(b, "chat", "/chat/"+run)
	waitForScript(t, chat, `document.querySelector("#talk-head").innerText === "2 messages"`)
	for _, p := range []*standins.Page{story, chat} {
		p.Fill("#message", "Be quick.")
	}
	v := s.newVisitor()
	request := s.pendingApproval()
	v.send("POST", "/approvals/"+request, v.fillForm("/approvals/"+request, "approve", "key", v.key))
	s.waitForEvent(run, "finished")
	waitForScript(t, chat, `document.querySelector("#talk-head").innerText === "4 messages"`)
	for at, p := range map[string]*standins.Page{path: story, "/chat/" + run: chat} {
		p.Click("#act .say .buttons button")
		p.Settle()
		waitForScript(t, p, `document.querySelector(".notice").innerText.includes("Nothing was changed")`)
		require.Equal(t, s.URL+at, p.Where(), "an address to come back to")
		p.Eval(`document.querySelector("#talk").textContent = "", document.dispatchEvent(new Event("visibilitychange"))`, nil)
		p.Eval(`new Promise((done) => setTimeout(done, 1000))`, nil)
		waitForScript(t, p, `document.querySelector("#message").value === "Be quick."`)
		p.Click("#act .say .buttons button")
		p.Settle()
		require.NotEqual(t, s.URL+at, p.Where(), "a run that continues it")
	}
	revoked := v.post("/agents/tidy", "tool", "x", "digest", "y")
	require.Equal(t, http.StatusNotFound, revoked.StatusCode)
	require.Contains(t, revoked.body, "Nothing was changed")
}

// While somebody types about one request, another that was decided elsewhere goes; what comes to stand in its place is
// not approved by a press that was meant for it. A page that cannot be kept up to date
// says so, until it can.
func TestConsoleShowsNothingStale(t *testing.T) {
	b := standins.StartBrowser(t)
	d := newHarness(t, renamingAgent, strings.Repeat(movingModel+"\n", 4))
	s := startHarness(t, d)
	s.waitForEvent(s.startRun("tidy"), "parked")
	decided := s.pendingApproval()
	s.waitForEvent(s.startRun("tidy"), "parked")
	home := s.visit(b, "home", "/")
	waitForScript(t, home, `document.querySelectorAll(".request-card").length === 2`)
	home.Fill(".request-card:not([id='"+decided+"']) textarea[name=note]", "half a sent")
	v := s.newVisitor()
	v.send("POST", "/approvals/"+decided, v.fillForm("/approvals/"+decided, "deny", "key", v.key))
	waitForScript(t, home, `document.querySelectorAll(".request-card").length === 1`)
	var note string
	home.Eval(`document.querySelector(".request-card textarea[name=note]").value`, &note)
	require.Equal(t, "half a sent", note)

	home.Fill(".request-card textarea[name=note]", "")
	decided = s.pendingApproval()
	s.waitForEvent(s.startRun("tidy"), "parked")
	s.waitForEvent(s.startRun("tidy"), "parked")
	waitForScript(t, home, `document.querySelectorAll(".request-card").length === 3`)
	home.Eval(`(() => {
		const button = document.querySelector("[id='`+decided+`'] button[value=approve]");
		const at = button.getBoundingClientRect();
		new MutationObserver((_, o) => (o.disconnect(), document.elementFromPoint(at.x + 9, at.y + 9).click()))
			.observe(document.getElementById("main"), {childList: true});
	})()`, nil)
	v.send("POST", "/approvals/"+decided, v.fillForm("/approvals/"+decided, "deny", "key", v.key))
	waitForScript(t, home, `document.getElementById("said").textContent.startsWith("Nothing was sent")`)
	waitForScript(t, home, `document.querySelectorAll(".request-card").length === 2`) // who pressed meant another request
	home.Eval(`(() => {
		document.getElementById("said").textContent = "";
		new MutationObserver((_, o) => (o.disconnect(), document.querySelector(".request-card button[value=approve]").click()))
			.observe(document.getElementById("main"), {childList: true});
	})()`, nil)
	var first string
	home.Eval(`document.querySelector(".request-card").id`, &first)
	v.send("POST", "/approvals/"+first, v.fillForm("/approvals/"+first, "remark", "key", v.key, "text", "Not this file."))
	waitForScript(t, home, `document.getElementById("said").textContent.startsWith("Nothing was sent")`) // nor of what was not read

	waitForScript(t, home, `document.querySelector("html.is-live")`)
	home.Eval(`window.away = window.fetch, window.fetch = () => Promise.reject(new Error("away"))`, nil)
	waitForScript(t, home, `!document.querySelector("html.is-live")`)
	waitForScript(t, home, `document.getElementById("said").textContent.includes("cannot be kept up to date")`)
	home.Eval(`window.fetch = window.away`, nil)
	waitForScript(t, home, `document.querySelector("html.is-live")`)
	waitForScript(t, home, `document.getElementById("said").textContent === "2 requests wait for a decision."`)

	home.Click(".request-card button[value=approve]")
	home.Settle()
	home.Eval(`sessionStorage.setItem("pressed", Number(sessionStorage.getItem("pressed")) + 1e6)`, nil) // no time goes by
	home.Goto(s.URL + "/")
	home.Click(".request-card button[value=approve]")
	waitForScript(t, home, `document.getElementById("said").textContent.startsWith("Nothing was sent")`) // pressed twice
}

// What is started on a page is watched on its run's page, is decided on the card and goes on there; then it is
// continued, forked and found in the audit. No form does anything without its proof.
func TestConsoleStartsWatchesAndDecides(t *testing.T) {
	d := newHarness(t, renamingAgent, movingModel+"\n"+movingModel)
	s := startHarness(t, d)
	v := s.newVisitor()
	start := []string{"agent", "tidy", "message", "Tidy **all** of it."}
	for name, bad := range map[string]pageResponse{
		"no words": v.post("/start", "agent", "tidy"), "two inputs": v.post("/start", append(start, "input", "{}")...), "no JSON": v.post("/start", "agent", "tidy", "input", "{"),
	} {
		require.Equal(t, http.StatusBadRequest, bad.StatusCode, name)
		require.Contains(t, bad.body, "Nothing was changed", name)
	}
	forged := v.send("POST", "/start", url.Values{"agent": {"tidy"}, "message": {"go"}})
	require.Equal(t, http.StatusForbidden, forged.StatusCode)
	require.Contains(t, v.send("GET", "/runs", nil).body, "There are no runs yet.")

	got := v.post("/start", start...)
	require.Equal(t, http.StatusSeeOther, got.StatusCode, got.body)
	path := got.Header.Get("Location")
	run := strings.TrimPrefix(path, "/runs/")
	s.waitForEvent(run, "parked")
	request := s.pendingApproval()
	page := v.send("GET", path, nil).body
	for _, want := range []string{`class="request-card risk-is-high"`, `class="risk risk-high"`, "Tidy **all** of it.", `action="/approvals/` + request + `"`, `name="back" value="` + path + `"`, "waits for approval"} {
		require.Contains(t, page, want)
	}
	require.Contains(t, page, "<title>Tidy **all** of it. · Countersign</title>")
	inOrder := []string{"<title>(1) Approvals · Countersign</title>", `risk-is-high"`, `class="sentence"`, "risk-high", "of-arguments", `name="note"`, `value="approve"`, `value="deny"`, `class="edit"`, `class="ask"`}
	require.Regexp(t, "(?s)"+strings.ReplaceAll(regexp.QuoteMeta(strings.Join(inOrder, "…")), "…", ".*"), v.send("GET", "/", nil).body,
		"a card says what would be done and at what risk, then with which arguments, and asks then")
	for _, form := range []string{"/message", "/cancel", "/fork", "/continue"} {
		require.Equal(t, http.StatusForbidden, v.send("POST", path+form, url.Values{"message": {"x"}, "at": {"0"}}).StatusCode, form)
	}
	require.Equal(t, http.StatusSeeOther, v.post(path+"/message", "message", "Be quick.").StatusCode)
	decided := v.send("POST", "/approvals/"+request, v.fillForm(path, "approve", "key", v.key, "back", path, "note", "fine"))
	require.Equal(t, path, decided.Header.Get("Location"), "back where the card stood")
	s.waitForEvent(run, "finished")
	page = v.send("GET", path, nil).body
	for _, want := range []string{"Approved by user:local", "fine", `action="` + path + `/continue"`, `class="bar-wait"`, "succeeded"} {
		require.Contains(t, page, want)
	}
	fork := v.post(path+"/fork", "at", "0")
	require.Equal(t, http.StatusSeeOther, fork.StatusCode, fork.body)
	require.NotEqual(t, path, fork.Header.Get("Location"))
	require.Equal(t, http.StatusBadRequest, v.post(path+"/fork", "at", "x").StatusCode)
	again := v.post(path+"/continue", "message", "And now?")
	require.Equal(t, http.StatusSeeOther, again.StatusCode, again.body)

	audit := v.send("GET", "/audit?verify=1&by=user:local", nil).body
	require.Contains(t, audit, "each holds the hash of the one before it")
	require.Contains(t, audit, `href="/approvals/`+request+`"`)
	require.Contains(t, v.send("GET", "/audit.jsonl?by=user:local", nil).body, `"approval":"`+request+`"`)
	require.Empty(t, v.send("GET", "/audit.jsonl?by=user:eve", nil).body)
	agentPage := v.send("GET", "/agents/tidy", nil).body
	require.Contains(t, agentPage, "move_file")
	require.Contains(t, agentPage, `href="`+path+`"`)
	require.Contains(t, v.send("GET", "/runs?q=ALL**", nil).body, `id="`+run+`"`, "words find the runs that say them")
	require.NotContains(t, v.send("GET", "/runs?q=And+now", nil).body, `id="`+run+`"`)
}

// A form that a browser without script sends twice starts one run. One whose words were changed starts another.
func TestConsoleStartsOnce(t *testing.T) {
	d := newHarness(t, "name: greet\nsystem: You greet.\nmodel: {provider: script, file: model.jsonl}\n", `{"text": "Hello."}`)
	v := startHarness(t, d).newVisitor()
	twice := func(page, to string) string {
		found := onceField.FindStringSubmatch(v.send("GET", page, nil).body)
		require.NotNil(t, found, page)
		send := func(message string) string {
			got := v.post(to, "agent", "greet", "message", message, "once", found[1])
			require.Equal(t, http.StatusSeeOther, got.StatusCode, got.body)
			return got.Header.Get("Location")
		}
		at := send("Go.")
		require.Equal(t, at, send("Go."), page)
		require.NotEqual(t, at, send("Go on."), page)
		return at
	}
	started := twice("/start", "/start")
	require.NotEqual(t, started, twice("/chat", "/start"), "the same words on another page")
	require.Eventually(t, func() bool { return strings.Contains(v.send("GET", started, nil).body, "/continue") }, 30*time.Second, 50*time.Millisecond)
	twice(started, started+"/continue")
}

// Several alike are approved at once, each by a decision of its own on the digest that was listed; what was decided
// meanwhile is said, and is not decided again.
func TestConsoleApprovesSeveralAlike(t *testing.T) {
	d := newHarness(t, renamingAgent, movingModel+"\n"+movingModel+"\n"+movingModel)
	s := startHarness(t, d)
	for range 3 {
		s.waitForEvent(s.startRun("tidy"), "parked")
	}
	v := s.newVisitor()
	require.Contains(t, v.send("GET", "/", nil).body, `/approvals/together?agent=tidy&amp;tool=move_file`)
	for filter, cards := range map[string]int{
		"": 3, "?mine=1": 3, "?agent=tidy": 3, "?agent=other": 0, "?risk=high": 3, "?risk=none": 0, "?within=hour": 0, "?within=day": 3,
	} {
		require.Equal(t, cards, strings.Count(v.send("GET", "/"+filter, nil).body, `<article class="request-card`), filter)
	}
	page := v.send("GET", "/approvals/together?agent=tidy&tool=move_file", nil).body
	form := url.Values{"note": {"all fine"}, "form": nil}
	var asked []string
	for _, field := range ticketField.FindAllStringSubmatch(page, -1) {
		form.Add("form", html.UnescapeString(field[1]))
		id, _, _ := strings.Cut(field[1], ".")
		asked = append(asked, id)
		require.Contains(t, page, s.loadApproval(id).Digest)
	}
	require.Len(t, asked, 3)
	require.Equal(t, http.StatusForbidden, v.send("POST", "/approvals/together", form).StatusCode)
	first := "/approvals/" + asked[0]
	denied := v.send("POST", first, v.fillForm(first, "deny", "key", v.key, "back", "//evil.example/"))
	require.Equal(t, first, denied.Header.Get("Location"), "a form leads to no other site")
	form.Set("key", v.key)
	done := v.send("POST", "/approvals/together", form)
	require.Equal(t, http.StatusOK, done.StatusCode)
	require.Contains(t, done.body, "Approved: 2 of 3 calls")
	require.Contains(t, v.send("GET", "/runs?status=failed", nil).body, "There are no such runs here.")
	require.Contains(t, v.send("GET", "/agents/tidy", nil).body, `<p class="hush">Of 3: `)
	for i, want := range []approval.Status{approval.Denied, approval.Approved, approval.Approved} {
		a := s.loadApproval(asked[i])
		require.Equal(t, want, a.Status)
		require.Len(t, a.Decisions, 1)
	}
}
