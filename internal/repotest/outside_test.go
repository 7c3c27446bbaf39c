package repotest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/internal/approval"
)

// strictly decodes a sample, as into a type of aws-lambda-go, and refuses what the type does not have.
func strictly[T any](t *testing.T, file string) T {
	t.Helper()
	return decode[T](t, readSample(t, file), file)
}

func decode[T any](t *testing.T, text []byte, of string) (out T) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&out), of)
	return out
}

// ofTheAPI are the samples of functions/http that the gateway has asked who calls. A function URL's event has the
// gateway's shape.
var ofTheAPI = []struct {
	file, method, path string
	by                 string // jwt or iam
	starts             bool   // its body starts a run
}{
	{file: "http/events/start-jwt.json", method: "POST", path: "/v1/runs", by: "jwt", starts: true},
	{file: "http/events/start-iam.json", method: "POST", path: "/v1/runs", by: "iam", starts: true},
	{file: "http/events/follow-function-url.json", method: "GET", path: "/v1/runs/" + runSample + "/events", by: "iam"},
	{file: "http/events/get-run.json", method: "GET", path: "/v1/runs/" + runSample, by: "jwt"},
}

func TestSamplesOfTheAPI(t *testing.T) {
	p := project(t, nil)
	claim := func(parameter string) string { return p.Template.Get("Parameters", parameter, "Default").String() }
	var files []string
	for _, s := range ofTheAPI {
		files = append(files, s.file)
		r := strictly[events.APIGatewayV2HTTPRequest](t, s.file)
		require.Equal(t, "2.0", r.Version, s.file)
		require.Equal(t, []string{s.method, s.path, s.path}, []string{r.RequestContext.HTTP.Method, r.RequestContext.HTTP.Path, r.RawPath}, s.file)
		require.Equal(t, r.RequestContext.DomainName, r.Headers["host"], s.file)
		require.NotNil(t, r.RequestContext.Authorizer, s.file)
		jwt, iam := r.RequestContext.Authorizer.JWT, r.RequestContext.Authorizer.IAM
		if s.by == "jwt" {
			require.Nil(t, iam, s.file)
			require.Equal(t, "acme", jwt.Claims[claim("TenantClaim")], s.file)
			require.Equal(t, "ana", jwt.Claims[claim("UserClaim")], s.file)
			require.Equal(t, "[operators finance]", jwt.Claims[claim("GroupsClaim")], "%s: the gateway writes a list so", s.file)
		} else {
			require.Nil(t, jwt, s.file)
			require.NotEmpty(t, iam.UserARN, s.file)
		}
		for name := range r.Headers {
			require.Equal(t, strings.ToLower(name), name, "%s: the gateway lowers names of headers", s.file)
		}
		if s.starts {
			requireStart(t, r)
		}
	}
	for _, s := range ofThePages {
		files = append(files, s.file)
	}
	require.ElementsMatch(t, samples(t, "http"), append(files, answerFile), "every file has a row")
}

// ofThePages are the samples of functions/http that the gateway has asked nobody who they are.
var ofThePages = []struct{ file, method string }{{"http/events/open.json", "GET"}, {"http/events/approve.json", "POST"}}

func TestSamplesOfThePages(t *testing.T) {
	for _, s := range ofThePages {
		r := strictly[events.APIGatewayV2HTTPRequest](t, s.file)
		require.Equal(t, "2.0", r.Version, s.file)
		require.Equal(t, "ANY /a/{link}", r.RouteKey, s.file)
		require.Equal(t, approval.LinkPath+r.PathParameters["link"], r.RawPath, s.file)
		require.Equal(t, []string{s.method, r.RawPath}, []string{r.RequestContext.HTTP.Method, r.RequestContext.HTTP.Path}, s.file)
		require.Equal(t, r.RequestContext.DomainName, r.Headers["host"], s.file)
		require.Nil(t, r.RequestContext.Authorizer, s.file)
		if s.method == "POST" {
			require.True(t, r.IsBase64Encoded, "%s: the gateway encodes forms", s.file)
			body, err := base64.StdEncoding.DecodeString(r.Body)
			require.NoError(t, err)
			form, err := url.ParseQuery(string(body))
			require.NoError(t, err)
			require.Equal(t, "approve", form.Get("action"))
		}
	}
}

