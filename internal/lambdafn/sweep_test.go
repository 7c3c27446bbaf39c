package lambdafn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

// The schedule's event as an EventBridge rule sends it, and as EventBridge Scheduler does.
const (
	ruleEvent = `{"version":"0","id":"e1","detail-type":"Scheduled Event","source":"aws.events","account":"1","time":"2026-01-01T00:00:00Z",
		"region":"eu-central-1","resources":["arn:aws:events:eu-central-1:1:rule/sweep"],"detail":{}}`
	schedulerEvent = `{"version":"0","id":"e1","detail-type":"Scheduled Event","source":"aws.scheduler","account":"1","time":"2026-01-01T00:00:00Z",
		"region":"eu-central-1","resources":["arn:aws:scheduler:eu-central-1:1:schedule/default/sweep"],"detail":"{}"}`
)

// swept sends functions/sweep an event that it must answer.
func (s *stack) swept(event string) lambdafn.Swept {
	s.t.Helper()
	return s.report(s.sweep(s.t.Context(), []byte(event)))
}

// report reads an answer of functions/sweep, which had to come.
func (s *stack) report(out []byte, err error) (r lambdafn.Swept) {
	s.t.Helper()
	require.NoError(s.t, err)
	require.NoError(s.t, json.Unmarshal(out, &r))
	return r
}

// statusEvent is what Step Functions sends when an execution changes its status. Nil input = it was too large for the
// event.
func statusEvent(name, status string, input any) string {
	return fmt.Sprintf(`{"version":"0","id":"e2","detail-type":"Step Functions Execution Status Change","source":"aws.states","account":"1",
		"detail":{"executionArn":%q,"stateMachineArn":%q,"name":%q,"status":%q,"startDate":1,"stopDate":2,"input":%s,"output":null,
		"inputDetails":{"included":%t},"error":"States.Timeout","cause":"sk-canary"}}`,
		executionARN+name, machineARN, name, status, mustJSON(input), input != nil)
}

func requireKind(t *testing.T, want lambdafn.Kind, err error) {
	t.Helper()
	var e *lambdafn.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, want, e.Kind)
}

// kill ends an execution as an operator's hand or a limit does, before its run is done.
func (s *stack) kill(name string) {
	s.t.Helper()
	require.NoError(s.t, s.machine.Engine.Stop(context.Background(), executionARN+name, "Gone", "killed"))
	synctest.Wait()
}

// approve approves what a run waits for, and lets it go on.
func (s *stack) approve(r web.Run) {
	s.t.Helper()
	require.Equal(s.t, 200, s.do(ana, "POST /v1/approvals/"+r.Waiting[0].Approval+"/decision", `{"action":"approve"}`).StatusCode)
	synctest.Wait()
}

func inputOf(tenant, run string) string { return fmt.Sprintf(`{"tenant":%q,"run":%q}`, tenant, run) }

// A sweep on schedule repairs what is wrong, says so in its report and its metrics, and the next one finds nothing.
func TestScheduledSweep(t *testing.T) {
	for name, event := range map[string]string{"rule": ruleEvent, "scheduler": schedulerEvent} {
		t.Run(name, func(t *testing.T) {
			inStack(t, pay, func(t *testing.T, s *stack) {
				s.waiting(ana, "well")
				since := time.Now()
				time.Sleep(time.Second)
				dead := s.waiting(ana, "dead")
				s.kill(runtime.ExecutionName(dead.ID, 0))
				time.Sleep(2 * time.Minute)
				r := s.swept(event)
				require.Equal(t, lambdafn.Swept{
					Checked: 2, Repaired: map[runtime.Repair]int64{runtime.RepairTookOver: 1}, Complete: true,
					Waiting: &runtime.Waiting{Runs: 2, Since: since.UTC()},
				}, r)
				require.Equal(t, map[string]int64{
					"RunsRepaired": 1, "RunsRepaired Repair took_over": 1, "SweepFailures": 0, "WaitsOpen": 2, "OldestWaitSeconds": 121, "OutcomesUnknown": 0,
				}, s.metrics.take())
				synctest.Wait()

				// The new execution has found the run's wait and waits on.
				require.Equal(t, dead.Waiting[0].Approval, read[web.Run](s, ana, 200, "GET /v1/runs/"+dead.ID, "").Waiting[0].Approval)
				time.Sleep(2 * time.Minute)
				r = s.swept(event)
				require.Empty(t, r.Repaired)
				require.Equal(t, int64(0), s.metrics.take()["RunsRepaired"])
				s.approve(dead)
				require.Equal(t, run.RunDone, read[web.Run](s, ana, 200, "GET /v1/runs/"+dead.ID, "").Status)
				require.Len(t, s.paid, 1)
			})
		})
	}
}

