package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// Model answers one request. Its errors are *agent.ModelError or the context's. Safe for concurrent use.
type Model interface {
	Generate(ctx context.Context, r agent.Request) (agent.Reply, error)
}

// Asker is a Model with retries. It also returns how many requests the answer or the failure took.
type Asker interface {
	Ask(ctx context.Context, r agent.Request) (reply agent.Reply, requests int, err error)
}

// TokenCounter counts the input tokens of a request as its model would: everything that Generate would send. It calls a
// provider and costs no tokens. If the request cannot be counted, the caller has to estimate. Errors are
// *agent.ModelError or the context's. Safe for concurrent use.
type TokenCounter interface {
	CountTokens(ctx context.Context, r agent.Request) (int64, error)
}

// CountWith lets m count the tokens of r if m is a TokenCounter. Otherwise it returns a *agent.ModelError.
func CountWith(ctx context.Context, m Model, r agent.Request) (int64, error) {
	if c, ok := m.(TokenCounter); ok {
		return c.CountTokens(ctx, r)
	}
	return 0, &agent.ModelError{Class: agent.ModelInvalid, Model: r.Model.ID, Message: "its tokens cannot be counted",
		Lasting: true}
}

// Schemas compiles a JSON Schema to a check. The check returns how a value does not fit. err: the schema is broken.
type Schemas func(schema json.RawMessage) (fits func(value json.RawMessage) error, err error)

// ToolSource finds tools by their original name.
type ToolSource interface {
	Lookup(original string) (tool.Tool, bool)
}

// Waiter drives executions of the state machine by name. Starting an execution twice under the same name, and stopping
// one that has ended, are not errors.
type Waiter interface {
	// Success completes the wait of a task token. ErrTokenUsed says that the wait was completed or has timed out before.
	Success(ctx context.Context, token string) error
	Start(ctx context.Context, tenant, run, name string) error
	Stop(ctx context.Context, name, cause string) error
	// Status returns the state of the execution of that name.
	Status(ctx context.Context, name string) (ExecutionStatus, error)
}

// ExecutionStatus is the state of an execution.
type ExecutionStatus string

// The statuses of executions.
const (
	ExecutionNone    ExecutionStatus = "none" // never started
	ExecutionRunning ExecutionStatus = "running"
	ExecutionEnded   ExecutionStatus = "ended" // in any other way than the next two

	ExecutionThrottled ExecutionStatus = "throttled" // ended in ThrottledError; the next execution continues the run
	ExecutionOutdated  ExecutionStatus = "outdated"  // ended in OtherVersionError; a later one continues the run
)

// The errors of executions that leave their run open.
const (
	ThrottledError    = "Countersign.Throttled"    // a service throttled it, or was out of service, for too long
	OtherVersionError = "Countersign.OtherVersion" // its version cannot read the run, or lacks code
)

// EndedBy returns the status of an execution that ended with this error; "" = without one.
func EndedBy(name string) ExecutionStatus {
	switch name {
	case ThrottledError:
		return ExecutionThrottled
	case OtherVersionError:
		return ExecutionOutdated
	default:
		return ExecutionEnded
	}
}

// ErrTokenUsed says that a task token was used or has timed out. The caller has to read the record (rule 8).
var ErrTokenUsed = errors.New("the wait of this task token is over")

// Emitter sends events to a bus. An error that wraps ErrUndeliverable is final. After any other error a retry may
// succeed, and the event may have been accepted nevertheless. Safe for concurrent use.
type Emitter interface {
	Emit(ctx context.Context, e policy.Outgoing) error
}

// ErrUndeliverable says that a bus will never accept the event: it is too long, or there is no bus. Errors that wrap it
// are safe to show.
var ErrUndeliverable = errors.New("it cannot be delivered")

// Callbacks creates addresses for the answers of calls that are answered later. Safe for concurrent use.
type Callbacks interface {
	// URL returns the address for a call's answer, which needs no other authentication; "" = this deployment has none. The
	// same arguments return the same address.
	URL(tenant, run, call string, expires time.Time) (string, error)
}

// Functions invokes remote functions. Safe for concurrent use.
type Functions interface {
	// Invoke calls a function with a payload. It returns the function's result unless the invocation is asynchronous. An
	// error that wraps ErrUndeliverable says that the function was not entered and never will be with this payload.
	// *tool.LostError says that the function may have been entered; any other error, that it was not.
	Invoke(ctx context.Context, i Invoke) (Invoked, error)
}

// Invoke is one invocation of a function.
type Invoke struct {
	Function string // name, ARN or partial ARN, with an optional version or alias
	Payload  []byte // JSON
	Async    bool   // return once the payload is accepted, without a result
	Once     bool   // never retry an invocation that may have been entered
}

// Invoked is the result of an invocation.
type Invoked struct {
	Payload []byte // JSON; empty for an asynchronous invocation
	Failed  bool   // the function ended in an error, which Payload describes in its runtime's form
}

// EventSink receives every entry that this process has committed, after the commit, in order for each run. It must not
// block for long. Its failure, even a panic, never affects the run.
type EventSink interface {
	Committed(ctx context.Context, e run.Entry, s *run.AgentState)
}

