package lambdafn_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/web"
)

// serve gives a handler one event, in JSON, and reads the answer.
func serve(t *testing.T, h http.HandlerFunc, event string) events.APIGatewayV2HTTPResponse {
	t.Helper()
	out := must(lambdafn.Gateway(h, nil)(t.Context(), []byte(event)))
	var a events.APIGatewayV2HTTPResponse
	require.NoError(t, json.Unmarshal(out, &a))
	return a
}

// The handler sees the request as net/http would have given it.
func TestRequest(t *testing.T) {
	var r *http.Request
	var body []byte
	h := func(w http.ResponseWriter, got *http.Request) {
		r = got
		var err error
		body, err = io.ReadAll(got.Body)
		require.NoError(t, err)
	}
	serve(t, h, `{"version":"2.0","rawPath":"/prod/v1/runs/a%2Fb","rawQueryString":"a=1&b=x%20y&a=2",
		"cookies":["one=1","two=2"],"headers":{"content-type":"application/json","x-many":"a,b","host":"evil"},
		"requestContext":{"stage":"prod","domainName":"api.example.com","http":{"method":"POST","sourceIp":"192.0.2.1"}},
		"body":"{\"x\":1}"}`)
	require.Equal(t, "POST", r.Method)
	require.Equal(t, "/v1/runs/a/b", r.URL.Path)
	require.Equal(t, "/v1/runs/a%2Fb", r.URL.EscapedPath())
	require.Equal(t, []string{"1", "2"}, r.URL.Query()["a"])
	require.Equal(t, "x y", r.URL.Query().Get("b"))
	require.Equal(t, "application/json", r.Header.Get("Content-Type"))
	require.Equal(t, "a,b", r.Header.Get("X-Many"))
	one := must(r.Cookie("two"))
	require.Equal(t, "2", one.Value)
	require.Equal(t, "api.example.com", r.Host)
	require.Equal(t, "192.0.2.1", r.RemoteAddr)
	require.JSONEq(t, `{"x":1}`, string(body))
	require.EqualValues(t, 7, r.ContentLength)

	serve(t, h, `{"version":"2.0","rawPath":"/","requestContext":{"http":{"method":"PUT"}},"body":"`+base64.StdEncoding.EncodeToString([]byte{0, 255, 7})+`","isBase64Encoded":true}`)
	require.Equal(t, []byte{0, 255, 7}, body)
}

// A stage's name stands before the path and is none of the handler's business.
func TestStage(t *testing.T) {
	for _, c := range []struct{ stage, path, want string }{ // also at a custom domain, and with no escape at all
		{"$default", "/v1/runs", "/v1/runs"}, {"", "/v1/runs", "/v1/runs"},
		{"prod", "/prod/v1/runs", "/v1/runs"}, {"prod", "/v1/runs", "/v1/runs"},
		{"prod", "/production/v1", "/production/v1"}, {"prod", "/prod", "/"},
		{"prod", "/prod/prod/v1", "/prod/v1"}, {"prod", "/prod/100%", "/100%"},
	} {
		event := mustJSON(map[string]any{
			"version": "2.0", "rawPath": c.path,
			"requestContext": map[string]any{"stage": c.stage, "http": map[string]any{"method": "GET"}},
		})
		serve(t, func(_ http.ResponseWriter, r *http.Request) { require.Equal(t, c.want, r.URL.Path) }, string(event))
	}
}

const get = `{"version":"2.0","rawPath":"/","requestContext":{"http":{"method":"GET"}}}`

func TestAnswer(t *testing.T) {
	a := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Add("Vary", "Accept")
		w.Header().Add("Vary", "Origin")
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "1"})
		http.SetCookie(w, &http.Cookie{Name: "b", Value: "2"})
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(http.StatusOK)
		must(io.WriteString(w, "a < b & ü"))
	}, get)
	require.Equal(t, events.APIGatewayV2HTTPResponse{
		StatusCode: 418, Headers: map[string]string{"Content-Type": "text/plain", "Vary": "Accept,Origin"}, Cookies: []string{"a=1", "b=2"}, Body: "a < b & ü",
	}, a)

	a = serve(t, func(http.ResponseWriter, *http.Request) {}, get)
	require.Equal(t, events.APIGatewayV2HTTPResponse{StatusCode: 200}, a)

	a = serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte{0xff, 0xfe}) }, get)
	require.True(t, a.IsBase64Encoded)
	require.Equal(t, "//4=", a.Body)

	a = serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusMethodNotAllowed)
		_, _ = io.WriteString(w, "no")
	}, strings.Replace(get, "GET", "HEAD", 1))
	require.Equal(t, events.APIGatewayV2HTTPResponse{StatusCode: 405}, a, "HEAD has no body")
}

