package approval_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// ordersTool is a tool that reads orders, with the content of its next result.
type ordersTool struct {
	content string
	err     error
	reads   int
}

func (o *ordersTool) Spec() agent.ToolSpec {
	return agent.ToolSpec{
		Name: "orders.get", Kind: agent.KindInternal, Description: "Reads.", Effect: run.EffectRead,
		Schema: json.RawMessage(`{"type":"object","properties":{"of":{"type":"string"}},"required":["of"]}`),
	}
}

func (o *ordersTool) Call(_ context.Context, c tool.Call) (agent.ToolResultData, error) {
	o.reads++
	if string(c.Args) != `{"of":"ana@example.com"}` {
		return agent.ToolResultData{Content: "of " + string(c.Args)}, nil
	}
	return agent.ToolResultData{Content: o.content}, o.err
}

// toolsWithOrders are the fixture's tools and ordersTool.
type toolsWithOrders struct {
	*fixture
	*ordersTool
}

func (w toolsWithOrders) Lookup(name string) (tool.Tool, bool) {
	if name == "orders.get" {
		return w.ordersTool, true
	}
	return w.fixture.Lookup(name)
}

// withPrecondition runs a test with a run that is parked on a refund that depends on an order.
func withPrecondition(t *testing.T, f func(t *testing.T, r *fixture, o *ordersTool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, o := newFixture(t), &ordersTool{content: `{"status":"paid"}`}
		r.def.Tools[0].Precondition = &agent.Precondition{Tool: "orders.get", Args: json.RawMessage(`{"of":{"args":"/to"}}`)}
		r.def.Tools = append(r.def.Tools, o.Spec())
		require.NoError(t, r.def.Check())
		r.ports.Tools = toolsWithOrders{r, o}
		r.startAndPark(args)
		f(t, r, o)
	})
}

// What was approved runs only as long as it is as it was, however that is written; else people are asked again. What
// nobody can read runs never.
func TestPreconditionIsReadAgain(t *testing.T) {
	tooLong := strings.Repeat("x", policy.MaxChecked+1)
	for name, c := range map[string]struct {
		change func(o *ordersTool)
		reason run.CallReason // "" = it runs, or people are asked again
		status run.CallStatus
	}{
		"another spelling": {func(o *ordersTool) { o.content = "{ \"status\" : \"p\\u0061id\" }" }, "", run.StatusSucceeded},
		"more of it":       {func(o *ordersTool) { o.content = `{"status":"paid","open":true}` }, "", run.StatusSuspended},
		"an error":         {func(o *ordersTool) { o.err = errReset }, run.WhyPrecondition, run.StatusFailed},
		"too long":         {func(o *ordersTool) { o.content = tooLong }, run.WhyPrecondition, run.StatusFailed},
	} {
		withPrecondition(t, func(t *testing.T, r *fixture, o *ordersTool) {
			r.must(r.decide(approval.Approve, ana))
			c.change(o)
			r.resume()
			require.Equal(t, []any{c.reason, c.status}, []any{r.call().Reason, r.call().Status}, name)
			require.Equal(t, c.status == run.StatusSucceeded, len(r.refund.paid) == 1, name)
			require.Equal(t, 2, o.reads, name)
		})
	}
}

// Asking again and again ends where the definition says so.
func TestPreconditionThatNeverHolds(t *testing.T) {
	withPrecondition(t, func(t *testing.T, r *fixture, o *ordersTool) {
		r.def.Limits.Asks = 3
		for asks := 1; r.call().Status == run.StatusSuspended; asks++ {
			require.LessOrEqual(t, asks, 3)
			o.content += " "
			o.content = strings.Replace(o.content, "paid", "paid again", 1)
			q := r.request(approval.Approve, ana)
			q.ID = run.ApprovalID(r.run, "c1", asks)
			r.must(r.desk().Decide(r.ctx, q))
			r.resume()
		}
		require.Empty(t, r.refund.paid)
		require.Equal(t, run.WhyVoided, r.call().Reason)
		require.Contains(t, r.call().Result.Content, "3 times")
	})
}
