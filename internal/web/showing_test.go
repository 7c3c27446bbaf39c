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
	"github.com/countersign/countersign/internal/browsertest"
	"github.com/countersign/countersign/internal/hostile"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web"
)

// real has the pages show what package show makes of requests.
func (w *world) real() *world {
	w.pages.Show = web.Shown(w.m.Ports.Journal, w.m.Definitions)
	w.server.Config.Handler = w.pages.Handler()
	return w
}

// The page leads with the arguments, then says what the runtime knows, and what the model said last and labelled.
func TestB1ArgumentsAndFactsFirst(t *testing.T) {
	w := newWorld(t, asks(five)).real()
	page := w.do("GET", w.url(w.asked(), "user:ana"), nil).body
	at := 0
	for _, want := range []string{"<h1>", "High risk", "Arguments", "amount", "<dt>tool</dt>", "What the model says", "Nobody has checked them", "I will pay."} {
		i := strings.Index(page[at:], want)
		require.GreaterOrEqual(t, i, 0, "%q, after what comes before it: %s", want, page)
		at += i
	}
}

// What is masked stays as it is where somebody edits the rest (B4).
func TestB4EditsKeepWhatIsMasked(t *testing.T) {
	w := newWorld(t, asks(`{"amount": 5, "to": "AKIAIOSFODNN7EXAMPLE"}`)).real()
	a := w.asked()
	at := w.url(a, "user:ana")
	page := w.do("GET", at, nil).body
	require.NotContains(t, page, "AKIAIOSFODNN7EXAMPLE")
	require.Contains(t, page, "Secrets are masked")
	found := regexp.MustCompile(`(?s)<textarea id="args"[^>]*>(.*?)</textarea>`).FindStringSubmatch(page)
	require.NotNil(t, found)
	args := html.UnescapeString(found[1])
	require.Equal(t, http.StatusSeeOther, w.press(at, "edit", "args", strings.Replace(args, "5", "3", 1)).status)
	require.Equal(t, run.RunDone, w.end())
	require.Equal(t, payment{3, "AKIAIOSFODNN7EXAMPLE"}, <-w.paid)
}

// unrecorded is a desk that can record nothing.
type unrecorded struct{ web.Desk }

func (unrecorded) RecordUnmasking(context.Context, string, string, policy.Principal, approval.Via) error {
	return errors.New("no table")
}

// Who may decide can have masked values shown, by a POST that is recorded; nobody else can, and no other page ever holds one.
func TestB4AnApproverUncoversOnRecord(t *testing.T) {
	const secret = "AKIAIOSFODNN7EXAMPLE"
	w := newWorld(t, asks(`{"amount": 5, "to": "`+secret+`"}`)).real()
	w.pages.Remark = func(context.Context, web.Remark) error { return nil } // so that there is a form for everybody
	a := w.asked()
	ana, eve := w.url(a, "user:ana"), w.url(a, "user:eve")
	page := w.do("GET", ana, nil).body
	require.NotContains(t, page, secret)
	require.Contains(t, page, `\{masked, 20 characters}`)
	require.Contains(t, page, `value="uncover"`)
	require.NotContains(t, w.do("GET", eve, nil).body, `value="uncover"`)

	refused := w.press(eve, "uncover")
	require.Equal(t, http.StatusForbidden, refused.status)
	require.NotContains(t, refused.body, secret)
	require.Empty(t, w.now(a).Unmaskings, "nobody has seen anything")
	w.pages.Desk = unrecorded{w.m.Desk}
	w.server.Config.Handler = w.pages.Handler()
	failed := w.press(ana, "uncover")
	require.Equal(t, http.StatusServiceUnavailable, failed.status, "what cannot be recorded is not shown")
	require.NotContains(t, failed.body, secret)
	w.pages.Desk = w.m.Desk
	w.server.Config.Handler = w.pages.Handler()

	uncovered := w.press(ana, "uncover")
	require.Equal(t, http.StatusOK, uncovered.status)
	require.Contains(t, uncovered.body, secret)
	require.NotContains(t, uncovered.body, "Secrets are masked")
	require.Equal(t, "no-store", uncovered.header.Get("Cache-Control"))
	on := w.now(a).Unmaskings
	require.Len(t, on, 1)
	require.Equal(t, "user:ana", on[0].By)
	require.Equal(t, approval.ViaPage, on[0].Via)
	require.WithinDuration(t, w.clk.Now(), on[0].At, time.Minute)
	require.Equal(t, approval.Pending, w.now(a).Status, "it decides nothing")
	require.NotContains(t, w.do("GET", ana, nil).body, secret, "it was shown once")

	w.console("user:ana", func(*web.Console) {})
	inConsole := w.server.URL + "/approvals/" + a.ID
	unproved := w.press(inConsole, "uncover")
	require.Equal(t, http.StatusForbidden, unproved.status, "who may look has not shown that they may decide")
	require.NotContains(t, unproved.body, secret)
	require.Contains(t, w.press(inConsole, "uncover", "key", "key").body, secret)
	require.Equal(t, approval.ViaConsole, w.now(a).Unmaskings[1].Via)
	w.server = httptest.NewServer(w.pages.Handler())
	t.Cleanup(w.server.Close)
	ana = w.url(a, "user:ana")
	uncovered = w.press(ana, "uncover")

	answered := w.do("POST", ana, w.form(uncovered.body, "action", "deny"))
	require.Equal(t, http.StatusSeeOther, answered.status, "the uncovered page takes answers")
	over := w.do("POST", ana, w.form(uncovered.body, "action", "uncover"))
	require.Equal(t, http.StatusConflict, over.status)
	require.NotContains(t, over.body, secret)
}

