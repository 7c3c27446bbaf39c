package lambdatool

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/propagation"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// Remote carries out the calls of tools of kind lambda that are waited for, a runtime.Remote. Functions is required.
// Safe for concurrent use.
type Remote struct{ Functions runtime.Functions }

// Open implements runtime.Remote.
func (r Remote) Open(string, *agent.Definition) runtime.Session {
	ctx, cancel := context.WithCancel(context.Background())
	return &session{functions: r.Functions, open: ctx, close: cancel}
}

// session is one invocation's use of functions.
type session struct {
	functions runtime.Functions
	open      context.Context //nolint:containedctx // ends with the session, and what is under way with it
	close     context.CancelFunc
}

// Tool implements runtime.Session.
func (s *session) Tool(t agent.ToolSpec) tool.Tool { return &function{session: s, spec: t} }

// Close implements runtime.Session.
func (s *session) Close() { s.close() }

// function is a tool that is a function.
type function struct {
	session *session
	spec    agent.ToolSpec
}

// Spec implements tool.Tool.
func (f *function) Spec() agent.ToolSpec { return f.spec }

// errClosed says that a batch is over.
var errClosed = errors.New("the invocation that made the call has ended")

// Call implements tool.Tool: it invokes the function and reads its result. A function that ended without a word of
// its own, because its time was up or its process died, may have done what it was asked, as one whose answer was
// lost: *tool.LostError.
func (f *function) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	if f.session.open.Err() != nil {
		return agent.ToolResultData{}, errClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.session.open, cancel)()
	traced := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, traced) // in the payload: Lambda drops the client context of events
	in := policy.FunctionCall{
		Tool: c.Name, Args: c.Args, Key: c.Key, Tenant: c.Tenant, Run: c.Run, Call: c.ID, State: c.State, Resume: c.Resume,
		Traceparent: traced["traceparent"], Tracestate: traced["tracestate"],
	}
	payload, err := in.Payload()
	if err != nil {
		return agent.ToolResultData{}, err
	}
	out, err := f.session.functions.Invoke(ctx, runtime.Invoke{
		Function: f.spec.Lambda.Function, Payload: payload, Once: f.spec.Effect == run.EffectNonIdempotent,
	})
	switch {
	case err != nil:
		return agent.ToolResultData{}, err
	case out.Failed:
		return functionError(out.Payload)
	default:
		return readResult(out.Payload), nil
	}
}
