package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/repotest"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/web"
)

// sampleKey is the key of the run that the samples are about.
const sampleKey = "order-1002"

// samplesModel is the model of the samples' run.
func samplesModel(t *testing.T) *standins.Bedrock {
	t.Helper()
	both := []standins.Block{
		standins.ToolUse("c1", "orders_get", `{"order":"1002"}`), standins.ToolUse("c2", "refunds_create", `{"order":"1002","amount":120,"reason":"A wheel is broken."}`),
	}
	return newModel(t, func(r standins.BedrockRequest) standins.Turn {
		if strings.Contains(string(r.Body), `"toolResult"`) {
			return standins.Reply{Blocks: []standins.Block{standins.Text("Refunded.")}}
		}
		return standins.Reply{Blocks: both}
	})
}

// byHand has nobody act on the state machine's events: whoever invokes the functions stands for it.
func byHand(d *deployment) {
	d.deliver = func(string, []byte) ([]byte, error) {
		<-d.t.Context().Done()
		return nil, d.t.Context().Err()
	}
}

// localServices are the services of `make local`: the table, the bucket, the state machine and the secrets have the names that
// SAM CLI and env.local.json give to the functions.
func localServices(d *deployment) {
	byHand(d)
	d.values["RunsTable"], d.values["BlobsBucket"] = "RunsTable", "countersign"
	d.vault["KeyRing"], d.vault["LinkKeyRing"] = keys, linkKeys
}

// Every sample event is what its function takes: each is given to the real bootstrap, in the order in which a run meets
// them, and all of them are tried, by `sam local invoke`: each bootstrap has the environment that SAM CLI makes of the
// template, of LocalEndpoint and of env.local.json, which overrides variables that the template declares and no others.
func TestSamLocalInvoke(t *testing.T) {
	d := deploy(t, samplesModel(t), localServices, func(d *deployment) { d.isLocal = true })
	tried := map[string]bool{}
	give := func(function, name string) []byte {
		t.Helper()
		tried[function+"/events/"+name] = true
		out, err := d.functions[function].Invoke(t.Context(), sample(t, function, name))
		require.NoError(t, err, "%s %s", function, name)
		return out
	}
	http := func(name string, status int) events.APIGatewayV2HTTPResponse {
		t.Helper()
		var a events.APIGatewayV2HTTPResponse
		require.NoError(t, json.Unmarshal(give("http", name), &a))
		require.Equal(t, status, a.StatusCode, "%s: %s", name, a.Body)
		return a
	}
	route := func(function, name, next string) []byte {
		t.Helper()
		out := give(function, name)
		var r runtime.Route
		require.NoError(t, json.Unmarshal(out, &r))
		require.Equal(t, next, r.Next, "%s %s", function, name)
		return out
	}
	isStateOf := func(out []byte, function, name string) {
		t.Helper()
		var event struct{ State json.RawMessage }
		require.NoError(t, json.Unmarshal(sample(t, function, name), &event))
		require.JSONEq(t, string(out), string(event.State), "%s %s", function, name)
	}
	runID := agent.RunID("default", "refunds", sampleKey)

	var by web.Accepted
	require.NoError(t, json.Unmarshal([]byte(http("start-iam.json", 202).Body), &by))
	require.Equal(t, runID, by.ID)
	require.JSONEq(t, `{"applied":false}`, string(give("http", "answer.json")), "the run has no such call")
	isStateOf(route("step", "first-step.json", runtime.NextTools), "tool", "batch.json")
	isStateOf(route("tool", "batch.json", runtime.NextStep), "step", "after-tools.json")
	route("step", "after-tools.json", runtime.NextWait)
	require.JSONEq(t, `{}`, string(give("approve", "wait.json")))
	s := d.waitFor("default", runID, isParked)
	require.Zero(t, d.refunds(runID))
	_, err := d.client("default", "ana", "operators").Decide(t.Context(), s.Waits()[0].Wait.Approval, web.Verdict{Action: approval.Approve})
	require.NoError(t, err)
	on := give("step", "woken.json") // to the tools: what travels says which wait has ended
	batch := fmt.Appendf(nil, `{"execution":"x","name":"%s-0","state":%s}`, runID, on)
	_, err = d.functions["tool"].Invoke(t.Context(), batch)
	require.NoError(t, err)
	require.Equal(t, 1, d.refunds(runID))
	route("step", "after-tools.json", runtime.NextDone)
	route("step", "failure.json", runtime.NextFailed) // too late: the execution fails, and the run has ended well
	require.Equal(t, run.ReasonNaturalEnd, d.waitFor("default", runID, isDone).Reason)

	stream := string(give("http", "follow-function-url.json"))
	require.Contains(t, stream, `{"statusCode":200,"headers":{`)
	require.Contains(t, stream, "event: run_finish\n")
	http("start-jwt.json", 202)
	http("get-run.json", 404) // acme has no run of that id
	http("open.json", 404)    // nobody has such a link
	http("approve.json", 404)
	route("step", "event-message.json", runtime.NextTools)
	for _, name := range []string{"input", "s3", "sqs", "slack", "schedule", "alarm"} {
		route("step", "event-"+name+".json", runtime.NextTools)
	}
	for _, name := range []string{"schedule.json", "execution-status.json"} {
		var report lambdafn.Swept
		require.NoError(t, json.Unmarshal(give("sweep", name), &report))
		require.True(t, report.Complete, name)
		require.Zero(t, report.Failures, name)
	}

	all, err := filepath.Glob("../../functions/*/events/*.json")
	require.NoError(t, err)
	for _, path := range all {
		name := filepath.ToSlash(path[len("../../functions/"):])
		require.True(t, tried[name], "%s is tried by nothing", name)
	}
}

