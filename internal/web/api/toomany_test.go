package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// A start, a continuation and a fork of a tenant with as many running runs as it may have are put off, and nothing else
// is. A start that was accepted before is accepted again.
func TestTooManyRuns(t *testing.T) {
	b := newBench(t, pay)
	d := readDocument(t)
	done, waits := b.finished("done"), b.start("waits")
	b.backend.Starter = &runtime.Starter{Ports: b.Ports, MaxRunning: 1}
	b.serve()
	const body = `{"agent":"payer","message":"pay 5","key":"k"}`
	id := agent.RunID(local.Tenant, "payer", "k")
	_, err := b.backend.Starter.Create(t.Context(), runtime.Start{
		Tenant: local.Tenant, Agent: b.agent(), Key: "k", Message: []run.UserBlock{{Block: run.Text{Text: "pay 5"}}},
	}, id, runtime.ExecutionName(id, 0))
	require.NoError(t, err)
	for _, c := range []struct{ op, line, body string }{
		{"POST /v1/runs", "POST /v1/runs", `{"agent":"payer","message":"pay 5","key":"k2"}`},
		{"POST /v1/runs", "POST /v1/runs", `{"agent":"payer","message":"more","continues":"` + done.ID + `"}`},
		{"POST /v1/runs/{id}/fork", "POST /v1/runs/" + waits.ID + "/fork", `{"at":0}`},
	} {
		got := b.do(c.line, c.body)
		require.Equal(t, http.StatusTooManyRequests, got.status, got.body)
		require.Equal(t, "30", got.header.Get("Retry-After"))
		require.Contains(t, got.body, `"type":"too-many-runs"`)
		require.Contains(t, got.body, "as many running runs as it may have")
		d.check(t, c.op, got)
	}
	require.Equal(t, http.StatusAccepted, b.do("POST /v1/runs/"+waits.ID+"/cancel", "").status)
	require.Equal(t, http.StatusAccepted, b.do("POST /v1/runs", body).status, "again")
	require.Equal(t, run.RunWaiting, b.waitUntilParked(id).Status)
	require.Equal(t, http.StatusAccepted, b.do("POST /v1/runs", `{"agent":"payer","message":"pay 5","key":"k2"}`).status)
}
