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
