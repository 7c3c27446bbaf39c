package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

const five = `{"amount": 5, "to": "bob"}`

// Looking never decides, whoever looks and however: mail scanners, previews and prefetchers GET, HEAD and OPTIONS all
// they find.
func TestA1LookingDecidesNothing(t *testing.T) {
	w, a, at := asked(t)
	before := w.reload(a)
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "GET", "PUT", "DELETE", "PATCH", "PROPFIND"} {
		for _, headers := range [][]string{{}, {"Sec-Purpose", "prefetch"}, {"X-HTTP-Method-Override", "POST"}, {"Content-Type", "application/x-www-form-urlencoded"}} {
			for _, query := range []string{"", "?action=approve", "?action=approve&form=x"} {
				got := w.do(method, at+query, nil, headers...)
				require.NotEqual(t, http.StatusSeeOther, got.status)
				if method == "HEAD" || method == "OPTIONS" {
					require.NotContains(t, got.body, "Ana")
				}
			}
			w.clk.advance(3 * time.Second) // within the rate of a link
		}
	}
	page := w.do("GET", at, nil)
	form := w.fillForm(page.body, "action", "approve")
	require.NotEqual(t, http.StatusSeeOther, w.do("GET", at+"?"+form.Encode(), nil).status, "a form in a query is none")
	require.Equal(t, before, w.reload(a))
	require.Empty(t, w.paid)
	require.NotContains(t, page.body, "<script")
	require.NotContains(t, page.body, "http-equiv")
	require.NotContains(t, page.body, "<a href=\"http")

	require.Equal(t, http.StatusSeeOther, w.do("POST", at, form).status)
	require.Equal(t, run.RunDone, w.finish())
	require.Equal(t, madePayment{5, "bob"}, <-w.paid)
}

// Nothing of the call is in the address, and nothing that opens or decides it elsewhere is on the page.
func TestA2PagesHoldNoTokens(t *testing.T) {
	w, a, at := asked(t)
	page := w.do("GET", at, nil).body
	id, err := w.links.Verify(strings.TrimPrefix(at, w.server.URL+approval.LinkPath))
	require.NoError(t, err)
	l, err := w.links.Read(t.Context(), id)
	require.NoError(t, err)
	require.NotContains(t, page, l.Nonce)
	require.NotContains(t, page, strings.TrimPrefix(at, w.server.URL), "nor the page's own address")
	for _, said := range []string{a.ID, a.Run, "bob", "ana", "pay"} {
		require.NotContains(t, at, said)
	}
}

// A second visit shows who decided what and when, and so does a link that is opened for the first time after that;
// neither offers anything.
func TestA5SecondVisitShowsTheOutcome(t *testing.T) {
	w, a, ana := asked(t)
	bob := w.newLink(a, "user:bob")
	got := w.pressButton(ana, "deny", "note", "not <today>")
	require.Equal(t, http.StatusSeeOther, got.status)
	require.Equal(t, strings.TrimPrefix(ana, w.server.URL), got.header.Get("Location"), "and nowhere else")
	for _, at := range []string{ana, bob} {
		page := w.do("GET", at, nil).body
		require.Contains(t, page, "Denied by user:ana at ")
		require.Contains(t, page, "not &lt;today&gt;")
		require.Contains(t, page, people.FormatTime(w.reload(a).Decisions[0].At))
		require.NotContains(t, page, `value="approve"`)
		require.NotContains(t, page, `value="deny"`)
	}
	require.Equal(t, run.RunDone, w.finish())
	require.Empty(t, w.paid)

	w.clk.advance(a.ExpiresAt.Sub(w.clk.Now()) + approval.OpenAfterExpiry - time.Hour)
	require.Contains(t, w.do("GET", ana, nil).body, "Denied by user:ana at ", "long after")
	w.clk.advance(2 * time.Hour)
	require.Equal(t, http.StatusNotFound, w.do("GET", ana, nil).status)
}

// Two who press at the same time: one decides, the other is told.
func TestA5OneOfTwoDecides(t *testing.T) {
	w, a, ana := asked(t)
	bob := w.newLink(a, "user:bob")
	yes := w.fillForm(w.do("GET", ana, nil).body, "action", "approve")
	no := w.fillForm(w.do("GET", bob, nil).body, "action", "deny")
	require.Equal(t, http.StatusSeeOther, w.do("POST", ana, yes).status)
	late := w.do("POST", bob, no)
	require.Equal(t, http.StatusConflict, late.status)
	require.Contains(t, late.body, "Your answer was not taken")
	require.Contains(t, late.body, "Approved by user:ana at ")
	require.Equal(t, run.RunDone, w.finish())
	require.Len(t, w.paid, 1)
}

