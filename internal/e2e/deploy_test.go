// Package e2e runs the real bootstraps as Lambda does: the five functions that are deployed, each behind a small
// Runtime API, with DynamoDB Local as the table, an S3 and a Bedrock on loopback, the Step Functions wire API in front
// of the local engine, an HTTP API and an event bus with the template's own rules. All through real SDK clients and
// HTTP.
package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	sdksfn "github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign"
	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/repotest"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/dynamo"
	"github.com/countersign/countersign/internal/store/s3"
	"github.com/countersign/countersign/pkg/agent/cli"
)

// asCommand is the variable with which this program is the command line.
const asCommand = "COUNTERSIGN_E2E_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		cli.Main(agents.Registry()) // it exits
	}
	standins.MainWithDynamoDB(m, permits.report)
}

const (
	region  = "eu-central-1"
	name    = "countersign-dev-agent" // the state machine's, as in the sample events
	account = "123456789012"
	machine = "arn:aws:states:" + region + ":" + account + ":stateMachine:" + name
	bucket  = "blobs"
	sender  = "approvals@example.com" // of mails, where a test turns them on
	acme    = "acme"                  // the tenant of those who come by the API
)

// The keys that callbacks and links are signed with, which Secrets Manager has, and the people whom they are for.
const (
	keys      = `{"id":"1","key":"fedcba9876543210fedcba9876543210"}`
	linkKeys  = `{"id":"1","key":"0123456789abcdef0123456789abcdef"}`
	directory = `{"tenants":{"acme":{"user:ana":{"groups":["group:operators"],"name":"Ana Lima","email":"ana@example.com"},"user:eve":["group:guests"]}}}`
)

// The functions, as their folders are named.
var functions = []string{"step", "tool", "approve", "http", "sweep"}

// deployment is all functions and services that a run needs, as close to AWS as one machine allows.
type deployment struct {
	t         *testing.T
	clock     clock.Clock
	project   *repotest.Project
	values    repotest.Values // what the template's references stand for here
	functions map[string]*standins.Lambda
	engine    *asl.Engine
	ports     runtime.Ports // past the functions
	sfn       *sdksfn.Client
	bus       *standins.Bus
	mail      *standins.Mail
	events    *eventbridge.Client
	apiURL    string
	ledger    string // the folder of refunds
	services  services
	relay     *relay
	log       standins.Log // what the functions print
	env       []string     // what their environment has besides that of the template
	isLocal   bool         // SAM CLI invokes the functions
	vault     fakeSecrets  // the values in Secrets Manager, by name

	concurrency map[string]int // by function; 0 = the stand-in's
	freezes     bool           // processes stand still between events, as Lambda's do
	hurry       time.Duration  // the state machine waits so many times less between attempts than it says; 0 = 20

	mu      sync.Mutex
	deliver func(function string, payload []byte) ([]byte, error) // how the state machine's events reach a function
}

// option changes a deployment before its functions start.
type option func(*deployment)

func deploy(t *testing.T, model *standins.Bedrock, options ...option) *deployment {
	t.Helper()
	d := startServices(t, model, options...)
	d.relay = newRelay(d)
	timeouts := timeouts(t, d.project, d.values)
	for _, name := range functions {
		env := append(d.environment(name, d.relay.endpoint(name)), d.env...)
		f := standins.StartLambda(standins.LambdaConfig{Name: name, Bootstrap: bootstrap(t, name), Env: env, Timeout: timeouts[name], Concurrency: d.concurrency[name],
			Freezes: d.freezes, Clock: d.clock, Log: &d.log})
		t.Cleanup(func() { require.NoError(t, f.Close()) })
		d.functions[name] = f
	}
	return d
}

