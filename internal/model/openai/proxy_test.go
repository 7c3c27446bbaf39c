package openai

import (
	"context"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy is that of the process, which the environment names once and for all. No server on this machine is asked by it.
var proxy = httptest.NewServer(answer("application/json", `{"choices":[{"message":{"content":"by proxy"}}]}`))

func init() { _ = os.Setenv("HTTP_PROXY", proxy.URL) }

func TestProxy(t *testing.T) {
	m, err := newServer("http://models.invalid/v1", key, nil)
	require.NoError(t, err)
	reply, err := m.generate(context.Background(), request())
	require.NoError(t, err)
	require.Equal(t, "by proxy", reply.Text)
}