// Who comes after the time sees that nobody decided, and cannot.
func TestA14TooLate(t *testing.T) {
	w, a, at := asked(t)
	form := w.fillForm(w.do("GET", at, nil).body, "action", "approve")
	w.clk.advance(a.ExpiresAt.Sub(w.clk.Now()) + time.Second)
	page := w.do("GET", at, nil)
	require.Equal(t, http.StatusOK, page.status)
	require.Contains(t, page.body, "nobody decided in time")
	require.NotContains(t, page.body, `value="approve"`)
	late := w.do("POST", at, form)
	require.Equal(t, http.StatusConflict, late.status)
	require.Empty(t, w.paid)
}

// What browsers are told (B5).
func TestB5Headers(t *testing.T) {
	w, _, at := asked(t)
	for name, got := range map[string]response{
		"a page": w.do("GET", at, nil), "none": w.do("GET", w.server.URL+"/a/x", nil), "options": w.do("OPTIONS", at, nil), "taken": w.pressButton(at, "deny"),
		"bad form": w.do("POST", at, url.Values{"x": {"y"}}), "foreign": w.do("POST", at, url.Values{}, "Origin", "https://evil.example"),
	} {
		csp := got.header.Get("Content-Security-Policy")
		require.Regexp(t, `^default-src 'none'; style-src 'sha256-[A-Za-z0-9+/=]{44}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'$`, csp, name)
		for header, want := range map[string]string{
			"Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"X-Robots-Tag": "noindex, nofollow, noarchive, nosnippet", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			require.Equal(t, want, got.header.Get(header), "%s: %s", name, header)
		}
		require.Empty(t, got.header.Values("Set-Cookie"), name)
		require.NotRegexp(t, `(?i)\s(src|href|action|formaction|srcset|style|on[a-z]+)\s*=\s*["']?[^#"']`, got.body, name)
	}
}

// A form is sent by this page alone: nothing of another site, of another link or of another person is taken.
// TestBadForms has what else is not.
func TestB6ForeignForms(t *testing.T) {
	w, a, ana := asked(t)
	again, bob := w.newLink(a, "user:ana"), w.newLink(a, "user:bob")
	form := w.fillForm(w.do("GET", ana, nil).body, "action", "approve")
	host := strings.TrimPrefix(w.server.URL, "http://")
	for name, c := range map[string]struct {
		at      string
		form    url.Values
		headers []string
		status  int
	}{
		"a sibling":              {ana, form, []string{"Sec-Fetch-Site", "same-site"}, 403},
		"another port":           {ana, form, []string{"Origin", "http://" + host + "0"}, 403},
		"another person's link":  {bob, form, nil, 403},
		"another link of theirs": {again, form, nil, 403},
		"a query":                {ana + "?x=1", form, nil, 404},
	} {
		got := w.do("POST", c.at, c.form, c.headers...)
		require.Equal(t, c.status, got.status, name)
		require.Equal(t, approval.Pending, w.reload(a).Status, name)
		w.clk.advance(2 * time.Second)
	}
	require.Equal(t, http.StatusSeeOther, w.do("POST", ana, form, "Sec-Fetch-Site", "same-origin", "Origin", "null").status, "as browsers send it under no-referrer")
	require.Equal(t, run.RunDone, w.finish())
}

func with(form url.Values, name, value string) url.Values {
	other := url.Values{name: {value}}
	for k, v := range form {
		if k != name {
			other[k] = v
		}
	}
	return other
}

// Many at once with one form: one is taken, and the tool runs once.
func TestB6AFormIsUsedOnceAtOnce(t *testing.T) {
	w, a, at := asked(t)
	form := w.fillForm(w.do("GET", at, nil).body, "action", "approve")
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			resp, err := http.PostForm(at, form)
			if err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	all.Wait()
	require.Len(t, w.reload(a).Decisions, 1)
	require.Equal(t, run.RunDone, w.finish())
	require.Len(t, w.paid, 1)
}

