package lambdafn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// Metrics counts what operators want to be woken for. Dims are names and values of dimensions, in turn. Safe for
// concurrent use.
type Metrics interface {
	Count(name string, n int64, dims ...string)
	Seconds(name string, d time.Duration, dims ...string)
}

// maxReported is how many runs that could not be checked a report names.
const maxReported = 50

// Sweep is the main of functions/sweep: the scheduled sweep and the reaper. It serves until the process ends.
func Sweep(r *registry.Registry) {
	listen(func(cfg aws.Config, getenv func(string) string) (Invoke, error) { return startSweep(r, cfg, getenv) })
}

func startSweep(r *registry.Registry, cfg aws.Config, getenv func(string) string) (Invoke, error) {
	f, err := start(r, cfg, getenv, func(f *function) error {
		f.Ports.Notify = notifier(f) // also without channels: it lets others decide in time
		return nil
	})
	if err != nil {
		return nil, err
	}
	for name, kept := range map[string]*time.Duration{
		EnvRetention: &f.Retention.Ended, envFailedRetention: &f.Retention.Failed,
	} {
		days, err := readNumber(getenv, name, 36500, "a number of days, or 0 to keep runs for ever")
		if err != nil {
			return nil, err
		}
		*kept = time.Duration(days) * 24 * time.Hour
	}
	return f.Sweep(f.blobs, f.waiter, getenv(envMachine), f.watch.Metrics), nil
}

// For how many days runs are kept after their end.
const (
	EnvRetention       = "COUNTERSIGN_RETENTION_DAYS"        // "" or 0 = for ever
	envFailedRetention = "COUNTERSIGN_FAILED_RETENTION_DAYS" // those that ended in an error; "" or 0 = as the others
)

// Sweep repairs runs: all of them when the schedule's event comes, one when an execution of the state machine with that
// ARN has ended badly. It answers with a Swept in JSON. It uses no model and no tool. Where the port that tells people
// of requests is a runtime.Notices too, a scheduled sweep does what is due of them. On functions/approve's event it
// tells the people whom a run waits for.
func (d *Deployment) Sweep(tenants runtime.Tenants, executions runtime.Executions, machine string, m Metrics) Invoke {
	p := d.Ports
	sweeper := &runtime.Sweeper{Ports: p, Definitions: d.Definitions, Void: d.Desk.Void}
	notices, _ := p.Notify.(runtime.Notices)
	s := &sweeping{
		sweep: runtime.Sweep{Sweeper: sweeper, Tenants: tenants, Executions: executions, Notices: notices,
			Retention: d.Retention},
		machine: machine, create: d.create, metrics: m, log: d.Log, clock: p.Clock,
	}
	return func(ctx context.Context, payload []byte) (out []byte, err error) {
		ctx, ended := d.beginInvocation(ctx, "sweep")
		defer func() { ended(err) }()
		return s.serve(ctx, payload)
	}
}

// Swept is what an invocation found and did.
type Swept struct {
	Skipped  bool                     `json:"skipped,omitempty"` // another sweep is under way
	Checked  int64                    `json:"checked"`           // runs
	Repaired map[runtime.Repair]int64 `json:"repaired"`          // by kind; empty = nothing was wrong
	Failures int64                    `json:"failures"`          // runs that could not be checked or repaired
	Failed   []FailedRun              `json:"failed,omitempty"`  // the first 50 of them
	// runs to look at again for which there was no time; a later sweep finds them
	Left int64 `json:"left,omitempty"`
	// notifications about requests to people: notified, reminded, escalated, updated
	Notified     map[string]int64 `json:"notified,omitempty"`
	NotifyFailed int64            `json:"notifyFailed,omitempty"` // errors in that; the notifications are due again later
	Deleted      int64            `json:"deleted,omitempty"`      // runs whose retention was over
	Complete     bool             `json:"complete"`               // false: the next sweep goes on where this one ended
	Waiting      *runtime.Waiting `json:"waiting,omitempty"`      // of all runs; nil unless a round has ended
	Unowned      string           `json:"unowned,omitempty"`      // an execution that ended and for which there is no run
	Ignored      string           `json:"ignored,omitempty"`      // the status of an execution that needs nothing
}

// FailedRun is a run, or an execution that may be one's leftover, whose check failed, and how: the log and the report
// hold no more.
type FailedRun struct {
	Tenant    string `json:"tenant,omitempty"`
	Run       string `json:"run,omitempty"`
	Execution string `json:"execution,omitempty"`
	Kind      Kind   `json:"kind"`
}

type sweeping struct {
	sweep   runtime.Sweep
	machine string
	create  func(ctx context.Context, e *event) (run string, err error)
	metrics Metrics
	log     *slog.Logger
	clock   clock.Clock
}

// eventLimits are those of EventBridge's own events: an execution's may hold its input and its output, as texts.
var eventLimits = jsonx.JSONLimits{Bytes: 1 << 20}

