package lambdafn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambda/messages"
	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/awssdk"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/model/bedrock"
	"github.com/countersign/countersign/internal/model/modelretry"
	"github.com/countersign/countersign/internal/model/openai"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/dynamo"
	"github.com/countersign/countersign/internal/store/s3"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/web"
)

// Step is the main of functions/step, which asks models. It serves until the process ends.
func Step(r *registry.Registry) { serve(r, "step", (*Deployment).step, addModels) }

// Tool is the main of functions/tool, which runs tools. It serves until the process ends.
func Tool(r *registry.Registry) { serve(r, "tool", (*Deployment).tool, addRemotes) }

// Approve is the main of functions/approve, which stores task tokens and notifies people of requests. It serves until
// the process ends.
func Approve(r *registry.Registry) { serve(r, "approve", (*Deployment).approve, addAsyncNotices) }

func serve(r *registry.Registry, name string, h handler, needs wiring) {
	listen(func(cfg aws.Config, getenv func(string) string) (Invoke, error) {
		deployed, err := start(r, cfg, getenv, needs, addCode)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, payload []byte) ([]byte, error) {
			return deployed.handle(ctx, name, h, payload)
		}, nil
	})
}

// Invoke answers one event of a function.
type Invoke = func(ctx context.Context, payload []byte) ([]byte, error)

// listen starts a function with the configuration of its AWS clients and its environment, and serves its events. It
// answers with JSON, or with a stream of lambdaurl. Bad configuration ends it before any event.
func listen[T any](
	start func(cfg aws.Config, getenv func(string) string) (func(ctx context.Context, payload []byte) (T, error), error),
) {
	cfg, err := awssdk.Load(context.Background())
	var f func(ctx context.Context, payload []byte) (T, error)
	if err == nil {
		f, err = start(cfg, os.Getenv)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cold start:", err)
		os.Exit(1)
	}
	lambda.Start(func(ctx context.Context, payload json.RawMessage) (any, error) {
		if string(payload) == VersionRequest {
			return ReadBuild(), nil
		}
		out, err := f(ctx, payload)
		if raw, ok := any(out).([]byte); ok {
			return json.RawMessage(raw), withErrorName(err)
		}
		return out, withErrorName(err)
	})
}

// function is a deployment in a function of AWS Lambda, and what it is made of.
type function struct {
	*Deployment
	cfg      aws.Config
	getenv   func(string) string
	registry *registry.Registry
	agents   *deployable
	watch    *Observer
	vault    vault
	blobs    *s3.Blobs
	waiter   *Waiter
}

// vault are the secrets that a function may read: those of tenants, and its own by their names.
type vault interface {
	tool.Secrets
	Value(ctx context.Context, name string) (string, error)
}

// wiring adds what not every function uses. A function links only what its own main names.
type wiring func(f *function) error

// start wires a function from its agents and its environment. Bad configuration ends it here, before any event. A
// variable that is missing is an error that names it.
func start(r *registry.Registry, cfg aws.Config, getenv func(string) string, needs ...wiring) (*function, error) {
	watch, err := newObserver(getenv, os.Stdout, os.Stderr)
	if err != nil {
		return nil, err
	}
	if err := checkEnv(cfg, getenv, EnvTable, envBucket, envMachine); err != nil {
		return nil, err
	}
	waiter, err := NewWaiter(cfg, getenv(envMachine))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", envMachine, err)
	}
	waiter.Trace = observe.XRayHeader
	clk := clock.System()
	draw := clock.NewIDs(clk)
	budget, err := readTenantBudget(getenv)
	if err != nil {
		return nil, err
	}
	able, blobs := &deployable{all: r, priced: budget.USD > 0, log: watch.Log}, s3.New(cfg, getenv(envBucket))
	table := store.Resend(dynamo.New(cfg, getenv(EnvTable), draw.Key), clk, draw.Jitter)
	journal := store.NewJournal(table, 64)
	journal.Clock = clk
	log := observe.NewLogger(os.Stderr, // without content (R17)
		store.ErrThrottled, store.ErrConflict, store.ErrTooLarge, store.ErrInvalid, store.ErrNoRun, store.ErrNoBlob,
		store.ErrGuardFailed,
		runtime.ErrContention, runtime.ErrSweepStopped, runtime.ErrSweepTooShort, context.Canceled, context.DeadlineExceeded,
	)
	ports := runtime.Ports{
		Table: table, Journal: journal, Blobs: blobs, Uploads: blobs, Waiter: waiter, Clock: clk,
		IDs: draw, Agents: able.Agent, Valid: tool.Validator(r.Tools()), Sink: endLog{log},
		TenantBudget: budget,
	}
	if name := getenv(envBus); name != "" {
		bus := NewBus(cfg, name, getenv(envMachine))
		ports.Emit, ports.Publish = bus, bus
	}
	running, err := readNumber(getenv, EnvMaxRunning, 10_000, "a number of runs, or 0 for no limit")
	if err != nil {
		return nil, err
	}
	f := &function{
		cfg: cfg, getenv: getenv, registry: r, agents: able, watch: watch, blobs: blobs, waiter: waiter,
		vault: NewVault(cfg, getenv(EnvSecretsPrefix), clk),
	}
	// of agents that cannot be started here, too
	shown := runtime.WithCurrentPolicy(runtime.PinnedDefinitions(blobs), r.Agent)
	f.Deployment = &Deployment{
		MaxRunning: running, Ports: ports, Definitions: readableDefinitions(shown, r), Shown: shown,
		Agents: able.Agent, Unfit: able.Unfit, Invoked: watch.Invoked, Trace: watch.Trace, Log: log,
	}
	for _, add := range needs {
		if err := add(f); err != nil {
			return nil, err
		}
	}
	f.Ports = watch.Ports(f.Ports)
	f.Compose()
	return f, nil
}

