// Package e2e runs the real bootstraps as Lambda does: the five functions that are deployed, each behind a small
// Runtime API, with DynamoDB Local as the table, an S3 and a Bedrock on loopback, the Step Functions wire API in front
// of the local engine, an HTTP API and an event bus with the template's own rules. All through real SDK clients and
// HTTP.
package e2e

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"net/http/httptest"
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

	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/awsfake"
	"github.com/countersign/countersign/internal/awssdk"
	"github.com/countersign/countersign/internal/bedrockfake"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/dynamolocal"
	"github.com/countersign/countersign/internal/ids"

	"github.com/countersign/countersign/internal/people/link"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/samtest"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/dynamo"
	"github.com/countersign/countersign/internal/store/s3"
	"github.com/countersign/countersign/statemachine"
)

func TestMain(m *testing.M) {
	dynamolocal.Main(m, func() error { return os.RemoveAll(built.dir) })
}

const (
	region  = "eu-central-1"
	name    = "countersign-dev-agent" // the state machine's, as in the sample events
	account = "123456789012"
	machine = "arn:aws:states:" + region + ":" + account + ":stateMachine:" + name
	bucket  = "blobs"
	acme    = "acme" // the tenant of those who come by the API
)

// The keys that callbacks and links are signed with, and the people whom they are for.
const (
	keys      = `{"id":"1","key":"fedcba9876543210fedcba9876543210"}`
	linkKeys  = `{"id":"1","key":"0123456789abcdef0123456789abcdef"}`
	directory = `{"tenants":{"acme":{"user:ana":{"groups":["group:operators"],"name":"Ana Lima"},"user:eve":["group:guests"]}}}`
)

// The functions, as their folders are named.
var functions = []string{"step", "tool", "approve", "http", "sweep"}

// deployment is all functions and services that a run needs, as close to AWS as one machine allows.
type deployment struct {
	t         *testing.T
	clock     clock.Clock
	functions map[string]*awsfake.Lambda
	engine    *asl.Engine
	ports     runtime.Ports // past the functions
	sfn       *sdksfn.Client
	bus       *awsfake.Bus
	events    *eventbridge.Client
	apiURL    string
	issuer    *awsfake.JWT
	ledger    string // the folder of refunds
	relay     *relay
	log       syncBuffer  // what the functions print
	env       []string    // what their environment has besides
	vault     fakeSecrets // the values in Secrets Manager, by name

	mu      sync.Mutex
	deliver func(function string, payload []byte) ([]byte, error) // how the state machine's events reach a function
}

// option changes a deployment before its functions start.
type option func(*deployment)

