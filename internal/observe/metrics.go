package observe

// This file counts what runs do, from decorators over the ports of package runtime, and names what a deployment
// measures of itself, once for the code that emits it and for the alarms in template.yaml: an alarm on a name that
// nobody emits would be silent for ever. Counters are per agent, never per run.

import (
	"context"
	"errors"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// Meter takes measurements. Dims are names and values of dimensions in turn. *EMF is one. Safe for concurrent use.
type Meter interface {
	Count(name string, n int64, dims ...string)
	Millis(name string, d time.Duration, dims ...string)
}

// The metrics of runs. Those of facts are counted once, by whoever commits the fact.
const (
	RunsStarted  = "RunsStarted"  // Agent
	RunsEnded    = "RunsEnded"    // Agent, Reason
	RunTime      = "RunTime"      // Agent: from start to end, waits included
	Inferences   = "Inferences"   // Agent
	InputTokens  = "InputTokens"  // Agent: those of the cache included
	OutputTokens = "OutputTokens" // Agent
	ToolCalls    = "ToolCalls"    // Agent, Outcome: succeeded, or the reason why not

	ApprovalsAsked   = "ApprovalsAsked"   // Agent
	ApprovalsDecided = "ApprovalsDecided" // Agent, Outcome: approve, deny, cancel, expired
	CallsUnknown     = "CallsUnknown"     // Agent: calls that have come to need somebody who says what became of them

	ModelErrors  = "ModelErrors"  // Agent, Class: each request that failed, retried or not
	ModelLatency = "ModelLatency" // Agent: of one request that was answered
	ToolLatency  = "ToolLatency"  // Tool: of one entering
)

// The dimensions.
const (
	dimAgent   = "Agent"
	dimReason  = "Reason"
	dimOutcome = "Outcome"
	dimClass   = "Class"
	dimTool    = "Tool"
)

// MeterEvents counts facts as they are committed: a runtime.EventSink.
func MeterEvents(m Meter) runtime.EventSink { return sink{m} }

type sink struct{ meter Meter }

func (k sink) Committed(_ context.Context, e run.Entry, s *run.AgentState) {
	count := func(name string, n int64, dims ...string) {
		k.meter.Count(name, n, append([]string{dimAgent, s.Agent}, dims...)...)
	}
	countTokens := func(u run.Usage) {
		count(InputTokens, u.Input+u.CacheRead+u.CacheWrite)
		count(OutputTokens, u.Output)
	}
	for _, fact := range e.Events {
		switch fact := fact.(type) {
		case run.RunStarted:
			count(RunsStarted, 1)
			if fact.From != nil && len(fact.From.Unknown) > 0 {
				count(CallsUnknown, int64(len(fact.From.Unknown)))
			}
		case run.Replied:
			count(Inferences, 1)
			countTokens(fact.Usage)
		case run.PlanEvent:
			countTokens(fact.Fact().Usage)
		case run.Evicted:
			if fact.Usage != nil {
				countTokens(*fact.Usage)
			}
		case run.CallFinished:
			outcome := string(run.StatusSucceeded)
			if fact.IsError {
				outcome = string(fact.Reason)
			}
			count(ToolCalls, 1, dimOutcome, outcome)
		case run.PermissionRequested:
			count(ApprovalsAsked, 1)
		case run.CallSuspended:
			if fact.For != run.ForAnswer {
				count(ApprovalsAsked, 1)
			}
		case run.CallUnknown:
			count(CallsUnknown, 1)
		case run.Decided:
			count(ApprovalsDecided, 1, dimOutcome, string(fact.Action))
		case run.PermissionAnswered:
			if fact.Expired {
				count(ApprovalsDecided, 1, dimOutcome, string(run.WhyExpired))
			}
		case run.CallCancelled:
			c, _ := s.Call(fact.Call)
			asked := c.Service && c.Executions > 0 // a service did not answer: no approval expired
			if fact.Reason == run.WhyExpired && !asked {
				count(ApprovalsDecided, 1, dimOutcome, string(fact.Reason))
			}
		case run.Finished:
			count(RunsEnded, 1, dimReason, string(fact.Reason))
			k.meter.Millis(RunTime, e.Time.Sub(s.StartedAt), dimAgent, s.Agent)
		}
	}
}

// MeterModel measures every request to next, with o as the GenAI conventions say; a nil o does not. It belongs below
// the retries.
func MeterModel(next runtime.Model, m Meter, o *OTel, c clock.Clock) runtime.Model {
	return meteredModel{next, m, o, c}
}

type meteredModel struct {
	next  runtime.Model
	meter Meter
	otel  *OTel
	clock clock.Clock
}

func (m meteredModel) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	from := m.clock.Now()
	reply, err := m.next.Generate(ctx, r)
	took := m.clock.Now().Sub(from)
	var failed *agent.ModelError
	switch {
	case err == nil:
		m.meter.Millis(ModelLatency, took, dimAgent, r.Agent)
	case errors.As(err, &failed):
		m.meter.Count(ModelErrors, 1, dimAgent, r.Agent, dimClass, string(failed.Class))
	}
	if m.otel != nil {
		m.otel.recordRequest(ctx, r, reply, took, err)
	}
	return reply, err
}

