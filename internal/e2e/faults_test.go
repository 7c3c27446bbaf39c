package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdksfn "github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/web"
)

// parkedRefund starts a refund and waits until it asks, under any fault.
func (d *deployment) parkedRefund(key string) run.AgentState {
	d.t.Helper()
	ana := d.anaClient()
	started, err := answered(d.t.Context(), d, func() (web.Accepted, error) { return ana.Start(d.t.Context(), refundStart(key)) })
	require.NoError(d.t, err)
	return d.waitFor(acme, started.ID, isParked)
}

// refundRun runs a refund from its start to its end under any fault, and returns its id.
func (d *deployment) refundRun(key string) string {
	d.t.Helper()
	s := d.parkedRefund(key)
	d.approve(d.anaClient(), s)
	d.requireWholeRefund(d.waitFor(acme, s.Run, isDone))
	d.waitAtRest()
	return s.Run
}

// At each request of the table, the process that makes it is ended, before the table has the request and after it has
// answered. The outcome is the same each time. Where COUNTERSIGN_KILLS is not set, a few requests stand for all: for each
// function the first and the last of its writes, one ended before and one after.
func TestKilledAtEveryRequest(t *testing.T) {
	d := deploy(t, newRefundModel(t))
	d.relay.setKillPoint(nil)
	d.refundRun("plain")
	requests, writes := d.relay.counts()
	var points []killPoint
	for n := 1; n <= requests; n++ {
		points = append(points, killPoint{n: n}, killPoint{n: n, after: true})
	}
	if os.Getenv("COUNTERSIGN_KILLS") == "" {
		t.Log("a few requests; all of them by COUNTERSIGN_KILLS=all, or make kills")
		points = nil
		for _, f := range []string{"http", "step", "tool", "approve"} {
			points = append(points, killPoint{n: 1, writes: f, after: true}, killPoint{n: writes[f], writes: f})
		}
	}
	met := map[string]int{}
	for _, p := range points {
		d.relay.setKillPoint(&p)
		d.refundRun(fmt.Sprintf("request-%s-%d-%t", p.writes, p.n, p.after))
		d.relay.setKillPoint(nil)
		if p.struck != "" { // who looks whether something has come, looks more or less often
			met[p.struck]++
		}
	}
	for _, f := range []string{"http", "step", "tool", "approve"} {
		require.Positive(t, met[f], "%s was never ended: %v of %v", f, met, writes)
	}
	t.Logf("%d requests, %v writes; ended %v", requests, writes, met)
}

// Every event of the state machine comes to its function twice, one after the other or both at once, as when a retry
// overlaps the attempt it replaces: the outcome is the same, and the state machine may get either answer.
func TestDeliveredTwice(t *testing.T) {
	d := deploy(t, newRefundModel(t))
	once := d.deliver
	for name, deliver := range map[string]func(function string, payload []byte) ([]byte, error){
		"one after the other": func(function string, payload []byte) ([]byte, error) {
			if _, err := once(function, payload); err != nil {
				return nil, err
			}
			return once(function, payload)
		},
		"at once": func(function string, payload []byte) ([]byte, error) {
			var all sync.WaitGroup
			var outs [2][]byte
			var errs [2]error
			for i := range 2 {
				all.Go(func() { outs[i], errs[i] = once(function, payload) })
			}
			all.Wait()
			if errs[0] != nil && errs[1] != nil {
				return nil, errs[0]
			}
			if errs[1] == nil {
				return outs[1], nil
			}
			return outs[0], nil
		},
		"and the first answer is lost": func(function string, payload []byte) ([]byte, error) {
			if _, err := once(function, payload); err != nil {
				return nil, err
			}
			if err := d.functions[function].Kill(); err != nil {
				return nil, err
			}
			return once(function, payload)
		},
	} {
		d.mu.Lock()
		d.deliver = deliver
		d.mu.Unlock()
		d.refundRun(name)
	}
}

