package standins

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// launched is a contained server of its own, or a skipped test.
func launched(t *testing.T) (*server, string) {
	t.Helper()
	folder := installed(t)
	dir, err := os.MkdirTemp("", "dynamodb-") // shorter than t.TempDir: a socket's path has 108 bytes at most
	require.NoError(t, err)
	s := &server{dir: dir, client: &http.Client{}}
	if err := s.launch(filepath.Join(dir, "socket"), folder, true); err != nil {
		require.NoError(t, os.RemoveAll(dir))
		t.Skip("no network namespace here: ", err)
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

// A contained server is in another network than the tests: no address of the machine leads to it. It answers through its
// socket, and is gone with the process that serves it.
func TestContainedServerIsInAnotherNetwork(t *testing.T) {
	s, socket := launched(t)
	resp, err := ask(t, socket)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusBadRequest, resp.StatusCode, "it is DynamoDB, and this was no operation")
	ours, err := os.Readlink("/proc/self/ns/net")
	require.NoError(t, err)
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", s.cmd.Process.Pid))
	require.NoError(t, err)
	require.NotEqual(t, ours, theirs)
	require.NoError(t, s.stop())
	_, err = ask(t, socket)
	require.Error(t, err)
	require.NoDirExists(t, s.dir)
}
