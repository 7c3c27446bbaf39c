package web_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

func TestStreamForm(t *testing.T) {
	b := newBench(t, `{"text": "a < b & c"}`)
	one := b.start("k")
	got := b.do("GET /v1/runs/"+one.ID+"/events", "", "Accept", "text/event-stream")
	require.Equal(t, "text/event-stream", got.header.Get("Content-Type"))
	require.Contains(t, got.body, "id: 0.0\nevent: run_started\ndata: {\"id\":\"0.0\",\"seq\":0,")
	require.Contains(t, got.body, `"text":"a < b & c"`)
	resumed := b.do("GET /v1/runs/"+one.ID+"/events", "", "Accept", "text/event-stream", "Last-Event-ID", "0.0")
	require.NotContains(t, resumed.body, "id: 0.0")
	require.Contains(t, resumed.body, "event: finished")

	page := must(b.client.Events(t.Context(), one.ID, "0", 0))
	require.Equal(t, []string{"replied", "finished"}, []string{page.Items[0].Type, page.Items[1].Type}, "behind entry 0")
	fact := must(page.Items[0].Fact())
	require.Equal(t, "a < b & c", fact.(run.Replied).Text)
}

// A stream of a run that stands still ends after its window, and a closed feed ends it at once.
func TestStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newUnserved(t, pay)
		id, w := b.begun(), httptest.NewRecorder()
		require.Equal(t, 20*time.Second, <-b.followed(id, "", w))
		require.Contains(t, w.Body.String(), "event: parked")

		done := b.followed(id, "", httptest.NewRecorder())
		synctest.Wait()
		b.feed.Close()
		require.Zero(t, <-done)
	})
}

// A stream that polls sends every event once, reads the journal only when there is something new, and looks less and less often.
func TestStreamPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newUnserved(t, pay)
		counts := fault.NewTable(b.backend.Table)
		journal := store.NewJournal(counts, 0)
		b.backend.Journal, b.backend.Feed = journal, web.NewPoll(journal, nil, b.backend.Clock)
		id, w := b.begun(), httptest.NewRecorder()
		done := b.followed(id, "", w)
		time.Sleep(10 * time.Second)
		b.approvedAtTheDesk(id)
		took := <-done
		require.Greater(t, took, 10*time.Second)
		require.LessOrEqual(t, took, 12*time.Second)
		require.Equal(t, 1, strings.Count(w.Body.String(), "event: run_started"))
		require.Contains(t, w.Body.String(), "event: finished")
		cost := counts.Counts()
		require.EqualValues(t, 2, cost.Queries, "what is there; what is new")
		require.LessOrEqual(t, cost.Gets, int64(9), "is there such a run; is there anything new")
	})
}

// held is a ResponseWriter that cannot flush: its client gets the answer as a whole.
type held struct{ w *httptest.ResponseRecorder }

func (h held) Header() http.Header         { return h.w.Header() }
func (h held) Write(p []byte) (int, error) { return h.w.Write(p) }
func (h held) WriteHeader(status int)      { h.w.WriteHeader(status) }

// An answer that is held back stays small; its client resumes until it has everything, once.
func TestHeldBackAnswerIsBounded(t *testing.T) {
	b := newBench(t, `{"text": "done"}`)
	one := b.start("k")
	big, err := run.MarshalEntry(run.Entry{Writer: "w", Time: time.Unix(0, 0), Events: []run.Event{
		run.Replied{Model: "m", Text: strings.Repeat("x", 300<<10)},
	}})
	require.NoError(t, err)
	entry := must(run.UnmarshalEntry(big))
	many := longJournal{Journal: b.backend.Journal}
	for i := range int64(20) {
		entry.Seq = i
		many.entries = append(many.entries, entry)
	}
	b.backend.Journal = many
	last, got := "", 0
	for range 10 {
		w := httptest.NewRecorder()
		<-b.followed(one.ID, "", held{w}, "Last-Event-ID", last)
		require.LessOrEqual(t, w.Body.Len(), 2<<20+400<<10)
		for line := range strings.SplitSeq(w.Body.String(), "\n") {
			if id, ok := strings.CutPrefix(line, "id: "); ok {
				require.Equal(t, fmt.Sprintf("%d.0", got), id)
				last = id
				got++
			}
		}
		if got == 20 {
			return
		}
	}
	t.Fatalf("got %d of 20 events", got)
}

// longJournal is a journal with these entries.
type longJournal struct {
	web.Journal
	entries []run.Entry
}

func (j longJournal) Entries(_ context.Context, _, _ string, from int64, _ int) ([]run.Entry, error) {
	return j.entries[from:], nil
}

func newLive(t store.Table) *web.Live {
	return web.NewLive(t, clock.System(), slog.New(slog.DiscardHandler))
}

