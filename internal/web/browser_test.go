package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/web"
)

// By keyboard alone: skip, reach the answer, write a note, approve. A second press of the same form, from the browser's
// own history, is refused.
func TestB5KeyboardAlone(t *testing.T) {
	b := standins.StartBrowser(t)
	w, a, at := asked(t)
	p := b.Open("keys", standins.PageOptions{})
	require.Equal(t, http.StatusOK, p.Goto(at))
	form := w.fillForm(w.do("GET", at, nil).body, "action", "deny")
	reach := func(what string) {
		t.Helper()
		for range 40 {
			p.Key("Tab")
			var on struct{ What, Outline string }
			p.Eval(`(() => { const e = document.activeElement; return {what: e.id || e.value || e.textContent, outline: getComputedStyle(e).outlineStyle}; })()`, &on)
			require.NotEqual(t, "none", on.Outline, "%s: what has the focus shows it", on.What)
			if on.What == what {
				return
			}
		}
		t.Fatalf("no way to %s by Tab", what)
	}
	reach("note")
	p.Type("by keys")
	reach("approve")
	p.Key("Enter")
	p.Settle()
	require.Equal(t, at, p.Where(), "back on the page")
	var text string
	p.Eval("document.body.innerText", &text)
	require.Contains(t, text, "Approved by user:ana")
	require.Contains(t, text, "by keys")
	require.Equal(t, run.RunDone, w.finish())

	p.Close()
	require.Equal(t, http.StatusConflict, w.do("POST", at, form).status, "the form is used up")
	require.Len(t, w.reload(a).Decisions, 1)
	require.Len(t, w.paid, 1)
}

// All of it works where scripts do not run.
func TestB5WithoutJavaScript(t *testing.T) {
	b := standins.StartBrowser(t)
	w, _, at := asked(t)
	p := b.Open("plain", standins.PageOptions{NoJavaScript: true, Width: 360, Height: 640})
	require.Equal(t, http.StatusOK, p.Goto(at))
	p.Click("summary")
	p.Click(".as-json summary")
	p.Fill("#args", `{"amount": 2, "to": "eva"}`)
	p.Click(".as-json button[value=review]")
	p.Settle()
	require.Empty(t, w.paid, "what changes is shown before anything is sent")
	p.Click("button[value=edit]")
	p.Settle()
	require.Equal(t, run.RunDone, w.finish())
	require.Equal(t, madePayment{2, "eva"}, <-w.paid)
	p.Close()
}

// A choice of many words does not push the buttons out of the panel in which they stand, behind a link and in the
// console.
func TestB5FormsStayInTheirPlace(t *testing.T) {
	w := newHarness(t, asksToPay(five), func(d *agent.Definition) {
		d.Tools[0].Schema = json.RawMessage(`{"type": "object", "properties": {
			"amount": {"type": "integer"}, "why": {"enum": ["` + strings.Repeat("many words ", 20) + `"]}}}`)
	})
	a := w.pendingRequest()
	link := w.newLink(a, "user:ana")
	w.console("user:ana", func(*web.Console) {})
	b := standins.StartBrowser(t)
	for name, width := range map[string]int{"wide": 1280, "phone": 360} {
		p := b.Open(name, standins.PageOptions{Width: width, Height: 800})
		for _, at := range []string{link, w.server.URL + "/approvals/" + a.ID} {
			require.Equal(t, http.StatusOK, p.Goto(at))
			var outside []string
			p.Eval(`(() => {
				for (const d of document.querySelectorAll("details")) d.open = true;
				const panel = document.querySelector(".answer, .request-card"), right = panel.getBoundingClientRect().right;
				return [...panel.querySelectorAll("*")].filter((e) => e.getBoundingClientRect().right > right).map((e) => e.outerHTML);
			})()`, &outside)
			require.Empty(t, outside, "%s %s", name, at)
		}
		p.Close()
	}
}

// At a zoom of 400 % a chat can be read: the field for a message stays in sight only where it leaves room. On a phone
// the buttons of a card stand in one row.
func TestB5SmallScreens(t *testing.T) {
	w, a, _ := asked(t)
	w.console("user:ana", func(c *web.Console) {
		c.Agents, c.Read = func() []string { return []string{"payer"} }, queued{runs{}, a}
	})
	b := standins.StartBrowser(t)
	zoomed := b.Open("zoomed", standins.PageOptions{Width: 320, Height: 256})
	require.Equal(t, http.StatusOK, zoomed.Goto(w.server.URL+"/chat"))
	var above bool
	zoomed.Eval(`(document.querySelector("main").scrollIntoView(), !document.elementFromPoint(160, 128).closest(".say"))`, &above)
	require.True(t, above, "the field does not lie on the page")
	phone := b.Open("phone", standins.PageOptions{Width: 390, Height: 844})
	require.Equal(t, http.StatusOK, phone.Goto(w.server.URL))
	var tops []float64
	phone.Eval(`[...document.querySelectorAll("button.approve, button.deny")].map((b) => b.getBoundingClientRect().top)`, &tops)
	require.Len(t, tops, 2)
	require.InDelta(t, tops[0], tops[1], 1)
}