// What changed between looking and answering is said, and nothing is taken: new arguments are to be read first.
func TestB6StaleForms(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*approval.Approval)
		said   string
	}{
		"other arguments": {func(a *approval.Approval) {
			a.Args, a.Digest = json.RawMessage(`{"amount":50000}`), "other"
			a.Decisions = append(a.Decisions, approval.Decision{By: "user:bob", Action: approval.Edit})
		}, "Somebody changed the arguments meanwhile"},
		"a question": {func(a *approval.Approval) { a.Thread = append(a.Thread, approval.Remark{By: "user:bob", Text: "why?"}) }, "Somebody wrote about the request"},
		"the person's own": {func(a *approval.Approval) {
			a.Decisions = append(a.Decisions, approval.Decision{By: "user:ana", Action: approval.Approve})
		}, "You have answered already"},
		"too late": {func(a *approval.Approval) { a.Status = approval.Expired }, "Its time was over before your answer came."},
		"others' approvals": {func(a *approval.Approval) {
			a.Decisions = append(a.Decisions, approval.Decision{By: "user:bob", Action: approval.Approve})
		}, ""},
		"nothing, of course": {func(*approval.Approval) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, a, at := asked(t)
			changed := false
			w.reading(func(a *approval.Approval) {
				if changed {
					c.change(a)
				}
			})
			form := w.fillForm(w.do("GET", at, nil).body, "action", "approve", "note", "mine & own")
			changed = true
			got := w.do("POST", at, form)
			if c.said == "" {
				require.Equal(t, http.StatusSeeOther, got.status)
				require.Equal(t, run.RunDone, w.finish())
				return
			}
			require.Equal(t, http.StatusConflict, got.status)
			require.Contains(t, got.body, c.said)
			require.Equal(t, approval.Pending, w.reload(a).Status)
			if name != "the person's own" && name != "too late" {
				require.Contains(t, got.body, "mine &amp; own</textarea>", "what was typed is not lost")
			}
		})
	}
}

// The action that is decided is the one that was on the page, even if it changes between the page's look and the
// desk's.
func TestB6NobodyApprovesWhatTheyHaveNotSeen(t *testing.T) {
	w, a, at := asked(t)
	w.reading(func(a *approval.Approval) { a.Digest = "of another action" })
	got := w.pressButton(at, "approve")
	require.Equal(t, http.StatusConflict, got.status)
	require.Contains(t, got.body, "Read them again and answer anew")
	require.Equal(t, approval.Pending, w.reload(a).Status)
}

// Whatever is no link is answered alike: unknown, malformed, of somebody who has gone, of a request that is not there,
// or over.
func TestB6UnknownAndForeignAnswerAlike(t *testing.T) {
	w, a, at := asked(t)
	want := w.do("GET", w.server.URL+approval.LinkPath+"x", nil)
	require.Equal(t, http.StatusNotFound, want.status)
	gone := a
	gone.ID = "apnone"
	foreign := a
	foreign.Tenant = "acme" // whose directory does not know her, and where there is no such request
	w.people["user:joe"] = people.Person{ID: "user:joe", Groups: []string{"group:operators"}}
	joe := w.newLink(a, "user:joe")
	delete(w.people, "user:joe")
	n := len(at) - 10
	changed := at[:n] + map[bool]string{true: "B", false: "A"}[at[n] == 'A'] + at[n+1:]
	for name, other := range map[string]string{
		"empty": w.server.URL + approval.LinkPath, "changed": changed,
		"a request that is not there": w.newLink(gone, "user:ana"), "another tenant": w.newLink(foreign, "user:ana"),
		"somebody who left": joe, "nobody": w.newLink(a, "user:nobody"),
	} {
		for _, method := range []string{"GET", "POST"} {
			var form url.Values
			if method == "POST" {
				form = url.Values{"action": {"approve"}}
			}
			got := w.do(method, other, form)
			got.header.Del("Date")
			want.header.Del("Date")
			require.Equal(t, want, got, "%s %s", method, name)
			w.clk.advance(10 * time.Second)
		}
	}
	w.clk.advance(a.ExpiresAt.Sub(w.clk.Now()) + approval.OpenAfterExpiry)
	got := w.do("GET", at, nil)
	got.header.Del("Date")
	require.Equal(t, want, got, "over")
}

