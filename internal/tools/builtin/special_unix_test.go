//go:build unix

package builtin

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/tool"
)

// A pipe without a writer would block an ordinary open for ever.
func TestSpecialFilesAreRefusedWithoutOpening(t *testing.T) {
	f := newFolder(t)
	require.NoError(t, syscall.Mkfifo(filepath.Join(f.root, "pipe"), 0o644))
	t.Chdir(f.root) // a socket's path must be short
	socket, err := net.Listen("unix", "socket")
	require.NoError(t, err)
	defer func() { require.NoError(t, socket.Close()) }()
	f.link("pipe", "alias")
	for _, name := range []string{"pipe", "socket", "alias"} {
		require.Equal(t, tool.Errorf("%q is a pipe, device or socket, not a file", name), f.call("read_text", pathArg{name}))
		require.True(t, f.call("list_directory", pathArg{name}).IsError)
		require.True(t, f.call("list_directory", pathArg{name + "/x"}).IsError)
		require.True(t, f.call("move_file", moveInput{name, "x"}).IsError)
		require.True(t, f.call("move_file", moveInput{"x", name + "/x"}).IsError)
	}
	require.Equal(t, tool.Text("link - alias\nspecial - pipe\nspecial - socket"), f.call("list_directory", struct{}{}))
}

// A file swapped for a pipe or a folder between the look and the open is refused, and does not block the reader either.
func TestSwappedBetweenLookAndOpen(t *testing.T) {
	f := newFolder(t)
	require.NoError(t, syscall.Mkfifo(filepath.Join(f.root, "pipe"), 0o644))
	root, err := os.OpenRoot(f.root)
	require.NoError(t, err)
	defer root.Close()
	_, _, err = openRegular(root, "pipe")
	require.EqualError(t, err, `"pipe" is a pipe, device or socket, not a file`)
	_, _, err = openRegular(root, ".")
	require.EqualError(t, err, `"." is a folder, not a file`)
}
