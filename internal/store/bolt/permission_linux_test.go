package bolt_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store/bolt"
)

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