// Lambda takes 6 MB as encoded: what becomes larger is a problem, and what comes close goes through.
func TestLargeAnswers(t *testing.T) {
	const lambda = 6 << 20
	for _, c := range []struct {
		size   int
		text   string
		status int
		base64 bool
	}{
		{1_000_000, "\x01", 200, false}, // six bytes each in JSON
		{1_000_001, "\x01", 200, true},
		{4_500_000, "x", 200, true},
		{4_500_001, "x", 500, false},
	} {
		out, err := lambdafn.Gateway(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat(c.text, c.size))
		}), nil)(t.Context(), []byte(get))
		require.NoError(t, err)
		require.Less(t, len(out), lambda)
		var a events.APIGatewayV2HTTPResponse
		require.NoError(t, json.Unmarshal(out, &a))
		require.Equal(t, c.status, a.StatusCode)
		require.Equal(t, c.base64, a.IsBase64Encoded)
		if c.status != 200 {
			requireProblem(t, a, web.AnswerTooLarge)
		}
	}
}

func requireProblem(t *testing.T, a events.APIGatewayV2HTTPResponse, kind web.ProblemType) web.Problem {
	t.Helper()
	require.Equal(t, "application/problem+json", a.Headers["Content-Type"])
	var p web.Problem
	require.NoError(t, json.Unmarshal([]byte(a.Body), &p))
	require.Equal(t, kind, p.Type)
	require.Equal(t, a.StatusCode, p.Status)
	return p
}

// What cannot be made a request of is refused before the handler sees it.
func TestBadRequests(t *testing.T) {
	never := func(http.ResponseWriter, *http.Request) { t.Error("the handler was asked") }
	a := serve(t, never, `{"version":"2.0","rawPath":"/","requestContext":{"http":{"method":"POST"}},
		"body":"?secret?","isBase64Encoded":true}`)
	require.NotContains(t, a.Body, "secret")
	require.Contains(t, requireProblem(t, a, web.InvalidRequest).Detail, "base64")
	a = serve(t, never, `{"version":"2.0","rawPath":"/","requestContext":{"http":{"method":"GE T"}}}`)
	requireProblem(t, a, web.InvalidRequest)
}

// An event of another kind is an error that says what was expected and repeats nothing.
func TestEventsThatAreNoRequests(t *testing.T) {
	g := lambdafn.Gateway(http.NotFoundHandler(), nil)
	for _, event := range []string{
		``, `[]`, `"canary"`, `{}`, `{"source":"aws.events","detail-type":"canary"}`,
		`{"version":"1.0","path":"/canary","httpMethod":"GET"}`, `{"version":"2.0","rawPath":"/canary"}`,
		`{"version":"2.0","requestContext":{"http":{"method":"CANARY"}}}`, `{"version":2,"rawPath":"/canary"}`,
	} {
		_, err := g(t.Context(), []byte(event))
		require.Contains(t, err.Error(), "payload format 2.0")
		require.NotContains(t, strings.ToLower(err.Error()), "canary")
	}
}

// A panic is an answer, and the log says where it was and not what it said.
func TestPanic(t *testing.T) {
	var logged bytes.Buffer
	g := lambdafn.Gateway(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half an answer")
		panic(errors.New("sk-canary"))
	}), observe.NewLogger(&logged))
	out := must(g(t.Context(), []byte(get)))
	var a events.APIGatewayV2HTTPResponse
	require.NoError(t, json.Unmarshal(out, &a))
	require.Equal(t, 500, a.StatusCode)
	requireProblem(t, a, web.InternalError)
	require.NotContains(t, string(out)+logged.String(), "canary")
	require.NotContains(t, a.Body, "half")
	require.Contains(t, logged.String(), "gateway_test.go")
	require.Contains(t, logged.String(), "*errors.errorString")
}

// An event is answered in the gateway's own form, or is none of HTTP.
func FuzzGateway(f *testing.F) {
	for _, seed := range []string{
		`{"version":"2.0","rawPath":"/v1/runs","rawQueryString":"a=b","headers":{"content-type":"application/json"},"cookies":["a=b"],"requestContext":{"stage":"$default","domainName":"x","http":{"method":"POST","sourceIp":"1.2.3.4"}},"body":"e30=","isBase64Encoded":true}`,
		`{"version":"2.0","rawPath":"%zz","requestContext":{"stage":"dev","http":{"method":"G T"}}}`, `{"version":"1.0","httpMethod":"GET","path":"/"}`,
		`{"requestContext":{"elb":{"targetGroupArn":"x"}},"httpMethod":"GET","path":"/","headers":{},"body":"","isBase64Encoded":false}`,
		`{"Records":[{"eventSource":"aws:sqs"}]}`, `{"version":"2.0","rawPath":"//x/../y","headers":{"A":"\r\nB: c","a":"d"},"requestContext":{"http":{"method":"GET"}}}`,
	} {
		f.Add([]byte(seed))
	}
	g := lambdafn.Gateway(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		_, _ = w.Write(body)
	}), nil)
	f.Fuzz(func(t *testing.T, payload []byte) {
		out, err := g(t.Context(), payload)
		if err != nil {
			require.ErrorContains(t, err, "read the event: ")
			return
		}
		var a events.APIGatewayV2HTTPResponse
		require.NoError(t, json.Unmarshal(out, &a))
		require.Contains(t, []int{http.StatusOK, http.StatusBadRequest}, a.StatusCode, a.Body)
	})
}
