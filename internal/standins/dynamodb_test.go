package standins

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { MainWithDynamoDB(m) }

// launched is a server of its own, or a skipped test.
func launched(t *testing.T, contained bool) (*server, string) {
	t.Helper()
	folder := installed(t)
	dir, err := os.MkdirTemp("", "dynamodb-") // shorter than t.TempDir: a socket's path has 108 bytes at most
	require.NoError(t, err)
	s := &server{dir: dir, client: &http.Client{}}
	if err := s.launch(filepath.Join(dir, "socket"), folder, contained); err != nil {
		require.NoError(t, os.RemoveAll(dir))
		if contained {
			t.Skip("no network namespace here: ", err)
		}
		require.NoError(t, err)
	}
	return s, filepath.Join(dir, "socket")
}

func ask(t *testing.T, socket string) (*http.Response, error) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, strings.NewReader("{}"))
	require.NoError(t, err)
	return c.Do(r)
}

// The server answers through its socket with and without a namespace, and is gone with the process that serves it.
func TestServerAnswersAndEnds(t *testing.T) {
	for name, contained := range map[string]bool{inNamespace: true, onHost: false} {
		t.Run(name, func(t *testing.T) {
			s, socket := launched(t, contained)
			resp, err := ask(t, socket)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusBadRequest, resp.StatusCode, "it is DynamoDB, and this was no operation")
			require.NoError(t, s.stop())
			_, err = ask(t, socket)
			require.Error(t, err)
			require.NoDirExists(t, s.dir)
		})
	}
}

func TestServerThatCannotStartSaysWhy(t *testing.T) {
	installed(t)
	dir := t.TempDir()
	err := new(server).launch(filepath.Join(dir, "socket"), dir, false)
	require.ErrorContains(t, err, "DynamoDBLocal.jar")
}