// While another sweep has the lease, a scheduled one repairs nothing, and says so. An execution's end is attended to.
func TestScheduledSweepLeavesItToAnother(t *testing.T) {
	inStack(t, pay, func(t *testing.T, s *stack) {
		dead, ended := s.waiting(ana, "dead"), s.waiting(ana, "ended")
		s.kill(runtime.ExecutionName(dead.ID, 0))
		s.kill(runtime.ExecutionName(ended.ID, 0))
		time.Sleep(2 * time.Minute)
		require.NoError(t, s.counts.Write(t.Context(), store.Op{Kind: store.Put, Item: store.Item{
			Key: store.Key{PK: "SWEEP", SK: "LEASE"}, Attrs: map[string]store.Value{
				"holder": store.Str("another"), "until": store.Num(time.Now().Add(5 * time.Minute).UnixMilli()),
			},
		}}))
		require.Equal(t, lambdafn.Swept{Skipped: true, Repaired: map[runtime.Repair]int64{}}, s.swept(ruleEvent))
		require.Contains(t, s.logs.String(), "another one is under way")
		require.NotContains(t, s.metrics.take(), "WaitsOpen", "which nobody counted")
		one := s.swept(statusEvent(runtime.ExecutionName(ended.ID, 0), "FAILED", inputOf("acme", ended.ID)))
		require.EqualValues(t, 1, one.Repaired[runtime.RepairTookOver])
		time.Sleep(5 * time.Minute)
		require.EqualValues(t, 1, s.swept(ruleEvent).Repaired[runtime.RepairTookOver])
	})
}

// A sweep reports and counts what it did about requests to people, and what it could not do. That alone does not fail
// it.
func TestA15SweepReportsWhatItTold(t *testing.T) {
	inStack(t, pay, func(t *testing.T, s *stack) {
		s.waiting(ana, "well")
		time.Sleep(2 * time.Minute)
		ports := s.machine.Ports
		ports.Notify = &notices{}
		blobs := ports.Blobs.(runtime.Tenants)
		sweep := s.deployment(ports).Sweep(blobs, executions{s.machine.Engine}, machineARN, s.metrics)
		r := s.report(sweep(t.Context(), []byte(ruleEvent)))
		require.Equal(t, map[string]int64{"reminded": 2, "escalated": 1, "notified": 3}, r.Notified)
		require.EqualValues(t, 1, r.NotifyFailed)
		require.Zero(t, r.Failures)
		m := s.metrics.take()
		require.EqualValues(t, 2, m["RequestsNotified Did reminded"])
		require.EqualValues(t, 1, m["RequestsNotified Did escalated"])
		require.EqualValues(t, 3, m["RequestsNotified Did notified"])
		require.NotContains(t, s.logs.String(), "sk-canary")
	})
}

// notices notes whom it is to tell, and has done something and failed at something.
type notices struct {
	runs []string
	err  error
}

func (n *notices) NotifyRun(_ context.Context, tenant, run string) error {
	n.runs = append(n.runs, tenant+"/"+run)
	return n.err
}

func (*notices) ProcessDue(context.Context, int) (map[string]int64, error) {
	return map[string]int64{"reminded": 2, "escalated": 1}, errors.New("sk-canary")
}

