package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tools/keyring"
)

// Backend is what a Handler serves. All fields but Uploads, Intake, Callbacks, Local, Ready, Tool, Replay, Audited and Log are required.
type Backend struct {
	Agents    Agents
	Starter   Starter
	Inputs    Inputs
	Canceller Canceller
	Desk      Desk
	Journal   Journal
	Table     store.Table // where approvals and standing grants are read
	Feed      Watcher
	Clock     clock.Clock
	// Definitions finds the definition a run is pinned to.
	Definitions runtime.Definitions
	Uploads     store.Uploads // where clients put files themselves; nil = Intake, or none are taken
	Intake      store.Intake  // files that are sent to this API; only with Local

	// Callbacks is the ring that callbacks are verified by; nil = there are none.
	Callbacks func() (*keyring.Ring, error)

	// Caller says on whose behalf a request is made, from what authenticated it and never from its body. Its error refuses the request: a
	// *Problem as it is, any other as NotAllowed with the error's text.
	Caller func(r *http.Request) (Caller, error)
	// Local says that callers own the machine: they may bring a definition with a start, and are shown internal errors.
	Local bool
	// Via is the way by which decisions come in, for the record; "" = the API.
	Via approval.Via
	// Tool reports whether a tool has code here; definitions that come with a start are checked with it. Needed with Local.
	Tool func(name string) bool
	// Ready is called before every request that sets something going, concurrently; its error refuses the request. Nil = always ready.
	Ready func(ctx context.Context) error
	// Replay folds a run's journal again. Nil = not served.
	Replay func(ctx context.Context, tenant, run string) (Replay, error)
	// Log is told of internal errors, and why requests are put off (503). Nil = nobody is.
	Log *slog.Logger
}

// Caller is who makes a request.
type Caller struct {
	Tenant    string
	Principal policy.Principal
}

// Agents knows the registered agents; *registry.Registry is one. Safe for concurrent use.
type Agents interface {
	Agent(name string) (*agent.Definition, bool)
	Agents() []string
}

// Starter starts runs, branches them off and takes calls back; *runtime.Starter is one, and says what the errors are.
type Starter interface {
	Start(ctx context.Context, r runtime.Start) (run.AgentState, error)
	Fork(ctx context.Context, f runtime.Fork) (run.AgentState, error)
	Undo(ctx context.Context, u runtime.Undo) (s run.AgentState, again bool, err error)
	Undos(
		ctx context.Context, s *run.AgentState, def *agent.Definition, calls []string,
	) (map[string]*runtime.CallUndo, error)
}

// Inputs takes messages and services' answers; *runtime.Inputs is one, and says what the errors are.
type Inputs interface {
	Check(ctx context.Context, tenant string, blocks []run.UserBlock) error
	Send(ctx context.Context, tenant, run, id, by string, blocks []run.UserBlock) error
	Answer(ctx context.Context, a runtime.Answer) error
}

// Canceller calls runs off; *runtime.Canceller is one, and says what the errors are.
type Canceller interface {
	Cancel(ctx context.Context, tenant, run, by, note string) (run.AgentState, error)
}

// Desk records decisions and outcomes, and takes standing grants back; *approval.Desk is one, and says what the errors are.
type Desk interface {
	Decide(ctx context.Context, r approval.DecisionInput) (approval.Approval, error)
	SettleOutcome(ctx context.Context, o approval.Outcome) (approval.Approval, error)
	PrepareDecision(ctx context.Context, s *run.AgentState, r approval.CallDecision) (func(ctx context.Context) error, error)
	Revoke(ctx context.Context, r approval.Revocation) error
	Thread
}

// Thread takes what people say of a request without deciding it; *approval.Desk is one, and says what the errors are.
type Thread interface {
	AskQuestion(ctx context.Context, w approval.RemarkInput) (approval.Approval, error)
	ReplyToQuestion(ctx context.Context, w approval.RemarkInput) (approval.Approval, error)
}

// Journal reads runs; *store.Journal is one, and says what the errors are.
type Journal interface {
	Load(ctx context.Context, tenant, run string) (store.Loaded, error)
	Entries(ctx context.Context, tenant, run string, from int64, count int) ([]run.Entry, error)
	Stored(ctx context.Context, tenant, run string, from int64, count int) ([][]byte, error)
	Before(ctx context.Context, tenant, run string, seq int64) (run.AgentState, error)
	Conversation(ctx context.Context, tenant string, s *run.AgentState) ([]run.Spoken, error)
	Head(ctx context.Context, tenant, run string) (store.Head, error)
	ListSince(ctx context.Context, tenant string, status run.RunStatus, since time.Time, limit int, cursor string) (heads []store.Head, next string, err error)
}
