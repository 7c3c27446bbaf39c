package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/store"
)

// publishedEvent is an event as a consumer of the bus gets it, by docs/events.md.
type publishedEvent struct {
	Type   string `json:"detail-type"`
	Detail struct {
		ID, Tenant, Run, Agent string
		Data                   struct {
			Seq     int64
			Status  string
			Reason  string
			Links   struct{ Run, Request string }
			Request struct {
				ID, Digest, Outcome, By string
				Calls, Tools, Approvers []string
				Until                   time.Time
			}
		}
	}
}

// pager is a consumer of what is published. It removes duplicates by their ids.
type pager struct {
	mu     sync.Mutex
	seen   map[string][]byte
	events []publishedEvent
	times  int // deliveries
}

func (p *pager) rule() standins.Rule {
	return standins.Rule{Name: "Pager", Pattern: json.RawMessage(`{"source": ["countersign"], "detail-type": [{"prefix": "countersign."}]}`),
		Target: func(_ context.Context, _ string, input []byte) error {
			var e publishedEvent
			if err := json.Unmarshal(input, &e); err != nil {
				return err
			}
			var raw struct{ Detail json.RawMessage }
			if err := json.Unmarshal(input, &raw); err != nil {
				return err
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.times++
			if had, ok := p.seen[e.Detail.ID]; ok {
				if string(had) != string(raw.Detail) {
					return fmt.Errorf("%s again, and not the same: %s, then %s", e.Detail.ID, had, raw.Detail)
				}
				return nil
			}
			if p.seen == nil {
				p.seen = map[string][]byte{}
			}
			p.seen[e.Detail.ID], p.events = raw.Detail, append(p.events, e)
			return nil
		}}
}

// inOrder are the events so far, in the order of the journal.
func (p *pager) inOrder() []publishedEvent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(p.events), func(a, b publishedEvent) int {
		return int(a.Detail.Data.Seq - b.Detail.Data.Seq)
	})
}

func (p *pager) types() (all []string) {
	for _, e := range p.inOrder() {
		all = append(all, e.Type)
	}
	return all
}

var wholeRefund = []string{"countersign.run.started.v1", "countersign.request.asked.v1", "countersign.request.decided.v1", "countersign.run.ended.v1"}

// requireContract requires what docs/events.md promises of the events of a refund that ana approved.
func (p *pager) requireContract(t *testing.T, runID string) {
	t.Helper()
	require.Equal(t, wholeRefund, p.types())
	events := p.inOrder()
	for _, e := range events {
		require.Equal(t, []string{acme, runID, "refunds", "/v1/runs/" + runID}, []string{e.Detail.Tenant, e.Detail.Run, e.Detail.Agent, e.Detail.Data.Links.Run})
		for _, content := range []string{"wheel", "1002", "120", "chair"} {
			require.NotContains(t, string(p.seen[e.Detail.ID]), content+`"`, "no content goes out")
			require.NotContains(t, string(p.seen[e.Detail.ID]), content+` `, "no content goes out")
		}
	}
	asked, decided := events[1].Detail.Data, events[2].Detail.Data.Request
	require.Equal(t, "/v1/approvals/"+asked.Request.ID, asked.Links.Request)
	require.Regexp(t, "^[0-9a-f]{64}$", asked.Request.Digest)
	require.NotEmpty(t, asked.Request.Approvers)
	require.False(t, asked.Request.Until.IsZero())
	require.Equal(t, []string{asked.Request.ID, "approve", "user:ana"}, []string{decided.ID, decided.Outcome, decided.By})
	require.Equal(t, "natural_end", events[3].Detail.Data.Reason)
}

// Another system sees what happens to a run without polling: each event comes three times and is one by its id.
func TestEventsGoOut(t *testing.T) {
	p := &pager{}
	d := deploy(t, newRefundModel(t), func(d *deployment) { d.bus.Deliveries, d.bus.Rules = 3, []standins.Rule{p.rule()} })
	run := d.refundRun("k")
	require.Eventually(t, func() bool { return len(d.outbox()) == 0 }, 2*time.Minute, 10*time.Millisecond, "everything is sent")
	p.requireContract(t, run)
	require.Equal(t, 3*len(wholeRefund), p.times)
	require.Empty(t, d.bus.Undelivered())
}

// The bus refuses everything while the run goes on, which it does not notice; the next sweep sends what is left.
func TestEventsWaitForTheBus(t *testing.T) {
	p := &pager{}
	d := deploy(t, newRefundModel(t), func(d *deployment) { d.bus.Rules = []standins.Rule{p.rule()} })
	var down atomic.Bool
	down.Store(true)
	d.services["events"] = target{serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"__type":"AccessDeniedException","message":"not now"}`))
			return
		}
		d.bus.ServeHTTP(w, r)
	})), http.DefaultClient}
	run := d.refundRun("k")
	require.Empty(t, p.types())
	require.Empty(t, d.sweep().Told, "what is younger than a minute is left to its writer")

	d.ageOutbox()
	require.EqualValues(t, 1, d.sweep().Untold, "the bus is down")
	down.Store(false)
	require.EqualValues(t, len(wholeRefund), d.sweep().Told["published"])
	p.requireContract(t, run)
	require.Empty(t, d.outbox())
	require.Empty(t, d.sweep().Told)
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