// answerFile is what the template's rule makes of a service's answer.
const answerFile = "http/events/answer.json"

func TestSampleOfAnAnswer(t *testing.T) {
	detail := map[string]any{"run": runSample, "call": "c9", "result": map[string]any{"tracking": "1Z999AA10123456784"}}
	event := map[string]any{
		"version": "0", "id": "e1", "source": "countersign-dev", "detail-type": "Countersign Call Answered", "detail": detail,
	}
	r := newRule(t, "AnswerRule")
	require.True(t, r.matches(event))
	require.JSONEq(t, string(readSample(t, answerFile)), r.transform(event))
	for _, other := range []string{"MessageRule", "InputRule"} {
		require.False(t, newRule(t, other).matches(event), "%s takes it too", other)
	}
	delete(detail, "call")
	require.False(t, r.matches(event), "an answer to no call")
}

func requireStart(t *testing.T, r events.APIGatewayV2HTTPRequest) {
	t.Helper()
	body := decode[struct{ Agent, Message string }](t, []byte(r.Body), "body")
	_, ok := agents.Registry().Agent(body.Agent)
	require.True(t, ok, body.Agent)
	require.NotEmpty(t, body.Message)
	require.Equal(t, key, r.Headers["idempotency-key"])
	require.Equal(t, "application/json", r.Headers["content-type"])
}

// ofTheSweep are the samples of functions/sweep.
var ofTheSweep = []struct {
	file, source, kind string
	rule               string // that sends it; empty for the schedule
}{
	{file: "sweep/events/schedule.json", source: "aws.scheduler", kind: "Scheduled Event"},
	{file: "sweep/events/execution-status.json", source: "aws.states", kind: "Step Functions Execution Status Change", rule: "ExecutionEndedRule"},
}

func TestSamplesOfTheSweep(t *testing.T) {
	var files []string
	for _, s := range ofTheSweep {
		files = append(files, s.file)
		e := strictly[events.EventBridgeEvent](t, s.file)
		require.Equal(t, []string{s.source, s.kind}, []string{e.Source, e.DetailType}, s.file)
		if s.rule == "" {
			require.JSONEq(t, `"{}"`, string(e.Detail), "%s: the scheduler writes its detail as a text", s.file)
			continue
		}
		require.True(t, newRule(t, s.rule).matches(strictly[map[string]any](t, s.file)), s.file)
		requireExecution(t, e)
	}
	require.ElementsMatch(t, samples(t, "sweep"), files, "every file has a row")
}

// requireExecution holds an execution's end to the run of the samples: its name and its input say which run it is.
func requireExecution(t *testing.T, e events.EventBridgeEvent) {
	t.Helper()
	var detail struct{ ExecutionArn, StateMachineArn, Name, Input string }
	require.NoError(t, json.Unmarshal(e.Detail, &detail))
	require.Equal(t, runSample+"-0", detail.Name)
	require.Equal(t, strings.Replace(detail.StateMachineArn, ":stateMachine:", ":execution:", 1)+":"+detail.Name, detail.ExecutionArn)
	require.Equal(t, []string{detail.ExecutionArn}, e.Resources)
	require.JSONEq(t, `{"run":"`+runSample+`","tenant":"default"}`, detail.Input)
}

// The rule takes the ends of executions that a run may not have noticed, and no others.
func TestExecutionEndedRule(t *testing.T) {
	r := newRule(t, "ExecutionEndedRule")
	for status, want := range map[string]bool{"FAILED": true, "TIMED_OUT": true, "ABORTED": true, "SUCCEEDED": false, "RUNNING": false} {
		event := strictly[map[string]any](t, "sweep/events/execution-status.json")
		detail, ok := event["detail"].(map[string]any)
		require.True(t, ok)
		detail["status"] = status
		require.Equal(t, want, r.matches(event), status)
		detail["stateMachineArn"] = "arn:aws:states:eu-central-1:123456789012:stateMachine:other"
		require.False(t, r.matches(event))
	}
}