// A line across what a model writes is one, and no dot in its middle.
func TestConsoleDrawsLines(t *testing.T) {
	w := newHarness(t, asksToPay(five))
	w.console("user:ana", func(c *web.Console) {
		c.Read = runs{run: web.Run{ID: id, Agent: "payer", Status: run.RunDone}}
		c.Conversation = func(context.Context, string) ([]policy.SeenMessage, error) {
			return []policy.SeenMessage{{Message: run.Message{Role: run.RoleAssistant, Block: run.Text{Text: "Above\n\n---\n\nbelow"}}}}, nil
		}
	})
	p := standins.StartBrowser(t).Open("lines", standins.PageOptions{})
	require.Equal(t, http.StatusOK, p.Goto(w.server.URL+"/runs/"+id))
	var width float64
	p.Eval(`document.querySelector(".markdown hr").getBoundingClientRect().width`, &width)
	require.Greater(t, width, 100.0)
}

// While the server cannot be reached nothing is sent, and what was typed stays: the browser's own page of errors would
// lose it.
func TestConsoleKeepsWhatIsTypedOffline(t *testing.T) {
	w, a, _ := asked(t)
	w.console("user:ana", func(c *web.Console) { c.Read = queued{runs{}, a} })
	p := standins.StartBrowser(t).Open("offline", standins.PageOptions{})
	require.Equal(t, http.StatusOK, p.Goto(w.server.URL+"/#key=abc.key"))
	p.Fill("[id='"+a.ID+"-note']", "Not before the invoice is here.")
	w.server.Close()
	said := ""
	for said == "" {
		p.Eval(`new Promise((r) => setTimeout(r, 100)).then(() => document.getElementById("said").textContent)`, &said)
	}
	require.Equal(t, "This page cannot be kept up to date at the moment.", said)
	p.Click("button[value=deny]")
	p.Settle()
	require.Equal(t, w.server.URL+"/", p.Where())
	p.Eval(`document.getElementById("said").textContent`, &said)
	require.Equal(t, "Nothing was sent: the server cannot be reached. What you have typed is still here.", said)
	var note string
	p.Eval(`document.querySelector("[name=note]").value`, &note)
	require.Equal(t, "Not before the invoice is here.", note)
}

// Once the session has ended nothing is sent either, until somebody has signed in again in another tab.
func TestConsoleKeepsWhatIsTypedSignedOut(t *testing.T) {
	w, a, _ := asked(t)
	w.console("user:ana", func(c *web.Console) { c.Read = queued{runs{}, a} })
	var over atomic.Bool
	console := w.server.Config.Handler
	w.server = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if over.Load() {
			out.WriteHeader(http.StatusUnauthorized)
			return
		}
		console.ServeHTTP(out, r)
	}))
	t.Cleanup(w.server.Close)
	p := standins.StartBrowser(t).Open("over", standins.PageOptions{})
	require.Equal(t, http.StatusOK, p.Goto(w.server.URL+"/#key=abc.key"))
	p.Fill("[id='"+a.ID+"-note']", "Not before the invoice is here.")
	over.Store(true)
	said := func(text string) {
		t.Helper()
		for got := ""; got != text; {
			p.Eval(`new Promise((r) => setTimeout(r, 100)).then(() => document.getElementById("said").textContent)`, &got)
		}
	}
	said("This page cannot be kept up to date at the moment.")
	p.Click("button[value=deny]")
	said("Nothing was sent: you are not signed in any more. Sign in in another tab. What you have typed is still here.")
	over.Store(false)
	live := false
	for !live {
		p.Eval(`new Promise((r) => setTimeout(r, 100)).then(() => document.documentElement.classList.contains("is-live"))`, &live)
	}
	p.Click("button[value=deny]")
	p.Settle()
	d := w.reload(a).Decisions
	require.Len(t, d, 1)
	require.Equal(t, "Not before the invoice is here.", d[0].Note)
}