// Lambda invokes no function for longer than the state machine tries. What asked for a run by an event is not lost: the
// sweep writes the run when its execution has given up, and the next one goes on.
func TestEventOutlastsItsExecution(t *testing.T) {
	d := deploy(t, newRefundModel(t), func(d *deployment) { d.values["EventTenant"], d.hurry = acme, 4000 })
	once, tries := d.deliver, 0
	d.mu.Lock()
	d.deliver = func(function string, payload []byte) ([]byte, error) {
		if tries++; tries <= 61 { // one after the other, as there is one execution
			return nil, &standins.LambdaError{Type: "Lambda.TooManyRequestsException"}
		}
		return once(function, payload)
	}
	d.mu.Unlock()
	key := d.putEvent("Countersign Run Requested", `{"agent":"refunds","message":"A wheel is broken. Order 1002."}`)
	s := d.waitFor(acme, agent.RunID(acme, "refunds", key), isParked)
	require.EqualValues(t, 1, s.Generation)
	d.approve(d.anaClient(), s)
	d.requireWholeRefund(d.waitFor(acme, s.Run, isDone))
	d.waitAtRest()
	require.NoError(t, errors.Join(d.bus.Undelivered()...))
}

// Someone stops the execution of a parked run. The event that this makes reaches functions/sweep by the template's
// rule; the run goes on in another execution and is approved there.
func TestExecutionStoppedFromOutside(t *testing.T) {
	d := deploy(t, newRefundModel(t))
	s := d.parkedRefund("k")
	_, err := d.sfn.StopExecution(t.Context(), &sdksfn.StopExecutionInput{
		ExecutionArn: aws.String("arn:aws:states:" + region + ":" + account + ":execution:" + name + ":" + s.Owner),
	})
	require.NoError(t, err)
	next := d.waitFor(acme, s.Run, func(now *run.AgentState) bool { return isParked(now) && now.Owner != s.Owner })
	require.EqualValues(t, s.Generation+1, next.Generation)
	d.approve(d.anaClient(), next)
	d.requireWholeRefund(d.waitFor(acme, s.Run, isDone))
	d.waitAtRest()
	require.NoError(t, errors.Join(d.bus.Undelivered()...))
}

// pastClock is a clock that is slow by age.
type pastClock struct {
	clock.Clock
	age time.Duration
}

func (c pastClock) Now() time.Time { return c.Clock.Now().Add(-c.age) }

// unreachableWaiter is a state machine that cannot be reached.
type unreachableWaiter struct{ runtime.Waiter }

var errMute = errors.New("nobody answers")

func (unreachableWaiter) Start(context.Context, string, string, string) error { return errMute }

// startLost writes a run as of some time ago, by somebody who died before its execution was started.
func (d *deployment) startLost(age time.Duration, edits ...func(*agent.Definition)) (runID string) {
	d.t.Helper()
	def := refundsAgent(d.t)
	for _, edit := range edits {
		edit(def)
	}
	past := d.ports
	past.Clock, past.Waiter = pastClock{d.clock, age}, unreachableWaiter{d.ports.Waiter}
	st := runtime.Starter{Ports: past}
	message := []run.UserBlock{{Block: run.Text{Text: "Order 1002."}}}
	_, err := st.Start(d.t.Context(), runtime.Start{Tenant: acme, Agent: def, Key: "k", Message: message})
	require.ErrorIs(d.t, err, errMute)
	require.Empty(d.t, d.engine.List(d.t.Context(), ""))
	return agent.RunID(acme, "refunds", "k")
}

// sweep invokes functions/sweep with the sample of its schedule's event.
func (d *deployment) sweep() (report lambdafn.Swept) {
	d.t.Helper()
	out, err := d.functions["sweep"].Invoke(d.t.Context(), sample(d.t, "sweep", "schedule.json"))
	require.NoError(d.t, err)
	require.NoError(d.t, json.Unmarshal(out, &report))
	return report
}