// CountTokens counts with next. It is no request to a model and is not measured.
func (m meteredModel) CountTokens(ctx context.Context, r agent.Request) (int64, error) {
	return runtime.CountWith(ctx, m.next, r)
}

// MeterTool measures every call of a tool.
func MeterTool(found tool.Tool, m Meter, c clock.Clock) tool.Tool {
	return aroundTool(found, func(ctx context.Context, call tool.Call) (agent.ToolResultData, error) {
		from := c.Now()
		defer func() { m.Millis(ToolLatency, c.Now().Sub(from), dimTool, call.Name) }()
		return found.Call(ctx, call)
	})
}

// ToolsAround returns next with wrap around every tool.
func ToolsAround(next runtime.ToolSource, wrap func(tool.Tool) tool.Tool) runtime.ToolSource {
	return toolsAround{next, wrap}
}

type toolsAround struct {
	next runtime.ToolSource
	wrap func(tool.Tool) tool.Tool
}

func (s toolsAround) Lookup(original string) (tool.Tool, bool) {
	found, ok := s.next.Lookup(original)
	if !ok {
		return nil, false
	}
	return s.wrap(found), true
}

type toolCall = func(ctx context.Context, c tool.Call) (agent.ToolResultData, error)

// aroundTool is a tool that is called by another function. A tool that can reconcile still can.
func aroundTool(found tool.Tool, call toolCall) tool.Tool {
	around := wrappedTool{found, call}
	if r, ok := found.(tool.Reconciler); ok {
		return struct {
			wrappedTool
			tool.Reconciler
		}{around, r}
	}
	return around
}

type wrappedTool struct {
	tool.Tool
	call toolCall
}

func (t wrappedTool) Unwrap() tool.Tool { return t.Tool }

func (t wrappedTool) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	return t.call(ctx, c)
}

// Namespace of every metric.
const Namespace = "Countersign"

// Dimension is a dimension of every metric, and the only one of those that alarms watch. Its value is the name of the
// state machine, the last part of the ARN in COUNTERSIGN_STATE_MACHINE, which tells the deployments of an account
// apart.
const Dimension = "StateMachine"

// The metrics that alarms watch (R18). The first two are counted as they happen, the others are what one sweep has
// found.
const (
	RunsRepaired      = "RunsRepaired"      // count: runs that a sweep or an execution's end has repaired
	SweepFailures     = "SweepFailures"     // count: runs that could not be looked at or repaired
	OutcomesUnknown   = "OutcomesUnknown"   // count: calls of which nobody knows whether they were carried out
	WaitsOpen         = "WaitsOpen"         // count: open waits for people and services
	OldestWaitSeconds = "OldestWaitSeconds" // seconds: since when the oldest of them is open
)

// More that alarms watch. They are counted as they happen.
const (
	Misconfigured = "Misconfigured" // count: parts of a function that it began without, as their configuration is wrong
	// Throttled counts, by DimFunction, invocations that a busy model, a throttled table or a limit has refused. The state
	// machine tries them again, so the alarms on errors leave them out.
	Throttled   = "Throttled"
	DimFunction = "Function"
)

// RequestsNotified counts the notifications of sweeps about requests to people, by Did: notified, reminded and updated,
// and requests escalated. No alarm watches it.
const RequestsNotified = "RequestsNotified"

// AlarmMetrics lists those that alarms watch.
func AlarmMetrics() []string {
	return []string{RunsRepaired, SweepFailures, OutcomesUnknown, WaitsOpen, OldestWaitSeconds, Misconfigured}
}