// However fast and long a model writes, a reply is written at most once a second, 60 times and 16 KB at once.
func TestLiveTextIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := fault.NewTable(store.NewMemory())
		live := newLive(counts)
		of := agent.Request{Tenant: "default", Run: "r1", Inference: 1}
		write := func(n int, text string) int64 {
			before := counts.Counts().Writes
			for range n {
				live.ReceiveDelta(of, agent.Delta{Kind: agent.DeltaText, Text: text})
				time.Sleep(10 * time.Millisecond)
			}
			synctest.Wait()
			return counts.Counts().Writes - before
		}
		require.EqualValues(t, 1, write(1, "a"), "the first piece at once")
		require.EqualValues(t, 10, write(1000, "b"), "ten seconds")
		require.EqualValues(t, 49, write(20_000, ""), "sixty in all")
		of.Attempt = 1
		require.EqualValues(t, 10, write(1000, strings.Repeat("c", 16)), "16,000 bytes in ten seconds")
		require.Zero(t, write(1000, strings.Repeat("c", 1024)), "what is over the limit is not written")
		it, found, err := counts.Get(t.Context(), store.Key{PK: "T#default#RUN#r1", SK: "LIVE"})
		require.NoError(t, err)
		require.True(t, found)
		require.Contains(t, string(it.Body), `"Attempt":1,"Kind":"text"`)
		require.NotContains(t, string(it.Body), "ab")
		require.Less(t, len(it.Body), 17<<10)
		require.WithinRange(t, time.Unix(it.Attrs["TTL"].Int(), 0), time.Now(), time.Now().Add(time.Hour), "it goes by itself")
		of.Lifecycle = run.LifecyclePlan
		require.Zero(t, write(1000, "plan"), "internal text")
	})
}

// silentFeed is the tail of a journal that gets no entry.
type silentFeed struct{}

func (silentFeed) HasEntry(context.Context, string, string, int64) (bool, error) { return false, nil }

// A stream in another process than the model's tells what the model writes, each piece once. An attempt that is begun
// again ends it. A stream that cannot show live text reads none.
func TestLiveTextOfAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newUnserved(t, `{"text": "Hello world"}`)
		id := b.begun()
		counts := fault.NewTable(b.table)
		b.backend.Journal, b.backend.Feed = cut{b.backend.Journal, 1}, web.NewPoll(silentFeed{}, counts, b.backend.Clock)
		follow := func(format string, w http.ResponseWriter) chan time.Duration {
			defer synctest.Wait()
			return b.followed(id, "format="+format, w)
		}
		of := agent.Request{Tenant: "default", Run: id, Inference: 1}
		said := func(live *web.Live, kind agent.DeltaKind, text string) {
			live.ReceiveDelta(of, agent.Delta{Kind: kind, Text: text})
			time.Sleep(300 * time.Millisecond)
		}
		live, w, whole := newLive(b.table), httptest.NewRecorder(), ""
		done := follow("canonical", w)
		said(live, agent.DeltaReasoning, "hm")
		for i := range 40 {
			piece := fmt.Sprintf("[%d]", i)
			said(live, agent.DeltaText, piece)
			whole += piece
		}
		time.Sleep(time.Second)
		said(live, agent.DeltaText, "") // takes what is left along
		require.Equal(t, 20*time.Second, <-done)
		told := ""
		for _, m := range regexp.MustCompile(`event: text_delta\ndata: .*"delta":"([^"]*)"`).FindAllStringSubmatch(w.Body.String(), -1) {
			told += m[1]
		}
		require.Equal(t, whole, told)
		require.Equal(t, 1, strings.Count(w.Body.String(), "event: reasoning_delta"))
		require.NotRegexp(t, `id: .*\nevent: text_delta`, w.Body.String())

		w = httptest.NewRecorder()
		done = follow("canonical", w)
		time.Sleep(5 * time.Second)
		synctest.Wait() // what is written now is read below
		require.Contains(t, w.Body.String(), "[0]", "who comes later gets it from its start")
		said(newLive(b.table), agent.DeltaText, "Again") // the process died, and another one asks
		require.Less(t, <-done, 10*time.Second)
		require.NotContains(t, w.Body.String(), "Again")

		// A buffered response has the whole of it where its client begins anew with each response, and ends then.
		feed := web.NewPoll(silentFeed{}, counts, b.backend.Clock)
		feed.Buffered = true
		polls := b.backend.Feed
		b.backend.Feed = feed
		said(newLive(b.table), agent.DeltaText, "Half")
		w = httptest.NewRecorder()
		require.Less(t, <-b.followed(id, "format=canonical&cursor=0.1", held{w}), time.Second)
		b.backend.Feed = polls
		require.Regexp(t, `retry: 1000\nevent: text_delta\ndata: .*"delta":"Half"`, w.Body.String())

		for format, to := range map[string]http.ResponseWriter{"journal": httptest.NewRecorder(), "canonical": held{httptest.NewRecorder()}} {
			before := counts.Counts().Gets
			<-follow(format, to)
			require.Equal(t, before, counts.Counts().Gets, format)
		}
	})
}
