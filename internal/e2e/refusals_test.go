package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/standins"
)

// What cannot be carried out is refused with a problem document, through the gateway and the real function, and nothing
// is written.
func TestRefusedByTheAPI(t *testing.T) {
	d := deploy(t, newRefundModel(t))
	token := func(claims map[string]any) string {
		text, err := d.issuer.Token(claims)
		require.NoError(t, err)
		return "Bearer " + text
	}
	ana := token(map[string]any{"sub": "ana", "tenant": acme, "groups": []string{"operators"}})
	d.relay.setKillPoint(nil)
	for name, c := range map[string]struct {
		method, path, body, auth string
		status                   int
		kind                     string // "" = the gateway's own answer
	}{
		"no token":             {"POST", "/v1/runs", `{"agent":"refunds","message":"x"}`, "", 401, ""},
		"no tenant":            {"POST", "/v1/runs", `{"agent":"refunds","message":"x"}`, token(map[string]any{"sub": "ana"}), 403, "not-allowed"},
		"a tenant of no shape": {"POST", "/v1/runs", `{"agent":"refunds","message":"x"}`, token(map[string]any{"sub": "ana", "tenant": "A/B"}), 403, "not-allowed"},
		"not JSON":             {"POST", "/v1/runs", `{`, ana, 400, "invalid-request"},
		"a key twice":          {"POST", "/v1/runs", `{"agent":"refunds","agent":"x","message":"x"}`, ana, 400, "invalid-request"},
		"unknown key":          {"POST", "/v1/runs", `{"agent":"refunds","message":"x","tenant":"other"}`, ana, 400, "invalid-request"},
		"unknown agent":        {"POST", "/v1/runs", `{"agent":"nobody","message":"x"}`, ana, 400, "unknown-agent"},
		"nothing to say":       {"POST", "/v1/runs", `{"agent":"refunds"}`, ana, 400, "invalid-request"},
		"too large":            {"POST", "/v1/runs", `{"agent":"refunds","message":"` + strings.Repeat("x", 256<<10) + `"}`, ana, 413, "too-large"},
		"too large for anyone": {"POST", "/v1/runs", strings.Repeat("x", 10<<20+1), ana, 413, ""},
		"wrong method":         {"DELETE", "/v1/runs", "", ana, 405, "method-not-allowed"},
		"no such path":         {"GET", "/v1/elsewhere", "", ana, 404, "no-such-path"},
		"no such run":          {"GET", "/v1/runs/raaaaaaaaaaaaaaaaaaaaaaaaa", "", ana, 404, "run-not-found"},
		"cancel of no run":     {"POST", "/v1/runs/raaaaaaaaaaaaaaaaaaaaaaaaa/cancel", `{}`, ana, 404, "run-not-found"},
		"input to no run":      {"POST", "/v1/runs/raaaaaaaaaaaaaaaaaaaaaaaaa/input", `{"messages":["x"]}`, ana, 404, "run-not-found"},
		"input of no shape":    {"POST", "/v1/runs/raaaaaaaaaaaaaaaaaaaaaaaaa/input", `{"messages":7}`, ana, 400, "invalid-request"},
		"no such approval":     {"POST", "/v1/approvals/aaaaaaaaaaaaaaaaaaaaaaaaaa/decision", `{"action":"approve"}`, ana, 404, "approval-not-found"},
		"no such decision":     {"POST", "/v1/approvals/aaaaaaaaaaaaaaaaaaaaaaaaaa/decision", `{"action":"perhaps"}`, ana, 400, "invalid-request"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), c.method, d.apiURL+c.path, strings.NewReader(c.body))
			require.NoError(t, err)
			r.Header.Set("Authorization", c.auth)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Countersign-As", "user:root,group:operators") // nobody looks at it here
			resp, body := do(t, http.DefaultClient, r)
			require.Equal(t, c.status, resp.StatusCode, body)
			if c.kind == "" {
				return
			}
			require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
			var p struct {
				Type   string
				Status int
			}
			require.NoError(t, json.Unmarshal([]byte(body), &p))
			require.Contains(t, p.Type, c.kind)
			require.Equal(t, c.status, p.Status)
		})
	}
	_, writes := d.relay.counts()
	require.Empty(t, writes, "nothing was written")
}

