package bolt_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store/bolt"
)

const fullStore = "COUNTERSIGN_TEST_FULL_STORE"

// TestFullDisk lets a process write until its files may not grow (RLIMIT_FSIZE, which fails a write as a full disk
// does), then without the limit again. What was acknowledged is there after the failure, after more writes, and after
// reopening.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	child := exec.Command(os.Args[0], "-test.run=^TestFullDiskChild$", "-test.v")
	child.Env = append(os.Environ(), fullStore+"="+path)
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: TestFullDiskChild")
	_, rest, found := strings.Cut(string(out), "acknowledged ")
	require.True(t, found, "%s", out)
	var acknowledged int
	_, err = fmt.Sscan(rest, &acknowledged)
	require.NoError(t, err)
	require.Equal(t, acknowledged, requireLog(t, open(t, path), acknowledged))
}

// TestFullDiskChild is the process of TestFullDisk; by itself it does nothing.
func TestFullDiskChild(t *testing.T) {
	path := os.Getenv(fullStore)
	if path == "" {
		t.Skip("is run by TestFullDisk")
	}
	signal.Ignore(syscall.SIGXFSZ)
	limitFiles(t, 16<<10)
	_, err := bolt.Open(path, bolt.Options{})
	require.ErrorContains(t, err, "file too large")
	require.NoFileExists(t, path, "half a new store would be a damaged one")
	limitFiles(t, 1<<40)
	tb, err := bolt.Open(path, bolt.Options{})
	require.NoError(t, err)
	n := 0
	for ; n < 20; n++ {
		require.NoError(t, tb.Write(context.Background(), entry(n)))
	}
	limitFiles(t, 256<<10)
	for err = nil; err == nil && n < 10_000; n++ {
		err = tb.Write(context.Background(), entry(n))
	}
	n-- // the one that failed
	require.ErrorContains(t, err, "file too large")
	require.NotErrorIs(t, err, bolt.ErrUnknownState)
	require.Equal(t, n, requireLog(t, tb, n), "nothing of the failed write is seen")
	require.Error(t, tb.Write(context.Background(), entry(n)), "still full")

	limitFiles(t, 1<<40)
	for more := n + 50; n < more; n++ {
		require.NoError(t, tb.Write(context.Background(), entry(n)))
	}
	require.NoError(t, tb.Close())
	fmt.Printf("acknowledged %d\n", n)
}

func limitFiles(t *testing.T, bytes uint64) {
	t.Helper()
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	limit.Cur = min(bytes, limit.Max)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
}

func TestOpenPermission(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "store")
	tb := open(t, path)
	require.NoError(t, tb.Close())
	require.NoError(t, os.Chmod(path, 0))
	asNobody(t)
	requireRefused(t, path, fs.ErrPermission)
	_, err := bolt.Open(path, bolt.Options{})
	require.EqualError(t, err, "open store "+path+": permission denied")
}

// asNobody takes root's file permissions from this test's thread, if it runs as root.
func asNobody(t *testing.T) {
	if os.Getuid() != 0 {
		return
	}
	const nobody = 65534
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	_, _, errno := syscall.RawSyscall(syscall.SYS_SETFSUID, nobody, 0, 0)
	t.Cleanup(func() { _, _, _ = syscall.RawSyscall(syscall.SYS_SETFSUID, 0, 0, 0) })
	require.Zero(t, errno)
}
