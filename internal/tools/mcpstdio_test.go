package tools_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools"
)

// The test's own program is the server of these tests, in one of many moods.
func TestMain(m *testing.M) {
	if mood := os.Getenv("PEER_MOOD"); mood != "" {
		speak(mood)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// speak serves standard input until it ends, or the mood strikes.
func speak(mood string) {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 32<<20)
	for in.Scan() {
		var a ask
		if json.Unmarshal(in.Bytes(), &a) != nil || a.ID == nil {
			continue
		}
		if mood == a.Method+" hangs" {
			select {}
		}
		if a.Method == "tools/call" && mood == "dies" {
			os.Exit(3)
		}
		fmt.Println(strings.Replace(speaks(a), "hello", "token "+os.Getenv("TOKEN"), 1))
		if mood == "deaf" && a.Method == "tools/list" {
			select {}
		}
	}
}

func started(t *testing.T, mood string) *rig {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	limit := time.Minute
	if strings.Contains(mood, " hangs") && !strings.Contains(mood, "call") {
		limit = 2 * time.Second
	}
	return running(t, limit, "PEER_MOOD", mood, self, "-test.run=^$")
}

// running is a program with a secret and another variable.
func running(t *testing.T, limit time.Duration, name, value string, command ...string) *rig {
	t.Helper()
	before := goleak.IgnoreCurrent()
	r := open(t, tools.MCP{Clock: clock.System(), Start: programs(), Secrets: mcpVault{}}, agent.MCPServer{
		Name: "s", Command: command, Env: map[string]string{name: value, "TOKEN": "${secret:key}"}, Timeout: limit,
	})
	t.Cleanup(func() { r.session.Close(); requireNoLeak(t, before) })
	return r
}

// A program on this machine is a server as any other: with its secrets, which do not come back.
func TestPrograms(t *testing.T) {
	r := started(t, "plain")
	res, err := r.call("echo", tool.Call{Args: json.RawMessage(`{"text":"t"}`)})
	require.NoError(t, err)
	require.Equal(t, agent.ToolResultData{Content: "token ${secret:key}"}, res)
}

// Whatever a program does to a call, the call ends, its error says what is known, and the next one has a program that
// works. What programs write instead of an answer, TestUnreadableAnswersToCalls says.
func TestHostilePrograms(t *testing.T) {
	t.Run("dies", func(t *testing.T) {
		r := started(t, "dies")
		for range 2 {
			_, err := r.call("echo", tool.Call{})
			require.ErrorAs(t, err, new(*tool.LostError))
			require.ErrorContains(t, err, "it ended the connection")
		}
	})
	for mood, args := range map[string]string{"tools/call hangs": `{}`, "deaf": `{"text":"` + lines(1<<20, "x") + `"}`} {
		t.Run(mood, func(t *testing.T) {
			repeats := started(t, mood).tool("echo")
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := repeats.Call(ctx, tool.Call{Args: json.RawMessage(args)})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(began), 3*time.Second)
		})
	}
	t.Run("server/discover hangs", func(t *testing.T) {
		_, err := started(t, "server/discover hangs").list()
		require.ErrorContains(t, err, "it did not answer within 2s")
	})
}

// Why a program is no server is told by what it wrote: to its standard error, without secrets, or instead of the
// protocol.
func TestProgramsThatAreNoServers(t *testing.T) {
	long := "i=0; while [ $i -lt 200 ]; do echo 'Error: of long ago, hunter2' >&2; i=$((i+1)); done; "
	for script, says := range map[string]string{
		"exit 3": "connect to MCP server s: it ended the connection",
		"echo 'npm warn' >&2; echo 'Error: no key' >&2; echo ' at x:1' >&2; exit 3": "it ended the connection; the program said: Error: no key",
		"echo one >&2; echo two >&2; exit 3":                                        "it ended the connection; the program said: two",
		"echo \"bad token $TOKEN\" >&2; exit 3":                                     "it ended the connection; the program said: bad token ${secret:key}",
		long + "exit 3":                                                             "it ended the connection; the program said: Error: of long ago, ${secret:key}",
		"echo 'listening on port 3000'; sleep 60":                                   "it wrote something that is no message of the protocol",
		"echo 'Error: stuck' >&2; sleep 60":                                         "it did not answer within 2s: context deadline exceeded; the program said: Error: stuck",
	} {
		t.Run(script[:min(len(script), 30)], func(t *testing.T) {
			_, err := running(t, 2*time.Second, "PATH", os.Getenv("PATH"), "sh", "-c", script).list()
			require.ErrorContains(t, err, says)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

// programs starts programs with this process's PATH alone.
func programs() tools.StartProgram {
	return local.Programs{Path: os.Getenv("PATH")}.Start
}

// The file system server, over its standard streams: real files are written and read, and it is gone afterwards.
func TestTheRealFilesystemServer(t *testing.T) {
	node, file := standins.InstalledMCPServer(t, "server-filesystem")
	before := goleak.IgnoreCurrent()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	server := agent.MCPServer{Name: "s", Command: []string{node, file, dir}, Dir: dir}
	r := open(t, tools.MCP{Clock: clock.System(), Start: programs()}, server)
	defer func() { r.session.Close(); requireNoLeak(t, before) }()
	all, err := r.list()
	require.NoError(t, err)
	require.Empty(t, all.Left)
	call := func(name, args string) agent.ToolResultData {
		t.Helper()
		res, err := r.call(name, tool.Call{Args: json.RawMessage(args)})
		require.NoError(t, err)
		return res
	}
	path := filepath.Join(dir, "note.txt")
	res := call("write_file", fmt.Sprintf(`{"path":%q,"content":"countersigned\n"}`, path))
	require.False(t, res.IsError, res.Content)
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "countersigned\n", string(written))
	res = call("read_text_file", fmt.Sprintf(`{"path":%q}`, path))
	require.Equal(t, agent.ToolResultData{Content: "countersigned\n"}, res)
	res = call("read_text_file", `{"path":"/etc/passwd"}`)
	require.True(t, res.IsError, "it is confined to its folder")
	require.Contains(t, res.Content, "denied")
}
