package lambdafn

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/awssdk"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/standins"
)

// Bedrock counts a request's tokens; nobody else does, and says so without being asked. Ten inferences of a function,
// and the tokens that are counted before each, share a connection to Bedrock: a client each would be twenty. The SDK
// itself drops a connection now and then whose server answers within microseconds, as this one does, so that more than
// one is no error.
func TestTenInferencesAreOneConnection(t *testing.T) {
	server := standins.NewBedrock()
	t.Cleanup(server.Close)
	behind := must(url.Parse(server.URL()))
	var opened atomic.Int64
	front := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(behind))
	front.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	front.Start()
	t.Cleanup(front.Close)

	cfg := server.Config()
	cfg.HTTPClient, cfg.BaseEndpoint = nil, &front.URL
	m := modelsOf(cfg, func(string) string { return "" })
	r := agent.Request{
		Model:    agent.ModelSpec{Provider: "bedrock", ID: "m"},
		Messages: []run.Message{{Role: run.RoleUser, Block: run.Text{Text: "Hello."}}},
	}
	for i := range 10 {
		server.Then(standins.Reply{Blocks: []standins.Block{standins.Text("Hello ", "yourself.")}})
		n := must(m.CountTokens(t.Context(), r))
		require.EqualValues(t, standins.CountTokens(server.Requests()[2*i].Body), n)
		reply := must(m.Generate(t.Context(), r))
		require.Equal(t, "Hello yourself.", reply.Text)
	}
	require.Less(t, opened.Load(), int64(10))

	r.Model.Provider = "openai"
	_, err := m.CountTokens(t.Context(), r)
	requireNoModel(t, err)
	require.Len(t, server.Requests(), 20)
}

func requireNoModel(t *testing.T, err error) {
	t.Helper()
	var failed *agent.ModelError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, agent.ModelInvalid, failed.Class)
}

func modelsOf(cfg aws.Config, getenv func(string) string) Models {
	vault := NewVault(cfg, getenv(EnvSecretsPrefix), clock.System())
	return (&function{cfg: cfg, getenv: getenv, vault: vault}).newModels(nil)
}

// The key of an OpenAI-compatible server is a secret of the stack, and OpenAI's own goes to nobody else.
func TestKeysOfNewModels(t *testing.T) {
	var sent []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, `{"choices": [{"message": {"content": "Hello."}, "finish_reason": "stop"}]}`)
	}))
	t.Cleanup(server.Close)
	secrets, cfg := newManager(t, map[string]string{"stack/models/acme/OTHER": "the-key"})
	m := modelsOf(cfg, environment{EnvOpenAI: "openai-key", "COUNTERSIGN_SECRETS_PREFIX": "stack/models/"}.get)
	for _, key := range []string{"", "${secret:OTHER}", "${secret:OTHER}"} {
		_, err := m.Generate(t.Context(), agent.Request{Tenant: "acme", Model: agent.ModelSpec{Provider: "openai", ID: "m", BaseURL: server.URL, Key: key}})
		require.NoError(t, err)
	}
	require.Equal(t, []string{"", "Bearer the-key", "Bearer the-key"}, sent)
	require.Equal(t, []string{"stack/models/acme/OTHER"}, secrets.asked)
}

// What only works on a laptop is refused in a deployed function, as data.
func TestModelRefusesOtherProviders(t *testing.T) {
	m := modelsOf(aws.Config{}, func(string) string { return "" })
	_, err := m.Generate(t.Context(), agent.Request{Model: agent.ModelSpec{Provider: "demo", ID: "stand-in"}})
	requireNoModel(t, err)
	require.ErrorContains(t, err, "want bedrock or openai")
}

// Vectors come from where the environment says that Bedrock's models are.
func TestEmbedderAsksWhereModelsAre(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"embedding": [1, 2]}`)
	}))
	t.Cleanup(server.Close)
	for name, value := range map[string]string{
		"AWS_REGION": "eu-test-1", "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_PROFILE": "",
		"AWS_ENDPOINT_URL_BEDROCK_RUNTIME": server.URL, "AWS_CONFIG_FILE": filepath.Join(t.TempDir(), "none"),
	} {
		t.Setenv(name, value)
	}
	cfg := must(awssdk.Load(t.Context()))
	m := modelsOf(cfg, func(string) string { return "" })
	by := agent.Embeddings{Provider: agent.EmbeddingsBedrock, ID: "amazon.titan-embed-text-v2:0"}
	got := must(m.Embed(t.Context(), "t", by, []string{"a"}))
	require.Equal(t, [][]float32{{1, 2}}, got)
}