// Only approvers decide, by what the directory says of them at that moment; whoever else has a link sees.
func TestB6WhoIsNoApproverMayLook(t *testing.T) {
	w, a, ana := asked(t)
	eve := w.newLink(a, "user:eve")
	page := w.do("GET", eve, nil)
	require.Equal(t, http.StatusOK, page.status)
	require.Contains(t, page.body, "You are not among those who decide this")
	require.NotContains(t, page.body, `value="approve"`)

	form := w.fillForm(w.do("GET", ana, nil).body, "action", "approve")
	w.people["user:ana"] = people.Person{ID: "user:ana", Groups: []string{"group:guests"}} // since then
	got := w.do("POST", ana, form)
	require.Equal(t, http.StatusForbidden, got.status)
	require.Contains(t, got.body, "You are not among those who may decide this")
	require.Equal(t, approval.Pending, w.reload(a).Status)
}

// Each link has a rate, and so have wrong tokens by where they come from, which closes no right one out.
func TestB6RateLimits(t *testing.T) {
	w, a, ana := asked(t)
	bob := w.newLink(a, "user:bob")
	count := func(at string, n int) (refused int) {
		for range n {
			if got := w.do("GET", at, nil); got.status == http.StatusTooManyRequests {
				refused++
				require.Equal(t, "5", got.header.Get("Retry-After"))
				require.NotContains(t, got.body, "pay")
			}
		}
		return refused
	}
	require.Positive(t, count(ana, 40))
	require.Zero(t, count(bob, 20), "another link has its own")
	w.clk.advance(time.Minute)
	require.Zero(t, count(ana, 20), "and it is filled again")
	require.Positive(t, count(w.server.URL+approval.LinkPath+"none", 40))
	require.Zero(t, count(bob, 1), "a right token opens its page wherever wrong ones come from")
	w.clk.advance(10 * time.Minute)
	require.Zero(t, count(w.server.URL+approval.LinkPath+"none", 20), "and that one, too, is filled again")
}

// still is a clock that stands still for limits.
type still struct {
	clock.Clock
	at time.Time
}

func (s still) Now() time.Time { return s.at }

// However many wrong tokens come, from wherever, they read nothing, and whoever has a right one opens and answers its
// page, from the same address, too. What counts is the address without its port, and of IPv6 the network.
func TestB6WrongTokensCloseNobodyOut(t *testing.T) {
	w, _, at := asked(t)
	table := fault.NewTable(w.links.Table)
	w.links.Table, w.pages.Clock = table, still{w.clk, w.clk.Now()}
	h := w.pages.Handler()
	get := func(from, path string) int {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.RemoteAddr = from
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		return rec.Code
	}
	right := strings.TrimPrefix(at, w.server.URL)
	wrong := right[:len(right)-2] + "AA" // well-formed, of the right key and of a link that is there
	require.NotEqual(t, right, wrong)
	tries := func(from func(n int) string) (refused int) {
		for n := range 210 {
			if get(from(n), wrong) == http.StatusTooManyRequests {
				refused++
			}
		}
		return refused
	}
	for name, c := range map[string]struct {
		from  func(n int) string
		alike bool // all of them are one source
	}{
		"one address, other ports":    {func(n int) string { return fmt.Sprintf("192.0.2.1:%d", 1000+n) }, true},
		"one network of IPv6":         {func(n int) string { return fmt.Sprintf("[2001:db8:1:2:%x::1]:443", n) }, true},
		"IPv4 within IPv6":            {func(n int) string { return fmt.Sprintf("[::ffff:192.0.2.2]:%d", 1000+n) }, true},
		"a gateway's, without a port": {func(int) string { return "192.0.2.3" }, true},
		"a gateway's of IPv6":         {func(n int) string { return fmt.Sprintf("2001:db8:7::%x", n) }, true},
		"many addresses":              {func(n int) string { return fmt.Sprintf("198.51.100.%d:443", n) }, false},
		"many networks of IPv6":       {func(n int) string { return fmt.Sprintf("[2001:db8:2:%x::1]:443", n) }, false},
	} {
		refused := tries(c.from)
		if c.alike {
			require.Equal(t, 190, refused, name)
		} else {
			require.Zero(t, refused, name)
		}
		require.Zero(t, table.Counts().Gets, "%s: nothing is read for a wrong token", name)
		require.Equal(t, http.StatusOK, get(c.from(0), right), "%s: the right one opens", name)
		require.Positive(t, table.Counts().Gets)
		table.Reset()
	}
	require.Equal(t, http.StatusSeeOther, w.pressButton(at, "approve").status)
	require.Equal(t, run.RunDone, w.finish())
}

