package local

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/tools/egress"
)

// nothingKeptOf fails where a file below a folder holds a text.
func nothingKeptOf(t *testing.T, dir, text string) {
	t.Helper()
	files := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		files++
		require.NotContains(t, string(data), text, path)
		return err
	}))
	require.NotZero(t, files)
}

// A request of a tool waits for its countersignature, goes out once under the call's own key, and its answer is the
// call's result. Of the secret that it was sent with nothing is kept, though the server says it back.
func TestAnHTTPToolIsApprovedAndSentOnce(t *testing.T) {
	const token = "canary-of-the-payer"
	asked := make(chan [2]string, 10) // path, authorization and body; key
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		auth := r.Header.Get("Authorization")
		asked <- [2]string{fmt.Sprintf("%s %s %s", r.URL.Path, auth, body), r.Header.Get("Idempotency-Key")}
		_, _ = fmt.Fprintf(w, "receipt 7 for %s", auth)
	}))
	defer bank.Close()
	home := filepath.Join(t.TempDir(), "home")
	remotes, err := Remotes(home, func(name string) string {
		return map[string]string{egress.EnvPrivate: strings.TrimPrefix(bank.URL, "http://"), secrets.Env + "PAY": token}[name]
	}, clock.System(), nil)
	require.NoError(t, err)
	model := func(agent.ModelSpec) (runtime.Model, error) {
		return replying{calls("c1", "pay", `{"order":"A-1","amount":9.90}`), farewell}, nil
	}
	h, err := Open(home, registry.Must(registry.New()), model, Config{Clock: clock.System(), Remotes: remotes})
	require.NoError(t, err)
	def := define(t, "payer", agent.ToolSpec{
		Name: "pay", Kind: agent.KindHTTP, Effect: run.EffectNonIdempotent, Timeout: 20 * time.Second,
		Schema: json.RawMessage(
			`{"type":"object","properties":{"order":{"type":"string"},"amount":{"type":"number"}},"required":["order"]}`,
		),
		HTTP: &agent.HTTPTool{
			Method: "POST", URL: bank.URL + "/orders/{order}", Headers: map[string]string{"Authorization": "Bearer ${secret:PAY}"},
		},
	})
	s, err := h.Starter.Start(t.Context(), runtime.Start{Tenant: Tenant, Agent: def, Key: "k", Message: message("Pay.")})
	require.NoError(t, err)
	s = settled(t, h, s.Run)
	require.Equal(t, run.RunWaiting, s.Status)
	require.Empty(t, asked, "nothing goes out before somebody signs")
	_, err = h.Desk.Decide(t.Context(), approval.DecisionInput{
		Tenant: Tenant, ID: s.Waits()[0].Wait.Approval, Action: approval.Approve, By: clerks,
	})
	require.NoError(t, err)
	s = settled(t, h, s.Run)
	require.Equal(t, run.ReasonNaturalEnd, s.Reason)
	require.Len(t, asked, 1)
	require.Equal(t, [2]string{`/orders/A-1 Bearer ` + token + ` {"amount":9.90}`, s.Run + "/c1"}, <-asked)
	c := s.Calls()[0]
	require.Equal(t, run.StatusSucceeded, c.Status)
	require.Equal(t, "receipt 7 for Bearer ${secret:PAY}", c.Result.Content)
	require.NoError(t, h.Close())
	nothingKeptOf(t, home, token)
}
