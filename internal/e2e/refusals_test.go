package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
		"a key twice":          {"POST", "/v1/runs", `{"agent":"refunds","agent":"x","message":"x"}`, ana, 400, "invalid-request"},
		"unknown agent":        {"POST", "/v1/runs", `{"agent":"nobody","message":"x"}`, ana, 400, "unknown-agent"},
		"too large for anyone": {"POST", "/v1/runs", strings.Repeat("x", 10<<20+1), ana, 413, ""},
		"wrong method":         {"DELETE", "/v1/runs", "", ana, 405, "method-not-allowed"},
		"no such path":         {"GET", "/v1/elsewhere", "", ana, 404, "no-such-path"},
		"no such run":          {"GET", "/v1/runs/raaaaaaaaaaaaaaaaaaaaaaaaa", "", ana, 404, "run-not-found"},
		"no such approval":     {"POST", "/v1/approvals/aaaaaaaaaaaaaaaaaaaaaaaaaa/decision", `{"action":"approve"}`, ana, 404, "approval-not-found"},
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
