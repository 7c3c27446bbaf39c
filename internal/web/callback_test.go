package web_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/secrets"
)

// ring is the benches'.
var ring = func() *secrets.Ring {
	r, err := secrets.Parse(`{"id":"k1","key":"0123456789abcdef0123456789abcdef"}`)
	if err != nil {
		panic(err)
	}
	return r
}()

// bearer lets its bearer answer a call for so long.
func bearer(run, call string, left time.Duration) string { return bearerOf(ring, run, call, left) }

func bearerOf(r *secrets.Ring, run, call string, left time.Duration) string {
	ends := clock.System().Now().Add(left)
	return secrets.Token(r, secrets.Claim{Tenant: local.Tenant, Run: run, Call: call, Expires: ends})
}

const asksOnce = `{"calls": [{"id": "c1", "name": "ask", "input": {}}]}
{"text": "done"}`

// asksService gives the agent a service.
func asksService(d *agent.Definition) {
	d.Permission.Default, d.Permission.Rules = agent.DefaultAllow, nil
	d.Tools = append(d.Tools, agent.ToolSpec{Name: "ask", Kind: agent.KindService, Effect: run.EffectNonIdempotent, Schema: []byte(`{"type":"object"}`)})
}

// The first answer to a call counts and is its result, whoever says it again or something else is told that it does not; nothing but the
// address is asked for.
func TestCallback(t *testing.T) {
	b := newBench(t, asksOnce, asksService)
	one := b.start("k")
	require.Equal(t, run.ForAnswer, one.Waiting[0].For)
	at := secrets.Path + bearer(one.ID, "c1", time.Hour)
	post := func(body string) answer { return b.do("POST "+at, body, "X-Countersign-As", "nobody") }
	for _, bad := range []string{`{}`, `{"result":1,"error":"x"}`, `{"result":1,"result":2}`, `{"rerun":true}`, `[]`, `{"result":1} x`} {
		require.Equal(t, http.StatusBadRequest, post(bad).status, bad)
	}
	require.Equal(t, http.StatusRequestEntityTooLarge, post(`{"result":"`+strings.Repeat("x", 256<<10)+`"}`).status)
	for _, m := range []string{"GET", "HEAD", "PUT", "DELETE", "OPTIONS"} {
		require.Equal(t, http.StatusMethodNotAllowed, b.do(m+" "+at, "").status, m)
	}
	require.Equal(t, one, b.waitUntilParked(one.ID), "nothing of this has changed the run")
	for i, want := range []string{`{"applied":true}`, `{"applied":false}`, `{"applied":false}`} {
		got := post([]string{`{"result":{"at":10.50}}`, `{"error":"too late"}`, `{"result":1}`}[i])
		require.Equal(t, http.StatusAccepted, got.status, got.body)
		if i > 0 {
			require.JSONEq(t, want, got.body)
		}
	}
	done := b.waitUntilParked(one.ID)
	require.Equal(t, run.RunDone, done.Status)
	require.Contains(t, b.do("GET /v1/runs/"+one.ID, "").body, `{\"at\":10.50}`, "as it was sent")
	require.JSONEq(t, `{"applied":false}`, post(`{"result":1}`).body)
}

// Every token that is not right gets the same answer, to the byte: nothing says whether the run, the call or the tenant is there.
func TestCallbacksThatAreNotRight(t *testing.T) {
	b := newBench(t, asksOnce, asksService)
	var log bytes.Buffer
	b.backend.Log = slog.New(slog.NewTextHandler(&log, nil))
	b.serve()
	run := b.start("k")
	good := bearer(run.ID, "c1", time.Hour)
	elsewhere := secrets.Token(ring, secrets.Claim{Tenant: "other", Run: run.ID, Call: "c1", Expires: clock.System().Now().Add(time.Hour)})
	stranger := must(secrets.Parse(`{"id":"k1","key":"ffffffffffffffffffffffffffffffff"}`))
	bad := []string{
		"x", good[:len(good)-1], good + "A", good[1:], good + "=", strings.Repeat("A", 513),
		bearer(noRun, "c1", time.Hour), elsewhere,
		bearerOf(stranger, run.ID, "c1", time.Hour), bearerOf(stranger, run.ID, "c1", -time.Hour),
	}
	for i := range good {
		changed := []byte(good)
		changed[i] ^= 1
		if strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", rune(changed[i])) {
			bad = append(bad, string(changed))
		}
	}
	first := b.ask("POST "+secrets.Path+bad[0], `{"result":1}`, http.StatusNotFound)
	for _, wrong := range bad {
		got := b.do("POST "+secrets.Path+wrong, `{"result":1}`)
		require.Equal(t, []any{first.status, first.body}, []any{got.status, got.body}, wrong)
	}
	gone := b.ask("POST "+secrets.Path+bearer(run.ID, "c1", -time.Second), `{"result":1}`, http.StatusGone)
	require.NotContains(t, gone.body, run.ID)
	other := b.do("POST "+secrets.Path+bearer(run.ID, "c9", time.Hour), `{"result":1}`)
	require.JSONEq(t, `{"applied":false}`, other.body, "a right token of a call that waits for nothing")
	require.Equal(t, run, b.waitUntilParked(run.ID))
	b.backend.Callbacks = nil
	b.serve()
	got := b.do("POST "+secrets.Path+good, `{"result":1}`)
	require.Equal(t, []any{first.status, first.body}, []any{got.status, got.body}, "a deployment without a ring")
	require.NotContains(t, log.String(), good[:40])
}
