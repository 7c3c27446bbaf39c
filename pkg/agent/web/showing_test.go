package web_test

import (
	"context"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/browsertest"
	"github.com/countersign/countersign/internal/hostile"
	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/approval"
	"github.com/countersign/countersign/pkg/agent/show"
	"github.com/countersign/countersign/pkg/agent/web"
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
	require.Equal(t, agent.RunDone, w.end())
	require.Equal(t, payment{3, "AKIAIOSFODNN7EXAMPLE"}, <-w.paid)
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
