package refunds_test

import (
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/agents/refunds"
	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/tool"
)

func shop(t *testing.T) (get, create tool.Tool, dir string) {
	t.Helper()
	dir = t.TempDir() + "/ledger"
	tools, err := refunds.Tools(refunds.Ledger{Dir: dir})
	require.NoError(t, err)
	return tools[0], tools[1], dir
}

func call(t *testing.T, tl tool.Tool, id, args string) agent.ToolResultData {
	t.Helper()
	r, err := tl.Call(t.Context(), tool.Call{Run: "r1", ID: id, Key: "r1/" + id, Args: json.RawMessage(args)})
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
	get, create, dir := shop(t)
	require.JSONEq(t, `{"id":"1002","customer":"Ben Okafor","item":"Office chair","paid":249.00}`, call(t, get, "c0", `{"order":"1002"}`).Content)
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
}

// The same call pays once, and the ledger says whether it has.
func TestOneCallPaysOnce(t *testing.T) {
	_, create, dir := shop(t)
	rec := create.(tool.Reconciler)
	c := tool.Call{Run: "r1", ID: "c1", Key: "r1/c1", Args: json.RawMessage(`{"order":"1001","amount":5,"reason":"late"}`)}
	outcome, _, err := rec.Reconcile(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, tool.OutcomeNotDone, outcome)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			_, err := create.Call(t.Context(), c)
			require.NoError(t, err)
		})
	}
	all.Wait()
	require.Equal(t, 1, paid(t, dir))
	outcome, r, err := rec.Reconcile(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, tool.OutcomeDone, outcome)
	require.JSONEq(t, `{"order":"1001","amount":5,"key":"r1/c1"}`, r.Content)
}
