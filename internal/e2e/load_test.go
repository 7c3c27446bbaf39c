package e2e

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
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