// samEnvironment is the environment of a function that SAM CLI invokes.
func (d *deployment) samEnvironment(function, endpoint string) []string {
	d.t.Helper()
	raw, err := os.ReadFile("../../env.local.json")
	require.NoError(d.t, err)
	var overrides struct{ Parameters map[string]string }
	require.NoError(d.t, json.Unmarshal(raw, &overrides))
	declared, err := d.project.Environment(resource(function)+"Function", d.project.SAM(repotest.Values{"LocalEndpoint": endpoint}))
	require.NoError(d.t, err)
	out := []string{"AWS_SAM_LOCAL=true", "AWS_REGION=" + region, "AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local", "REFUNDS_LEDGER=" + d.ledger}
	for name, value := range declared {
		if other, ok := overrides.Parameters[name]; ok {
			value = other
		}
		require.NotContains(d.t, value, "{{resolve:", name)
		require.False(d.t, strings.HasPrefix(value, "$"), "%s: SAM CLI cannot resolve it: %s", name, value)
		out = append(out, name+"="+value)
	}
	return out
}

// TestServeLocally is `make local`: what functions need of AWS, at one address, until Ctrl-C.
func TestServeLocally(t *testing.T) {
	at := os.Getenv("COUNTERSIGN_LOCAL")
	if at == "" {
		t.Skip("make local serves it")
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	require.NoError(t, err)
	d := startServices(t, samplesModel(t), localServices)
	server := &http.Server{Handler: d.services, ReadHeaderTimeout: time.Minute}
	d.clock.Go(func() {
		<-ctx.Done()
		_ = server.Close() // it returns ErrServerClosed below
	})
	fmt.Printf("The table, the bucket, the state machine, events and secrets are at http://%s until Ctrl-C.\n", l.Addr())
	fmt.Println("The model is a script of two turns: AWS_ENDPOINT_URL_BEDROCK_RUNTIME in env.local.json may name Bedrock's own.")
	require.ErrorIs(t, server.Serve(l), http.ErrServerClosed)
}