// Where no console is, / says how a request is opened, and nothing of any.
func TestTheEntranceSaysHowARequestIsOpened(t *testing.T) {
	w, _, _ := asked(t)
	got := w.do("GET", w.server.URL+"/", nil)
	require.Equal(t, http.StatusOK, got.status)
	require.Equal(t, "text/html; charset=utf-8", got.header.Get("Content-Type"))
	require.Contains(t, got.body, "use the link in the message that you were sent about it")
	require.NotContains(t, got.body, "<form")
	require.Equal(t, http.StatusOK, w.do("HEAD", w.server.URL+"/", nil).status)
	require.Equal(t, http.StatusNotFound, w.do("POST", w.server.URL+"/", url.Values{"token": {"x"}}).status)
}

// Other arguments are the approver's own: checked, run, and told.
func TestEdit(t *testing.T) {
	w, _, at := asked(t)
	for _, action := range []string{"review", "edit"} {
		got := w.pressButton(at, action, "args", `{"amount": "much"}`)
		require.Equal(t, http.StatusUnprocessableEntity, got.status, action)
		require.Contains(t, got.body, "The arguments: ")
		require.Contains(t, got.body, `{&#34;amount&#34;: &#34;much&#34;}</textarea>`)
		require.Contains(t, got.body, ` open><summary>Approve with other arguments`)
	}
	require.Equal(t, http.StatusSeeOther, w.pressButton(at, "edit", "args", "{\"amount\": 3,\r\n\"to\": \"eva\"}").status)
	require.Equal(t, run.RunDone, w.finish())
	require.Equal(t, madePayment{3, "eva"}, <-w.paid)
	page := w.do("GET", at, nil).body
	require.Contains(t, page, "Approved with other arguments by user:ana at ")
}

// A tool that asks something is answered on the page, by words or by JSON; another answer than it takes is refused.
func TestInput(t *testing.T) {
	for text, want := range map[string]string{"petty cash": `"petty cash"`, `"till"`: `"till"`} {
		w := newHarness(t, asksToPay(`{"amount": 7}`), func(d *agent.Definition) { d.Permission.Default = agent.DefaultAllow })
		at := w.newLink(w.pendingRequest(), "user:ana")
		odd := w.pressButton(at, "approve", "result", "12")
		require.Equal(t, http.StatusUnprocessableEntity, odd.status)
		require.Contains(t, odd.body, "The answer: it does not fit the response schema")
		require.Contains(t, odd.body, "12</textarea>")
		require.Equal(t, http.StatusSeeOther, w.pressButton(at, "approve", "result", text).status)
		require.Equal(t, run.RunDone, w.finish())
		require.Equal(t, madePayment{7, want}, <-w.paid)
	}
}

// An answer that is an object has a field for each member; JSON goes as well, and not both.
func TestInputOfFields(t *testing.T) {
	for _, good := range [][]string{{"arg.from", `"bank"`, "arg.day", "3"}, {"result", `{"from": "bank", "day": 3}`}} {
		w := newHarness(t, asksToPay(`{"amount": 8}`), func(d *agent.Definition) { d.Permission.Default = agent.DefaultAllow })
		at := w.newLink(w.pendingRequest(), "user:ana")
		require.Regexp(t, `(?s)<select name="arg.from">.*bank.*name="arg.day"`, w.do("GET", at, nil).body)
		for want, bad := range map[string][]string{
			"The form: day: want a number":                    {"arg.from", `"till"`, "arg.day", "soon"},
			"The form: want the fields or an answer as JSON":  {"arg.from", `"till"`, "result", "{}"},
			"The answer: it does not fit the response schema": {"arg.from", `"till"`, "arg.day", "0"},
			"it does not fit the response schema":             {"result", `"words"`},
		} {
			page := w.pressButton(at, "approve", bad...)
			require.GreaterOrEqual(t, page.status, 400, want)
			require.Contains(t, page.body, want)
		}
		require.Equal(t, http.StatusSeeOther, w.pressButton(at, "approve", good...).status)
		require.Equal(t, run.RunDone, w.finish())
		paid := <-w.paid
		require.JSONEq(t, `{"from": "bank", "day": 3}`, paid.To)
	}
}

