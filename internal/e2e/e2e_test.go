// Package e2e runs the real bootstraps as Lambda does: the functions that are deployed, each behind a small Runtime API, with DynamoDB
// Local as the table, an S3 and a Bedrock on loopback, and the Step Functions wire API in front of the local engine. All through real
// SDK clients.
package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdksfn "github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/bedrockfake"
	"github.com/countersign/countersign/internal/dynamolocal"
	"github.com/countersign/countersign/internal/lambdart"
	"github.com/countersign/countersign/internal/sfnwire"
	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/approval"
	"github.com/countersign/countersign/pkg/agent/clock"
	"github.com/countersign/countersign/pkg/agent/dynamo"
	"github.com/countersign/countersign/pkg/agent/ids"
	"github.com/countersign/countersign/pkg/agent/runtime"
	"github.com/countersign/countersign/pkg/agent/s3"
	"github.com/countersign/countersign/pkg/agent/sfn"
	"github.com/countersign/countersign/pkg/agent/store"
	"github.com/countersign/countersign/pkg/agent/tool"
	"github.com/countersign/countersign/pkg/agent/tool/builtin"
	"github.com/countersign/countersign/statemachine"
)

func TestMain(m *testing.M) { dynamolocal.Main(m) }

const (
	tenant  = "default"
	machine = "arn:aws:states:eu-central-1:000000000000:stateMachine:countersign"
	bucket  = "blobs"
)

// deployment is everything a run needs, as deployed as this machine allows.
type deployment struct {
	t         *testing.T
	ports     runtime.Ports
	desk      *approval.Desk
	starter   *runtime.Starter
	bedrock   *bedrockfake.Server
	functions map[string]*lambdart.Function
}

func deploy(t *testing.T, model *bedrockfake.Server) *deployment {
	t.Helper()
	cfg := dynamolocal.Config(t) // skips, and says why, where DynamoDB Local cannot run
	clk := clock.System()
	draw := ids.System(clk)
	table := dynamolocal.Table(t, dynamo.NewClient(cfg, dynamolocal.Endpoint), dynamo.IndexName)
	s3url := fakeS3(t)
	d := &deployment{t: t, bedrock: model, functions: map[string]*lambdart.Function{}}

	engine := d.engine(clk, draw)
	wire := httptest.NewServer(sfnwire.Handler(engine))
	t.Cleanup(wire.Close)
	env := environment(table, relay(t, cfg), s3url, wire.URL, model.URL())
	for _, name := range []string{"step", "tool", "approve"} {
		f := lambdart.Start(lambdart.Config{Name: name, Bootstrap: bootstrap(t, name), Env: env, Timeout: time.Minute, Clock: clk})
		t.Cleanup(func() { require.NoError(t, f.Close()) })
		d.functions[name] = f
	}
	static := aws.Config{Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")}
	w, err := sfn.New(sdksfn.NewFromConfig(static, func(o *sdksfn.Options) { o.BaseEndpoint = aws.String(wire.URL) }), machine)
	require.NoError(t, err)
	tbl := store.Resend(dynamo.New(dynamo.NewClient(cfg, dynamolocal.Endpoint), table, dynamo.Options{Token: draw.Key}), clk, draw.Jitter)
	d.ports = runtime.Ports{
		Table: tbl, Journal: store.NewJournal(tbl, 0), Blobs: s3.New(s3.NewClient(static, s3url), bucket), Waiter: w, Clock: clk, IDs: draw,
	}
	d.starter = &runtime.Starter{Ports: d.ports}
	d.desk = &approval.Desk{
		Table: tbl, Journal: d.ports.Journal, Clock: clk, Definitions: runtime.PinnedDefinitions(d.ports.Blobs), Valid: tool.Validate,
		Wake: (&runtime.Waits{Ports: d.ports}).Wake,
	}
	return d
}

// engine interprets the deployed state machine and invokes the real bootstraps.
func (d *deployment) engine(clk clock.Clock, draw *ids.Source) *asl.Engine {
	d.t.Helper()
	def, err := asl.Parse(statemachine.Agent, map[string]string{"StepFunctionArn": "step", "ToolFunctionArn": "tool", "ApproveFunctionArn": "approve"})
	require.NoError(d.t, err)
	e, err := asl.New(asl.Config{
		Definition: def, ARN: machine, Clock: clk, Store: &asl.MemoryStore{}, IDs: draw.Token, Jitter: draw.Jitter,
		Invoke: func(ctx context.Context, function string, payload []byte, _ asl.Invocation) ([]byte, error) {
			return d.functions[function].Invoke(ctx, payload)
		},
	})
	require.NoError(d.t, err)
	d.t.Cleanup(func() { require.NoError(d.t, e.Close()) })
	return e
}

func environment(table, dynamourl, s3url, sfnurl, bedrockurl string) []string {
	return []string{
		"COUNTERSIGN_TABLE=" + table, "COUNTERSIGN_BUCKET=" + bucket, "COUNTERSIGN_STATE_MACHINE=" + machine,
		"AWS_REGION=eu-central-1", "AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_ENDPOINT_URL_DYNAMODB=" + dynamourl, "AWS_ENDPOINT_URL_S3=" + s3url, "AWS_ENDPOINT_URL_SFN=" + sfnurl, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME=" + bedrockurl,
	}
}

// relay lets other processes reach DynamoDB Local, which is contained and answers this process's own HTTP client alone.
func relay(t *testing.T, cfg aws.Config) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := http.NewRequestWithContext(r.Context(), r.Method, dynamolocal.Endpoint+r.URL.Path, r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		out.Header = r.Header.Clone()
		out.ContentLength = r.ContentLength
		resp, err := cfg.HTTPClient.Do(out)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		for k, v := range resp.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body) // a function that is gone by now does not miss it
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func fakeS3(t *testing.T) string {
	t.Helper()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket(bucket))
	srv := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(srv.Close)
	return srv.URL
}

