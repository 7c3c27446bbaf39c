package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/badinput"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/web"
)

// The page leads with the arguments, then says what the runtime knows, and what the model said last and labelled.
func TestB1TheDocument(t *testing.T) {
	w, _, link := asked(t)
	page := w.do("GET", link, nil).body
	at := 0
	for _, want := range []string{"<h1>", "pay(amount: 5", "high risk", "Arguments", "amount", "Who decides", "<dt>tool</dt>", "The model says", "not checked", "I will pay."} {
		i := strings.Index(page[at:], want)
		require.GreaterOrEqual(t, i, 0, "%q, after what comes before it: %s", want, page)
		at += i
	}
	w.reading(func(a *approval.Approval) { a.Undoes = &approval.UndoneCall{Run: id, Call: "c9"} })
	page = w.do("GET", link, nil).body
	require.Contains(t, page, "call c9 of run "+id)
	require.NotContains(t, page, "I will pay.", "what a model said before a person had a call taken back")
}

// What a tool of this program says of a call stands above the arguments, escaped, masked and cut. Where its code
// breaks, and where somebody edits what it was about, people are shown the call.
func TestB1TheToolsOwnSentence(t *testing.T) {
	const secret = "AKIAIOSFODNN7EXAMPLE"
	sentence := func(page string) string {
		found := regexp.MustCompile(`(?s)<p class="sentence">(.*?)</p>`).FindStringSubmatch(page)
		require.NotNil(t, found)
		return html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(found[1], ""))
	}
	for args, want := range map[string]string{
		`{"amount": 1, "to": "ben"}`:                              "Pay one coin to ben.",
		`{"amount": 1, "to": "` + secret + `"}`:                   "Pay one coin to [masked, 20 characters].",
		`{"amount": 2, "to": "ben"}`:                              `pay(amount: 2, to: "ben")`,
		`{"amount": 3, "to": "` + secret + `"}`:                   strings.Repeat(`<b>\u{202E} `, 20) + "…",
		`{"amount": 4}`:                                           `\u{FFFD}`,
		`{"amount": 5, "to": "\u202e<b>\"ben\""}`:                 `pay(amount: 5, to: "\u{202E}<b>\"ben\"")`,
		`{"amount": 5, "to": "` + strings.Repeat("x", 300) + `"}`: "pay(amount: 5, 1 more)",
	} {
		w := newHarness(t, asksToPay(args))
		page := w.do("GET", w.newLink(w.pendingRequest(), "user:ana"), nil).body
		require.Equal(t, want, sentence(page), args)
		require.NotContains(t, page, secret)
	}
	w := newHarness(t, asksToPay(`{"amount": 1, "to": "ben"}`), func(d *agent.Definition) {
		d.Permission.Rules = []agent.Rule{{Tool: "pay", Verdict: agent.VerdictAsk, Quorum: 2, Approvers: []string{"group:operators"}}}
	})
	a := w.pendingRequest()
	require.Equal(t, http.StatusSeeOther, w.pressButton(w.newLink(a, "user:ana"), "edit", "args", `{"amount": 1, "to": "bob"}`).status)
	require.Equal(t, `pay(amount: 1, to: "bob")`, sentence(w.do("GET", w.newLink(a, "user:bob"), nil).body), "the sentence was about other arguments")
}

// What is masked (B4), cannot be seen or turns the direction of a text (B3) stays as it is where somebody edits the
// rest, and is not on the page.
func TestB3B4EditsKeepWhatIsNotShown(t *testing.T) {
	for hidden, shows := range map[string]string{
		"AKIAIOSFODNN7EXAMPLE": "secrets are masked", "ben\u202e\u200b": `ben\u202e\u200b`,
	} {
		w := newHarness(t, asksToPay(`{"amount": 5, "to": "`+hidden+`"}`))
		at := w.newLink(w.pendingRequest(), "user:ana")
		page := w.do("GET", at, nil).body
		require.NotContains(t, page, strings.TrimPrefix(hidden, "ben"))
		require.Contains(t, page, shows)
		found := regexp.MustCompile(`(?s)<textarea id="args"[^>]*>(.*?)</textarea>`).FindStringSubmatch(page)
		require.NotNil(t, found)
		args := strings.Replace(html.UnescapeString(found[1]), "5", "3", 1)
		require.Equal(t, http.StatusSeeOther, w.pressButton(at, "edit", "args", args).status)
		require.Equal(t, run.RunDone, w.finish())
		require.Equal(t, madePayment{3, hidden}, <-w.paid)
	}
}