// Questions and answers go where they are taken, and decide nothing; where nobody takes them, none are offered.
func TestRemarks(t *testing.T) {
	w, a, at := asked(t)
	require.NotContains(t, w.do("GET", at, nil).body, `value="remark"`)
	require.Equal(t, http.StatusBadRequest, w.pressButton(at, "remark", "text", "why?").status)
	var got []web.Remark
	w.pages.Remark = func(_ context.Context, r web.Remark) error {
		got = append(got, r)
		return nil
	}
	require.Equal(t, http.StatusBadRequest, w.pressButton(at, "remark", "text", "  ").status)
	require.Equal(t, http.StatusSeeOther, w.pressButton(at, "remark", "text", "why?").status)
	require.Len(t, got, 1)
	require.Equal(t, web.Remark{Tenant: local.Tenant, ID: a.ID, Text: "why?", By: policy.Principal{ID: "user:ana", Groups: []string{"group:operators"}}, Via: agent.ViaPage}, got[0])
	require.Equal(t, approval.Pending, w.reload(a).Status)
}

// What fails says so, and nothing of it.
func TestFailures(t *testing.T) {
	w, _, at := asked(t)
	get := w.pages.Get
	w.pages.Get = func(context.Context, string, string) (approval.Approval, error) {
		return approval.Approval{}, errors.Join(store.ErrThrottled, errors.New("secret"))
	}
	got := w.do("GET", at, nil)
	require.Equal(t, http.StatusServiceUnavailable, got.status)
	require.NotContains(t, got.body, "secret")
	w.pages.Get = get
	w.deskOf(&fakeDesk{says: func() error { return context.DeadlineExceeded }})
	got = w.pressButton(at, "approve")
	require.Equal(t, http.StatusServiceUnavailable, got.status)
	require.Contains(t, got.body, "Open the page again")
}

// Who may say what became of a call is who the desk says may decide at this time: those a request has escalated to as
// well. The record says that it came by the page.
func TestA15OutcomesAfterEscalation(t *testing.T) {
	letIn := func(w *harness, a *approval.Approval) {
		a.EscalatesAt, a.EscalateTo = w.clk.Now().Add(-time.Hour), []string{"group:guests"}
	}
	for name, c := range map[string]struct {
		may    func(w *harness, a *approval.Approval)
		status int
	}{
		"nobody lets her in": {func(*harness, *approval.Approval) {}, http.StatusForbidden},
		"before it escalates": {func(w *harness, a *approval.Approval) {
			a.EscalatesAt, a.EscalateTo = w.clk.Now().Add(time.Hour), []string{"group:guests"}
		}, http.StatusForbidden},
		"once it has escalated": {letIn, http.StatusSeeOther},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHarness(t, asksToPay(`{"amount": 5}`))
			at := w.newLink(w.pendingRequest(), "user:eve")
			may := letIn
			w.reading(func(a *approval.Approval) {
				a.Kind = approval.KindOutcome
				may(w, a)
			})
			desk := w.deskOf(&fakeDesk{says: func() error { return nil }})
			page := w.do("GET", at, nil) // when she was let in
			require.Contains(t, page.body, `value="happened"`)
			may = c.may
			form := w.fillForm(page.body, "action", "happened", "result", "It did.")
			require.Equal(t, c.status, w.do("POST", at, form).status)
			if c.status == http.StatusForbidden {
				require.Empty(t, desk.asked)
				return
			}
			got := desk.asked
			require.Len(t, got, 1)
			require.Equal(t, []any{agent.ViaPage, "It did.", "user:eve"}, []any{got[0].Via, got[0].Content, got[0].By.ID})
		})
	}
}

