package lambdafn

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/awssdk"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools/egress"
)

// site answers with the key it was sent.
func site(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") != "value-1" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func enter(t *testing.T, all runtime.Remotes, url string) (agent.ToolResultData, error) {
	t.Helper()
	require.Len(t, all, 2, "requests and servers")
	s := all[agent.KindHTTP].Open("default", &agent.Definition{})
	defer s.Close()
	return s.Tool(agent.ToolSpec{Kind: agent.KindHTTP, Schema: json.RawMessage(`{"type":"object"}`), HTTP: &agent.HTTPTool{
		Method: "GET", URL: url, Headers: map[string]string{"X-Key": "${secret:KEY}"},
	}}).Call(t.Context(), tool.Call{Tenant: "acme", Args: json.RawMessage(`{}`), Key: "r/c"})
}

func env(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func TestRemotesOfALaptop(t *testing.T) {
	s, dir := site(t), t.TempDir()
	host := s.Listener.Addr().String()
	file := filepath.Join(dir, "secrets.yaml")
	require.NoError(t, os.WriteFile(file, []byte("KEY: value-1\n"), 0o600))
	reach := Reach{Secrets: secrets.Local{File: file, Getenv: env(nil)}, Private: host, Clock: clock.System(), Laptop: true}
	all, err := reach.Remotes()
	require.NoError(t, err)
	res, err := enter(t, all, s.URL)
	require.NoError(t, err)
	require.False(t, res.IsError, res.Content)

	reach.Private = ""
	all, err = reach.Remotes()
	require.NoError(t, err)
	_, err = enter(t, all, s.URL)
	require.ErrorContains(t, err, "not allowed", "loopback is an operator's to allow")
	reach.Private = "nothing"
	_, err = reach.Remotes()
	require.ErrorContains(t, err, "COUNTERSIGN_PRIVATE_HOSTS: ")
}

func TestRemotesOfAFunction(t *testing.T) {
	s := site(t)
	var asked []string
	manager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			SecretID string `json:"SecretId"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		asked = append(asked, in.SecretID)
		_, _ = w.Write([]byte(`{"SecretString":"value-1"}`))
	}))
	t.Cleanup(manager.Close)
	cfg := aws.Config{
		Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", ""),
		BaseEndpoint: &manager.URL,
	}
	values := map[string]string{"COUNTERSIGN_PRIVATE_HOSTS": s.Listener.Addr().String(), "COUNTERSIGN_SECRETS_PREFIX": "stack/tools/"}
	remotes := func() (runtime.Remotes, error) {
		getenv := env(values)
		vault := awssdk.NewVault(cfg, getenv(awssdk.EnvSecretsPrefix), clock.System())
		return Reach{Secrets: vault, Private: getenv(egress.EnvPrivate), Clock: clock.System()}.Remotes()
	}
	all, err := remotes()
	require.NoError(t, err)
	res, err := enter(t, all, s.URL)
	require.NoError(t, err)
	require.False(t, res.IsError, res.Content)
	require.Equal(t, []string{"stack/tools/acme/KEY"}, asked)

	delete(values, "COUNTERSIGN_SECRETS_PREFIX")
	all, err = remotes()
	require.NoError(t, err)
	_, err = enter(t, all, s.URL)
	require.ErrorContains(t, err, "there is no such secret")
	values["COUNTERSIGN_PRIVATE_HOSTS"] = "10.0.0.0/8"
	_, err = remotes()
	require.ErrorContains(t, err, "COUNTERSIGN_PRIVATE_HOSTS: ")
}
