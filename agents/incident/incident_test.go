package incident_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/agents/incident"
	"github.com/countersign/countersign/agents/ledger"
	"github.com/countersign/countersign/pkg/agent"
)

func tools(t *testing.T) map[string]agent.Tool {
	t.Helper()
	estate, err := incident.Open(ledger.Ledger{Dir: t.TempDir()})
	require.NoError(t, err)
	list, err := incident.Tools(estate)
	require.NoError(t, err)
	all := map[string]agent.Tool{}
	for _, tl := range list {
		all[tl.Spec().Name] = tl
	}
	return all
}

func call(t *testing.T, tl agent.Tool, id, args string) agent.Result {
	t.Helper()
	r, err := tl.Call(t.Context(), agent.Call{Run: "r1", ID: id, Key: "r1/" + id, Args: json.RawMessage(args)})
	require.NoError(t, err)
	return r
}

const back = `{"service":"checkout","to":"v41","reason":"errors"}`

// What was rolled back decides what runs, and with it what metrics and logs say.
func TestRollbackChangesWhatIsSeen(t *testing.T) {
	all := tools(t)
	errorsNow := func() string {
		return call(t, all["metrics.query"], "c", `{"service":"checkout","metric":"errors_percent"}`).Content
	}
	require.JSONEq(t, `{"service":"checkout","metric":"errors_percent","runs":"v42","now":18.4,"while":[{"version":"v41","value":0.2},{"version":"v42","value":18.4}]}`, errorsNow())
	require.JSONEq(t, `["error card gateway: retry budget used up, payment of order 88213 refused"]`,
		call(t, all["logs.search"], "c", `{"service":"checkout","level":"error","contains":"gateway","limit":1}`).Content)
	require.JSONEq(t, `{"service":"checkout","from":"v42","to":"v41","key":"r1/c1"}`, call(t, all["deploys.rollback"], "c1", back).Content)
	require.JSONEq(t, `{"service":"checkout","metric":"errors_percent","runs":"v41","now":0.2,"while":[{"version":"v41","value":0.2},{"version":"v42","value":18.4}]}`, errorsNow())
	require.JSONEq(t, `["warn receipt printer slow: 1200 ms"]`, call(t, all["logs.search"], "c", `{"service":"checkout"}`).Content)
	require.JSONEq(t, `[]`, call(t, all["logs.search"], "c", `{"service":"checkout","contains":"no such"}`).Content)
	require.Contains(t, call(t, all["deploys.list"], "c", `{"service":"checkout"}`).Content, `"runs":"v41"`)
	require.Contains(t, call(t, all["deploys.list"], "c", `{"service":"search"}`).Content, `"runs":"v7"`)
}

func TestRefusals(t *testing.T) {
	all := tools(t)
	for _, c := range []struct{ tool, args, want string }{
		{"metrics.query", `{"service":"mail","metric":"errors_percent"}`, "There is no service mail."},
		{"metrics.query", `{"service":"checkout","metric":"errors"}`, "do not fit"},
		{"logs.search", `{"service":"mail"}`, "There is no service mail."},
		{"logs.search", `{"service":"checkout","limit":51}`, "do not fit"},
		{"deploys.list", `{"service":"mail"}`, "There is no service mail."},
		{"deploys.rollback", `{"service":"mail","to":"v1","reason":"x"}`, "There is no service mail."},
		{"deploys.rollback", `{"service":"checkout","to":"v42","reason":"x"}`, "checkout runs v42, and v42 is no version from before it."},
		{"deploys.rollback", `{"service":"checkout","to":"v9","reason":"x"}`, "v9 is no version from before it."},
		{"deploys.rollback", `{"service":"search","to":"v6","reason":"x"}`, "v6 is no version from before it."},
		{"deploys.rollback", `{"service":"checkout","to":"v41"}`, "do not fit"},
	} {
		r := call(t, all[c.tool], "c1", c.args)
		require.True(t, r.IsError, c.args)
		require.Contains(t, r.Content, c.want)
	}
	require.Contains(t, call(t, all["deploys.list"], "c", `{"service":"checkout"}`).Content, `"runs":"v42"`, "nothing was done")
}

// A version is rolled back once: by one call, as often as that is made, and whoever else wants it hears so.
func TestOneRollsBack(t *testing.T) {
	all := tools(t)
	rec := all["deploys.rollback"].(agent.Reconciler)
	reconciled := func(id string) agent.Outcome {
		outcome, _, err := rec.Reconcile(t.Context(), agent.Call{Key: "r1/" + id, Args: json.RawMessage(back)})
		require.NoError(t, err)
		return outcome
	}
	require.Equal(t, agent.OutcomeNotDone, reconciled("c1"))
	call(t, all["deploys.rollback"], "c1", back)
	require.JSONEq(t, `{"service":"checkout","from":"v42","to":"v41","key":"r1/c1"}`, call(t, all["deploys.rollback"], "c1", back).Content, "the same call again")
	require.True(t, call(t, all["deploys.rollback"], "c2", back).IsError)
	require.Equal(t, agent.OutcomeDone, reconciled("c1"))
	require.Equal(t, agent.OutcomeNotDone, reconciled("c2"))
	outcome, _, err := rec.Reconcile(t.Context(), agent.Call{Key: "r1/c1", Args: json.RawMessage(`{"service":"mail","to":"v1","reason":"x"}`)})
	require.NoError(t, err)
	require.Equal(t, agent.OutcomeNotDone, outcome, "nothing happens to a service that is not there")
}