// Sinks passes entries to several sinks, in order.
type Sinks []EventSink

// Committed calls every sink, even if an earlier one panics.
func (all Sinks) Committed(ctx context.Context, e run.Entry, s *run.AgentState) {
	for _, sink := range all {
		notifySink(ctx, sink, e, s)
	}
}

// Tracer connects work on a run with the run's trace. It does not block. Safe for concurrent use.
type Tracer interface {
	// Begin returns the trace of a run that starts now in ctx; nil = none.
	Begin(ctx context.Context, agentName string) *run.Trace
	// Within returns ctx inside the run's trace. At its first call it starts the span of the invocation. It reads only the
	// identity of the run and its trace from s.
	Within(ctx context.Context, s *run.AgentState) context.Context
}

// Tenants returns all tenants that may have runs, sorted. Blob stores implement it: a run's definition is stored under
// its tenant before the run's first entry, so no other list of tenants is needed.
type Tenants interface {
	Tenants(ctx context.Context) ([]string, error)
}

// Executions lists executions of the state machine.
type Executions interface {
	// Running pages through the running executions. The list may be late.
	Running(ctx context.Context, cursor string) (page []Execution, next string, err error)
	// Input returns the input of an execution; found is false if the execution does not exist.
	Input(ctx context.Context, name string) (input []byte, found bool, err error)
}

// Execution is a running execution.
type Execution struct {
	Name    string
	Started time.Time
}

// IDs creates random ids. Safe for concurrent use.
type IDs interface {
	// Writer returns a random id for one invocation, at least eight characters.
	Writer() string
	// Key returns a ULID for a run that was requested without a key.
	Key() string
}

// Definitions returns the resolved definition to which a run is pinned, by tenant and digest.
type Definitions func(ctx context.Context, tenant, digest string) (*agent.Definition, error)

// Notify notifies approvers. Safe for concurrent use.
type Notify interface {
	// NotifyRun notifies the people of every pending request that a run waits for, unless they were notified before.
	NotifyRun(ctx context.Context, tenant, run string) error
}

// Notices sends what is due about requests to people: it reminds, escalates, and notifies again people who could not be
// reached. Its counts are by kind: notified, reminded, escalated, updated. Safe for concurrent use, and idempotent.
type Notices interface {
	// ProcessDue handles at most limit due requests of all tenants. The error joins what failed; the rest was done.
	ProcessDue(ctx context.Context, limit int) (did map[string]int64, err error)
	// EnsureNotified notifies the people of a pending request unless somebody has begun to.
	EnsureNotified(ctx context.Context, a approval.Approval) (did map[string]int64, err error)
}

// PinnedDefinitions returns Definitions that read blobs and cache the result.
func PinnedDefinitions(blobs store.Blobs) Definitions {
	var known sync.Map // holds *agent.Definition
	return func(ctx context.Context, tenant, digest string) (*agent.Definition, error) {
		if def, ok := known.Load(tenant + "/" + digest); ok {
			return def.(*agent.Definition), nil
		}
		def, err := Ports{Blobs: blobs}.definition(ctx, tenant, digest)
		if err != nil {
			return nil, err
		}
		known.Store(tenant+"/"+digest, def)
		return def, nil
	}
}

// WithCurrentPolicy returns pinned definitions with the deployment's current policy for their agents (A17). Decisions
// and calls use these. An agent that agents does not know gets no current policy.
func WithCurrentPolicy(pinned Definitions, agents agent.Agents) Definitions {
	if agents == nil {
		return pinned
	}
	return func(ctx context.Context, tenant, digest string) (*agent.Definition, error) {
		def, err := pinned(ctx, tenant, digest)
		if err != nil {
			return nil, err
		}
		now := *def
		now.Now = policy.CurrentOf(def, agents)
		return &now, nil
	}
}

// WithLinkedCode returns the definitions of runs that this process can carry on: a definition that names code which is
// not there is approval.ErrNotLinked, and its run is left to another process or version. A missing tool does not count:
// only calls of it need it.
func WithLinkedCode(all Definitions, code hook.Set) Definitions {
	return func(ctx context.Context, tenant, digest string) (*agent.Definition, error) {
		def, err := all(ctx, tenant, digest)
		if err != nil {
			return nil, err
		}
		if missing := code.Check(def); missing != nil {
			return nil, fmt.Errorf("agent %s: %w: %w", def.Name, missing, approval.ErrNotLinked)
		}
		return def, nil
	}
}

// definition reads a pinned definition without caching.
func (p Ports) definition(ctx context.Context, tenant, digest string) (*agent.Definition, error) {
	data, err := p.Blobs.Get(ctx, tenant, digest)
	if err != nil {
		return nil, fmt.Errorf("read definition %s: %w", digest, err)
	}
	def := &agent.Definition{}
	// unknown keys are errors, since another version may ask people where this one would not
	if err := jsonx.ReadStored("definition", data, def); err != nil {
		return nil, fmt.Errorf("read definition %s: %w: %w (deploy the version that wrote it)", digest, store.ErrDamaged, err)
	}
	return def, nil
}