// startServices starts what a deployment needs beside its functions.
func startServices(t *testing.T, model *standins.Bedrock, options ...option) *deployment {
	t.Helper()
	cfg := standins.DynamoDBConfig(t) // skips, and says why, where DynamoDB Local cannot run
	clk := clock.System()
	draw := clock.NewIDs(clk)
	p, err := project()
	require.NoError(t, err)
	d := &deployment{t: t, clock: clk, project: p, functions: map[string]*standins.Lambda{}, ledger: t.TempDir() + "/ledger", vault: fakeSecrets{}}
	d.values = p.Deployed(repotest.Values{
		"AWS::Region": region, "AWS::AccountId": account, "RunsTable": standins.DynamoDBTableName(), "BlobsBucket": bucket, "AlarmPrefix": "incident-",
	})
	d.vault[d.values["KeyRing"]], d.vault[d.values["LinkKeyRing"]] = keys, linkKeys
	d.deliver = func(function string, payload []byte) ([]byte, error) {
		return d.functions[function].Invoke(t.Context(), payload)
	}
	d.bus = &standins.Bus{Clock: clk}
	d.mail = &standins.Mail{Credentials: aws.Credentials{AccessKeyID: "local", SecretAccessKey: "local"}, Region: region, Identities: []string{sender}}
	d.apiURL = d.startAPI()
	d.values["HttpApi.ApiEndpoint"] = d.apiURL
	for _, o := range options {
		o(d)
	}
	table, bucket := d.values["RunsTable"], d.values["BlobsBucket"]
	for _, named := range []string{"RunsTable.Arn", "BlobsBucket.Arn"} {
		delete(d.values, named)
	}
	d.values = p.Deployed(d.values)
	standins.MakeDynamoDBTable(t, cfg, table, dynamo.IndexName)
	d.startEngine(draw)
	here := func(h http.Handler) target { return target{serve(t, h), http.DefaultClient} }
	d.services = services{
		"dynamodb": {aws.ToString(cfg.BaseEndpoint), cfg.HTTPClient}, "s3": here(fakeS3(t, bucket)), "states": here(standins.StepFunctions(d.engine)),
		"bedrock": {model.URL(), http.DefaultClient}, "events": here(d.bus), "secretsmanager": here(d.vault), "ses": here(d.mail),
		"lambda": here(&standins.Functions{Credentials: d.mail.Credentials, Region: region, Clock: clk, Named: map[string]standins.Function{
			d.values["SweepFunction.Arn"] + ":live": func(ctx context.Context, payload json.RawMessage) (any, *standins.FunctionError) {
				out, err := d.functions["sweep"].Invoke(ctx, payload)
				if err != nil {
					return nil, &standins.FunctionError{Message: err.Error()}
				}
				return json.RawMessage(out), nil
			},
		}}),
	}
	at := func(service string) aws.Config {
		url := d.services[service].url
		return aws.Config{Region: region, Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""), BaseEndpoint: &url}
	}
	d.sfn = sdksfn.NewFromConfig(at("states"))
	w, err := lambdafn.NewWaiter(at("states"), machine)
	require.NoError(t, err)
	tbl := store.Resend(dynamo.New(cfg, table, draw.Key), clk, draw.Jitter)
	d.ports = runtime.Ports{
		Table: tbl, Journal: store.NewJournal(tbl, 0), Blobs: s3.New(at("s3"), bucket), Waiter: w, Clock: clk, IDs: draw,
	}
	_, _, err = people.Import(t.Context(), tbl, []byte(directory))
	require.NoError(t, err)
	d.bus.Rules = append(d.eventRules(), d.bus.Rules...)
	d.events = eventbridge.NewFromConfig(at("events"))
	return d
}

// environment is a function's: that of the template with values in the place of references, what Lambda adds, and where
// the services are.
func (d *deployment) environment(function, endpoint string) []string {
	d.t.Helper()
	if d.isLocal {
		return d.samEnvironment(function, endpoint)
	}
	return append(environment(d.t, d.project, function, d.values, d.ledger), "AWS_ENDPOINT_URL="+endpoint)
}

// project is the template and what stands beside it, read once.
var project = sync.OnceValues(func() (*repotest.Project, error) { return repotest.Read("../..", nil) })

// startAPI starts the HTTP API.
func (d *deployment) startAPI() (url string) {
	d.t.Helper()
	return serve(d.t, &standins.HTTPAPI{Clock: d.clock, Open: []string{approval.LinkPath},
		Function: func(ctx context.Context, payload []byte) ([]byte, error) {
			return d.functions["http"].Invoke(ctx, payload)
		},
	})
}

// startEngine starts the interpreter of the deployed state machine, which invokes the real bootstraps.
func (d *deployment) startEngine(draw *clock.IDs) {
	d.t.Helper()
	def, err := asl.Parse(countersign.StateMachine, map[string]string{"StepFunctionArn": "step", "ToolFunctionArn": "tool", "ApproveFunctionArn": "approve", "Partition": "aws"})
	require.NoError(d.t, err)
	d.engine, err = asl.New(asl.Config{
		Definition: def, ARN: machine, Clock: d.clock, Store: local.NewExecutions(store.NewMemory()), IDs: draw.Token, Ended: d.announceEnd,
		Jitter: func(limit time.Duration) time.Duration {
			return draw.Jitter(limit / cmp.Or(d.hurry, 20)) // crashes are many here, and none of them is load
		},
		Invoke: func(_ context.Context, function string, payload []byte) ([]byte, error) {
			d.mu.Lock()
			deliver := d.deliver
			d.mu.Unlock()
			return deliver(function, payload)
		},
	})
	require.NoError(d.t, err)
	d.t.Cleanup(func() { require.NoError(d.t, d.engine.Close()) })
}