// bootstrap builds a function as `sam build` does, for this machine.
func bootstrap(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	target := "build-" + strings.ToUpper(name[:1]) + name[1:] + "Function"
	log, err := exec.Command("make", "-C", filepath.Join("..", ".."), target, "ARTIFACTS_DIR="+dir, "LAMBDA_ARCH="+goruntime.GOARCH).CombinedOutput()
	require.NoError(t, err, string(log))
	return filepath.Join(dir, "bootstrap")
}

// mover is an agent on Bedrock that renames one file, with the built-in tools that the repository's registry deploys.
func mover(t *testing.T, dir string) *agent.Definition {
	t.Helper()
	d, err := agent.PresetDefaults(agent.PresetCountersign)
	require.NoError(t, err)
	d.Name, d.System = "mover", "You rename."
	d.Model.Provider, d.Model.ID = "bedrock", "anthropic.claude"
	tools, err := builtin.PerRun()
	require.NoError(t, err)
	for _, b := range tools {
		s := b.Spec()
		s.Root = dir
		d.Tools = append(d.Tools, s)
	}
	require.NoError(t, d.Check())
	return &d
}

// until reads the run until it is as wanted.
func (d *deployment) until(run string, ok func(*agent.AgentState) bool) agent.AgentState {
	d.t.Helper()
	var s agent.AgentState
	require.Eventually(d.t, func() bool {
		l, err := d.ports.Journal.Load(d.t.Context(), tenant, run)
		s = l.State
		return err == nil && ok(&s)
	}, 40*time.Second, 20*time.Millisecond)
	return s
}

// A run on the real functions: it parks, is approved, survives the death of a function that holds nothing, and ends.
func TestRunOnTheDeployedFunctions(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte("Team meeting"), 0o600))
	model := bedrockfake.New(
		bedrockfake.Reply{Blocks: []bedrockfake.Block{bedrockfake.ToolUse("t1", "read_text", `{"path":"a.txt"}`)}, StopReason: "tool_use"},
		bedrockfake.Reply{Blocks: []bedrockfake.Block{bedrockfake.ToolUse("t2", "move_file", `{"source":"a.txt","destination":"team.txt"}`)}, StopReason: "tool_use"},
		bedrockfake.Reply{Blocks: []bedrockfake.Block{bedrockfake.Text("Renamed.")}, StopReason: "end_turn"},
	)
	t.Cleanup(model.Close)
	d := deploy(t, model)
	s, err := d.starter.Start(t.Context(), runtime.Start{
		Tenant: tenant, Agent: mover(t, dir), Key: "k", Message: []agent.UserBlock{{Block: agent.Text{Text: "Rename it."}}},
	})
	require.NoError(t, err)
	parked := d.until(s.Run, func(s *agent.AgentState) bool { return s.Status == agent.RunWaiting })
	require.FileExists(t, filepath.Join(dir, "a.txt"))
	for name, f := range d.functions {
		require.NoError(t, f.Kill(), name) // waiting costs nothing: nobody has to be there
	}
	ana := agent.Principal{ID: "user:ana", Groups: []string{"group:operators"}}
	_, err = d.desk.Decide(t.Context(), approval.Request{Tenant: tenant, ID: parked.Waits()[0].Wait.Approval, Action: approval.Approve, By: ana})
	require.NoError(t, err)
	done := d.until(s.Run, func(s *agent.AgentState) bool { return s.Status == agent.RunDone })
	require.Equal(t, agent.ReasonNaturalEnd, done.Reason, fmt.Sprintf("%+v", done.Error))
	require.Equal(t, `"Renamed."`, string(done.Output))
	require.FileExists(t, filepath.Join(dir, "team.txt"))
	require.EqualValues(t, 3, done.Inferences)
	require.Zero(t, model.Left())
}

// A function that dies while the model is asked is invoked again by the state machine; the reply that nobody stored counts for nothing.
func TestFunctionDiesDuringAnInference(t *testing.T) {
	asked, died := make(chan struct{}), make(chan struct{})
	var requests atomic.Int32
	model := bedrockfake.NewFunc(func(bedrockfake.Request) bedrockfake.Turn {
		if requests.Add(1) == 1 {
			close(asked)
			<-died
		}
		return bedrockfake.Reply{Blocks: []bedrockfake.Block{bedrockfake.Text("Done.")}, StopReason: "end_turn"}
	})
	t.Cleanup(model.Close)
	d := deploy(t, model)
	s, err := d.starter.Start(t.Context(), runtime.Start{
		Tenant: tenant, Agent: mover(t, t.TempDir()), Key: "k", Message: []agent.UserBlock{{Block: agent.Text{Text: "Say done."}}},
	})
	require.NoError(t, err)
	<-asked
	require.NoError(t, d.functions["step"].Kill())
	close(died)
	done := d.until(s.Run, func(s *agent.AgentState) bool { return s.Status == agent.RunDone })
	require.Equal(t, agent.ReasonNaturalEnd, done.Reason, fmt.Sprintf("%+v", done.Error))
	require.EqualValues(t, 1, done.Inferences)
	require.GreaterOrEqual(t, requests.Load(), int32(2))
	for _, m := range done.Messages.All() {
		require.EqualValues(t, 1, m.Seen(done.Inferences))
	}
}
