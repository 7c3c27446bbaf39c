package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/clock"
	"github.com/countersign/countersign/pkg/agent/mcp"
	"github.com/countersign/countersign/pkg/agent/mcp/program"
	"github.com/countersign/countersign/pkg/agent/tool/port"
)

// installed is the main file of a real server from tools/mcp.
func installed(t *testing.T, server string) (node, file string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node in PATH: the real MCP servers are JavaScript")
	}
	file, err = filepath.Abs(filepath.Join("..", "..", "..", "tools", "mcp", "node_modules", "@modelcontextprotocol", server, "dist", "index.js"))
	require.NoError(t, err)
	if _, err := os.Stat(file); err != nil {
		t.Skip("tools/mcp is not installed; run npm ci in it, as make deps does")
	}
	return node, file
}

// programs starts programs with this process's PATH alone.
func programs() mcp.Start {
	return program.Programs{Clock: clock.System(), Path: os.Getenv("PATH")}.Start
}

// The file system server, over its standard streams: real files are written and read, and it is gone afterwards.
func TestTheRealFilesystemServer(t *testing.T) {
	node, file := installed(t, "server-filesystem")
	before := goleak.IgnoreCurrent()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	r := open(t, mcp.Config{Clock: clock.System(), Start: programs()}, agent.MCPServer{Name: "s", Command: []string{node, file, dir}, Dir: dir})
	defer func() { r.session.Close(); goleak.VerifyNone(t, before) }()
	all, err := r.list()
	require.NoError(t, err)
	t.Logf("it speaks %s and has %d tools; %v are left out", all.Protocol, len(all.Tools), all.Left)
	require.Empty(t, all.Left)

	path := filepath.Join(dir, "note.txt")
	args := func(v any) json.RawMessage {
		raw, err := json.Marshal(v)
		require.NoError(t, err)
		return raw
	}
	res, err := r.call("write_file", port.Call{Args: args(map[string]string{"path": path, "content": "countersigned\n"})})
	require.NoError(t, err)
	require.False(t, res.IsError, res.Content)
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "countersigned\n", string(written))
	res, err = r.call("read_text_file", port.Call{Args: args(map[string]string{"path": path})})
	require.NoError(t, err)
	require.Equal(t, agent.ToolResultData{Content: "countersigned\n"}, res)
	res, err = r.call("read_text_file", port.Call{Args: args(map[string]string{"path": "/etc/passwd"})})
	require.NoError(t, err)
	require.True(t, res.IsError, "it is confined to its folder")
	require.Contains(t, res.Content, "denied")
}

// The server that has everything, over HTTP.
func TestTheRealEverythingServer(t *testing.T) {
	node, file := installed(t, "server-everything")
	before := goleak.IgnoreCurrent()
	transport := &http.Transport{}
	r := open(t, mcp.Config{Clock: clock.System(), Client: as(&http.Client{Transport: transport})}, agent.MCPServer{Name: "s", URL: everything(t, node, file)})
	defer func() { r.session.Close(); transport.CloseIdleConnections(); goleak.VerifyNone(t, before) }()
	all, err := r.list()
	require.NoError(t, err)
	t.Logf("it speaks %s and has %d tools; %v are left out", all.Protocol, len(all.Tools), all.Left)
	require.Empty(t, all.Left)
	require.Greater(t, len(all.Tools), 5)

	res, err := r.call("echo", port.Call{Args: json.RawMessage(`{"message":"hello"}`)})
	require.NoError(t, err)
	require.Equal(t, agent.ToolResultData{Content: "Echo: hello"}, res)
	res, err = r.call("get-tiny-image", port.Call{})
	require.NoError(t, err)
	require.Len(t, res.Media, 1)
	require.Equal(t, "image/png", res.Media[0].MediaType)
	require.NoError(t, res.Media[0].Check())
	res, err = r.call("get-structured-content", port.Call{Args: json.RawMessage(`{"location":"New York"}`)})
	require.NoError(t, err)
	require.NotContains(t, res.Content, "outputSchema", "it keeps its promise")
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err = r.tool("trigger-long-running-operation").Call(ctx, port.Call{Args: json.RawMessage(`{"duration":60,"steps":2}`)})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// everything starts the server on a loopback port and gives its URL. It ends with the test.
func everything(t *testing.T, node, file string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, at, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, l.Close())
	const loopback = `import net from "node:net"; const l = net.Server.prototype.listen; net.Server.prototype.listen = function (p, ...a) { return l.call(this, p, "127.0.0.1", ...a) }`
	cmd := exec.Command(node, "--import", "data:text/javascript,"+url.PathEscape(loopback), file, "streamableHttp") // it would listen everywhere
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "PORT=" + at}
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if strings.Contains(lines.Text(), at) {
			return "http://127.0.0.1:" + at + "/mcp"
		}
	}
	t.Fatal("the server did not start")
	return ""
}
