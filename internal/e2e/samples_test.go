package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/bedrockfake"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/web/api"
)

// sampleKey is the key of the run that the samples are about.
const sampleKey = "order-1002"

// Every sample event is what its function takes: each is given to the real bootstrap, in the order in which a run meets
// them, and all of them are tried.
func TestSampleEvents(t *testing.T) {
	both := []bedrockfake.Block{
		bedrockfake.ToolUse("c1", "orders_get", `{"order":"1002"}`), bedrockfake.ToolUse("c2", "refunds_create", `{"order":"1002","amount":120,"reason":"A wheel is broken."}`),
	}
	model := bedrockfake.NewFunc(func(r bedrockfake.Request) bedrockfake.Turn {
		if strings.Contains(string(r.Body), `"toolResult"`) {
			return bedrockfake.Reply{Blocks: []bedrockfake.Block{bedrockfake.Text("Refunded.")}}
		}
		return bedrockfake.Reply{Blocks: both}
	})
	t.Cleanup(model.Close)
	d := deploy(t, model, func(d *deployment) {
		d.env = []string{"COUNTERSIGN_IAM_TENANT=default"}
		d.deliver = func(string, []byte) ([]byte, error) { // the samples stand for the state machine's own events: it must not act beside them
			<-t.Context().Done()
			return nil, t.Context().Err()
		}
	})
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
	route := func(function, name, next string) {
		t.Helper()
		var r runtime.Route
		require.NoError(t, json.Unmarshal(give(function, name), &r))
		require.Equal(t, next, r.Next, "%s %s", function, name)
	}
	runID := agent.RunID("default", "refunds", sampleKey)

	var by api.Accepted
	require.NoError(t, json.Unmarshal([]byte(http("start-iam.json", 202).Body), &by))
	require.Equal(t, runID, by.ID)
	require.NoError(t, json.Unmarshal([]byte(http("start-function-url.json", 202).Body), &by))
	require.Equal(t, runID, by.ID, "the same key and body are the same run")
	require.JSONEq(t, `{"applied":false}`, string(give("http", "answer.json")), "the run has no such call")
	route("step", "first-step.json", runtime.NextTools)
	route("tool", "batch.json", runtime.NextStep)
	route("step", "after-tools.json", runtime.NextWait)
	require.JSONEq(t, `{}`, string(give("approve", "wait.json")))
	s := d.waitFor("default", runID, isParked)
	require.Zero(t, d.refunds(runID))
	_, err := d.client("default", "ana", "operators").Decide(t.Context(), s.Waits()[0].Wait.Approval, api.Verdict{Action: approval.Approve})
	require.NoError(t, err)
	on := give("step", "woken.json") // to the tools: what travels says which wait has ended
	batch := fmt.Appendf(nil, `{"execution":"x","name":"%s-0","state":%s}`, runID, on)
	_, err = d.functions["tool"].Invoke(t.Context(), batch)
	require.NoError(t, err)
	require.Equal(t, 1, d.refunds(runID))
	route("step", "after-tools.json", runtime.NextDone)
	route("step", "failure.json", runtime.NextFailed) // too late: the execution fails, and the run has ended well
	require.Equal(t, run.ReasonNaturalEnd, d.waitFor("default", runID, isDone).Reason)

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
