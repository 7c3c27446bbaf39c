package approval_test

import (
	"context"
	"encoding/json"
	"errors"
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

// What was approved runs only as long as it is as it was; else people are asked again, and told what it was. What nobody can read runs never.
func TestPreconditionIsReadAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(o *ordersTool)
		paid   int
		reason run.CallReason
		again  bool
	}{
		"as it was":             {func(*ordersTool) {}, 1, "", false},
		"in another spelling":   {func(o *ordersTool) { o.content = "{ \"status\" : \"p\\u0061id\" }" }, 1, "", false},
		"changed":               {func(o *ordersTool) { o.content = `{"status":"refunded"}` }, 0, "", true},
		"more of it":            {func(o *ordersTool) { o.content = `{"status":"paid","open":true}` }, 0, "", true},
		"cannot be read":        {func(o *ordersTool) { o.err = errors.New("connection reset") }, 0, run.WhyPrecondition, false},
		"more than can be seen": {func(o *ordersTool) { o.content = strings.Repeat("x", policy.MaxChecked+1) }, 0, run.WhyPrecondition, false},
	} {
		t.Run(name, func(t *testing.T) {
			withPrecondition(t, func(t *testing.T, r *fixture, o *ordersTool) {
				r.must(r.decide(approval.Approve, ana))
				c.change(o)
				r.resume()
				require.Len(t, r.refund.paid, c.paid)
				require.Equal(t, c.reason, r.call().Reason)
				require.Equal(t, 2, o.reads)
				if !c.again {
					return
				}
				require.Equal(t, approval.Voided, r.approval().Status)
				again, err := approval.Get(r.ctx, r.table, tenant, run.ApprovalID(r.run, "c1", 2))
				require.NoError(t, err)
				require.Equal(t, o.content, again.Precondition.Content)
				require.Equal(t, `{"status":"paid"}`, again.Precondition.Was.Content)
				q := r.request(approval.Approve, ben)
				q.ID = again.ID
				r.must(r.desk().Decide(r.ctx, q))
				r.resume()
				require.Len(t, r.refund.paid, 1)
				require.Equal(t, 3, o.reads)
			})
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
