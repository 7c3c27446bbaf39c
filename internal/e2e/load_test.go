package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
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
	requireProblem(t, err, 429, api.TooManyRuns)
	d.relay.setKillPoint(nil) // which counts from here
	out, err := d.events.PutEvents(t.Context(), &eventbridge.PutEventsInput{Entries: []types.PutEventsRequestEntry{{
		Source: aws.String(eventSource), DetailType: aws.String("Countersign Run Requested"),
		Detail: aws.String(`{"agent":"refunds","message":"A wheel of my chair is broken. Order 1002."}`),
	}}})
	require.NoError(t, err)
	byEvent := agent.RunID(acme, "refunds", *out.Entries[0].EventId)
	require.Eventually(t, func() bool { requests, _ := d.relay.counts(); return requests >= 4 }, time.Minute, 10*time.Millisecond, "it has tried twice")
	_, err = ana.Run(t.Context(), byEvent)
	requireProblem(t, err, 404, api.RunNotFound)

	d.sweep()
	d.waitFor(acme, lost, isParked)
	d.approve(ana, d.waitFor(acme, byEvent, isParked))
	d.requireWholeRefund(d.waitFor(acme, byEvent, isDone))
}

// All runs of a tenant together have a budget: a run that finds it used up ends, and the next one asks no model at all.
// Both functions that count have the role for it.
func TestTenantBudget(t *testing.T) {
	d := deploy(t, newRefundModel(t), func(d *deployment) { d.values["TenantBudget"] = "1 tokens/month" })
	ana := d.anaClient()
	for i, asked := range []int64{1, 0} {
		started, err := ana.Start(t.Context(), refundStart(fmt.Sprint("budget-", i)))
		require.NoError(t, err)
		s := d.waitFor(acme, started.ID, isDone)
		require.Equal(t, run.CodeTokensExhausted, s.Error.Code)
		require.Regexp(t, "^all runs of the tenant used [0-9]+ tokens this month and had 1$", s.Error.Message)
		require.Equal(t, asked, s.ModelCalls)
	}
}
