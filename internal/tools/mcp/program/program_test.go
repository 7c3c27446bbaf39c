package program_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/tools/mcp/program"
)

func shell(t *testing.T) string {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh here")
	}
	return sh
}

func start(t *testing.T, p program.Programs, script string, env map[string]string) io.ReadWriteCloser {
	t.Helper()
	sh := shell(t)
	before := goleak.IgnoreCurrent()
	p.Clock = clock.System()
	rw, err := p.Start([]string{sh, "-c", script}, t.TempDir(), env)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, rw.Close())
		goleak.VerifyNone(t, before)
	})
	return rw
}

// A program sees PATH, HOME and what it is given, and nothing else of this process.
func TestEnvironment(t *testing.T) {
	t.Setenv("COUNTERSIGN_SECRET", "not for programs")
	rw := start(t, program.Programs{Path: os.Getenv("PATH"), Home: "/home/x"}, "env", map[string]string{"TOKEN": "t", "HOME": "/other"})
	all, err := io.ReadAll(rw)
	require.NoError(t, err)
	var names []string
	for line := range strings.SplitSeq(strings.TrimSpace(string(all)), "\n") {
		name, value, _ := strings.Cut(line, "=")
		if name == "PWD" || name == "_" || name == "SHLVL" || name == "OLDPWD" { // the shell's own
			continue
		}
		names = append(names, name)
		if name == "HOME" {
			require.Equal(t, "/other", value)
		}
	}
	require.ElementsMatch(t, []string{"PATH", "HOME", "TOKEN"}, names)
}

// Input and output are the program's; it ends when its input does.
func TestStreams(t *testing.T) {
	bye := filepath.Join(t.TempDir(), "bye")
	rw := start(t, program.Programs{Path: os.Getenv("PATH")}, `trap "" TERM; cat; echo > "$BYE"`, map[string]string{"BYE": bye})
	_, err := rw.Write([]byte("hello\n"))
	require.NoError(t, err)
	line, err := bufio.NewReader(rw).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "hello\n", line)
	require.NoError(t, rw.Close())
	require.FileExists(t, bye, "it ended by itself")
}

// A program that does not want to end is ended, with everything that it has started.
func TestTheWholeGroupEnds(t *testing.T) {
	rw := start(t, program.Programs{Path: os.Getenv("PATH")}, `trap "" TERM; sleep 1000 & echo $$ $!; while :; do sleep 1000; done`, nil)
	line, err := bufio.NewReader(rw).ReadString('\n')
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, rw.Close())
	require.Less(t, time.Since(began), 4*time.Second)
	for pid := range strings.FieldsSeq(line) {
		require.Eventually(t, func() bool { return !alive(t, pid) }, 2*time.Second, 10*time.Millisecond, "process %s", pid)
	}
}

func alive(t *testing.T, pid string) bool {
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

// What a program says on the side is passed on up to a bound, and never blocks it.
func TestStandardErrorIsBounded(t *testing.T) {
	var heard locked
	rw := start(t, program.Programs{Path: os.Getenv("PATH"), Stderr: &heard}, `i=0; while [ $i -lt 200 ]; do printf '%1024s' x >&2; i=$((i+1)); done; echo done`, nil)
	line, err := bufio.NewReader(rw).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "done\n", line)
	require.NoError(t, rw.Close())
	require.Equal(t, 64<<10, heard.len())
}

// locked is a buffer that a program writes while a test looks.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) { l.mu.Lock(); defer l.mu.Unlock(); return l.b.Write(p) }
func (l *locked) len() int                    { l.mu.Lock(); defer l.mu.Unlock(); return l.b.Len() }

func TestWhatCannotBeStarted(t *testing.T) {
	p := program.Programs{Clock: clock.System()}
	for name, command := range map[string][]string{"nothing": nil, "no name": {""}, "no such program": {"/no/such/program"}} {
		t.Run(name, func(t *testing.T) {
			_, err := p.Start(command, "", nil)
			require.ErrorContains(t, err, "start program: ")
		})
	}
}