// On a phone the filters of a list leave its first screen to the list, unless one is set; where there is room, they are
// there at once.
func TestConsoleFiltersLeaveRoom(t *testing.T) {
	w, _, _ := asked(t)
	w.console("user:ana", func(*web.Console) {})
	b := standins.StartBrowser(t)
	for _, width := range []int{390, 1280} {
		p := b.Open(fmt.Sprint(width), standins.PageOptions{Width: width, Height: 844})
		require.Equal(t, http.StatusOK, p.Goto(w.server.URL+"/#key=abc.key"))
		for path, set := range map[string]bool{
			"/": false, "/?mine=1": true, "/runs": false, "/runs?agent=payer": true, "/audit": false, "/audit?status=denied": true,
		} {
			require.Equal(t, http.StatusOK, p.Goto(w.server.URL+path))
			var shown bool
			p.Eval(`document.querySelector(".filters button").checkVisibility()`, &shown)
			require.Equal(t, set || width > 390, shown, "%s at %d", path, width)
		}
		require.Equal(t, http.StatusOK, p.Goto(w.server.URL+"/"))
		p.RequireAccessible("filters")
		p.Close()
	}
}

// The page passes axe-core on a light desktop and on a dark phone, in all of its states.
func TestB5Axe(t *testing.T) {
	p := standins.StartBrowser(t).Open("states", standins.PageOptions{})
	remarked := func(lines string, change ...func(*agent.Definition)) *harness {
		w := newHarness(t, lines, change...)
		w.pages.Remark = func(context.Context, web.Remark) error { return nil }
		return w
	}
	const odd = `{"amount": 12400.00, "recipient": {"name": "Bob \u202e Ltd"}, "apiKey": "0a1b0a1b0a1b0a1b", "lines": [""]}`
	for state, w := range map[string]*harness{
		"open": remarked(asksToPay(five)), "decided": remarked(asksToPay(five)),
		"input": remarked(asksToPay(`{"amount": 7}`), func(d *agent.Definition) { d.Permission.Default = agent.DefaultAllow }),
		"tools": remarked(asksToPay(five), func(d *agent.Definition) { d.Permission.Mode = agent.ModeBlockAndRetry }),
	} {
		w.reading(func(a *approval.Approval) {
			if a.Kind == approval.KindCall {
				a.Args = json.RawMessage(odd)
			}
		})
		a := w.pendingRequest()
		at := w.newLink(a, "user:ana")
		if state == "decided" {
			require.Equal(t, http.StatusSeeOther, w.pressButton(at, "deny", "note", "Not before the invoice is here.").status)
		}
		require.Equal(t, http.StatusOK, p.Goto(at))
		p.Eval(`document.querySelectorAll("details").forEach((d) => { d.open = true })`, nil)
		p.RequireAccessible(state)
	}
	w := newHarness(t, asksToPay(five))
	require.Equal(t, http.StatusNotFound, p.Goto(w.server.URL+"/a/none"))
	p.RequireAccessible("none")
}

// However long the arguments are, all of them are there (B2), and so is whatever else is long: what cannot be seen in
// it is written out, without what stands around each character.
func TestB2NothingIsCut(t *testing.T) {
	w, _, at := asked(t)
	var many []people.Row
	for i := range 60_000 {
		many = append(many, people.Row{Label: people.Text{{Text: fmt.Sprintf("[%d]", i)}}, Value: people.Text{{Text: "<0>"}, {Text: `\u{202E}`, Kind: people.SpanEscape}}})
	}
	for _, n := range []int{1, 3000, 4001, len(many)} {
		w.pages.ChangeShown(func(_ approval.Approval, r *people.Document) { *rowsOf(r, people.SectionArguments) = many[:n] })
		page := w.do("GET", at, nil)
		require.Equal(t, http.StatusOK, page.status)
		require.Equal(t, n, strings.Count(page.body, "&lt;0&gt;"), "%d of them", n)
		require.Equal(t, n, strings.Count(page.body, `\u{202E}`))
		require.Contains(t, page.body, fmt.Sprintf("[%d]", n-1))
		require.Less(t, len(page.body), 5<<20)
	}
	w.pages.ChangeShown(func(_ approval.Approval, r *people.Document) {
		says := &(*rowsOf(r, people.SectionSays))[0]
		for range 80_000 {
			says.Value = append(says.Value, people.Span{Text: "<"}, people.Span{Text: `\u{200B}`, Kind: people.SpanEscape})
		}
	})
	require.Equal(t, 80_000, strings.Count(w.do("GET", at, nil).body, `&lt;\u{200B}`))
}