// trigger is an event of EventBridge, or of functions/approve. The detail of the former is an object, or a text with
// EventBridge Scheduler.
type trigger struct {
	Source     string          `json:"source,omitempty"`
	DetailType string          `json:"detail-type,omitempty"`
	Detail     json.RawMessage `json:"detail,omitempty"`
	Notify     *waitingRun     `json:"notify,omitempty"`
}

// waitingRun is a run that waits for people who have to be told.
type waitingRun struct {
	Tenant string `json:"tenant"`
	Run    string `json:"run"`
}

// serve answers an event. A panic is logged and answered less what it said.
func (s *sweeping) serve(ctx context.Context, payload []byte) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("sweep panicked", "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			out, err = nil, &Error{Kind: KindInternal, Err: errors.New("the sweep panicked; its log says where")}
		}
	}()
	var t trigger
	if err := jsonx.DecodeKnown(payload, eventLimits, &t); err != nil {
		return nil, invalidf("read the event: want an event of EventBridge, got something of another form")
	}
	switch {
	case t.DetailType == "Scheduled Event" && (t.Source == "aws.events" || t.Source == "aws.scheduler"):
		return s.sweepAll(ctx)
	case t.DetailType == "Step Functions Execution Status Change" && t.Source == "aws.states":
		return s.reap(ctx, t.Detail)
	case t.Notify != nil && agent.ValidTenant(t.Notify.Tenant) && t.Notify.Run != "" && len(t.Notify.Run) <= maxKey &&
		!strings.Contains(t.Notify.Run, "\x00"):
		return []byte("{}"), s.notifyRun(ctx, *t.Notify)
	default:
		return nil, invalidf("read the event: source, detail-type: want a Scheduled Event of aws.events or aws.scheduler, " +
			"a Step Functions Execution Status Change of aws.states, or notify: a tenant and a run")
	}
}

// notifyRun notifies the people whom a run waits for. A failure is repeated by the sweep, and a temporary one by
// Lambda, too.
func (s *sweeping) notifyRun(ctx context.Context, of waitingRun) error {
	n := s.sweep.Sweeper.Notify
	if n == nil {
		return nil
	}
	err := n.NotifyRun(ctx, of.Tenant, of.Run)
	if err == nil {
		return nil
	}
	s.log.Error("people could not be told", "tenant", of.Tenant, "run", of.Run, "kind", string(kindOf(err)), "error", err)
	if !kindOf(err).Retried() {
		return nil
	}
	return withPublicText(err, "people could not be told; the log says why")
}

// sweepAll sweeps all runs. A failure of one run is reported. It fails the invocation only if it may pass by itself,
// because a broken record is not mended by another sweep.
func (s *sweeping) sweepAll(ctx context.Context) ([]byte, error) {
	r, err := s.sweep.Run(ctx)
	out := Swept{Skipped: r.Skipped, Checked: r.Checked, Repaired: r.Repaired, Left: r.Left, Complete: r.Complete}
	if r.Skipped {
		s.log.Info("sweep skipped, another one is under way")
	}
	// What was done about requests to people. What failed is due again and fails no sweep.
	out.NotifyFailed = int64(len(r.NotifyFailed))
	for i, err := range r.NotifyFailed {
		if i < maxReported {
			s.log.Error("people could not be told", "kind", string(kindOf(err)), "error", err)
		}
	}
	if len(r.Notified) > 0 {
		out.Notified = r.Notified
	}
	for what, n := range r.Notified {
		s.metrics.Count(observe.RequestsNotified, n, "Did", what)
	}
	for _, d := range r.Deleted { // its head tells a deletion from a journal that was taken out
		s.log.Info("run deleted", "tenant", d.Tenant, "run", d.Run, "head", d.Hash, "by", "retention")
		out.Deleted += d.Runs
	}
	out.Failures = int64(len(r.Failed))
	var passing error // a failure that may pass by itself
	for i, f := range r.Failed {
		kind := kindOf(f.Err)
		if kind.Retried() {
			passing = f.Err
		}
		s.log.Error("run could not be checked", "tenant", f.Tenant, "run", f.Run, "execution", f.Execution, "kind",
			string(kind), "error", f.Err)
		if i < maxReported {
			out.Failed = append(out.Failed, FailedRun{Tenant: f.Tenant, Run: f.Run, Execution: f.Execution, Kind: kind})
		}
	}
	if r.Left > 0 {
		s.log.Warn("runs left for a later sweep", "count", r.Left)
	}
	if r.Complete {
		out.Waiting = &r.Waiting
		s.metrics.Count(observe.WaitsOpen, r.Waiting.Runs)
		oldest := time.Duration(0)
		if !r.Waiting.Since.IsZero() {
			oldest = s.clock.Now().Sub(r.Waiting.Since)
		}
		s.metrics.Seconds(observe.OldestWaitSeconds, oldest)
		s.metrics.Count(observe.OutcomesUnknown, r.Waiting.OutcomesUnknown)
	}
	s.countRepaired(out.Repaired)
	if err != nil {
		s.log.Error("sweep stopped", "kind", string(kindOf(err)), "error", err)
		s.metrics.Count(observe.SweepFailures, out.Failures+1)
		return nil, withPublicText(err, "the sweep could not be carried out; its log says why")
	}
	s.metrics.Count(observe.SweepFailures, out.Failures)
	if passing != nil {
		return nil, withPublicText(passing, fmt.Sprintf("%d runs could not be checked; the log says which", out.Failures))
	}
	return json.Marshal(out)
}

