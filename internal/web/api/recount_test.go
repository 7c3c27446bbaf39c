package api_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/api"
)

// forge writes a request's item as somebody would who can write that item and nothing else.
func (b *bench) forge(id string, change func(request map[string]any)) {
	b.t.Helper()
	it, found, err := b.table.Get(b.t.Context(), store.Key{PK: "T#" + local.Tenant + "#APPROVAL#" + id, SK: "A"})
	require.NoError(b.t, err)
	require.True(b.t, found)
	var request map[string]any
	require.NoError(b.t, json.Unmarshal(it.Body, &request))
	change(request)
	it.Body, err = json.Marshal(request)
	require.NoError(b.t, err)
	it.Attrs["seal"] = store.Str(store.BlobDigest(it.Body))
	require.NoError(b.t, b.table.Write(b.t.Context(), store.Op{Kind: store.Put, Item: it}))
}

// TestAForgedRequestLetsNothingRun: whoever can write a request's item sets approvers, quorum, four eyes and
// decisions there. The claim counts the decisions on record against the pinned policy, and the call is asked about
// again.
func TestAForgedRequestLetsNothingRun(t *testing.T) {
	const (
		ana = "user:ana,group:operators"
		bo  = "user:bo,group:operators"
		cy  = "user:cy,group:operators"
		eve = "user:eve,group:guests"
	)
	approve := func(b *bench, who string) (request string) {
		b.t.Helper()
		run := b.waitUntilParked(agent.RunID(local.Tenant, "payer", "k"))
		require.Len(b.t, run.Waiting, 1)
		request = run.Waiting[0].Approval
		got := b.do("POST /v1/approvals/"+request+"/decision", `{"action": "approve"}`, api.AsHeader, who)
		require.Equal(b.t, http.StatusOK, got.status, got.body)
		return request
	}
	for name, c := range map[string]struct {
		rule   agent.Rule
		before []string // who approve before the item is written
		forged func(request map[string]any)
		by     string   // approves the forged request
		then   []string // approve what is asked again
	}{
		"approvers": {
			rule: agent.Rule{}, by: eve, then: []string{bo},
			forged: func(r map[string]any) { r["approvers"] = []string{"user:eve"} },
		},
		"quorum": {
			rule: agent.Rule{Quorum: 2}, by: bo, then: []string{bo, cy},
			forged: func(r map[string]any) { r["quorum"] = 1 },
		},
		"decisions": {
			rule: agent.Rule{Quorum: 2}, by: bo, then: []string{bo, cy},
			forged: func(r map[string]any) {
				r["decisions"] = []map[string]any{{"by": "user:cy", "action": "approve", "at": r["requestedAt"]}}
			},
		},
		"quorum behind an approval": {
			rule: agent.Rule{Quorum: 3}, before: []string{bo}, by: cy, then: []string{bo, cy, "user:di,group:operators"},
			forged: func(r map[string]any) { r["quorum"] = 2 },
		},
		"four eyes": {
			rule: agent.Rule{FourEyes: true}, by: ana, then: []string{bo},
			forged: func(r map[string]any) { delete(r, "fourEyes"); delete(r, "requesters") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, `{"calls": [{"id": "c1", "name": "pay", "input": {"amount": 5}}]}
{"text": "Paid."}
`, func(d *agent.Definition) {
				c.rule.Tool, c.rule.Verdict = "pay", agent.VerdictAsk
				d.Permission.Rules = []agent.Rule{c.rule}
			})
			start := b.do("POST /v1/runs", `{"agent": "payer", "message": "pay 5", "key": "k"}`, api.AsHeader, ana)
			require.Less(t, start.status, 300, start.body)
			for _, who := range c.before {
				approve(b, who)
			}
			id := b.waitUntilParked(agent.RunID(local.Tenant, "payer", "k")).Waiting[0].Approval
			b.forge(id, c.forged)
			require.Equal(t, id, approve(b, c.by), "the desk believes its item")
			require.Empty(t, b.paid)
			for i, who := range c.then {
				require.NotEqual(t, id, approve(b, who), "it is asked about again")
				if i < len(c.then)-1 {
					require.Empty(t, b.paid)
				}
			}
			require.Equal(t, 5, <-b.paid)
			require.Empty(t, b.waitUntilParked(agent.RunID(local.Tenant, "payer", "k")).Waiting)
		})
	}
}
