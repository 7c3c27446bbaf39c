// Package lambdafn is the functions of a deployment, JSON in, JSON out, over the use cases of package runtime: the
// three of the state machine (Step, Tool, Approve), which the local engine calls as the Lambda mains do, the HTTP API
// and the pages behind a gateway (Serve), and the repair (Sweep). All of them are over one Deployment.
package lambdafn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

func (d *Deployment) beginInvocation(ctx context.Context, function string) (context.Context, func(error)) {
	if d.Invoked == nil {
		return ctx, func(error) {}
	}
	return d.Invoked(ctx, function)
}

// event is what every state of the machine passes on.
type event struct {
	Execution string `json:"execution"` // ARN
	Name      string `json:"name"`      // the execution's name
	Token     string `json:"token"`     // Approve
	Retries   int64  `json:"retries"`   // Approve
	Redrives  int64  `json:"redrives"`  // Approve
	State     state  `json:"state"`
}

// state is a Route, or what an execution that nobody created a run for was started with.
type state struct {
	runtime.Route
	Failure *failure        `json:"failure"`
	Agent   string          `json:"agent"`
	Key     string          `json:"key"`
	Message json.RawMessage `json:"message"`
	Input   json.RawMessage `json:"input"`
	Subject string          `json:"subject"`

	keys []string // as they were sent
}

// failure is the error output of a state that gave up.
type failure struct {
	Error string `json:"Error"`
	Cause string `json:"Cause"`
}

// retriesPerRedrive orders a waiter's attempts: every redrive is later than all retries before it.
const retriesPerRedrive = 1 << 20

// limits are those of the state machine's events. What an execution was started with stands two levels deep in them and
// is as deep as any JSON of ours may be.
var limits = jsonx.JSONLimits{Bytes: runtime.MaxStart, Depth: 64 + 2}

// decode reads the state machine's event. What stands in it may be of another version of ours, and have keys that this
// one does not know.
func decode(payload []byte) (event, error) {
	var e event
	err := jsonx.DecodeKnown(payload, limits, &e)
	if err == nil {
		err = e.check()
	}
	if err == nil && e.State.Run == "" {
		var raw struct {
			State map[string]json.RawMessage `json:"state"`
		}
		_ = json.Unmarshal(payload, &raw) // it was read before
		e.State.keys = slices.Sorted(maps.Keys(raw.State))
	}
	if err != nil {
		return event{}, invalidf("read the state machine's event: %w", err)
	}
	return e, nil
}

// check refuses what the state machine never sends, before it becomes part of a key.
func (e *event) check() error {
	s := &e.State
	switch {
	case !isExecutionName(e.Name):
		return errors.New("name: want the execution's name")
	case len(e.Token) > maxToken:
		return fmt.Errorf("token: got %d bytes, want at most %d", len(e.Token), maxToken)
	case e.Retries < 0 || e.Retries >= retriesPerRedrive || e.Redrives < 0 || e.Redrives >= 1<<30: // which people make
		return errors.New("retries and redrives: want how often there was one")
	case s.Run == "" && s.Tenant == "": // it has a default
	case !agent.ValidTenant(s.Tenant):
		return errors.New("state.tenant: want ^[a-z0-9][a-z0-9-]{0,39}$")
	case len(s.Run) > 64 || strings.Trim(s.Run, "abcdefghijklmnopqrstuvwxyz0123456789") != "":
		return errors.New("state.run: want a run's id")
	}
	if s.At < 0 || s.Woken < 0 {
		return errors.New("state.at and state.woken: want places in the journal")
	}
	return nil
}

// maxToken bounds a task token, which is about 1000 characters long.
const maxToken = 4096 // bytes

// isExecutionName reports whether Step Functions, or the engine of a laptop, could have given an execution that name.
func isExecutionName(s string) bool {
	const word = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return s != "" && len(s) <= 80 && strings.Trim(s, word) == ""
}

func (d *Deployment) invocation(e event) runtime.Invocation {
	return runtime.Invocation{
		Tenant: e.State.Tenant, Run: e.State.Run, Execution: e.Name, Woken: e.State.Woken, At: e.State.At,
		Writer: d.Ports.IDs.Writer(),
	}
}

