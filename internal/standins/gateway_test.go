package standins_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/standins"
)

func issuer(t *testing.T) *standins.JWT {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	return &standins.JWT{Issuer: "https://issuer.example", Audience: "countersign", Key: key, Clock: clock.System()}
}

// serve is an HTTP API whose function keeps its last event and answers with answer.
func serve(t *testing.T, a *standins.JWT, answer string, err error) (string, *events.APIGatewayV2HTTPRequest) {
	t.Helper()
	last := &events.APIGatewayV2HTTPRequest{}
	srv := httptest.NewServer(&standins.HTTPAPI{Authorizer: a, Clock: clock.System(), Function: func(_ context.Context, payload []byte) ([]byte, error) {
		*last = events.APIGatewayV2HTTPRequest{}
		return []byte(answer), errors.Join(err, json.Unmarshal(payload, last))
	}})
	t.Cleanup(srv.Close)
	return srv.URL, last
}

func do(t *testing.T, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(body)
}

func request(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	return r
}

func TestJWTRequest(t *testing.T) {
	j := issuer(t)
	url, last := serve(t, j, `{"statusCode":202,"headers":{"Content-Type":"text/plain"},"cookies":["a=1","b=2"],"body":"aGk=","isBase64Encoded":true}`, nil)
	token, err := j.Token(map[string]any{"sub": "ana", "groups": []string{"finance", "ops"}, "n": 7})
	require.NoError(t, err)
	r := request(t, http.MethodPost, url+"/v1/runs/a%2Fb?x=1&x=2&y=", `{"a":1}`)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Cookie", "c=3; d=4")
	resp, body := do(t, r)
	require.Equal(t, 202, resp.StatusCode)
	require.Equal(t, "hi", body)
	require.Equal(t, []string{"a=1", "b=2"}, resp.Header["Set-Cookie"])

	require.Equal(t, "/v1/runs/a%2Fb", last.RawPath)
	require.Equal(t, "x=1&x=2&y=", last.RawQueryString)
	require.Equal(t, map[string]string{"x": "1,2", "y": ""}, last.QueryStringParameters)
	require.Equal(t, []string{"c=3", "d=4"}, last.Cookies)
	require.NotContains(t, last.Headers, "cookie")
	require.Equal(t, `{"a":1}`, last.Body)
	require.Equal(t, "application/json", last.Headers["content-type"])
	require.Equal(t, "ana", last.RequestContext.Authorizer.JWT.Claims["sub"])
	require.Equal(t, "[finance ops]", last.RequestContext.Authorizer.JWT.Claims["groups"])
	require.Equal(t, "7", last.RequestContext.Authorizer.JWT.Claims["n"])

	r = request(t, http.MethodPost, url+"/", "\x00\xff")
	r.Header.Set("Authorization", "Bearer "+token)
	do(t, r)
	require.True(t, last.IsBase64Encoded)
	require.Equal(t, "AP8=", last.Body)
}

func TestJWTRefused(t *testing.T) {
	j, other := issuer(t), issuer(t)
	url, last := serve(t, j, `{"statusCode":200}`, nil)
	good, err := j.Token(nil)
	require.NoError(t, err)
	foreign, err := other.Token(nil)
	require.NoError(t, err)
	old, err := j.Token(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()})
	require.NoError(t, err)
	aud, err := j.Token(map[string]any{"aud": "another"})
	require.NoError(t, err)
	iss, err := j.Token(map[string]any{"iss": "https://evil.example"})
	require.NoError(t, err)
	for name, header := range map[string]string{
		"none": "", "basic": "Basic YTpi", "foreign key": "Bearer " + foreign, "expired": "Bearer " + old, "audience": "Bearer " + aud,
		"issuer": "Bearer " + iss, "cut": "Bearer " + good[:len(good)-4], "not a token": "Bearer a.b.c",
	} {
		r := request(t, http.MethodGet, url+"/v1/runs", "")
		r.Header.Set("Authorization", header)
		resp, body := do(t, r)
		require.Equal(t, http.StatusUnauthorized, resp.StatusCode, name)
		require.JSONEq(t, `{"message":"Unauthorized"}`, body, name)
		require.Empty(t, last.RawPath, "%s: the function is not invoked", name)
	}
}

func TestFunctionFails(t *testing.T) {
	j := issuer(t)
	token, err := j.Token(nil)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		answer string
		err    error
		status int
		body   string
	}{
		"an error":       {"", errors.New("secret"), 500, `{"message":"Internal Server Error"}`},
		"no status":      {`{"a":1}`, nil, 200, `{"a":1}`},
		"broken encoded": {`{"statusCode":200,"body":"%%","isBase64Encoded":true}`, nil, 500, `{"message":"Internal Server Error"}`},
	} {
		url, _ := serve(t, j, c.answer, c.err)
		r := request(t, http.MethodGet, url, "")
		r.Header.Set("Authorization", "Bearer "+token)
		resp, body := do(t, r)
		require.Equal(t, c.status, resp.StatusCode, name)
		require.JSONEq(t, c.body, body, name)
	}
	url, last := serve(t, j, `{"statusCode":200}`, nil)
	r := request(t, http.MethodPost, url, strings.Repeat("x", 10<<20+1))
	r.Header.Set("Authorization", "Bearer "+token)
	resp, _ := do(t, r)
	require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
	require.Empty(t, last.RawPath)
}
