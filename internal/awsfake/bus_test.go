package awsfake_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/awsfake"
	"github.com/countersign/countersign/internal/clock"
)

func client(t *testing.T, b *awsfake.Bus) *eventbridge.Client {
	t.Helper()
	srv := httptest.NewServer(b)
	t.Cleanup(srv.Close)
	return eventbridge.New(eventbridge.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String(srv.URL), Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
	})
}

func put(detailType, detail string) *eventbridge.PutEventsInput {
	return &eventbridge.PutEventsInput{Entries: []types.PutEventsRequestEntry{
		{Source: aws.String("shop"), DetailType: aws.String(detailType), Detail: aws.String(detail)},
	}}
}

func TestEventsReachTheTargetOfTheirRule(t *testing.T) {
	var got, ids []string
	b := &awsfake.Bus{Clock: clock.System(), Deliveries: 2, Rules: []awsfake.Rule{
		{
			Name: "start", Pattern: json.RawMessage(`{"detail-type":["Run"],"detail":{"agent":[{"exists":true}]}}`),
			Input: &awsfake.InputTransformer{
				Paths:    map[string]string{"agent": "$.detail.agent", "input": "$.detail.input", "id": "$.id"},
				Template: `{"agent":<agent>,"input":<input>,"key":"evt-<id>"}`,
			},
			Target: func(_ context.Context, id string, input []byte) error {
				got, ids = append(got, string(input)), append(ids, id)
				return nil
			},
		},
		{Name: "full", Pattern: json.RawMessage(`{"source":[{"prefix":"sh"}]}`), Target: func(context.Context, string, []byte) error { return errors.New("full") }},
	}}
	c := client(t, b)
	out, err := c.PutEvents(t.Context(), put("Run", `{"agent":"refunds","input":{"amount":1.50,"note":"a \"b\""}}`))
	require.NoError(t, err)
	require.Zero(t, out.FailedEntryCount)
	id := *out.Entries[0].EventId
	want := `{"agent":"refunds","input":{"amount":1.50,"note":"a \"b\""},"key":"evt-` + id + `"}`
	require.Equal(t, []string{want, want}, got, "digits are kept, and it comes twice")
	require.NotEqual(t, ids[0], ids[1])
	require.Len(t, b.Undelivered(), 1)
	require.ErrorContains(t, b.Undelivered()[0], "rule full")

	_, err = c.PutEvents(t.Context(), put("Other", `{"agent":"refunds"}`))
	require.NoError(t, err)
	_, err = c.PutEvents(t.Context(), put("Run", `{"input":1}`))
	require.NoError(t, err)
	require.Len(t, got, 2, "neither fits")

	_, err = c.PutEvents(t.Context(), put("Run", `{"agent":"refunds"}`))
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.ErrorContains(t, b.Undelivered()[3], "not JSON", "what a path does not find leaves a hole")

	out, err = c.PutEvents(t.Context(), put("Run", `{`))
	require.NoError(t, err)
	require.EqualValues(t, 1, out.FailedEntryCount)
	_, err = c.ListRules(t.Context(), &eventbridge.ListRulesInput{})
	require.ErrorContains(t, err, "UnknownOperationException")
}

func TestTransform(t *testing.T) {
	const event = `{"a":"x\"y","o":{"n":1.0},"l":[1]}`
	for name, c := range map[string]struct{ template, want, problem string }{
		"a text gets quotes":         {`{"v":<a>}`, `{"v":"x\"y"}`, ""},
		"inside quotes it does not":  {`{"v":"is <a>"}`, `{"v":"is x\"y"}`, ""},
		"an object":                  {`{"v":<o>}`, `{"v":{"n":1.0}}`, ""},
		"an object in quotes":        {`{"v":"<o>"}`, `{"v":"{\"n\":1.0}"}`, ""},
		"all of it":                  {`{"v":<all>}`, `{"v":{"a":"x\"y","l":[1],"o":{"n":1.0}}}`, ""},
		"nothing there":              {`{"v":<none>}`, "", "not JSON"},
		"nothing there, in quotes":   {`{"v":"<none>"}`, `{"v":""}`, ""},
		"an unknown name":            {`{"v":<b>}`, "", "<b> is not in the paths map"},
		"a path that is not a chain": {`{"v":<list>}`, "", "want $.name.name"},
	} {
		in := awsfake.InputTransformer{Template: c.template, Paths: map[string]string{
			"a": "$.a", "o": "$.o", "all": "$", "none": "$.o.m.k", "list": "$.l[0]",
		}}
		got, err := in.Apply(json.RawMessage(event))
		if c.problem != "" {
			require.ErrorContains(t, err, c.problem, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.want, string(got), name)
	}
}

func TestMatches(t *testing.T) {
	const event = `{"source":"shop","n":1,"tags":["a","b"],"detail":{"status":"FAILED","flag":true}}`
	for pattern, want := range map[string]bool{
		`{}`:                  true,
		`{"source":["shop"]}`: true,
		`{"source":["mail","shop"],"detail":{"status":["FAILED","ABORTED"]}}`: true,
		`{"source":["shop"],"detail":{"status":["ABORTED"]}}`:                 false,
		`{"n":[1],"detail":{"flag":[true]}}`:                                  true,
		`{"n":["1"]}`:                                                         false,
		`{"tags":["b"]}`:                                                      true,
		`{"source":[{"prefix":"sh"}]}`:                                        true,
		`{"source":[{"prefix":"op"}]}`:                                        false,
		`{"detail":[{"exists":true}]}`:                                        false,
		`{"other":[{"exists":false}]}`:                                        true,
		`{"source":[{"exists":false}]}`:                                       false,
		`{"detail":{"none":{"deeper":["x"]}}}`:                                false,
	} {
		got, err := awsfake.Matches(json.RawMessage(pattern), json.RawMessage(event))
		require.NoError(t, err, pattern)
		require.Equal(t, want, got, pattern)
	}
	for pattern, want := range map[string]string{
		`{"source":"shop"}`:              "source: want an object or a list",
		`{"n":[{"numeric":[">",0]}]}`:    `n: comparison "numeric" is not known here`,
		`{"detail":{"status":[{}]}}`:     "detail.status: an empty comparison",
		`{"detail":{"status":"FAILED"}}`: "detail.status: want an object or a list",
	} {
		_, err := awsfake.Matches(json.RawMessage(pattern), json.RawMessage(event))
		require.ErrorContains(t, err, want)
	}
}
