package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/store"
)

// pager is a consumer of what is published (docs/events.md). It removes duplicates by their ids.
type pager struct {
	mu    sync.Mutex
	seen  map[string]string // events by id
	types []string
	times int // deliveries
}

func (p *pager) rule() standins.Rule {
	return standins.Rule{Name: "Pager", Pattern: json.RawMessage(`{"source": ["countersign"], "detail-type": [{"prefix": "countersign."}]}`),
		Target: func(_ context.Context, _ string, input []byte) error {
			var e struct {
				Type   string `json:"detail-type"`
				Detail struct{ ID string }
			}
			var raw struct{ Detail json.RawMessage }
			if err := errors.Join(json.Unmarshal(input, &e), json.Unmarshal(input, &raw)); err != nil {
				return err
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.times++
			had, ok := p.seen[e.Detail.ID]
			if ok && had != string(raw.Detail) {
				return fmt.Errorf("%s again, and not the same: %s, then %s", e.Detail.ID, had, raw.Detail)
			}
			if !ok {
				p.seen[e.Detail.ID], p.types = string(raw.Detail), append(p.types, e.Type)
			}
			return nil
		}}
}

// Another system sees what happens to a run without polling: each event comes three times and is one by its id. The
// bus refuses everything while another run goes on, which it does not notice; the next sweep sends what is left.
func TestEventsGoOut(t *testing.T) {
	p := &pager{seen: map[string]string{}}
	d := deploy(t, newRefundModel(t), func(d *deployment) { d.bus.Deliveries, d.bus.Rules = 3, []standins.Rule{p.rule()} })
	var down atomic.Bool
	d.services["events"] = target{serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"__type":"AccessDeniedException","message":"not now"}`))
			return
		}
		d.bus.ServeHTTP(w, r)
	})), http.DefaultClient}
	want := []string{"countersign.run.started.v1", "countersign.request.asked.v1", "countersign.request.decided.v1", "countersign.run.ended.v1"}
	requireSent := func() {
		t.Helper()
		require.ElementsMatch(t, want, p.types)
		require.Equal(t, 3*len(want), p.times)
		for _, event := range p.seen {
			require.NotContains(t, event, "wheel", "no content goes out")
		}
		require.Empty(t, d.outbox())
	}
	d.refundRun("k")
	require.Eventually(t, func() bool { return len(d.outbox()) == 0 }, 2*time.Minute, 10*time.Millisecond, "everything is sent")
	requireSent()

	down.Store(true)
	d.refundRun("while the bus is down")
	require.Len(t, p.types, len(want))
	require.Empty(t, d.sweep().Notified, "what is younger than a minute is left to its writer")
	d.ageOutbox()
	require.EqualValues(t, 1, d.sweep().NotifyFailed, "the bus is down")
	down.Store(false)
	require.EqualValues(t, len(want), d.sweep().Notified["published"])
	want = append(want, want...)
	requireSent()
	require.Empty(t, d.sweep().Notified)
	require.Empty(t, d.bus.Undelivered())
}

// ageOutbox makes all events that nobody has sent an hour old, which is old enough for the sweep.
func (d *deployment) ageOutbox() {
	for _, it := range d.outbox() {
		it.IndexSort = fmt.Sprintf("%013d#%s", d.clock.Now().Add(-time.Hour).UnixMilli(), it.SK)
		require.NoError(d.t, d.ports.Table.Write(d.t.Context(), store.Op{Kind: store.Put, Item: it}))
	}
}

// outbox are the items whose events nobody has sent.
func (d *deployment) outbox() (all []store.Item) {
	d.t.Helper()
	whole := func(it store.Item) (store.Item, error) { return it, nil }
	for cursor, more := "", true; more; more = cursor != "" {
		r := store.Range{PK: "T#" + acme + "#OUTBOX", Index: true, Cursor: cursor}
		items, next, err := store.ReadShards(d.t.Context(), d.ports.Table, r, whole)
		require.NoError(d.t, err)
		all, cursor = append(all, items...), next
	}
	return all
}
