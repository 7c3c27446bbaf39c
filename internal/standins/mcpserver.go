package standins

import (
	"bufio"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// InstalledMCPServer finds node and the main file of a server from tools/mcp, for tests that run in a folder of this
// module. Where one of them is missing the test is skipped, and says why.
func InstalledMCPServer(t *testing.T, server string) (program, file string) {
	t.Helper()
	return node(t), fetched(t, "mcp", "@modelcontextprotocol", server, "dist", "index.js")
}

// StockChat finds node and a client of the AI SDK's chat, of the version that a package of tools/mcp is; see
// InstalledMCPServer. tools/mcp/chat.mjs says what its arguments are.
func StockChat(t *testing.T, version string) (program, script string) {
	t.Helper()
	return node(t), filepath.Join(filepath.Dir(fetched(t, "mcp", version)), "..", "chat.mjs")
}

func node(t testing.TB) string {
	t.Helper()
	program, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node in PATH: what drives the browser, the real MCP servers and the chat's client are JavaScript")
	}
	return program
}

// fetched finds what npm has put into a folder of tools, in the module above the folder that tests run in. A part of
// the path may be a pattern.
func fetched(t testing.TB, folder string, path ...string) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		require.NotEqual(t, filepath.Dir(dir), dir, "no go.mod above the test")
		dir = filepath.Dir(dir)
	}
	found, err := filepath.Glob(filepath.Join(append([]string{dir, "tools", folder, "node_modules"}, path...)...))
	require.NoError(t, err)
	if len(found) == 0 {
		t.Skip("tools/" + folder + " is not installed; run npm ci in it, as make deps does")
	}
	return found[0]
}

// MCPServer is a server that runs.
type MCPServer struct {
	URL  string // of its endpoint, on loopback
	Said Log    // what it has printed since it listens
}

// Log keeps what is printed. Safe for concurrent use, as by several processes.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// onLoopback has a program of node listen on loopback alone: the server would listen everywhere.
const onLoopback = `import net from "node:net"; const l = net.Server.prototype.listen;
net.Server.prototype.listen = function (p, ...a) { return l.call(this, p, "127.0.0.1", ...a) }`

// StartMCPServer starts server-everything over streamable HTTP. It ends with the test.
func StartMCPServer(t *testing.T) *MCPServer {
	t.Helper()
	program, file := InstalledMCPServer(t, "server-everything")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, at, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, l.Close())
	s := &MCPServer{URL: "http://127.0.0.1:" + at + "/mcp"}
	cmd := exec.Command(program, "--import", "data:text/javascript,"+url.PathEscape(onLoopback), file, "streamableHttp")
	cmd.Env, cmd.Stdout = []string{"PATH=" + os.Getenv("PATH"), "PORT=" + at}, &s.Said
	listens, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for lines := bufio.NewScanner(listens); lines.Scan(); {
		if strings.Contains(lines.Text(), at) {
			return s
		}
	}
	t.Fatal("server-everything did not start")
	return nil
}