// handler answers an event of the state machine.
type handler func(*Deployment, context.Context, event) ([]byte, error)

// Invoke calls a function by its name: step, tool or approve.
func (d *Deployment) Invoke(ctx context.Context, function string, payload []byte) ([]byte, error) {
	switch function { // a table would be linked whatever calls it, and all functions with it
	case "step":
		return d.handle(ctx, function, (*Deployment).step, payload)
	case "tool":
		return d.handle(ctx, function, (*Deployment).tool, payload)
	case "approve":
		return d.handle(ctx, function, (*Deployment).approve, payload)
	default:
		return nil, invalidf("invoke function %q: want step, tool or approve", function)
	}
}

// handle runs one of the functions. A binary that calls handle, and not Invoke, does not link the others.
func (d *Deployment) handle(ctx context.Context, function string, h handler, payload []byte) (out []byte, err error) {
	ctx, ended := d.beginInvocation(ctx, function)
	defer func() { ended(err) }()
	e, err := decode(payload)
	if err != nil {
		return nil, err
	}
	return h(d, ctx, e)
}

func (d *Deployment) step(ctx context.Context, e event) ([]byte, error) {
	if e.State.Run == "" {
		var err error
		if e.State.Run, err = d.create(ctx, &e); err != nil {
			return nil, classify(err)
		}
	}
	st := &runtime.Stepper{Ports: d.Ports, Definitions: d.Definitions, Shown: d.Shown, Family: d.Family}
	inv := d.invocation(e)
	if e.State.Failure != nil {
		return reply(st.Fail(ctx, inv, fmt.Sprintf("a step gave up after its retries: %s", e.State.Failure.Error)))
	}
	return reply(st.Step(ctx, inv))
}

// create writes the run of an execution that was started by an event. The first execution to write it owns it.
func (d *Deployment) create(ctx context.Context, e *event) (string, error) {
	s := &e.State
	s.Tenant = cmp.Or(s.Tenant, "default")
	// Refuse what would be left out of the run, or be cut from it, without a word.
	for _, key := range s.keys {
		if !slices.Contains(starts, key) {
			return "", invalidf("start run: %s: want one of %s", safeName(key), strings.Join(starts, ", "))
		}
	}
	for _, text := range []struct {
		key, value string
		most       int
	}{{"key", s.Key, maxKey}, {"subject", s.Subject, maxSubject}} {
		if len(text.value) > text.most || strings.Contains(text.value, "\x00") {
			return "", invalidf("start run: %s: want at most %d bytes, without NUL", text.key, text.most)
		}
	}
	def, ok := d.Agents(s.Agent)
	if !ok && d.Unfit != nil && d.Unfit(s.Agent) != "" {
		return "", invalidf("start run: %s", d.Unfit(s.Agent))
	}
	if !ok {
		return "", invalidf("start run: agent %s is not known to this deployment", safeName(s.Agent))
	}
	var said []run.UserBlock
	if s.Message != nil && string(s.Message) != "null" {
		var err error
		if said, err = web.ReadMessage("message", s.Message); err != nil {
			return "", invalidf("start run: %w", err)
		}
	}
	key := cmp.Or(s.Key, e.Name)
	id := agent.RunID(s.Tenant, def.Name, key)
	_, err := d.Starter.Create(ctx, runtime.Start{
		Tenant: s.Tenant, Agent: def, Key: key, Message: said, Input: s.Input, Subject: s.Subject,
	}, id, e.Name)
	return id, err
}

// The bounds of what starts a run, in bytes, as the API has them.
const (
	maxKey     = 256
	maxSubject = 1024
)

// starts are the keys of what an execution is started with that has to make its run; failure is what the state machine
// adds where that failed.
var starts = []string{"agent", "failure", "input", "key", "message", "subject", "tenant"}

// safeName returns the name if it could be a name of ours, else nothing: Step Functions and logs keep what an error
// says.
func safeName(name string) string {
	if agent.ValidAgentName(name) || name == "" {
		return strconv.Quote(name)
	}
	return "(a text that is no name)"
}

