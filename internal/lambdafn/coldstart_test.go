package lambdafn

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// testAWS is the configuration of a function's AWS clients.
var testAWS = aws.Config{Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", "")}

const testRing = `{"id":"1","key":"0123456789abcdef0123456789abcdef"}`

// environment is a function's, by name.
type environment map[string]string

func (e environment) get(name string) string { return e[name] }

// with is e with some variables changed; pairs are names and values in turn.
func (e environment) with(pairs ...string) environment {
	out := maps.Clone(e)
	for i := 0; i+1 < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

// deployedEnv is what every function needs of its environment.
func deployedEnv() environment {
	return environment{EnvTable: "runs", envBucket: "blobs", envMachine: "arn:aws:states:eu:1:stateMachine:m"}
}

// mains wire each function.
var mains = map[string]func(*registry.Registry, aws.Config, func(string) string) error{
	"step": ofMachine(addModels), "tool": ofMachine(addRemotes), "approve": ofMachine(addAsyncNotices),
	"http": func(r *registry.Registry, cfg aws.Config, getenv func(string) string) error {
		return errOf(startHTTP(r, cfg, getenv))
	},
	"sweep": func(r *registry.Registry, cfg aws.Config, getenv func(string) string) error {
		return errOf(startSweep(r, cfg, getenv))
	},
}

// errOf is the error of a call whose result does not matter.
func errOf[T any](_ T, err error) error { return err }

func ofMachine(needs wiring) func(*registry.Registry, aws.Config, func(string) string) error {
	return func(r *registry.Registry, cfg aws.Config, getenv func(string) string) error {
		return errOf(start(r, cfg, getenv, needs, addCode))
	}
}

// Bad configuration ends a function at cold start. The error names the variable and holds no secret.
func TestColdStartNamesWhatIsMissing(t *testing.T) {
	r := registry.Must(registry.New())
	for name, start := range mains {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, start(r, testAWS, deployedEnv().get))
			for missing := range deployedEnv() {
				require.EqualError(t, start(r, testAWS, deployedEnv().with(missing, "").get), missing+": want a value, got none")
			}
			require.EqualError(t, start(r, aws.Config{}, deployedEnv().get), "AWS_REGION: want a value, got none")
			err := start(r, testAWS, deployedEnv().with(envMachine, "m").get)
			require.ErrorContains(t, err, envMachine+": state machine \"m\": want arn:aws:states")
			require.ErrorContains(t, start(r, testAWS, deployedEnv().with(EnvMetrics, "no").get), EnvMetrics)
			require.EqualError(t, start(r, testAWS, deployedEnv().with(EnvMaxRunning, "10001").get),
				`COUNTERSIGN_MAX_RUNNING_RUNS: got "10001", want a number of runs, or 0 for no limit; at most 10000`)
			for _, bad := range []string{"100", "100/day", "100 eur/day", "1.5 tokens/day", "0 usd/day", "-1 tokens/day", "5 usd/week"} {
				require.EqualError(t, start(r, testAWS, deployedEnv().with(envTenantBudget, bad).get), fmt.Sprintf(
					`COUNTERSIGN_TENANT_BUDGET: got %q, want an amount like "100 usd/day" or "20000000 tokens/month"`, bad))
			}
		})
	}
	require.ErrorContains(t, mains["tool"](r, testAWS, deployedEnv().with("COUNTERSIGN_PRIVATE_HOSTS", "10.0.0.0/8").get), "COUNTERSIGN_PRIVATE_HOSTS: ")
	require.EqualError(t, mains["step"](r, testAWS, deployedEnv().with(envGuardrail, "gr1").get),
		`COUNTERSIGN_GUARDRAIL: got "gr1", want id:version, or nothing`, "no request goes out without its guardrail")
	require.ErrorContains(t, mains["sweep"](r, testAWS, deployedEnv().with(EnvRetention, "-1").get), EnvRetention+`: got "-1"`)
	err := mains["http"](r, testAWS, deployedEnv().with(EnvIAMTenant, "My Company").get)
	require.ErrorContains(t, err, `COUNTERSIGN_IAM_TENANT: got "My Company", want a tenant`)
}

// manager is a Secrets Manager. An empty value is a secret that is not there.
type manager struct {
	mu     sync.Mutex
	values map[string]string
	asked  []string
}

func newManager(t *testing.T, values map[string]string) (*manager, aws.Config) {
	t.Helper()
	m := &manager{values: values}
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	cfg := testAWS.Copy()
	cfg.BaseEndpoint = &srv.URL
	return m, cfg
}

func (m *manager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct{ SecretID string }
	_ = json.NewDecoder(r.Body).Decode(&in) // one that was cut is another name
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, in.SecretID)
	out := map[string]string{"SecretString": m.values[in.SecretID]}
	if m.values[in.SecretID] == "" {
		w.WriteHeader(http.StatusBadRequest)
		out = map[string]string{"__type": "ResourceNotFoundException"}
	}
	_ = json.NewEncoder(w).Encode(out)
}

