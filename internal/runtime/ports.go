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
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// Model answers one request. Errors are *agent.ModelError or the context's. Safe for concurrent use.
type Model interface {
	Generate(ctx context.Context, r agent.Request) (agent.Reply, error)
}

// Asker is a Model behind its retries: it says how many requests an answer or a failure took.
type Asker interface {
	Ask(ctx context.Context, r agent.Request) (reply agent.Reply, requests int, err error)
}

// TokenCounter counts a request's tokens of input as its model would: all that Generate would send. It asks a provider,
// and costs no tokens; what cannot be counted is an error, and is to be estimated. Errors are *agent.ModelError or the
// context's. Safe for concurrent use.
type TokenCounter interface {
	CountTokens(ctx context.Context, r agent.Request) (int64, error)
}

// CountWith has m count, if it is a TokenCounter, as its decorators do.
func CountWith(ctx context.Context, m Model, r agent.Request) (int64, error) {
	if c, ok := m.(TokenCounter); ok {
		return c.CountTokens(ctx, r)
	}
	return 0, &agent.ModelError{Class: agent.ModelInvalid, Model: r.Model.ID, Message: "its tokens cannot be counted",
		Lasting: true}
}

// Schemas makes the check of a JSON Schema: what it returns says how a value does not fit. An error says that the
// schema is broken.
type Schemas func(schema json.RawMessage) (fits func(value json.RawMessage) error, err error)

// ToolSource finds tools by their original name.
type ToolSource interface {
	Lookup(original string) (tool.Tool, bool)
}

// Waiter drives executions of the state machine. Names are those of executions; starting one twice by the same name is
// not an error, and neither is stopping one that has ended.
type Waiter interface {
	// Success completes the wait that a task token belongs to. ErrSettled says that it was completed or has timed out
	// before.
	Success(ctx context.Context, token string) error
	Start(ctx context.Context, tenant, run, name string) error
	Stop(ctx context.Context, name, cause string) error
	// Status says whether an execution of that name runs.
	Status(ctx context.Context, name string) (ExecutionStatus, error)
}

// ExecutionStatus is what became of an execution.
type ExecutionStatus string

// The statuses of executions.
const (
	ExecutionNone    ExecutionStatus = "none" // never started
	ExecutionRunning ExecutionStatus = "running"
	ExecutionEnded   ExecutionStatus = "ended" // in whatever way but the next one

	ExecutionThrottled ExecutionStatus = "throttled" // ended in ThrottledError: the run is open, and goes on in the next
)

// ThrottledError is the error of an execution that gave up because what it needed was throttled for too long.
const ThrottledError = "Countersign.Throttled"

// ErrSettled says that a task token's wait is over: look at the record (rule 8).
var ErrSettled = errors.New("the wait of this task token is over")

// Emitter hands events to a bus. ErrUndeliverable, wrapped, says that this event will never be taken; any other error
// may pass, and the event may have been taken all the same. Safe for concurrent use.
type Emitter interface {
	Emit(ctx context.Context, e policy.Outgoing) error
}

// ErrUndeliverable says that a bus takes no such event: it is too long, or there is no bus. What wraps it is fit to be
// shown.
var ErrUndeliverable = errors.New("it cannot be delivered")

// Callbacks makes addresses where calls that are answered later are answered. Safe for concurrent use.
type Callbacks interface {
	// URL is the address of a call's answer, which needs no other authentication; "" = this deployment has none. The same
	// arguments give the same address.
	URL(tenant, run, call string, expires time.Time) (string, error)
}

// Functions invokes functions that are somewhere else. Safe for concurrent use.
type Functions interface {
	// Invoke has a function take a payload, and gives its result unless it is asynchronous. ErrUndeliverable, wrapped,
	// says that the function was not entered and never will be with this payload; *tool.LostError, that it may have been;
	// any other error, that it was not.
	Invoke(ctx context.Context, i Invoke) (Invoked, error)
}

// Invoke is one invocation of a function.
type Invoke struct {
	Function string // name, ARN or partial ARN, with an optional version or alias
	Payload  []byte // JSON
	Async    bool   // the function's result is nobody's: it only takes the payload
	Once     bool   // it is not to be invoked again where it may have been entered
}

