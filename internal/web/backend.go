package web

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
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/store"
)

// Backend is what an APIHandler serves. Required are all fields but PeopleAdmins, Uploads, Intake, Callbacks, Local,
// Via, Ready, Tool, Replay and Log.
type Backend struct {
	Agents    Agents
	Starter   *runtime.Starter
	Inputs    *runtime.Inputs
	Canceller *runtime.Canceller
	Deleter   *runtime.Deleter
	Desk      Desk
	Journal   Journal
	Table     store.Table // of approvals and standing grants
	Feed      Watcher
	Clock     clock.Clock
	// Definitions finds the definition a run is pinned to.
	Definitions runtime.Definitions
	Uploads     store.Uploads // presigns uploads to the store; nil = Intake, or no uploads
	Intake      store.Intake  // stores files sent to this API; only with Local

	// PeopleAdmins is the group whose members may see and change the people in Table; "" = nobody may.
	PeopleAdmins string

	// Callbacks returns the keyring of callbacks; nil = no callbacks.
	Callbacks func() (*secrets.Ring, error)

	// Caller returns the authenticated caller of a request, never from its body. Its error refuses the request: a *Problem
	// as it is, any other as NotAllowed with the error's text.
	Caller func(r *http.Request) (Caller, error)
	// Local says that callers own the machine. They may start their own definitions and see internal errors.
	Local bool
	// Via is the channel that decisions are recorded with; "" = the API.
	Via approval.Via
	// Tool reports whether a tool has code here. Required with Local, to check definitions.
	Tool func(name string) bool
	// Ready is called before every changing request, concurrently. Its error refuses the request. Nil = always ready.
	Ready func(ctx context.Context) error
	// Replay folds a run's journal again; nil = not served.
	Replay func(ctx context.Context, tenant, run string) (Replay, error)
	// Log logs internal errors and 503 responses; nil = none.
	Log *slog.Logger
}

// Caller is who makes a request.
type Caller struct {
	Tenant    string
	Principal policy.Principal
}

// Agents finds registered agents; *registry.Registry implements it. Safe for concurrent use.
type Agents interface {
	Agent(name string) (*agent.Definition, bool)
	Agents() []string
}

// Desk records decisions, remarks and who looked at secrets, and revokes standing grants; *approval.Desk implements it
// and documents the errors.
type Desk interface {
	Decide(ctx context.Context, r approval.DecisionInput) (approval.Approval, error)
	PrepareDecision(ctx context.Context, s *run.AgentState, r approval.DecisionInput) (approval.DecisionStep, error)
	Revoke(ctx context.Context, r approval.Revocation) error
	AddRemark(ctx context.Context, w approval.RemarkInput) (approval.Approval, error)
	RecordUnmasking(ctx context.Context, tenant, id string, by policy.Principal, via approval.Via) error
}

// Journal reads runs; *store.Journal implements it and documents the errors.
type Journal interface {
	Load(ctx context.Context, tenant, run string) (store.Loaded, error)
	Entries(ctx context.Context, tenant, run string, from int64, count int) ([]run.Entry, error)
	Stored(ctx context.Context, tenant, run string, from int64, count int) ([][]byte, error)
	Before(ctx context.Context, tenant, run string, seq int64) (run.AgentState, error)
	Conversation(ctx context.Context, tenant string, s *run.AgentState) ([]policy.SeenMessage, error)
	Head(ctx context.Context, tenant, run string) (store.Head, error)
	ListSince(ctx context.Context, tenant string, status run.RunStatus, since time.Time, limit int,
		cursor string) (heads []store.Head, next string, err error)
	Deletions(ctx context.Context, tenant string, open bool, limit int, cursor string) (
		list []store.Deletion, next string, err error)
}