// Who may decide can have masked values shown, by a POST that is recorded; nobody else can, and no other page ever
// holds one.
func TestB4AnApproverUncoversOnRecord(t *testing.T) {
	const secret = "AKIAIOSFODNN7EXAMPLE"
	w := newHarness(t, asksToPay(`{"amount": 5, "to": "`+secret+`"}`))
	w.pages.Remark = func(context.Context, web.Remark) error { return nil } // so that there is a form for everybody
	a := w.pendingRequest()
	ana, eve := w.newLink(a, "user:ana"), w.newLink(a, "user:eve")
	page := w.do("GET", ana, nil).body
	require.NotContains(t, page, secret)
	require.Contains(t, page, `\{masked, 20 characters}`)
	require.Contains(t, page, `value="uncover"`)
	require.NotContains(t, w.do("GET", eve, nil).body, `value="uncover"`)

	refused := w.pressButton(eve, "uncover")
	require.Equal(t, http.StatusForbidden, refused.status)
	require.NotContains(t, refused.body, secret)
	require.Empty(t, w.reload(a).Unmaskings, "nobody has seen anything")
	w.deskOf(&fakeDesk{record: errors.New("no table")})
	failed := w.pressButton(ana, "uncover")
	require.Equal(t, http.StatusServiceUnavailable, failed.status, "what cannot be recorded is not shown")
	require.NotContains(t, failed.body, secret)
	w.deskOf(&fakeDesk{})

	uncovered := w.pressButton(ana, "uncover")
	require.Equal(t, http.StatusOK, uncovered.status)
	require.Contains(t, uncovered.body, secret)
	require.NotContains(t, uncovered.body, "secrets are masked")
	require.Equal(t, "no-store", uncovered.header.Get("Cache-Control"))
	on := w.reload(a).Unmaskings
	require.Len(t, on, 1)
	require.Equal(t, "user:ana", on[0].By)
	require.Equal(t, agent.ViaPage, on[0].Via)
	require.WithinDuration(t, w.clk.Now(), on[0].At, time.Minute)
	require.Equal(t, approval.Pending, w.reload(a).Status, "it decides nothing")
	require.NotContains(t, w.do("GET", ana, nil).body, secret, "it was shown once")

	w.console("user:ana", func(*web.Console) {})
	inConsole := w.server.URL + "/approvals/" + a.ID
	unproved := w.pressButton(inConsole, "uncover")
	require.Equal(t, http.StatusForbidden, unproved.status, "who may look has not shown that they may decide")
	require.NotContains(t, unproved.body, secret)
	require.Contains(t, w.pressButton(inConsole, "uncover", "key", "key").body, secret)
	require.Equal(t, agent.ViaConsole, w.reload(a).Unmaskings[1].Via)
	w.server = httptest.NewServer(w.pages.Handler())
	t.Cleanup(w.server.Close)
	ana = w.newLink(a, "user:ana")
	uncovered = w.pressButton(ana, "uncover")

	answered := w.do("POST", ana, w.fillForm(uncovered.body, "action", "deny"))
	require.Equal(t, http.StatusSeeOther, answered.status, "the uncovered page takes answers")
	over := w.do("POST", ana, w.fillForm(uncovered.body, "action", "uncover"))
	require.Equal(t, http.StatusConflict, over.status)
	require.NotContains(t, over.body, secret)
}

