package refunds_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/agents/ledger"
	"github.com/countersign/countersign/agents/refunds"
	"github.com/countersign/countersign/pkg/agent"
)

// shop has orders.get, refunds.create and refunds.cancel over a ledger in dir.
func shop(t *testing.T) (get, create, cancel agent.Tool, dir string) {
	t.Helper()
	dir = t.TempDir() + "/ledger"
	tools, err := refunds.Tools(ledger.Ledger{Dir: dir})
	require.NoError(t, err)
	return tools[0], tools[1], tools[2], dir
}

// requireReconciled says what became of a call, with its result where it was made.
func requireReconciled(t *testing.T, tl agent.Tool, c agent.Call, want agent.Outcome, result string) {
	t.Helper()
	outcome, r, err := tl.(agent.Reconciler).Reconcile(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, want, outcome)
	require.Equal(t, result, r.Content)
}

func call(t *testing.T, tl agent.Tool, id, args string) agent.Result {
	t.Helper()
	r, err := tl.Call(t.Context(), agent.Call{Run: "r1", ID: id, Key: "r1/" + id, Args: json.RawMessage(args)})
	require.NoError(t, err)
	return r
}

func paid(t *testing.T, dir string) (n int) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	for _, f := range files {
		require.False(t, strings.HasPrefix(f.Name(), ".new"), "nothing half-done is left")
		n++
	}
	return n
}

func TestRefund(t *testing.T) {
	get, create, cancel, dir := shop(t)
	require.JSONEq(t, `{"id":"1002","customer":"Ben Okafor","item":"Office chair","paid":249.00,"refunded":0}`, call(t, get, "c0", `{"order":"1002"}`).Content)
	for args, want := range map[string]string{
		`{"order":"1","amount":1,"reason":"x"}`:         "There is no order 1.",
		`{"order":"1002","amount":249.01,"reason":"x"}`: "Only 249.00 was paid",
		`{"order":"1002","amount":0,"reason":"x"}`:      "do not fit",
		`{"order":"1002","amount":"5","reason":"x"}`:    "do not fit",
	} {
		r := call(t, create, "c1", args)
		require.True(t, r.IsError, args)
		require.Contains(t, r.Content, want)
	}
	require.Zero(t, paid(t, dir))
	r := call(t, create, "c2", `{"order":"1002","amount":249.00,"reason":"broken"}`)
	require.JSONEq(t, `{"order":"1002","amount":249.00,"key":"r1/c2"}`, r.Content)
	require.Equal(t, 1, paid(t, dir))
	call(t, create, "c3", `{"order":"1002","amount":0.5,"reason":"late"}`)
	call(t, create, "c4", `{"order":"1001","amount":1,"reason":"of another order"}`)
	require.Contains(t, call(t, get, "c0", `{"order":"1002"}`).Content, `"refunded":249.5`)
	call(t, cancel, "c5", `{"refund":"r1/c2"}`)
	require.Contains(t, call(t, get, "c0", `{"order":"1002"}`).Content, `"refunded":0.5`)
}

// The same call pays once, and the ledger says whether it has.
func TestOneCallPaysOnce(t *testing.T) {
	_, create, _, dir := shop(t)
	c := agent.Call{Run: "r1", ID: "c1", Key: "r1/c1", Args: json.RawMessage(`{"order":"1001","amount":5,"reason":"late"}`)}
	requireReconciled(t, create, c, agent.OutcomeNotDone, "")
	for range 2 { // agents/ledger tests many at once
		_, err := create.Call(t.Context(), c)
		require.NoError(t, err)
	}
	require.Equal(t, 1, paid(t, dir))
	requireReconciled(t, create, c, agent.OutcomeDone, `{"order":"1001","amount":5,"key":"r1/c1"}`)
}

// A refund is taken back once: by the call that did it as often as it is made, and by no other.
func TestCancelTakesBackOnce(t *testing.T) {
	_, create, cancel, dir := shop(t)
	call(t, create, "c1", `{"order":"1001","amount":5,"reason":"late"}`)
	for _, unknown := range []string{"r1/c9", "", "r1/c1 cancelled"} {
		args, err := json.Marshal(map[string]string{"refund": unknown})
		require.NoError(t, err)
		r := call(t, cancel, "c2", string(args))
		require.True(t, r.IsError)
		require.Equal(t, "There is no refund "+unknown+".", r.Content)
	}
	c := agent.Call{Run: "r1", ID: "c2", Key: "r1/c2", Args: json.RawMessage(`{"refund":"r1/c1"}`)}
	requireReconciled(t, cancel, c, agent.OutcomeNotDone, "")
	for range 3 {
		require.JSONEq(t, `{"refund":"r1/c1","key":"r1/c2"}`, call(t, cancel, "c2", `{"refund":"r1/c1"}`).Content)
	}
	requireReconciled(t, cancel, c, agent.OutcomeDone, `{"refund":"r1/c1","key":"r1/c2"}`)
	other := call(t, cancel, "c3", `{"refund":"r1/c1"}`)
	require.True(t, other.IsError)
	require.Equal(t, "Refund r1/c1 has been taken back already.", other.Content)
	c.ID, c.Key = "c3", "r1/c3"
	requireReconciled(t, cancel, c, agent.OutcomeNotDone, "") // it was another's doing
	require.True(t, call(t, cancel, "c4", `{"refund":"r1/c1 cancelled"}`).IsError, "what takes back is no refund")
	require.Equal(t, 2, paid(t, dir), "the refund and its end")
}
