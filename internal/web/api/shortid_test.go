package api_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/web/api"
)

// The beginning of an id is enough where only one id begins like that, also of a request that is decided. Where several
// do, the answer names them.
func TestShortenedIDs(t *testing.T) {
	b := newBench(t, pay)
	keys := map[string]string{} // by the first characters of the run's id
	var alike []string
	for i := 0; alike == nil; i++ {
		key := fmt.Sprint("k", i)
		begins := agent.RunID("default", "payer", key)[:4]
		if other, taken := keys[begins]; taken {
			alike = []string{other, key}
		}
		keys[begins] = key
	}
	one, two := b.start(alike[0]), b.start(alike[1])
	_, err := b.client.Run(t.Context(), one.ID[:4])
	var p *api.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, api.InvalidRequest, p.Type)
	require.Contains(t, p.Detail, "more than one id begins like this: r")
	n := 5
	for one.ID[:n] == two.ID[:n] {
		n++
	}
	got, err := b.client.RunWithoutMessages(t.Context(), one.ID[:n])
	require.NoError(t, err)
	require.Equal(t, one.ID, got.ID)
	page, err := b.client.Messages(t.Context(), two.ID[:n], "", 1)
	require.NoError(t, err)
	require.Len(t, page.Items, 1)

	request := one.Waiting[0].Approval
	a, err := b.client.Decide(t.Context(), request[:12], api.Verdict{Action: approval.Deny})
	require.NoError(t, err)
	require.Equal(t, []any{request, approval.Denied}, []any{a.ID, a.Status})
	a, err = b.client.Approval(t.Context(), request[:12])
	require.NoError(t, err)
	require.Equal(t, request, a.ID)
	for _, line := range []string{"GET /v1/runs/rzzz", "GET /v1/runs/" + request[:12], "GET /v1/approvals/azzz", "GET /v1/runs/r"} {
		require.Equal(t, 404, b.do(line, "").status, line)
	}
}