// No name and no form hides what runs, or who is paid.
func TestB4NothingThatRunsIsMasked(t *testing.T) {
	for _, behind := range badinput.UnmaskableTexts() {
		w := newHarness(t, asksToPay(string(badinput.UnmaskableArgs(behind))), func(d *agent.Definition) { d.Tools[0].Schema = json.RawMessage(`{"type":"object"}`) })
		page := w.do("GET", w.newLink(w.pendingRequest(), "user:ana"), nil).body
		story, _, _ := strings.Cut(page, `<section class="answer"`)
		got := html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(story, ""))
		require.GreaterOrEqual(t, strings.Count(got, people.QuotedText(behind).String()), 3, "%q:\n%s", behind, got)
		require.Contains(t, got, `"mallory"`)
	}
}

// Every string of the corpus, in a real browser, wherever a page shows texts: what is read is what package people makes
// of it, and it does nothing but stand there. No dialog, no request, no element of its own, and long words wrap (B5).
func TestB3TheCorpusInABrowser(t *testing.T) {
	b := standins.StartBrowser(t)
	p := b.Open("corpus", standins.PageOptions{Width: 360, Height: 740})
	for i, batch := range slices.Collect(slices.Chunk(badinput.HostileTexts(), 40)) {
		w, _, at := asked(t)
		var texts []string
		w.pages.ChangeShown(func(_ approval.Approval, d *people.Document) { texts = append(texts, showAlso(d, batch)...) })
		require.Equal(t, http.StatusOK, p.Goto(at))
		var dom struct {
			Values, Elements []string
			Plain            string
			Overflows        int
		}
		p.Eval(`(() => ({
			values: [...document.querySelectorAll(".args dd")].map((e) => e.textContent),
			plain: document.querySelector(".plain")?.textContent,
			elements: [...new Set([...document.querySelectorAll("*")].map((e) => e.localName))],
			overflows: document.documentElement.scrollWidth - document.documentElement.clientWidth,
		}))()`, &dom)
		if len(dom.Values) == 0 { // so many odd characters that all of the arguments are one text
			for _, c := range batch {
				require.Contains(t, dom.Plain, people.QuotedText(c.Text).String())
			}
		} else {
			require.Equal(t, texts, dom.Values[len(dom.Values)-len(texts):], "batch %d", i)
		}
		for _, shown := range dom.Values {
			require.NoError(t, badinput.CheckHarmless(strings.ReplaceAll(shown, "\u00a0", " ")), "%q", shown)
		}
		for _, never := range []string{"script", "img", "svg", "iframe", "link", "base", "object"} {
			require.NotContains(t, dom.Elements, never)
		}
		require.LessOrEqual(t, dom.Overflows, 0)
		l := p.Log()
		require.Empty(t, l.Dialogs)
		require.Empty(t, l.Console)
		require.Equal(t, "GET "+at, l.Requests[len(l.Requests)-1])
		require.Len(t, l.Requests, i+1, "nothing else is asked of anybody")
		w.server.Close()
	}
}

// showAlso shows the strings as arguments and elsewhere besides, and says what of the arguments is to be read: what
// stands in <bdi> is isolated by the element, not by letters.
func showAlso(d *people.Document, batch []badinput.Hostile) (texts []string) {
	args, about, history := rowsOf(d, people.SectionArguments), rowsOf(d, people.SectionAbout), rowsOf(d, people.SectionHistory)
	says := &(*rowsOf(d, people.SectionSays))[0]
	for _, c := range batch {
		text, foreign := people.QuotedText(c.Text), people.ForeignText(c.Text)
		var read strings.Builder
		for _, s := range text {
			read.WriteString(s.Text)
		}
		texts = append(texts, read.String())
		*args = append(*args, people.Row{Label: people.BareText("text"), Value: text})
		*about = append(*about, people.Row{Name: c.Text, Label: foreign, Value: foreign})
		*history = append(*history, people.Row{Label: foreign, Value: foreign})
		says.Value, d.Sentence = append(says.Value, foreign...), append(d.Sentence, foreign...)
		d.Title = append(d.Title, foreign...)
	}
	return texts
}