// A function's environment holds the names of its secrets. They are read when they are needed, kept for five minutes and
// then read again, so that a new key reaches a function that runs; what is wrong with one is said without it.
func TestSecretsAreReadAtRunTime(t *testing.T) {
	const arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:KeyRing-1a2b3c"
	m, cfg := newManager(t, map[string]string{arn: testRing})
	env := deployedEnv().with(EnvKeyRing, arn, EnvLinkKeyRing, "s3cret-name")
	f := must(start(registry.Must(registry.New()), cfg, env.get))
	require.Empty(t, m.asked, "a cold start reads none")
	now := clock.System().Now()
	f.vault = NewVault(cfg, "", movable{clock.System(), &now})
	read := f.keyRing(EnvKeyRing)
	for range 2 {
		ring := must(read())
		require.Equal(t, "1", ring.Newest())
	}
	require.Equal(t, []string{arn}, m.asked)
	m.values[arn] = "[{\"id\":\"2\",\"key\":\"fedcba9876543210fedcba9876543210\"}," + testRing + "]"
	now = now.Add(5 * time.Minute)
	ring := must(read())
	require.Equal(t, "2", ring.Newest())
	m.values[arn] = "s3cret"
	now = now.Add(5 * time.Minute)
	_, err := read()
	require.ErrorContains(t, err, EnvKeyRing)
	require.NotContains(t, err.Error(), "s3cret")
	require.ErrorIs(t, errOf(f.keyRing(EnvLinkKeyRing)()), tool.ErrNoSecret)
	require.Nil(t, f.keyRing("COUNTERSIGN_NONE"))
}

// movable is a clock whose time is set.
type movable struct {
	clock.Clock
	now *time.Time
}

func (c movable) Now() time.Time { return *c.now }

// Each function of the state machine has the ports that it uses, and the code of the program.
func TestColdStartComposes(t *testing.T) {
	r := registry.Must(registry.New())
	code := hook.Set{Builders: map[string]hook.Builder{"b": func(context.Context, hook.BuildInput) (hook.Built, error) { return hook.Built{}, nil }}}
	require.NoError(t, r.Hook(code))
	d := must(agent.Definition{Name: "a", Builder: "b", Model: agent.ModelSpec{Provider: "demo"}}.Resolve())
	require.NoError(t, r.Add(d))
	f := must(start(r, testAWS, deployedEnv().get, addModels, addRemotes, addNotifier, addCode))
	p := f.Ports
	for _, port := range []any{p.Model, p.Count, p.Index, p.Tools, p.Valid, p.Schema, p.Agents, f.Desk, p.Sink} {
		require.NotNil(t, port)
	}
	require.Len(t, p.Remotes, 3)
	require.Contains(t, p.Hooks.Builders, "b")
	require.Nil(t, p.Notify, "nobody is told without a channel")
	require.Nil(t, p.Callbacks, "no address is handed out without one of the API")
	got, ok := f.Agents("a")
	require.True(t, ok)
	require.Equal(t, "b", got.Builder)
}

// answer is what functions/http gives to a request that nobody has verified.
func answer(t *testing.T, f func(context.Context, []byte) (any, error), method, path string) events.APIGatewayV2HTTPResponse {
	t.Helper()
	var e events.APIGatewayV2HTTPRequest
	e.Version, e.RawPath, e.RequestContext.HTTP.Method = "2.0", path, method
	payload := must(json.Marshal(e))
	out := must(f(t.Context(), payload))
	var a events.APIGatewayV2HTTPResponse
	require.NoError(t, json.Unmarshal(out.([]byte), &a))
	return a
}

// The API and the pages are one function. Whatever is no page asks who calls. Without a key ring there are no links, and no pages: the API
// answers. Slack's clicks are taken only with a signing secret, and one that is wrong leaves the rest at work.
func TestOneFunctionServesTheAPIAndThePages(t *testing.T) {
	r := registry.Must(registry.New())
	_, cfg := newManager(t, map[string]string{"signing": "0123456789abcdef", "short": "short", "ring": testRing})
	pages := deployedEnv().with(EnvLinkKeyRing, "ring")
	const page, problem = "text/html; charset=utf-8", "application/problem+json"
	for name, c := range map[string]struct {
		env     environment
		answers map[string]string // status and type, by request
	}{
		"with a key ring": {pages, map[string]string{
			"GET /": "200 " + page, "GET /a/x": "404 " + page, "POST /slack/interactions": "404 " + page,
			"GET /v1/runs": "401 " + problem, "OPTIONS /v1/runs": "405 " + problem, "GET /v1/a/x": "404 " + problem, "GET /a": "404 " + problem,
		}},
		"with Slack": {pages.with(EnvSlackSecret, "signing"), map[string]string{
			"POST /slack/interactions": "401 ", "GET /v1/runs": "401 " + problem,
		}},
		"with a secret that is too short": {pages.with(EnvSlackSecret, "short"), map[string]string{
			"POST /slack/interactions": "503 text/plain; charset=utf-8", "GET /": "200 " + page,
		}},
		"with the ring of callbacks alone": {deployedEnv().with(EnvKeyRing, "ring"), map[string]string{
			"GET /": "404 " + problem, "GET /a/x": "404 " + problem, "GET /v1/runs": "401 " + problem,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := must(startHTTP(r, cfg, c.env.get))
			for line, want := range c.answers {
				method, path, _ := strings.Cut(line, " ")
				a := answer(t, f, method, path)
				require.Equal(t, want, fmt.Sprint(a.StatusCode, " ", a.Headers["Content-Type"]), "%s: %s", line, a.Body)
			}
			require.ErrorContains(t, errOf(f(t.Context(), []byte(`{}`))), "read the event")
		})
	}
}

