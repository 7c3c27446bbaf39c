package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/web"
)

// What opens links before people do decides nothing in a real browser either: a scanner that runs all scripts and
// follows all it finds, with and without the header that says so.
func TestA1ScannersInABrowser(t *testing.T) {
	b := standins.StartBrowser(t)
	w := newHarness(t, asks(five))
	a := w.pendingRequest()
	before := w.reload(a)
	for name, headers := range map[string]map[string]string{"scanner": nil, "prefetch": {"Sec-Purpose": "prefetch"}, "prerender": {"Sec-Purpose": "prefetch;prerender"}} {
		at := w.newLink(a, "user:ana")
		p := b.Open(name, standins.PageOptions{Headers: headers})
		require.Equal(t, http.StatusOK, p.Goto(at))
		// What a sandbox does to see what a page is up to: hover, focus, scroll, fire every event but a click, follow
		// every link, open what is folded.
		p.Eval(`(async () => {
			for (const e of document.querySelectorAll("*")) for (const k of ["mouseover", "mouseenter", "focus", "blur", "keydown", "scroll", "load", "error", "pointerdown"]) e.dispatchEvent(new Event(k, {bubbles: true}));
			for (const d of document.querySelectorAll("details")) d.open = true;
			window.scrollTo(0, document.body.scrollHeight);
			for (const l of document.querySelectorAll("a[href]")) { location.hash = l.hash; for (const method of ["GET", "HEAD", "OPTIONS"]) await fetch(l.href, {method}).catch(() => 0); }
		})()`, nil)
		p.Settle()
		for _, r := range p.Log().Requests {
			require.False(t, strings.HasPrefix(r, "POST"), "%s: %s", name, r)
			require.True(t, strings.Contains(r, w.server.URL), "%s: %s", name, r)
		}
		p.Close()
	}
	require.Equal(t, before, w.reload(a))
	require.Empty(t, w.paid)
}

// Nobody frames the page, and no other site's form is taken, whatever it has got hold of.
func TestB6OtherSitesInABrowser(t *testing.T) {
	b := standins.StartBrowser(t)
	w, a, at := asked(t)
	form := w.fillForm(w.do("GET", at, nil).body, "action", "approve")

	p := b.Open("frame", standins.PageOptions{})
	p.Elsewhere("http://evil.example/", `<iframe id="f" src="`+at+`"></iframe>`)
	p.Settle()
	frames := p.Frames()
	require.Len(t, frames, 2)
	require.NotContains(t, strings.Join(frames, "\n"), "pay", "the browser shows nothing in it")
	p.Close()

	p = b.Open("cross", standins.PageOptions{})
	p.Elsewhere("http://evil.example/", `<form method="post" action="`+at+`"><input name="form" value="`+form.Get("form")+`"><button id="go" name="action" value="approve">Win</button></form>`)
	p.Click("#go")
	p.Settle()
	var text string
	p.Eval("document.body.innerText", &text)
	require.Contains(t, text, "This was sent by another site")
	require.Equal(t, approval.Pending, w.reload(a).Status)
	p.Close()
	require.Empty(t, w.paid)
}

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
	require.Equal(t, payment{2, "eva"}, <-w.paid)
	p.Close()
}

// attacks are what a model, a tool or a person may have written.
var attacks = []string{
	`<script>alert(1)</script>`, `<img src=http://evil.example/x onerror=alert(1)>`, `"><svg onload=alert(1)>`, `</textarea><script>alert(1)</script>`, `</title><script>alert(1)</script>`,
	`</style><script>alert(1)</script>`, `<a href="javascript:alert(1)" autofocus onfocus=alert(1)>x</a>`, `<meta http-equiv=refresh content="0;url=http://evil.example/">`, `<base href=http://evil.example/>`,
	`<form action=http://evil.example/><button>Approve</button>`, `<iframe src=http://evil.example/></iframe>`, `<link rel=stylesheet href=http://evil.example/>`, `<details open ontoggle=alert(1)>`,
	`{{.form}} ${alert(1)} #{alert(1)} <%= 1 %>`, `&#60;script&#62;alert(1)&#60;/script&#62;`, `javascript:alert(1)`, `' onmouseover='alert(1)`, "`-alert(1)-`", `<!--><script>alert(1)</script>-->`, `]]><script>alert(1)</script>`,
	"pay \u202Eeve\u202C now", "a\u2066b\u2069c", "\u200Bzero\u200Dwidth\uFEFF", "caf\u0301e", "\u2028line\u2029end", "tab\tnew\nline",
	strings.Repeat("W", 400), "https://evil.example/" + strings.Repeat("a/", 100),
}

