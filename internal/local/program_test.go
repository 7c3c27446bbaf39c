package local_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/tools"
)

func startProgram(t *testing.T, p local.Programs, script string, env map[string]string) (tools.Program, sdk.Connection) {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh here")
	}
	before := goleak.IgnoreCurrent()
	made, err := p.Start([]string{sh, "-c", script}, t.TempDir(), env)
	require.NoError(t, err)
	c, err := made.Connect(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() {
		made.End()
		goleak.VerifyNone(t, before)
	})
	return made, c
}

// programSays is a script that sends a text, as a shell expands it, in a message.
func programSays(text string) string {
	return `printf '{"jsonrpc":"2.0","method":"says","params":["%s"]}\n' "` + text + `"; `
}

// programHeard is the text of the next message.
func programHeard(t *testing.T, c sdk.Connection) string {
	t.Helper()
	m, err := c.Read(t.Context())
	require.NoError(t, err)
	return strings.Trim(string(m.(*jsonrpc.Request).Params), `[]"`)
}

// A program sees PATH, HOME and what it is given, and nothing else of this process.
func TestEnvironment(t *testing.T) {
	t.Setenv("COUNTERSIGN_SECRET", "not for programs")
	path := os.Getenv("PATH")
	for _, c := range []struct {
		p         local.Programs
		env, want map[string]string
	}{
		{local.Programs{Path: path, Home: "/home/x"}, map[string]string{"TOKEN": "t", "HOME": "/other"},
			map[string]string{"PATH": path, "HOME": "/other", "TOKEN": "t"}},
		{local.Programs{}, nil, map[string]string{}},
	} {
		_, conn := startProgram(t, c.p, programSays("$(/usr/bin/env | /usr/bin/tr '\\n' ';')"), c.env)
		got := map[string]string{}
		for line := range strings.SplitSeq(strings.TrimSuffix(programHeard(t, conn), ";"), ";") {
			name, value, _ := strings.Cut(line, "=")
			if name != "PWD" && name != "_" && name != "SHLVL" && name != "OLDPWD" { // the shell's own
				got[name] = value
			}
		}
		require.Equal(t, c.want, got)
	}
}

// Messages go both ways; the program ends when its input does.
func TestMessages(t *testing.T) {
	bye := filepath.Join(t.TempDir(), "bye")
	p, c := startProgram(t, local.Programs{Path: os.Getenv("PATH")}, `trap "" TERM; cat; echo > "$BYE"`, map[string]string{"BYE": bye})
	require.NoError(t, c.Write(t.Context(), &jsonrpc.Request{Method: "says", Params: []byte(`["hello"]`)}))
	require.Equal(t, "hello", programHeard(t, c))
	p.End()
	require.FileExists(t, bye, "it ended by itself")
}

// A program that does not want to end is ended, with everything that it has started.
func TestTheWholeGroupEnds(t *testing.T) {
	p, c := startProgram(t, local.Programs{Path: os.Getenv("PATH")},
		`trap "" TERM; sleep 1000 & `+programSays("$$ $!")+`while :; do sleep 1000; done`, nil)
	pids := programHeard(t, c)
	began := time.Now()
	p.End()
	require.Less(t, time.Since(began), 4*time.Second)
	for pid := range strings.FieldsSeq(pids) {
		require.Eventually(t, func() bool { return !programAlive(t, pid) }, 2*time.Minute, 10*time.Millisecond, "process %s", pid)
	}
}

func programAlive(t *testing.T, pid string) bool {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if os.IsNotExist(err) {
		if _, err := os.Stat("/proc/self/stat"); err != nil {
			t.Skip("no /proc here")
		}
		return false
	}
	return err == nil && !strings.Contains(string(stat), ") Z ") || err != nil && !errors.Is(err, syscall.ESRCH)
}

// What a program writes to its standard error never blocks it, and its end is kept.
func TestStandardErrorIsBounded(t *testing.T) {
	p, c := startProgram(t, local.Programs{Path: os.Getenv("PATH")},
		`i=0; while [ $i -lt 200 ]; do printf '%1023s\n' $i >&2; i=$((i+1)); done; `+programSays("done"), nil)
	require.Equal(t, "done", programHeard(t, c))
	p.End()
	require.Equal(t, "199", strings.TrimSpace(p.LastWords()))
}

func TestWhatCannotBeStarted(t *testing.T) {
	for name, command := range map[string][]string{"nothing": nil, "no name": {""}, "no such program": {"/no/such/program"}} {
		t.Run(name, func(t *testing.T) {
			p, err := local.Programs{}.Start(command, "", nil)
			if err == nil {
				_, err = p.Connect(t.Context())
			}
			require.ErrorContains(t, err, "start program: ")
		})
	}
	p, err := local.Programs{}.Start([]string{"sleep", "1000"}, "", nil)
	require.NoError(t, err)
	p.End()
	_, err = p.Connect(t.Context())
	require.ErrorContains(t, err, "start program: it was ended before")
}
