package lambdafn

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/observe/safelog"
	"github.com/countersign/countersign/internal/observe/tracing"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tools/keyring"
	"github.com/countersign/countersign/internal/tools/schema"
	"github.com/countersign/countersign/internal/web/api"
)

// The environment of functions/api beside that of every function. All of it is optional.
const (
	envTenantClaim = "COUNTERSIGN_TENANT_CLAIM" // tenant
	envUserClaim   = "COUNTERSIGN_USER_CLAIM"   // sub
	envGroupsClaim = "COUNTERSIGN_GROUPS_CLAIM" // groups
	envIAMTenant   = "COUNTERSIGN_IAM_TENANT"   // empty = callers signed by IAM are refused
)

// API is the main of functions/api: the HTTP API behind API Gateway or a function URL. It serves until the process is ended.
func API(r *registry.Registry) {
	listen(func(cfg aws.Config, getenv func(string) string) (Invoke, error) { return startAPI(r, cfg, getenv) })
}

func startAPI(agents api.Agents, cfg aws.Config, getenv func(string) string) (Invoke, error) {
	who := Identity{
		TenantClaim: getenv(envTenantClaim), UserClaim: getenv(envUserClaim), GroupsClaim: getenv(envGroupsClaim), IAMTenant: getenv(envIAMTenant),
	}
	if who.IAMTenant != "" && !agent.ValidTenant(who.IAMTenant) {
		return nil, fmt.Errorf("%s: got %q, want a tenant: ^[a-z0-9][a-z0-9-]{0,39}$", envIAMTenant, who.IAMTenant)
	}
	if parts := strings.Split(getenv(envMachine), ":"); len(parts) > 4 { // connect says so where it is no ARN
		who.IAMAccount = parts[4]
	}
	watch, err := observe(getenv, os.Stdout, os.Stderr)
	if err != nil {
		return nil, err
	}
	ports, err := connect(cfg, getenv)
	if err != nil {
		return nil, err
	}
	ports.Valid = schema.Validate
	telling(cfg, getenv, watch, &ports)
	ring, err := readRing(getenv)
	if err != nil {
		return nil, err
	}
	people := directory(getenv, watch)
	serve := NewAPI(watch.Ports(ports), fit(agents, watch.Log), who, watch.Trace, newLog(), ring, people)
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		defer watch.flush(ctx)
		return serve(ctx, payload)
	}, nil
}

// NewAPI serves the HTTP API to the events of a gateway, and takes services' answers from an event rule. It uses no model and no tool, and needs neither among its ports; without Valid it panics. A stream learns
// of what other functions write by looking at the journal's tail. Where trace is not nil, requests are traced. Ring verifies callbacks; nil = there are none. People holds who has let another decide to the groups they are in now; nil = it knows nobody.
func NewAPI(p runtime.Ports, agents api.Agents, who Identity, trace *tracing.Tracer, log *slog.Logger, ring func() (*keyring.Ring, error), people person.Directory) Invoke {
	if p.Valid == nil {
		panic("lambdafn.NewAPI: want a port that checks arguments, got none")
	}
	d := &Deployment{
		Ports: p, Definitions: runtime.Tightened(runtime.PinnedDefinitions(p.Blobs), agents.Agent), People: people, Log: log,
	}
	d.Compose(trace)
	backend := d.Backend()
	backend.Agents, backend.Feed, backend.Caller, backend.Callbacks = agents, api.NewPoll(p.Journal, p.Clock), who.Caller, ring
	handler, events := api.Handler(backend), answers{d.Inputs}
	serve := Gateway(trace.HTTP(handler), log)
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		ctx, cancel := inTime(ctx, p.Clock)
		defer cancel()
		if sent, ok := readDelivery(payload); ok {
			return events.take(ctx, sent)
		}
		return serve(ctx, payload)
	}
}

// answering is what is left of a function's time to answer in: who is cut off by it leaves the client without a problem to read, and
// whoever runs this without a line in the log.
const answering = time.Second

// inTime ends before ctx's deadline, if it has one.
func inTime(ctx context.Context, c clock.Clock) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return c.WithTimeout(ctx, deadline.Sub(c.Now())-answering)
}

// newLog logs to the function's standard error, without content (R17).
func newLog() *slog.Logger {
	return safelog.New(os.Stderr,
		store.ErrThrottled, store.ErrConflict, store.ErrTooLarge, store.ErrInvalid, store.ErrNoRun, store.ErrNoBlob, store.ErrGuardFailed,
		runtime.ErrContention, runtime.ErrSweepStopped, runtime.ErrSweepTooShort, context.Canceled, context.DeadlineExceeded,
	)
}