// withPublicText returns an error of the same kind with a text of ours, because the function's log keeps what an error
// says.
func withPublicText(err error, text string) error {
	return &Error{Kind: kindOf(err), Err: errors.New(text)}
}

func kindOf(err error) Kind {
	var e *Error
	errors.As(classify(err), &e)
	return e.Kind
}

func (s *sweeping) countRepaired(by map[runtime.Repair]int64) {
	all := int64(0)
	for kind, n := range by {
		s.log.Warn("runs repaired", "repair", string(kind), "count", n)
		s.metrics.Count(observe.RunsRepaired, n, "Repair", string(kind))
		all += n
	}
	s.metrics.Count(observe.RunsRepaired, all)
}

// executionEnd is the detail of an execution's change of status. A large input is missing in it.
type executionEnd struct {
	Name    string  `json:"name"`
	Machine string  `json:"stateMachineArn"`
	Status  string  `json:"status"`
	Input   *string `json:"input"`
}

// reap repairs the run of an execution that has ended badly, at once. A second event of the same execution finds
// nothing to do. A run that an event was to start and that was never written is not there to be repaired: if its
// execution was throttled, the run is written now, else the execution is reported as unowned.
func (s *sweeping) reap(ctx context.Context, detail []byte) ([]byte, error) {
	var e executionEnd
	if err := jsonx.DecodeKnown(detail, eventLimits, &e); err != nil || !isExecutionName(e.Name) {
		return nil, invalidf("read the event: detail: want an execution's change of status with its name")
	}
	if e.Machine != s.machine {
		return nil,
			invalidf("read the event: detail.stateMachineArn: want %s: the rule lets other machines' executions through",
				s.machine)
	}
	switch e.Status {
	case "FAILED", "TIMED_OUT", "ABORTED":
	case "RUNNING", "SUCCEEDED", "PENDING_REDRIVE":
		return json.Marshal(Swept{Repaired: map[runtime.Repair]int64{}, Complete: true, Ignored: e.Status})
	default:
		return nil, invalidf("read the event: detail.status: want the status of an execution")
	}
	out, err := s.reapOne(ctx, e)
	if err != nil {
		s.log.Error("run could not be repaired", "execution", e.Name, "kind", string(kindOf(err)), "error", err)
		s.metrics.Count(observe.SweepFailures, 1)
		return nil, withPublicText(err, "the run of an execution that ended could not be repaired; the log says why")
	}
	s.countRepaired(out.Repaired)
	return json.Marshal(out)
}

func (s *sweeping) reapOne(ctx context.Context, e executionEnd) (Swept, error) {
	out := Swept{Repaired: map[runtime.Repair]int64{}, Complete: true}
	var input []byte // which names the run: the event has it, or Step Functions keeps it
	ok := true
	var err error
	if e.Input != nil {
		input = []byte(*e.Input)
	} else if input, ok, err = s.sweep.Executions.Input(ctx, e.Name); err != nil {
		return out, err
	}
	var tenant, run string
	if ok {
		tenant, run, ok = runtime.StartedRun(e.Name, input)
	}
	r := runtime.RepairNone
	if ok {
		r, err = s.sweep.Sweeper.Repair(ctx, tenant, run)
	}
	if errors.Is(err, store.ErrNoRun) {
		if err = s.createRun(ctx, e.Name, input); err == nil {
			r, err = s.sweep.Sweeper.Repair(ctx, tenant, run)
		}
	}
	if !ok || errors.Is(err, store.ErrNoRun) {
		s.log.Warn("an execution ended and has no run", "execution", e.Name)
		out.Unowned = e.Name
		return out, nil
	}
	out.Checked = 1
	if r != runtime.RepairNone {
		out.Repaired[r] = 1
	}
	return out, err
}

// createRun writes the run of an execution that was throttled until it gave up, as its first step would have. It
// returns store.ErrNoRun for an execution that ended otherwise or was not started by an event.
func (s *sweeping) createRun(ctx context.Context, name string, input []byte) error {
	status, err := s.sweep.Sweeper.Waiter.Status(ctx, name)
	if err == nil && status == runtime.ExecutionRunning {
		err = errors.New("the status of the execution is late")
	}
	if err != nil {
		return err
	}
	e, err := decode(fmt.Appendf(nil, `{"name":%q,"state":%s}`, name, input))
	if err != nil || status != runtime.ExecutionThrottled || e.State.Run != "" {
		return store.ErrNoRun
	}
	_, err = s.create(ctx, &e)
	return err
}
