package mcp_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/npmtest"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools/mcp"
	"github.com/countersign/countersign/internal/tools/mcp/program"
)

// programs starts programs with this process's PATH alone.
func programs() mcp.Start {
	return program.Programs{Path: os.Getenv("PATH")}.Start
}

// The file system server, over its standard streams: real files are written and read, and it is gone afterwards.
func TestTheRealFilesystemServer(t *testing.T) {
	node, file := npmtest.Installed(t, "server-filesystem")
	before := goleak.IgnoreCurrent()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	r := open(t, mcp.Config{Clock: clock.System(), Start: programs()}, agent.MCPServer{Name: "s", Command: []string{node, file, dir}, Dir: dir})
	defer func() { r.session.Close(); requireNoLeak(t, before) }()
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
	res, err := r.call("write_file", tool.Call{Args: args(map[string]string{"path": path, "content": "countersigned\n"})})
	require.NoError(t, err)
	require.False(t, res.IsError, res.Content)
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "countersigned\n", string(written))
	res, err = r.call("read_text_file", tool.Call{Args: args(map[string]string{"path": path})})
	require.NoError(t, err)
	require.Equal(t, agent.ToolResultData{Content: "countersigned\n"}, res)
	res, err = r.call("read_text_file", tool.Call{Args: args(map[string]string{"path": "/etc/passwd"})})
	require.NoError(t, err)
	require.True(t, res.IsError, "it is confined to its folder")
	require.Contains(t, res.Content, "denied")
}

// The server that has everything, over HTTP.
func TestTheRealEverythingServer(t *testing.T) {
	server := npmtest.Everything(t)
	before := goleak.IgnoreCurrent()
	transport := &http.Transport{}
	r := open(t, mcp.Config{Clock: clock.System(), Client: as(&http.Client{Transport: transport})}, agent.MCPServer{Name: "s", URL: server.URL})
	defer func() { r.session.Close(); transport.CloseIdleConnections(); requireNoLeak(t, before) }()
	all, err := r.list()
	require.NoError(t, err)
	t.Logf("it speaks %s and has %d tools; %v are left out", all.Protocol, len(all.Tools), all.Left)
	require.Empty(t, all.Left)
	require.Greater(t, len(all.Tools), 5)

	res, err := r.call("echo", tool.Call{Args: json.RawMessage(`{"message":"hello"}`)})
	require.NoError(t, err)
	require.Equal(t, agent.ToolResultData{Content: "Echo: hello"}, res)
	res, err = r.call("get-tiny-image", tool.Call{})
	require.NoError(t, err)
	require.Len(t, res.Media, 1)
	require.Equal(t, "image/png", res.Media[0].MediaType)
	require.NoError(t, agent.CheckMedia(res.Media[0]))
	res, err = r.call("get-structured-content", tool.Call{Args: json.RawMessage(`{"location":"New York"}`)})
	require.NoError(t, err)
	require.NotContains(t, res.Content, "outputSchema", "it keeps its promise")
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err = r.tool("trigger-long-running-operation").Call(ctx, tool.Call{Args: json.RawMessage(`{"duration":60,"steps":2}`)})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