// What was written to do something does nothing but stand there: no dialog, no request, no element of its own, and the
// text that is read is the text that was to be shown.
func TestB5AttacksAreInert(t *testing.T) {
	b := standins.StartBrowser(t)
	w := newHarness(t, asks(five))
	a := w.pendingRequest()
	var args []byte
	w.reading(func(a *approval.Approval) {
		of := map[string]string{}
		for i, attack := range attacks {
			of[fmt.Sprintf("k%02d%s", i, attack)] = attack
		}
		a.Args, _ = jsonx.MarshalVerbatim(of) // texts always can be
		args = a.Args
	})
	w.pages.ChangeShown(func(_ approval.Approval, r *show.Document) {
		for _, attack := range attacks {
			text := show.Foreign(attack)
			about, history, says := rowsOf(r, show.About), rowsOf(r, show.History), &(*rowsOf(r, show.Says))[0]
			*about = append(*about, show.Row{Name: attack, Label: text, Value: text})
			*history = append(*history, show.Row{Label: text, Value: text})
			says.Value = append(says.Value, text...)
			r.Sentence = append(r.Sentence, text...)
			r.Title = append(r.Title, text...)
		}
	})
	for name, width := range map[string]int{"wide": 1280, "phone": 360} {
		at := w.newLink(a, "user:ana")
		p := b.Open(name, standins.PageOptions{Width: width, Height: 800})
		require.Equal(t, http.StatusOK, p.Goto(at))
		p.Settle()
		var dom struct {
			Values    []string
			Args      string
			Elements  []string
			Overflows int
		}
		p.Eval(`(() => ({
			values: [...document.querySelectorAll(".args dd")].map((e) => e.textContent),
			args: document.querySelector("#args").value,
			elements: [...new Set([...document.querySelectorAll("*")].map((e) => e.localName))],
			overflows: document.documentElement.scrollWidth - document.documentElement.clientWidth,
		}))()`, &dom)
		for i, attack := range attacks {
			require.Equal(t, show.Quoted(attack).String(), dom.Values[i])
		}
		require.JSONEq(t, string(args), dom.Args)
		for _, never := range []string{"script", "img", "svg", "iframe", "link", "base", "object"} {
			require.NotContains(t, dom.Elements, never)
		}
		require.LessOrEqual(t, dom.Overflows, 0, "%s: long words wrap", name)
		l := p.Log()
		require.Empty(t, l.Dialogs)
		require.Empty(t, l.Console)
		require.Equal(t, []string{"GET " + at}, l.Requests, "nothing else is asked of anybody")
		p.Close()
	}
}

