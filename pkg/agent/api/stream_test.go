package api_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/api"
	"github.com/countersign/countersign/pkg/agent/approval"
	"github.com/countersign/countersign/pkg/agent/runtime"
)

func types(events []api.Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, e.Type)
	}
	return out
}

func TestEventsInPages(t *testing.T) {
	b := newBench(t, pay)
	run := b.start("k")
	whole, err := b.client.Events(t.Context(), run.ID, "", 0)
	require.NoError(t, err)
	require.Equal(t, []string{"run_started", "replied", "call_suspended", "parked"}, types(whole.Events))
	var all []api.Event
	for after := ""; ; {
		p, err := b.client.Events(t.Context(), run.ID, after, 1)
		require.NoError(t, err)
		all = append(all, p.Events...)
		if after = p.Cursor; after == "" {
			break
		}
	}
	require.Equal(t, whole.Events, all)
	fact, err := all[1].Fact()
	require.NoError(t, err)
	require.Equal(t, "I will pay.", fact.(agent.Replied).Text)
	after, err := b.client.Events(t.Context(), run.ID, "0", 0)
	require.NoError(t, err)
	require.Equal(t, whole.Events[1:], after.Events, "after an entry, none of its events")
}

var errEnough = errors.New("enough")

func TestStreamResumesWhereItEnded(t *testing.T) {
	b := newBench(t, pay)
	run := b.start("k")
	var got []api.Event
	collect := func(until string) func(api.Event) error {
		return func(e api.Event) error {
			got = append(got, e)
			if e.Type == until {
				return errEnough
			}
			return nil
		}
	}
	require.ErrorIs(t, b.client.Follow(t.Context(), run.ID, "", collect("replied")), errEnough)
	require.ErrorIs(t, b.client.Follow(t.Context(), run.ID, got[len(got)-1].ID, collect("parked")), errEnough)
	_, err := b.client.Decide(t.Context(), run.Waiting[0].Approval, api.Verdict{Action: approval.Approve})
	require.NoError(t, err)
	require.NoError(t, b.client.Follow(t.Context(), run.ID, got[len(got)-1].ID, collect("")), "the end of the run ends the stream")
	whole, err := b.client.Events(t.Context(), run.ID, "", 200)
	require.NoError(t, err)
	require.Equal(t, whole.Events, got)
	require.Equal(t, "finished", got[len(got)-1].Type, "%v", types(got))
	require.NoError(t, b.client.Follow(t.Context(), run.ID, got[len(got)-1].ID, collect("")), "of a run that is done, at once")
}

func TestStreamForm(t *testing.T) {
	b := newBench(t, `{"text": "a < b & c"}`)
	run := b.start("k")
	got := b.do("GET /v1/runs/"+run.ID+"/events", "", "Accept", "text/event-stream")
	require.Equal(t, "text/event-stream", got.header.Get("Content-Type"))
	require.Contains(t, got.body, "id: 0.0\nevent: run_started\ndata: {\"id\":\"0.0\",\"seq\":0,")
	require.Contains(t, got.body, `"text":"a < b & c"`)
	resumed := b.do("GET /v1/runs/"+run.ID+"/events", "", "Accept", "text/event-stream", "Last-Event-ID", "0.0")
	require.NotContains(t, resumed.body, "id: 0.0")
	require.Contains(t, resumed.body, "event: finished")
}

// A stream of a run that stands still ends after its window, and a closed feed ends it at once.
func TestStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newUnserved(t, pay)
		run, err := b.Starter.Start(t.Context(), runtime.Start{
			Tenant: "default", Agent: b.agent("payer"), Message: []agent.UserBlock{{Block: agent.Text{Text: "pay"}}},
		})
		require.NoError(t, err)
		synctest.Wait()
		begin := time.Now()
		w := b.stream(run.Run)
		require.Equal(t, 20*time.Second, time.Since(begin))
		require.Contains(t, w.Body.String(), "event: parked")

		done := make(chan *httptest.ResponseRecorder)
		go func() { done <- b.stream(run.Run) }()
		synctest.Wait()
		begin = time.Now()
		b.backend.Feed.Close()
		<-done
		require.Equal(t, time.Duration(0), time.Since(begin))
	})
}

func (b *bench) agent(name string) *agent.Definition {
	d, ok := b.Agents(name)
	require.True(b.t, ok)
	return d
}

func (b *bench) stream(run string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/v1/runs/"+run+"/events", nil)
	r.Header.Set("Accept", "text/event-stream")
	w := httptest.NewRecorder()
	api.Handler(b.backend).ServeHTTP(w, r)
	return w
}
