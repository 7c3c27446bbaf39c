package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/web"
)

// A tenant with as many running runs as MaxRunningRuns has no other one started: the API says so, and the run of an event
// waits in its execution until there is room. Both count with their own roles.
func TestMaxRunningRuns(t *testing.T) {
	d := deploy(t, newRefundModel(t), func(d *deployment) {
		d.values["MaxRunningRuns"], d.values["EventTenant"] = "1", acme
	})
	lost := d.startLost(10 * time.Minute) // it is running, and nobody carries it on
	ana := d.anaClient()
	_, err := ana.Start(t.Context(), refundStart("another"))
	requireProblem(t, err, 429, web.TooManyRuns)
	d.relay.setKillPoint(nil) // which counts from here
	byEvent := agent.RunID(acme, "refunds", d.putEvent("Countersign Run Requested",
		`{"agent":"refunds","message":"A wheel of my chair is broken. Order 1002."}`))
	require.Eventually(t, func() bool { requests, _ := d.relay.counts(); return requests >= 4 }, time.Minute, 10*time.Millisecond, "it has tried twice")
	_, err = ana.Run(t.Context(), byEvent)
	requireProblem(t, err, 404, web.RunNotFound)

	d.sweep()
	d.waitFor(acme, lost, isParked)
	d.approve(ana, d.waitFor(acme, byEvent, isParked))
	d.requireWholeRefund(d.waitFor(acme, byEvent, isDone))
}

// All runs of a tenant together have a budget. Where an agent asks, people add to it; a run that finds it used up, and is
// given no more, ends. The functions that count what was used and what was added do it with their own roles.
func TestTenantBudget(t *testing.T) {
	d := deploy(t, newRefundModel(t), func(d *deployment) { d.values["TenantBudget"] = "340 tokens/month" })
	ana := d.anaClient()
	def := refundsAgent(t)
	def.Limits.OnBudget = agent.OnBudgetAsk
	require.NoError(t, def.Check(), "no other budget is needed")
	start := func(key string) run.AgentState {
		return d.start(runtime.Start{Tenant: acme, Agent: def, Key: key}, "A wheel of my chair is broken. Order 1002.")
	}
	waitsFor := func(tool string) func(*run.AgentState) bool {
		return func(s *run.AgentState) bool { return isParked(s) && s.Calls()[len(s.Calls())-1].Tool == tool }
	}
	first := start("first").Run
	d.approve(ana, d.waitFor(acme, first, waitsFor("refunds.create")))
	d.approve(ana, d.waitFor(acme, first, waitsFor(run.ToolTenantBudget)))
	s := d.waitFor(acme, first, isDone)
	require.Equal(t, run.ReasonNaturalEnd, s.Reason, "%+v", s.Error)
	require.EqualValues(t, 3, s.ModelCalls)

	// 660 of 680 are used: the second run has one request to the model, and then asks before anything is paid.
	s = d.waitFor(acme, start("second").Run, waitsFor(run.ToolTenantBudget))
	require.EqualValues(t, 1, s.ModelCalls)
	_, err := ana.Decide(t.Context(), s.Waits()[0].Wait.Approval, web.Verdict{Action: approval.Deny})
	require.NoError(t, err)
	s = d.waitFor(acme, s.Run, isDone)
	require.Equal(t, run.Stopped(string(run.CodeTokensExhausted)), s.Reason)

	started, err := ana.Start(t.Context(), refundStart("never asked"))
	require.NoError(t, err)
	s = d.waitFor(acme, started.ID, isDone)
	require.Equal(t, run.CodeTokensExhausted, s.Error.Code)
	require.Regexp(t, "^all runs of the tenant used [0-9]+ tokens this month and had [0-9]+$", s.Error.Message)
	require.Zero(t, s.ModelCalls)
}
