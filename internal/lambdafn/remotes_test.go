package lambdafn

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/awssdk"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/tool"
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

// requireEntered sends a request with a secret to a site: it comes back, or is refused so.
func requireEntered(t *testing.T, all runtime.Remotes, url, refused string) {
	t.Helper()
	require.Len(t, all, 2, "requests and servers")
	s := all[agent.KindHTTP].Open("default", &agent.Definition{})
	defer s.Close()
	res, err := s.Tool(agent.ToolSpec{Kind: agent.KindHTTP, Schema: json.RawMessage(`{"type":"object"}`), HTTP: &agent.HTTPTool{
		Method: "GET", URL: url, Headers: map[string]string{"X-Key": "${secret:KEY}"},
	}}).Call(t.Context(), tool.Call{Tenant: "acme", Args: json.RawMessage(`{}`), Key: "r/c"})
	if refused != "" {
		require.ErrorContains(t, err, refused)
		return
	}
	require.NoError(t, err)
	require.False(t, res.IsError, res.Content)
}

func TestRemotesOfALaptop(t *testing.T) {
	s := site(t)
	file := filepath.Join(t.TempDir(), "secrets.yaml")
	require.NoError(t, os.WriteFile(file, []byte("KEY: value-1\n"), 0o600))
	reach := Reach{Secrets: secrets.Local{File: file, Getenv: environment{}.get}, Clock: clock.System(), Laptop: true}
	for private, refused := range map[string]string{s.Listener.Addr().String(): "", "": "not allowed"} { // loopback is an operator's to allow
		reach.Private = private
		all, err := reach.Remotes()
		require.NoError(t, err)
		requireEntered(t, all, s.URL, refused)
	}
}

func TestRemotesOfAFunction(t *testing.T) {
	s := site(t)
	m, cfg := newManager(t, map[string]string{"stack/tools/acme/KEY": "value-1"})
	private := s.Listener.Addr().String()
	for prefix, refused := range map[string]string{"stack/tools/": "", "": "there is no such secret"} {
		all, err := Reach{Secrets: awssdk.NewVault(cfg, prefix, clock.System()), Private: private, Clock: clock.System()}.Remotes()
		require.NoError(t, err)
		requireEntered(t, all, s.URL, refused)
	}
	require.Equal(t, []string{"stack/tools/acme/KEY"}, m.asked)
}