// No name and no form hides what runs, or who is paid.
func TestB4NothingThatRunsIsMasked(t *testing.T) {
	for _, behind := range hostile.Behind() {
		w := newWorld(t, asks(string(hostile.BehindArgs(behind))), func(d *agent.Definition) { d.Tools[0].Schema = json.RawMessage(`{"type":"object"}`) }).real()
		page := w.do("GET", w.url(w.asked(), "user:ana"), nil).body
		story, _, _ := strings.Cut(page, `<section class="answer"`)
		got := html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(story, ""))
		require.Equal(t, 3, strings.Count(got, show.Quoted(behind).String()), "%q:\n%s", behind, got)
		require.Contains(t, got, `"mallory"`)
	}
}

// Every string of the corpus, in a real browser: what is read is what package show makes of it, and nothing is done.
func TestB3TheCorpusInABrowser(t *testing.T) {
	b := browsertest.Start(t)
	p := b.Open("corpus", browsertest.Options{Width: 360, Height: 740})
	for i, batch := range batches(hostile.All(), 40) {
		w := newWorld(t, asks(five)).real()
		a := w.asked()
		var texts []string
		of := w.pages.Show.Of
		w.pages.Show.Of = showAlso(of, batch, &texts)
		w.server.Config.Handler = w.pages.Handler()
		at := w.url(a, "user:ana")
		require.Equal(t, http.StatusOK, p.Goto(at))
		var dom []string
		p.Eval(`[...document.querySelectorAll(".args dd")].map((e) => e.textContent)`, &dom)
		if len(dom) == 0 { // so many odd characters that all of the arguments are one text
			var plain string
			p.Eval(`document.querySelector(".plain").textContent`, &plain)
			for _, c := range batch {
				require.Contains(t, plain, show.Quoted(c.Text).String())
			}
			w.server.Close()
			continue
		}
		require.Equal(t, texts, dom[len(dom)-len(texts):], "batch %d", i)
		for _, shown := range dom {
			require.NoError(t, hostile.Harmless(strings.ReplaceAll(shown, "\u00a0", " ")), "%q", shown)
		}
		l := p.Log()
		require.Empty(t, l.Dialogs)
		require.Equal(t, "GET "+at, l.Requests[len(l.Requests)-1])
		require.Len(t, l.Requests, i+1, "nothing else is asked of anybody")
		w.server.Close()
	}
}

func batches(all []hostile.Case, size int) (out [][]hostile.Case) {
	for chunk := range slices.Chunk(all, size) {
		out = append(out, chunk)
	}
	return out
}

// showAlso shows the strings as arguments besides, and says what of them is to be read: what stands in <bdi> is isolated by the element, not by letters.
func showAlso(of func(context.Context, approval.Approval) (show.Request, error), batch []hostile.Case, texts *[]string) func(context.Context, approval.Approval) (show.Request, error) {
	return func(ctx context.Context, a approval.Approval) (show.Request, error) {
		r, err := of(ctx, a)
		for _, c := range batch {
			text := show.Quoted(c.Text)
			var read strings.Builder
			for _, s := range text {
				read.WriteString(s.Text)
			}
			*texts = append(*texts, read.String())
			r.Arguments = append(r.Arguments, show.Argument{Key: show.Bare("text"), Value: text, Kind: "string"})
		}
		return r, err
	}
}
