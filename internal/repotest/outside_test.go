package repotest

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

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

// Samples of functions/http are requests as a gateway sends them, those of functions/sweep are events of EventBridge, and
// none has a key that those do not. internal/e2e gives each to its function, and holds what becomes of it.
func TestSamplesAreOfTheirTypes(t *testing.T) {
	for _, file := range samples(t, "http") {
		if file == answerFile {
			continue
		}
		r := strictly[events.APIGatewayV2HTTPRequest](t, file)
		require.Equal(t, "2.0", r.Version, file)
		require.Equal(t, r.RequestContext.HTTP.Path, r.RawPath, file)
		require.Equal(t, r.RequestContext.DomainName, r.Headers["host"], file)
		require.Equal(t, strings.HasPrefix(r.RawPath, approval.LinkPath), r.RequestContext.Authorizer == nil, file)
		for name := range r.Headers {
			require.Equal(t, strings.ToLower(name), name, "%s: the gateway lowers names of headers", file)
		}
	}
	for _, file := range samples(t, "sweep") {
		strictly[events.EventBridgeEvent](t, file)
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