// envStreaming says whether functions/step keeps the replies that models are writing, which functions/http streams: on,
// or off, which is the default.
const envStreaming = "COUNTERSIGN_STREAMING"

// isOn reads a variable that is on, or off or empty.
func isOn(getenv func(string) string, name string) (bool, error) {
	switch got := getenv(name); got {
	case "on", "off", "":
		return got == "on", nil
	default:
		return false, fmt.Errorf("%s: got %q, want on or off", name, got)
	}
}

// EnvMaxRunning holds how many running runs a tenant may have when another one is started; "" or 0 = any number.
const EnvMaxRunning = "COUNTERSIGN_MAX_RUNNING_RUNS"

// envTenantBudget holds what all runs of a tenant may use in UTC, as 100 usd/day or 20000000 tokens/month; "" = no
// limit.
const envTenantBudget = "COUNTERSIGN_TENANT_BUDGET"

func readTenantBudget(getenv func(string) string) (b agent.PeriodBudget, err error) {
	text := getenv(envTenantBudget)
	if text == "" {
		return b, nil
	}
	amount, of, _ := strings.Cut(text, " ")
	unit, every, _ := strings.Cut(of, "/")
	if unit == "usd" {
		b.USD, err = agent.ParseUSD(amount)
	} else {
		b.Tokens, err = strconv.ParseInt(amount, 10, 64)
	}
	b.Every = agent.Every(every)
	if err != nil || unit != "usd" && unit != "tokens" || b.USD <= 0 && b.Tokens <= 0 ||
		b.Every != agent.EveryDay && b.Every != agent.EveryMonth {
		const want = `want an amount like "100 usd/day" or "20000000 tokens/month"`
		return b, fmt.Errorf("%s: got %q, %s", envTenantBudget, text, want)
	}
	return b, nil
}

// readNumber reads a whole number from 0 to most; empty = 0.
func readNumber(getenv func(string) string, name string, most int, want string) (int, error) {
	text := getenv(name)
	n, err := strconv.Atoi(cmp.Or(text, "0"))
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("%s: got %q, want %s; at most %d", name, text, want, most)
	}
	return n, nil
}

func addCode(f *function) error {
	f.Ports.Tools, f.Ports.Schema, f.Ports.Hooks = f.registry.Tools(), tool.Fits, f.registry.Hooks()
	return nil
}

// endLog logs the last entry of each run that ends. Who has that line notices that the run's journal was cut or
// rewritten (audit verify --head).
type endLog struct{ log *slog.Logger }

func (l endLog) Committed(_ context.Context, _ run.Entry, s *run.AgentState) {
	if s.Status == run.RunDone {
		l.log.Info("run ended", "tenant", s.Tenant, "run", s.Run, "reason", string(s.Reason), "seq", s.Seq(), "hash",
			s.Hash())
	}
}

// withErrorName gives an error the name that the state machine's Retry and Catch look for. Lambda's runtime would
// report the outermost Go type instead.
func withErrorName(err error) error {
	var known *Error
	if !errors.As(err, &known) {
		return err
	}
	return messages.InvokeResponse_Error{Type: known.ErrorType(), Message: err.Error()}
}

// deployable are the agents of a registry that a deployed function can run. Those whose file is wrong, that need a
// program on the machine, or that lack prices where cost counts are left out, each with a word to log when it is first
// asked for; whoever starts one is told why it is not there. Safe for concurrent use.
type deployable struct {
	all    *registry.Registry
	priced bool // cost counts
	log    func(text string)
	logged sync.Map // the names of agents that were logged
}