func (d *Deployment) tool(ctx context.Context, e event) ([]byte, error) {
	b := &runtime.Batch{Ports: d.Ports, Definitions: d.Definitions}
	return reply(b.Run(ctx, d.invocation(e)))
}

// approve serves functions/approve. It decides nothing: it keeps the task token until somebody does.
func (d *Deployment) approve(ctx context.Context, e event) ([]byte, error) {
	if e.Token == "" {
		return nil, invalidf("read the state machine's event: token: want a task token")
	}
	err := d.Waits.Park(ctx, store.TokenClaim{
		Tenant: e.State.Tenant, Run: e.State.Run, Execution: e.Name, WaitSeq: e.State.Woken,
		Attempt: e.Redrives*retriesPerRedrive + e.Retries, Token: e.Token,
	})
	return []byte("{}"), classify(err)
}

func reply(r runtime.Route, err error) ([]byte, error) {
	if err != nil {
		return nil, classify(err)
	}
	return json.Marshal(r)
}

// classify gives an error its kind, once. Nil stays nil.
func classify(err error) error {
	var known *Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	kind := KindUnavailable
	var forbidden *run.ApplyError
	var bad *runtime.BadStart
	switch {
	case errors.Is(err, store.ErrThrottled), errors.Is(err, store.ErrConflict):
		kind = KindThrottled
	case errors.Is(err, runtime.ErrModelBusy):
		kind = KindBusy
	case errors.Is(err, runtime.ErrTooManyRuns):
		kind = KindTooManyRuns
	case errors.Is(err, runtime.ErrContention):
		kind = KindContention
	case errors.Is(err, store.ErrNoRun), errors.Is(err, runtime.ErrKeyReused), errors.Is(err, runtime.ErrUnknownBlob),
		errors.As(err, &bad):
		kind = KindInvalid
	case errors.As(err, &forbidden), errors.Is(err, store.ErrTooLarge), errors.Is(err, store.ErrInvalid),
		errors.Is(err, store.ErrNoBlob), errors.Is(err, runtime.ErrCleanupFailed):
		kind = KindInternal
	case errors.Is(err, store.ErrDamaged), errors.Is(err, approval.ErrNotLinked):
		kind = KindOtherVersion
	}
	return &Error{Kind: kind, Err: err}
}

// Kind says what an error means to whoever called a function. The set is small and closed, and the state machine's
// Retry and Catch know the kinds by these names.
type Kind string

// The kinds.
const (
	KindThrottled   Kind = runtime.ThrottledError
	KindUnavailable Kind = "Countersign.Unavailable"
	KindContention  Kind = "Countersign.Contention"
	// every model of the chain failed in a way that may pass; nothing was committed
	KindBusy Kind = "Countersign.ModelBusy"
	// an event's run has to wait until its tenant has fewer; only the first state, which makes the run, retries it
	KindTooManyRuns Kind = "Countersign.TooManyRuns"
	KindInvalid     Kind = "Countersign.Invalid"  // the request makes no sense, and never will
	KindInternal    Kind = "Countersign.Internal" // a bug or a missing record; never retried
	// a record that this version cannot read, or code that it lacks; never retried, and the run stays open
	KindOtherVersion Kind = runtime.OtherVersionError
)

// retried are the kinds that pass by themselves in every state, sorted. The state machine retries them by these very
// names.
var retried = []Kind{KindContention, KindBusy, KindThrottled, KindUnavailable}

// throttled are the kinds that say that too much happens at once: nothing is broken, and the state machine tries again.
var throttled = []Kind{KindContention, KindBusy, KindThrottled, KindTooManyRuns}

// Retried reports whether the state machine tries again after an error of this kind.
func (k Kind) Retried() bool { return slices.Contains(retried, k) }

// Error is an error with its kind. An error gets its kind once, where a handler returns.
type Error struct {
	Kind Kind
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// ErrorType returns the name of the kind, which the state machine sees.
func (e *Error) ErrorType() string { return string(e.Kind) }

func invalidf(format string, args ...any) error {
	return &Error{Kind: KindInvalid, Err: fmt.Errorf(format, args...)}
}