func deploy(t *testing.T, model *bedrockfake.Server, options ...option) *deployment {
	t.Helper()
	cfg := dynamolocal.Config(t) // skips, and says why, where DynamoDB Local cannot run
	clk := clock.System()
	draw := ids.System(clk)
	table := dynamolocal.Table(t, cfg, dynamo.IndexName)
	d := &deployment{t: t, clock: clk, functions: map[string]*awsfake.Lambda{}, ledger: t.TempDir() + "/ledger"}
	d.deliver = func(function string, payload []byte) ([]byte, error) {
		return d.functions[function].Invoke(t.Context(), payload)
	}
	d.bus = &awsfake.Bus{Clock: clk}
	for _, o := range options {
		o(d)
	}
	d.startEngine(draw)
	wire := serve(t, awsfake.StepFunctions(d.engine))
	s3url := fakeS3(t)
	static := aws.Config{Region: region, Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")}
	bus := serve(t, d.bus)
	d.relay = newRelay(t, cfg, s3url, wire, model.URL(), bus, serve(t, d.vault), func(function string) error { return d.functions[function].Kill() })
	common := append(environment(table, d.ledger), d.env...)
	timeouts := timeouts(t)
	for _, name := range functions {
		env := append(d.relay.environment(name), common...)
		f := awsfake.StartLambda(awsfake.LambdaConfig{Name: name, Bootstrap: bootstrap(t, name), Env: env, Timeout: timeouts[name], Clock: clk, Log: &d.log})
		t.Cleanup(func() { require.NoError(t, f.Close()) })
		d.functions[name] = f
	}
	states := static
	states.BaseEndpoint = &wire
	d.sfn = sdksfn.NewFromConfig(states)
	w, err := awssdk.NewWaiter(states, machine)
	require.NoError(t, err)
	tbl := store.Resend(dynamo.New(cfg, table, draw.Key), clk, draw.Jitter)
	objects := static.Copy()
	objects.BaseEndpoint = &s3url
	d.ports = runtime.Ports{
		Table: tbl, Journal: store.NewJournal(tbl, 0), Blobs: s3.New(objects, bucket), Waiter: w, Clock: clk, IDs: draw,
	}
	d.startTriggers(static, bus)
	return d
}

// startTriggers starts the HTTP API with its authorizer, and the event bus with the template's rules.
func (d *deployment) startTriggers(cfg aws.Config, bus string) {
	d.t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(d.t, err)
	d.issuer = &awsfake.JWT{Issuer: "https://issuer.example", Audience: "countersign", Key: key, Clock: d.clock}
	d.apiURL = serve(d.t, &awsfake.HTTPAPI{Function: d.functions["http"].Invoke, Authorizer: d.issuer, Clock: d.clock,
		Open: []string{link.Path},
	})
	d.bus.Rules = append(d.eventRules(), d.bus.Rules...)
	d.events = eventbridge.NewFromConfig(cfg, func(o *eventbridge.Options) { o.BaseEndpoint = aws.String(bus) })
}

// startEngine starts the interpreter of the deployed state machine, which invokes the real bootstraps.
func (d *deployment) startEngine(draw *ids.Source) {
	d.t.Helper()
	def, err := asl.Parse(statemachine.Agent, map[string]string{"StepFunctionArn": "step", "ToolFunctionArn": "tool", "ApproveFunctionArn": "approve"})
	require.NoError(d.t, err)
	d.engine, err = asl.New(asl.Config{
		Definition: def, ARN: machine, Clock: d.clock, Store: &asl.MemoryStore{}, IDs: draw.Token, Ended: d.announceEnd,
		Jitter: func(limit time.Duration) time.Duration { return draw.Jitter(limit / 20) }, // crashes are many here, and none of them is load
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

func environment(table, ledger string) []string {
	return []string{
		"COUNTERSIGN_TABLE=" + table, "COUNTERSIGN_BUCKET=" + bucket, "COUNTERSIGN_STATE_MACHINE=" + machine,
		"COUNTERSIGN_BUS=default", "AWS_REGION=" + region, "AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local", "REFUNDS_LEDGER=" + ledger,
		"COUNTERSIGN_KEYRING=" + keys, "COUNTERSIGN_LINK_KEYRING=" + linkKeys, "COUNTERSIGN_DIRECTORY=" + directory,
	}
}

func fakeS3(t *testing.T) string {
	t.Helper()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket(bucket))
	srv := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(srv.Close)
	return srv.URL
}

// built holds the bootstraps, built once for all tests.
var built struct {
	sync.Mutex
	dir  string
	path map[string]string
}

// bootstrap builds a function as `sam build` does, but for this machine's processor.
func bootstrap(t *testing.T, name string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if built.path[name] != "" {
		return built.path[name]
	}
	if built.dir == "" {
		made, err := os.MkdirTemp("", "countersign-e2e-")
		require.NoError(t, err)
		built.dir, built.path = made, map[string]string{}
	}
	dir := filepath.Join(built.dir, name)
	target := "build-" + strings.ToUpper(name[:1]) + name[1:] + "Function"
	require.NoError(t, os.Mkdir(dir, 0o700))
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

// refundModel is a model on Bedrock that works the refund desk: it looks the order up, refunds 120 of it and says so.
// What it does next it takes from the conversation alone, so a request that is made again gets the same reply.
func refundModel() *bedrockfake.Server {
	return bedrockfake.NewFunc(func(r bedrockfake.Request) bedrockfake.Turn {
		results := strings.Count(string(r.Body), `"toolResult"`)
		var b bedrockfake.Block
		switch results {
		case 0:
			b = bedrockfake.ToolUse("t1", "orders_get", `{"order":"1002"}`)
		case 1:
			b = bedrockfake.ToolUse("t2", "refunds_create", `{"order":"1002","amount":120,"reason":"A wheel is broken."}`)
		default:
			b = bedrockfake.Text("Refunded.")
		}
		return bedrockfake.Reply{Blocks: []bedrockfake.Block{b}, Usage: bedrockfake.Usage{Input: 100 * (results + 1), Output: 20}}
	})
}

func newRefundModel(t *testing.T) *bedrockfake.Server {
	t.Helper()
	s := refundModel()
	t.Cleanup(s.Close)
	return s
}

// logInitTimes logs how long the functions' processes took to start.
func (d *deployment) logInitTimes() {
	for _, name := range functions {
		if all := d.functions[name].Inits(); len(all) > 0 {
			d.t.Logf("init of %s: %s", name, fmt.Sprint(all))
		}
	}
}

// syncBuffer is a log that several processes write to.
type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *syncBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *syncBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// timeouts are those of the template.
func timeouts(t *testing.T) map[string]time.Duration {
	t.Helper()
	p, err := samtest.Read("../..", nil)
	require.NoError(t, err)
	out := map[string]time.Duration{}
	for _, r := range p.Resources("AWS::Serverless::Function") {
		seconds, err := strconv.Atoi(p.Property(r, "Timeout").String())
		require.NoError(t, err, r.ID)
		out[strings.ToLower(strings.TrimSuffix(r.ID, "Function"))] = time.Duration(seconds) * time.Second
	}
	return out
}