// Events that are not a function's are errors that name what is wrong; nothing is written.
func TestRefusedByTheFunctions(t *testing.T) {
	d := deploy(t, newRefundModel(t))
	d.relay.setKillPoint(nil)
	const frame = `{"execution":"arn:aws:states:eu-central-1:000000000000:execution:countersign:x","name":"x","state":%}`
	for name, c := range map[string]struct{ function, payload, kind string }{
		"step: not JSON's shape":   {"step", `[]`, "Countersign.Invalid"},
		"step: unknown agent":      {"step", strings.Replace(frame, "%", `{"agent":"nobody","message":"x"}`, 1), "Countersign.Invalid"},
		"step: tenant":             {"step", strings.Replace(frame, "%", `{"agent":"refunds","message":"x","tenant":"A/B"}`, 1), "Countersign.Invalid"},
		"step: no such run":        {"step", strings.Replace(frame, "%", `{"tenant":"acme","run":"raaaaaaaaaaaaaaaaaaaaaaaaa"}`, 1), "Countersign.Invalid"},
		"tool: no such run":        {"tool", strings.Replace(frame, "%", `{"tenant":"acme","run":"raaaaaaaaaaaaaaaaaaaaaaaaa"}`, 1), "Countersign.Invalid"},
		"approve: no token":        {"approve", strings.Replace(frame, "%", `{"tenant":"acme","run":"raaaaaaaaaaaaaaaaaaaaaaaaa"}`, 1), "Countersign.Invalid"},
		"http: not HTTP":           {"http", `{"Records":[]}`, "Countersign.Invalid"},
		"sweep: somebody's else's": {"sweep", `{"source":"shop","detail-type":"Order"}`, "Countersign.Invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.functions[c.function].Invoke(t.Context(), []byte(c.payload))
			var reported *standins.LambdaError
			require.ErrorAs(t, err, &reported)
			require.Equal(t, c.kind, reported.Type, reported.Message)
		})
	}
	_, writes := d.relay.counts()
	require.Empty(t, writes, "nothing was written")
}

// A run with more open requests than a transaction has items ends all the same: the end commits by itself, and the
// requests are closed behind it.
func TestCancelOfARunWithManyOpenRequests(t *testing.T) {
	const calls = 110
	model := newModel(t, func(standins.BedrockRequest) standins.Turn {
		var blocks []standins.Block
		for i := range calls {
			args := fmt.Sprintf(`{"order":"1002","amount":%d,"reason":"A wheel is broken."}`, 60+i)
			blocks = append(blocks, standins.ToolUse(fmt.Sprintf("t%d", i), "refunds_create", args))
		}
		return standins.Reply{Blocks: blocks}
	})
	d := deploy(t, model)
	def := refundsAgent(t)
	def.Limits.Open = calls
	many := d.start(runtime.Start{Tenant: acme, Agent: def, Key: "many"}, "Refund all of them.")
	s := d.waitFor(acme, many.Run, isParked)
	require.Equal(t, calls, len(s.Waits()))
	ana := d.anaClient()
	first, last := s.Waits()[0].Wait.Approval, s.Waits()[calls-1].Wait.Approval
	require.Equal(t, approval.Pending, mustApproval(t, ana, last).Status)

	_, err := ana.Cancel(t.Context(), s.Run, "All of it was a mistake.")
	require.NoError(t, err)
	s = d.waitFor(acme, s.Run, isDone)
	require.Equal(t, run.ReasonCancelled, s.Reason)
	require.Zero(t, d.refunds(s.Run))
	require.Eventually(t, func() bool {
		page, err := ana.Approvals(t.Context(), "", "", 0)
		return err == nil && len(page.Items) == 0
	}, 2*time.Minute, 50*time.Millisecond, "every request is closed")
	for _, id := range []string{first, last} {
		require.NotEqual(t, approval.Pending, mustApproval(t, ana, id).Status)
	}
}