// readableDefinitions returns the definitions by which runs go on. If an agent's file cannot be read, its policy may be
// stricter than the pinned one: that is an error, as is code that this version does not have.
func readableDefinitions(tightened runtime.Definitions, agents *registry.Registry) runtime.Definitions {
	linked := runtime.WithLinkedCode(tightened, agents.Hooks())
	return func(ctx context.Context, tenant, digest string) (*agent.Definition, error) {
		def, err := linked(ctx, tenant, digest)
		if err != nil {
			return nil, err
		}
		for _, name := range append([]string{def.Name}, def.Delegators...) {
			if why := agents.Unfit(name); why != "" {
				return nil, fmt.Errorf("%s: %w", why, approval.ErrNotLinked) // the sweep goes on with the run once it can be read
			}
		}
		return def, nil
	}
}

func (d *deployable) Agent(name string) (*agent.Definition, bool) {
	if d.Unfit(name) != "" {
		return nil, false
	}
	return d.all.Agent(name)
}

func (d *deployable) Agents() []string {
	return slices.DeleteFunc(d.all.Agents(), func(name string) bool { return d.Unfit(name) != "" })
}

// Unfit says why a registered agent cannot run; "" = it can, or there is no such agent.
func (d *deployable) Unfit(name string) string {
	why := d.all.Unfit(name)
	if def, ok := d.all.Agent(name); ok {
		if server, needed := def.Program(); needed {
			why = policy.TextNeedsProgram(name, server)
		} else if free := func(m agent.ModelSpec) bool { return m.Price == nil }; d.priced &&
			slices.ContainsFunc(def.Model.Chain(), free) {
			why = "agent " + name + " has a model without a price and cannot run under a TenantBudget in USD"
		}
	}
	if why != "" {
		if _, again := d.logged.LoadOrStore(name, true); !again {
			d.log(why)
		}
	}
	return why
}

// EnvOpenAI names the secret of OpenAI's own key, which goes to no other server; empty = there is none.
const EnvOpenAI = "COUNTERSIGN_OPENAI_SECRET"

// envGuardrail is the guardrail of every request to Bedrock, as id:version; empty = there is none.
const envGuardrail = "COUNTERSIGN_GUARDRAIL"

// addModels adds the ports that ask models. The observer sees every try of a request: it stands below the retries.
func addModels(f *function) error {
	if id, version, _ := strings.Cut(f.getenv(envGuardrail), ":"); (id == "") != (version == "") {
		return fmt.Errorf("%s: got %q, want id:version, or nothing", envGuardrail, f.getenv(envGuardrail))
	}
	live, err := f.liveTable()
	if err != nil {
		return err
	}
	var onDelta agent.OnDelta
	if live != nil {
		onDelta = prompt.TranslateTags(web.NewLive(live, f.Ports.Clock, f.Deployment.Log).ReceiveDelta)
	}
	p, all := &f.Ports, f.newModels(onDelta)
	m := runtime.WithDialect(runtime.WithMedia(f.watch.Model(all), p.Blobs))
	p.Model, p.Count, p.Index = modelretry.New(m, p.Clock, clock.NewIDs(p.Clock).Jitter), m, runtime.NewToolIndex(all)
	return nil
}

// Models asks the model that a run's own definition names: of Amazon Bedrock with the function's own role, or of an
// OpenAI-compatible server. Safe for concurrent use.
type Models struct {
	bedrock bedrock.Model
	openai  openai.Servers
}

// newModels opens no connection; all requests share those that they open.
func (f *function) newModels(onDelta agent.OnDelta) Models {
	return Models{
		bedrock: bedrock.Model{Client: bedrock.NewClient(f.cfg), OnDelta: onDelta, Guardrail: f.getenv(envGuardrail)},
		openai:  openai.Servers{OwnKey: f.secret(EnvOpenAI), Secrets: f.vault, OnDelta: onDelta},
	}
}

// CountTokens counts with the service where the model is Bedrock's. Servers that speak OpenAI's protocol do not count.
func (m Models) CountTokens(ctx context.Context, r agent.Request) (int64, error) {
	if r.Model.Provider != "bedrock" {
		return runtime.CountWith(ctx, m.openai, r)
	}
	return m.bedrock.CountTokens(ctx, r)
}

// Generate asks the adapter that the request names.
func (m Models) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	switch r.Model.Provider {
	case "bedrock":
		return m.bedrock.Generate(ctx, r)
	case "openai":
		return m.openai.Generate(ctx, r)
	default:
		return agent.Reply{}, &agent.ModelError{Class: agent.ModelInvalid, Model: r.Model.ID,
			Message: "provider " + r.Model.Provider + " does not work in a deployed function; want bedrock or openai"}
	}
}

// Embed asks the adapter that an agent names for vectors.
func (m Models) Embed(ctx context.Context, tenant string, by agent.Embeddings, texts []string) ([][]float32, error) {
	if by.Provider == agent.EmbeddingsOpenAI {
		return m.openai.Embed(ctx, tenant, by, texts)
	}
	return m.bedrock.Embed(ctx, tenant, by, texts)
}
