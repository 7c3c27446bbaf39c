package api_test

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
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/api"
)

func newLive(t store.Table) *api.Live {
	return api.NewLive(t, clock.System(), slog.New(slog.DiscardHandler))
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

// still is the tail of a journal that gets no entry.
type still struct{}

func (still) HasEntry(context.Context, string, string, int64) (bool, error) { return false, nil }

// A stream in another process than the model's tells what the model writes, each piece once. An attempt that is begun
// again ends it. A stream that cannot show live text reads none.
func TestLiveTextOfAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newUnserved(t, `{"text": "Hello world"}`)
		s, err := b.Starter.Start(t.Context(), runtime.Start{
			Tenant: "default", Agent: b.agent(), Message: []run.UserBlock{{Block: run.Text{Text: "hi"}}},
		})
		require.NoError(t, err)
		synctest.Wait()
		counts := fault.NewTable(b.table)
		b.backend.Journal, b.backend.Feed = cut{b.backend.Journal, 1}, api.NewPoll(still{}, counts, b.backend.Clock)
		follow := func(format string, w http.ResponseWriter) chan time.Duration {
			r := httptest.NewRequest(http.MethodGet, "/v1/runs/"+s.Run+"/events?format="+format, nil)
			r.Header.Set("Accept", "text/event-stream")
			done, begin := make(chan time.Duration, 1), time.Now()
			go func() {
				api.Handler(b.backend).ServeHTTP(w, r)
				done <- time.Since(begin)
			}()
			synctest.Wait()
			return done
		}
		of := agent.Request{Tenant: "default", Run: s.Run, Inference: 1}
		said := func(live *api.Live, kind agent.DeltaKind, text string) {
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
		require.Contains(t, w.Body.String(), "[0]", "who comes later gets it from its start")
		said(newLive(b.table), agent.DeltaText, "Again") // the process died, and another one asks
		require.Less(t, <-done, 10*time.Second)
		require.NotContains(t, w.Body.String(), "Again")

		// A buffered response has the whole of it where its client begins anew with each response, and ends then.
		feed := api.NewPoll(still{}, counts, b.backend.Clock)
		feed.Buffered = true
		buffered := b.backend
		buffered.Feed = feed
		said(newLive(b.table), agent.DeltaText, "Half")
		w = httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/v1/runs/"+s.Run+"/events?format=canonical&cursor=0.1", nil)
		r.Header.Set("Accept", "text/event-stream")
		begin := time.Now()
		api.Handler(buffered).ServeHTTP(held{w}, r)
		require.Less(t, time.Since(begin), time.Second)
		require.Regexp(t, `retry: 1000\nevent: text_delta\ndata: .*"delta":"Half"`, w.Body.String())

		for format, to := range map[string]http.ResponseWriter{"journal": httptest.NewRecorder(), "canonical": held{httptest.NewRecorder()}} {
			before := counts.Counts().Gets
			<-follow(format, to)
			require.Equal(t, before, counts.Counts().Gets, format)
		}
	})
}