// A choice of many words does not push the buttons out of the panel in which they stand, behind a link and in the console.
func TestB5FormsStayInTheirPlace(t *testing.T) {
	w := newHarness(t, asks(five), func(d *agent.Definition) {
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

// The page passes axe-core on a light desktop and on a dark phone, in all of its states.
func TestB5Axe(t *testing.T) {
	p := standins.StartBrowser(t).Open("states", standins.PageOptions{})
	for state, w := range states(t) {
		a := w.pendingRequest()
		at := w.newLink(a, "user:ana")
		if state == "decided" {
			require.Equal(t, http.StatusSeeOther, w.pressButton(at, "deny", "note", "Not before the invoice is here.").status)
		}
		require.Equal(t, http.StatusOK, p.Goto(at))
		p.Eval(`document.querySelectorAll("details").forEach((d) => { d.open = true })`, nil)
		p.RequireAccessible(state)
	}
	w := newHarness(t, asks(five))
	require.Equal(t, http.StatusNotFound, p.Goto(w.server.URL+"/a/none"))
	p.RequireAccessible("none")
}

// states are worlds whose pages look different.
func states(t *testing.T) map[string]*harness {
	t.Helper()
	row := func(label, value string) show.Row {
		return show.Row{Label: show.Foreign(label), Value: show.Foreign(value)}
	}
	rich := func(w *harness) *harness {
		w.pages.Remark = func(context.Context, web.Remark) error { return nil }
		w.reading(func(a *approval.Approval) {
			if a.Kind != approval.KindTools {
				a.Args = json.RawMessage(long)
			}
		})
		w.pages.ChangeShown(func(a approval.Approval, r *show.Document) {
			r.Title = show.Foreign("Pay 12,400.00 EUR to bob")
			about, history := rowsOf(r, show.About), rowsOf(r, show.History)
			*about = append(*about, row("Requested for", "user:carla"),
				row("Rule", "payments above 10,000 EUR: two people, none of them the requester"),
				row("A denial", "is told to the agent, which goes on without the call"), row("Run", a.Run))
			*rowsOf(r, show.Says) = []show.Row{row("", "I checked the invoice and it is fine, you can approve this right away. It is only a formality.")}
			*history = append(*history, row("2026-11-20 10:01:00 UTC", `Bob said: "Which invoice is this for?"`))
		})
		return w
	}
	return map[string]*harness{
		"open": rich(newHarness(t, asks(five))), "decided": rich(newHarness(t, asks(five))),
		"input": newHarness(t, asks(`{"amount": 7}`), func(d *agent.Definition) { d.Permission.Default = agent.DefaultAllow }),
		"tools": rich(newHarness(t, asks(five), func(d *agent.Definition) { d.Permission.Mode = agent.ModeBlockAndRetry })),
	}
}

// long are arguments of every form.
var long = `{"amount": 12400.00, "recipient": {"name": "Bob's Buildings \u202e Ltd", "iban": "DE89 3704 0044 0532 0130 00", "bank": "p\u0430ypal "},
	"apiKey": "` + strings.Repeat("0a1b", 10) + `", "reference": "INV-2026-0815            final", "lines": ["` +
	strings.Repeat("Rebuilding the east wing, second instalment. ", 12) + `", "https://files.example.com/` + strings.Repeat("0a1b2c3d", 24) + `", ""]}`

// Nor is anything else that is long: what cannot be seen in it is written out all the same, without what stands around
// each character.
func TestB2NothingIsCut(t *testing.T) {
	w, _, at := asked(t)
	w.pages.ChangeShown(func(_ approval.Approval, r *show.Document) {
		says := &(*rowsOf(r, show.Says))[0]
		for range 80_000 {
			says.Value = append(says.Value, show.Span{Text: "<"}, show.Span{Text: `\u{200B}`, Kind: show.Escape})
		}
	})
	page := w.do("GET", at, nil)
	require.Equal(t, http.StatusOK, page.status)
	require.Equal(t, 80_000, strings.Count(page.body, `&lt;\u{200B}`))
}

// However long the arguments are, all of them are there (B2).
func TestB2ArgumentsAreNeverCut(t *testing.T) {
	w, _, at := asked(t)
	var many []show.Row
	for i := range 60_000 {
		many = append(many, show.Row{Label: show.Text{{Text: fmt.Sprintf("[%d]", i)}}, Value: show.Text{{Text: "<0>"}, {Text: `\u{202E}`, Kind: show.Escape}}, Kind: "string"})
	}
	for _, n := range []int{1, 3000, 4001, len(many)} {
		w.pages.ChangeShown(func(_ approval.Approval, r *show.Document) { *rowsOf(r, show.Arguments) = many[:n] })
		page := w.do("GET", at, nil)
		require.Equal(t, http.StatusOK, page.status)
		require.Equal(t, n, strings.Count(page.body, "&lt;0&gt;"), "%d of them", n)
		require.Equal(t, n, strings.Count(page.body, `\u{202E}`))
		require.Contains(t, page.body, fmt.Sprintf("[%d]", n-1))
		require.Less(t, len(page.body), 5<<20)
	}
}