func (*notices) EnsureNotified(context.Context, approval.Approval) (map[string]int64, error) {
	return map[string]int64{"notified": 3}, nil
}

// The reaper takes a run over as soon as its execution has ended badly, however often it is told, and by whatever its
// input says.
func TestReaper(t *testing.T) {
	for status, input := range map[string]func(run string) any{
		"FAILED":    func(run string) any { return inputOf("acme", run) },
		"TIMED_OUT": func(string) any { return nil }, // it was left out of the event
		"ABORTED":   func(string) any { return `{"agent":"payer","tenant":"acme","key":"k","message":"pay 5"}` },
	} {
		t.Run(status, func(t *testing.T) {
			inStack(t, pay, func(t *testing.T, s *stack) {
				run := s.waiting(ana, "k")
				execution := runtime.ExecutionName(run.ID, 0)
				s.kill(execution)
				event := statusEvent(execution, status, input(run.ID))
				r := s.swept(event)
				require.Equal(t, lambdafn.Swept{Checked: 1, Repaired: map[runtime.Repair]int64{runtime.RepairTookOver: 1}, Complete: true}, r)
				require.Equal(t, map[string]int64{"RunsRepaired": 1, "RunsRepaired Repair took_over": 1}, s.metrics.take())
				synctest.Wait()
				again := s.swept(event)
				require.Empty(t, again.Repaired, "delivered twice")
				l := must(s.machine.Ports.Journal.Load(t.Context(), "acme", run.ID))
				require.Equal(t, runtime.ExecutionName(run.ID, 1), l.State.Owner)
				s.approve(run)
				require.Len(t, s.paid, 1)
			})
		})
	}
}

// What asked for a run by an event is not lost when throttling, or an outage, lasts until its execution gives up before
// it has written the run: the reaper writes it, once, and its next execution goes on.
func TestReaperOfAnUnwrittenRun(t *testing.T) {
	inStack(t, pay, func(t *testing.T, s *stack) {
		const input = `{"agent":"payer","tenant":"acme","key":"k","message":"pay 5"}`
		var throttled atomic.Bool
		throttled.Store(true)
		s.counts.Use(func(_ context.Context, _ fault.Call, call func() error) error {
			if throttled.Load() {
				return store.ErrThrottled
			}
			return call()
		})
		_, err := s.machine.Engine.Start(t.Context(), "x", []byte(input))
		require.NoError(t, err)
		time.Sleep(3 * time.Hour)
		throttled.Store(false)
		for _, want := range []map[runtime.Repair]int64{{runtime.RepairTookOver: 1}, {}} {
			require.Equal(t, lambdafn.Swept{Checked: 1, Repaired: want, Complete: true}, s.swept(statusEvent("x", "FAILED", input)))
			synctest.Wait()
		}
		s.approve(read[web.Run](s, ana, 200, "GET /v1/runs/"+agent.RunID("acme", "payer", "k"), ""))
		require.Len(t, s.paid, 1)
	})
}

// An execution that needs nothing, or has no run, is answered and writes nothing.
func TestReaperWithoutARun(t *testing.T) {
	inStack(t, pay, func(t *testing.T, s *stack) {
		run := s.waiting(ana, "k")
		writes := s.writes()
		for _, status := range []string{"RUNNING", "SUCCEEDED", "PENDING_REDRIVE"} {
			require.Equal(t, status, s.swept(statusEvent(runtime.ExecutionName(run.ID, 0), status, inputOf("acme", run.ID))).Ignored)
		}
		unowned := lambdafn.Swept{Repaired: map[runtime.Repair]int64{}, Complete: true, Unowned: "x"}
		for _, input := range []any{inputOf("globex", run.ID), `{"agent":"payer","message":"never written"}`, `{}`, `odd`, nil} {
			require.Equal(t, unowned, s.swept(statusEvent("x", "FAILED", input)))
		}
		require.Equal(t, writes, s.writes())
		require.Equal(t, 5, strings.Count(s.logs.String(), "has no run"), "nobody reads what it answers")
	})
}

