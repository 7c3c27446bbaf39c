package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/web/api"
)

// TestWhoStartsARunAgainIsARequester: two people who send the same request under the same key both want what comes of
// it, whether the call has asked by then or not. Neither of them approves it where the rule wants four eyes.
func TestWhoStartsARunAgainIsARequester(t *testing.T) {
	b := newBench(t, `{"calls": [{"id": "c1", "name": "pay", "input": {"amount": 5}}]}
{"text": "Paid."}
`, func(d *agent.Definition) {
		d.Permission.Rules = []agent.Rule{{Tool: "pay", Verdict: agent.VerdictAsk, FourEyes: true}}
	})
	const body = `{"agent": "payer", "message": "pay 5", "key": "k"}`
	start := func(who string) {
		t.Helper()
		require.Contains(t, []int{http.StatusOK, http.StatusCreated, http.StatusAccepted}, b.do("POST /v1/runs", body, api.AsHeader, who).status)
	}
	decide := func(who string) answer {
		t.Helper()
		run := b.waitUntilParked(agent.RunID("default", "payer", "k"))
		require.Len(t, run.Waiting, 1)
		return b.do("POST /v1/approvals/"+run.Waiting[0].Approval+"/decision", `{"action": "approve"}`, api.AsHeader, who)
	}
	start("user:ana,group:operators")
	require.Equal(t, http.StatusForbidden, decide("user:ana,group:operators").status)
	start("user:dan,group:operators")
	start("user:dan,group:operators")
	got := decide("user:dan,group:operators")
	require.Equal(t, http.StatusForbidden, got.status, got.body)
	require.Equal(t, http.StatusOK, decide("user:bo,group:operators").status)
	require.Equal(t, 5, <-b.paid)
}