// Whoever may decide one of several tools is offered that tool alone, and is shown no secret of another (A9, B4).
func TestA18EachToolIsItsApproversOwn(t *testing.T) {
	w, a, ana := asked(t, func(d *agent.Definition) { d.Permission.Mode = agent.ModeBlockAndRetry })
	const secret = "AKIAIOSFODNN7EXAMPLE"
	other := approval.Permission{Tool: "wipe", Name: "wipe", Calls: []approval.BlockedCall{{
		Call: "c2", Args: json.RawMessage(`{"key": "` + secret + `"}`), Approvers: []string{"group:guests"},
	}}}
	w.reading(func(a *approval.Approval) {
		a.Approvers = append(a.Approvers, "group:guests")
		a.Permissions = append(slices.Clone(a.Permissions), other)
	})
	for to, tool := range map[string]string{"user:ana": "pay", "user:eve": "wipe"} {
		at := w.newLink(a, to)
		page := w.do("GET", at, nil).body
		require.Regexp(t, `name="tool" value="`+tool+`"`, page)
		require.Equal(t, 1, strings.Count(page, `value="approve"`), to)
		require.Equal(t, 1, strings.Count(page, `value="deny"`), to)
		require.NotContains(t, page, `value="uncover"`)
		refused := w.pressButton(at, "uncover")
		require.Equal(t, http.StatusForbidden, refused.status)
		require.NotContains(t, refused.body, secret)
	}
	w.people["user:ana"] = people.Person{ID: "user:ana", Groups: []string{"group:operators", "group:guests"}}
	page := w.do("GET", ana, nil).body
	require.Equal(t, 3, strings.Count(page, `value="approve"`), "all, or one of them")
	require.Contains(t, page, `value="uncover"`)
}

// Who starts the run again under its key while it waits is not offered what four eyes keep from them (A10).
func TestA10WhoStartsAgainIsNotOfferedToApprove(t *testing.T) {
	var def *agent.Definition
	w := newHarness(t, asksToPay(`{"amount":5,"to":"bo"}`), func(d *agent.Definition) {
		d.Permission.Rules = []agent.Rule{{Tool: "pay", Verdict: agent.VerdictAsk, FourEyes: true}}
		def = d
	})
	at := w.newLink(w.pendingRequest(), "user:ana")
	const own = "It is done for you, so that somebody else has to approve it."
	require.NotContains(t, w.do("GET", at, nil).body, own)
	_, err := w.m.Starter.Start(t.Context(), runtime.Start{
		Tenant: local.Tenant, Agent: def, Key: "k1", Message: []run.UserBlock{{Block: run.Text{Text: "pay"}}}, By: []string{"user:ana"},
	})
	require.NoError(t, err)
	require.Contains(t, w.do("GET", at, nil).body, own)
}

// One of several who decide may still deny what they approved, and answer a tool's question anew: until then people
// whose answers differ would wait for each other.
func TestWhoHasAnsweredMayChangeIt(t *testing.T) {
	two := func(d *agent.Definition) {
		d.Permission.Rules = []agent.Rule{{Tool: "*", Verdict: agent.VerdictAsk, Quorum: 2}}
	}
	w, a, ana := asked(t, two)
	require.Equal(t, http.StatusSeeOther, w.pressButton(ana, "approve").status)
	page := w.do("GET", ana, nil).body
	require.Contains(t, page, "Your answer is recorded")
	require.Contains(t, page, `value="deny"`)
	require.NotContains(t, page, `value="approve"`)
	require.NotContains(t, page, `value="review"`)
	require.Equal(t, http.StatusSeeOther, w.pressButton(ana, "deny").status)
	require.Equal(t, approval.Denied, w.reload(a).Status)
	require.Equal(t, run.RunDone, w.finish())
	require.Empty(t, w.paid)

	w = newHarness(t, asksToPay(`{"amount": 7}`), two)
	a = w.pendingRequest()
	ana, bob := w.newLink(a, "user:ana"), w.newLink(a, "user:bob")
	for _, at := range []string{ana, bob} {
		require.Equal(t, http.StatusSeeOther, w.pressButton(at, "approve").status)
	}
	a = w.pendingRequest()
	ana, bob = w.newLink(a, "user:ana"), w.newLink(a, "user:bob")
	require.Equal(t, http.StatusSeeOther, w.pressButton(ana, "approve", "result", "giro").status)
	require.Equal(t, http.StatusSeeOther, w.pressButton(bob, "approve", "result", "savings").status)
	require.Equal(t, http.StatusSeeOther, w.pressButton(ana, "approve", "result", "savings").status)
	require.Equal(t, run.RunDone, w.finish())
	require.Equal(t, madePayment{Amount: 7, To: `"savings"`}, <-w.paid)
}