// Invoked is what a function gave back.
type Invoked struct {
	Payload []byte // JSON; of an asynchronous invocation, nothing
	Failed  bool   // the function ended in an error, which Payload describes in its runtime's form
}

// EventSink is told of every entry this process has committed, after the commit, in order for each run. It must not
// block for long; what it does with it, a panic included, is nobody's durable concern.
type EventSink interface {
	Committed(ctx context.Context, e run.Entry, s *run.AgentState)
}

// Sinks tells several sinks, in order.
type Sinks []EventSink

// Committed tells every sink, whatever becomes of those before it.
func (all Sinks) Committed(ctx context.Context, e run.Entry, s *run.AgentState) {
	for _, sink := range all {
		notifySink(ctx, sink, e, s)
	}
}

// Tracer ties what is done to a run to the run's trace. It does not block. Safe for concurrent use.
type Tracer interface {
	// Begin is the trace of a run that is about to start for ctx; nil = it has none.
	Begin(ctx context.Context, agentName string) *run.Trace
	// Within is ctx inside the run: what is done with it is part of the run's trace. Of s, only what identifies the run
	// and its trace is read.
	Within(ctx context.Context, s *run.AgentState) context.Context
}

// Tenants lists every tenant that may have runs, sorted. Blob stores do: a run's definition is stored under its tenant
// before the run's first entry, so nobody has to write down who the tenants are.
type Tenants interface {
	Tenants(ctx context.Context) ([]string, error)
}

// Executions looks at executions of the state machine from outside.
type Executions interface {
	// Running pages through those that run. It may be late.
	Running(ctx context.Context, cursor string) (page []Execution, next string, err error)
	// Input is what an execution was started with; found is false for one that does not exist.
	Input(ctx context.Context, name string) (input []byte, found bool, err error)
}

// Execution is one that runs.
type Execution struct {
	Name    string
	Started time.Time
}

// IDs draws what is random. Safe for concurrent use.
type IDs interface {
	// Writer is a random id of one invocation, eight characters or more.
	Writer() string
	// Key is a ULID for a run that came without a key.
	Key() string
}

// Definitions finds the resolved definition a run is pinned to, by tenant and digest.
type Definitions func(ctx context.Context, tenant, digest string) (*agent.Definition, error)

// Notify tells people that they are asked. Safe for concurrent use.
type Notify interface {
	// NotifyRun tells the people of every pending request that a run waits for, each of them who was not told before.
	NotifyRun(ctx context.Context, tenant, run string) error
}

// Notices does what is to be done at a time of requests to people: it reminds, lets others decide as well, tells again
// who could not be told. What it counts is by what it did: notified, reminded, escalated, updated. Safe for concurrent
// use, and idempotent.
type Notices interface {
	// ProcessDue does what is due by now, of at most limit requests of all tenants. An error says what could not be done;
	// the rest was.
	ProcessDue(ctx context.Context, limit int) (did map[string]int64, err error)
	// EnsureNotified tells the people of a pending request if nobody has begun to.
	EnsureNotified(ctx context.Context, a approval.Approval) (did map[string]int64, err error)
}

// PinnedDefinitions reads definitions from blobs and keeps them.
func PinnedDefinitions(blobs store.Blobs) Definitions {
	var known sync.Map // of *agent.Definition
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

// Tightened are pinned definitions with what the deployment says now of their agents (A17): whoever decides, and
// whoever runs a call, has them. Of an agent that it does not know nothing is said.
func Tightened(pinned Definitions, agents agent.Agents) Definitions {
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

// definition reads a pinned definition. It is for who needs one now and then.
func (p Ports) definition(ctx context.Context, tenant, digest string) (*agent.Definition, error) {
	data, err := p.Blobs.Get(ctx, tenant, digest)
	if err != nil {
		return nil, fmt.Errorf("read definition %s: %w", digest, err)
	}
	def := &agent.Definition{}
	// what another version has people asked about must not pass here
	if err := jsonx.ReadStored("definition", data, def); err != nil {
		return nil, fmt.Errorf("read definition %s: %w: %w (deploy the version that wrote it)", digest, store.ErrDamaged, err)
	}
	return def, nil
}