// What fails is counted, and named in the log by its kind; what it said is nowhere. A record that is broken is reported, and
// does not fail the sweep for ever; one that cannot be reached does fail it, and a table that cannot be.
func TestSweepTellsBrokenFromUnreachable(t *testing.T) {
	for _, c := range []struct {
		err  error
		kind lambdafn.Kind
	}{
		{fmt.Errorf("sk-canary: %w", store.ErrInvalid), lambdafn.KindInternal},
		{errors.New("connection reset by sk-canary"), lambdafn.KindUnavailable},
	} {
		inStack(t, pay, func(t *testing.T, s *stack) {
			run := s.waiting(ana, "k")
			other := s.waiting(ana, "other")
			for _, id := range []string{run.ID, other.ID} {
				s.kill(runtime.ExecutionName(id, 0))
			}
			time.Sleep(2 * time.Minute)
			ofRun := func(of fault.Call) bool { return of.Port == fault.TableQuery && of.Key.PK == "T#acme#RUN#"+run.ID }
			s.table.Use(fault.OnlyIf(ofRun, fault.Fail(c.err)))
			out, err := s.sweep(t.Context(), []byte(ruleEvent))
			m := s.metrics.take()
			require.EqualValues(t, 1, m["SweepFailures"])
			require.EqualValues(t, 1, m["RunsRepaired Repair took_over"], "the other one")
			require.Contains(t, s.logs.String(), run.ID)
			require.NotContains(t, s.logs.String(), "canary")
			if c.kind.Retried() {
				require.EqualError(t, err, "1 runs could not be checked; the log says which")
				s.table.Use(fault.Fail(c.err))
				for _, event := range []string{ruleEvent, statusEvent(runtime.ExecutionName(run.ID, 0), "FAILED", inputOf("acme", run.ID))} {
					_, err := s.sweep(t.Context(), []byte(event))
					requireKind(t, c.kind, err)
					require.Contains(t, err.Error(), "log")
					require.NotContains(t, err.Error()+s.logs.String(), "canary")
					require.EqualValues(t, 1, s.metrics.take()["SweepFailures"])
				}
				s.table.Use(nil)
				require.EqualValues(t, 1, s.swept(ruleEvent).Repaired[runtime.RepairTookOver])
				return
			}
			r := s.report(out, err)
			require.Equal(t, []lambdafn.FailedRun{{Tenant: "acme", Run: run.ID, Kind: c.kind}}, r.Failed)
			require.EqualValues(t, 1, r.Failures)
		})
	}
}

// The sweep tells the people of a run that functions/approve has parked. What may pass by itself fails the invocation,
// which Lambda repeats; the rest is due in a sweep.
func TestSweepTellsWhoIsAsked(t *testing.T) {
	inStack(t, pay, func(t *testing.T, s *stack) {
		for _, c := range []struct {
			err    error
			repeat bool
		}{{nil, false}, {store.ErrThrottled, true}, {store.ErrDamaged, false}} {
			ports, n := s.machine.Ports, &notices{err: c.err}
			ports.Notify = n
			sweep := s.deployment(ports).Sweep(nil, nil, machineARN, s.metrics)
			_, err := sweep(t.Context(), []byte(`{"notify":{"tenant":"acme","run":"r1"}}`))
			require.Equal(t, c.repeat, err != nil)
			require.Equal(t, []string{"acme/r1"}, n.runs)
		}
		require.Equal(t, 2, strings.Count(s.logs.String(), "people could not be told"))
	})
}

// A panic is an error without what it said.
func TestSweepPanics(t *testing.T) {
	inStack(t, pay, func(t *testing.T, s *stack) {
		sweep := s.deployment(s.machine.Ports).Sweep(nil, nil, machineARN, s.metrics)
		_, err := sweep(t.Context(), []byte(ruleEvent))
		requireKind(t, lambdafn.KindInternal, err)
		require.Contains(t, s.logs.String(), "sweep panicked")
	})
}