// said is what functions/http answers to a request for runs whose query is wrong, from an authorizer's caller.
func said(t *testing.T, env environment, authorizer string) string {
	t.Helper()
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) }))
	t.Cleanup(empty.Close)
	cfg := testAWS.Copy()
	cfg.BaseEndpoint = &empty.URL // a table that holds nobody: no person was removed
	f := must(startHTTP(registry.Must(registry.New()), cfg, env.get))
	out, err := f(t.Context(), []byte(`{"version":"2.0","rawPath":"/v1/runs","rawQueryString":"x=1",
		"requestContext":{"http":{"method":"GET"},"authorizer":`+authorizer+`}}`))
	require.NoError(t, err)
	return fmt.Sprintf("%s", out)
}

// accepted is said to whoever is known: the query is looked at.
const accepted = `\"x\\\" is not known`

// Claims are named by the environment.
func TestClaimsAreNamedByTheEnvironment(t *testing.T) {
	env := deployedEnv().with(envTenantClaim, "custom:tenant", envUserClaim, "email", envGroupsClaim, "cognito:groups")
	for claims, want := range map[string]string{
		`{"tenant":"acme","sub":"ana"}`:                      "custom:tenant names no tenant",
		`{"custom:tenant":"acme","sub":"ana"}`:               "email names no user",
		`{"custom:tenant":"acme","email":"ana@example.com"}`: accepted,
	} {
		require.Contains(t, said(t, env, `{"jwt":{"claims":`+claims+`}}`), want)
	}
}

// Callers by IAM are those of the account that the state machine is in: another's role of an approvers' name is nobody
// here.
func TestIAMCallersAreOfTheOwnAccount(t *testing.T) {
	env := deployedEnv().with(envMachine, "arn:aws:states:eu:123456789012:stateMachine:m", EnvIAMTenant, "ops")
	for arn, want := range map[string]string{
		"sts::123456789012:assumed-role/operators/ana": accepted, "iam::123456789012:user/ana": accepted,
		"sts::210987654321:assumed-role/operators/ana": "own account", "iam::210987654321:user/ana": "own account",
		"iam:::user/ana": "own account",
	} {
		require.Contains(t, said(t, env, `{"iam":{"userArn":"arn:aws:`+arn+`"}}`), want, arn)
	}
}

// An event of a function URL is answered by a stream, and one of the HTTP API is not, whatever its headers say.
func TestWhatIsStreamed(t *testing.T) {
	f := must(startHTTP(registry.Must(registry.New()), testAWS, deployedEnv().get))
	for domain, streamed := range map[string]bool{
		"u1.lambda-url.eu-central-1.on.aws": true, "u2.lambda-url.eu-central-1.on.aws": false,
		"u1.execute-api.eu-central-1.amazonaws.com": false, "api.example.com": false,
	} {
		out, err := f(t.Context(), []byte(`{"version":"2.0","rawPath":"/v1/runs/r1/events","headers":{"host":"u1.lambda-url.eu-central-1.on.aws"},
			"requestContext":{"apiId":"u1","domainName":"`+domain+`","http":{"method":"GET"}}}`))
		require.NoError(t, err)
		stream, ok := out.(*events.LambdaFunctionURLStreamingResponse)
		require.Equal(t, streamed, ok, domain)
		if ok {
			require.Equal(t, 401, stream.StatusCode)
			require.NoError(t, stream.Close())
		}
	}
	_, err := startHTTP(registry.Must(registry.New()), testAWS, deployedEnv().with(envStreaming, "yes").get)
	require.ErrorContains(t, err, `COUNTERSIGN_STREAMING: got "yes", want on or off`)
}

// C5: a run's end is logged with the hash of its last entry.
func TestC5EndsAreLogged(t *testing.T) {
	var out bytes.Buffer
	sink := endLog{observe.NewLogger(&out)}
	d := run.NewDraft(run.AgentState{}, "w", time.Unix(100, 0))
	require.NoError(t, d.Add(run.RunStarted{Tenant: "acme", Run: "r1", Agent: "payer", Owner: "r1-0", MaxInteractions: 5}))
	s := d.Committed()
	sink.Committed(t.Context(), d.Entry, &s)
	require.Empty(t, out.String())
	d = run.NewDraft(s, "w", time.Unix(101, 0))
	require.NoError(t, d.Add(run.Finished{Reason: run.ReasonCancelled}))
	s = d.Committed()
	sink.Committed(t.Context(), d.Entry, &s)
	for _, want := range []string{`"msg":"run ended"`, `"run":"r1"`, `"seq":1`, `"hash":"` + s.Hash() + `"`} {
		require.Contains(t, out.String(), want)
	}
}