// announceEnd sends the event of an execution that failed.
func (d *deployment) announceEnd(ctx context.Context, x asl.Description) {
	if x.Status == asl.Succeeded {
		return
	}
	detail, err := json.Marshal(map[string]any{
		"executionArn": x.ExecutionARN, "stateMachineArn": machine, "name": x.Name, "status": x.Status, "input": string(x.Input),
		"inputDetails": map[string]bool{"included": true}, "startDate": x.StartDate.UnixMilli(), "stopDate": x.StopDate.UnixMilli(),
		"error": x.Error, "cause": x.Cause,
	})
	if err == nil {
		d.bus.Put(ctx, "aws.states", "Step Functions Execution Status Change", detail, x.ExecutionARN)
	}
}

// environment is that of the template, with values in the place of references, and what Lambda adds.
func environment(t *testing.T, p *repotest.Project, function string, values repotest.Values, ledger string) []string {
	t.Helper()
	all, err := p.Environment(resource(function)+"Function", values)
	require.NoError(t, err)
	out := []string{"AWS_REGION=" + values["AWS::Region"], "AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local", "REFUNDS_LEDGER=" + ledger}
	for name, value := range all {
		out = append(out, name+"="+value)
	}
	return out
}

func fakeS3(t *testing.T, bucket string) http.Handler {
	t.Helper()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket(bucket))
	return gofakes3.New(backend).Server()
}

// built holds which bootstraps this process has built.
var built = struct {
	sync.Mutex
	path map[string]string
}{path: map[string]string{}}

// bootstrap builds a function as `sam build` does, but for this machine's processor. It stays in dist, where the next
// build finds it if nothing has changed.
func bootstrap(t *testing.T, name string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if built.path[name] != "" {
		return built.path[name]
	}
	dir, err := filepath.Abs(filepath.Join("..", "..", "dist", "e2e", name))
	require.NoError(t, err)
	target := "build-" + strings.ToUpper(name[:1]) + name[1:] + "Function"
	require.NoError(t, os.MkdirAll(dir, 0o700))
	log, err := exec.Command("make", "-C", filepath.Join("..", ".."), target, "ARTIFACTS_DIR="+dir, "LAMBDA_ARCH="+goruntime.GOARCH).CombinedOutput()
	require.NoError(t, err, string(log))
	built.path[name] = filepath.Join(dir, "bootstrap")
	return built.path[name]
}

// refunds counts the refunds that the ledger holds for a run.
func (d *deployment) refunds(run string) (n int) {
	d.t.Helper()
	files, err := os.ReadDir(d.ledger)
	if !os.IsNotExist(err) {
		require.NoError(d.t, err)
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), run) {
			n++
		}
	}
	return n
}

// newModel is a model on Bedrock that ends with the test.
func newModel(t *testing.T, reply func(standins.BedrockRequest) standins.Turn) *standins.Bedrock {
	t.Helper()
	s := standins.NewBedrockFunc(reply)
	t.Cleanup(s.Close)
	return s
}

// newRefundModel is a model that works the refund desk: it looks the order up, refunds 120 of it and says so. What it
// does next it takes from the conversation alone, so a request that is made again gets the same reply.
func newRefundModel(t *testing.T) *standins.Bedrock { t.Helper(); return newModel(t, refundReply) }

func refundReply(r standins.BedrockRequest) standins.Turn {
	results := strings.Count(string(r.Body), `"toolResult"`)
	var b standins.Block
	switch results {
	case 0:
		b = standins.ToolUse("t1", "orders_get", `{"order":"1002"}`)
	case 1:
		b = standins.ToolUse("t2", "refunds_create", `{"order":"1002","amount":120,"reason":"A wheel is broken."}`)
	default:
		b = standins.Text("Refunded.")
	}
	return standins.Reply{Blocks: []standins.Block{b}, Usage: standins.Usage{Input: 100 * (results + 1), Output: 20}}
}

// timeouts are those of the template.
func timeouts(t *testing.T, p *repotest.Project, values repotest.Values) map[string]time.Duration {
	t.Helper()
	out := map[string]time.Duration{}
	for _, r := range p.Resources("AWS::Serverless::Function") {
		value, err := p.Resolve(p.Property(r, "Timeout"), values)
		require.NoError(t, err, r.ID)
		seconds, err := strconv.Atoi(fmt.Sprint(value))
		require.NoError(t, err, r.ID)
		out[strings.ToLower(strings.TrimSuffix(r.ID, "Function"))] = time.Duration(seconds) * time.Second
	}
	return out
}
