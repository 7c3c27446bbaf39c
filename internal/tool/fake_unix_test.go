//go:build unix

package tool

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeTesseract puts a shell script in tesseract's place, and a picture in a folder it returns.
func fakeTesseract(t *testing.T, script string) string {
	t.Helper()
	bin, dir := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "tesseract"), []byte("#!/bin/sh\n"+script), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "-rf.png"), []byte("\x89PNG\r\n\x1a\nBODY\n"), 0o600))
	t.Setenv("PATH", bin)
	t.Setenv("SECRET", "hunter2")
	return dir
}

func TestWhatTesseractDoes(t *testing.T) {
	for name, tc := range map[string]struct{ script, want, fails string }{
		"arguments":      {`echo "$#:$*"`, "2:stdin stdout", ""},
		"standard input": {`read a; read b; read c; echo "$c"`, "BODY", ""},
		"environment":    {`echo "$SECRET|$LC_ALL|$OMP_THREAD_LIMIT"`, "|C|1", ""},
		"nothing":        {`printf '\f\n'`, "No text was found in the picture.", ""},
		"exit status":    {`echo partial; echo one >&2; printf 'Error: "bad"\033[31m\n' >&2; exit 7`, "", `tesseract could not read the picture (exit status 7): "Error: \"bad\"\x1b[31m"`},
		"silent failure": {`exit 1`, "", "tesseract could not read the picture (exit status 1)"},
		"killed":         {`kill -SEGV $$`, "", "tesseract could not read the picture (signal: segmentation fault"},
		"noise on error": {`i=0; while [ $i -lt 3000 ]; do echo warning >&2; i=$((i+1)); done; echo text`, "text", ""},
		"invalid UTF-8":  {`printf 'caf\351'`, "caf\uFFFD", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := extract(t.Context(), t, fakeTesseract(t, tc.script), "-rf.png")
			require.NoError(t, err)
			if tc.fails != "" {
				require.True(t, r.IsError)
				require.Contains(t, r.Content, tc.fails)
				return
			}
			require.Equal(t, Text(tc.want), r)
		})
	}
}

// Output without end is cut and the program stopped, whether or not it notices that nobody reads.
func TestOutputWithoutEnd(t *testing.T) {
	r, err := extract(t.Context(), t, fakeTesseract(t, `trap "" PIPE; while :; do echo 0123456789012345678901234567890123456789012345678901234567890123456789; done`), "-rf.png")
	require.NoError(t, err)
	require.False(t, r.IsError)
	require.True(t, strings.HasSuffix(r.Content, "\n(only the first 262144 bytes of the text are shown)"))
	require.Less(t, len(r.Content), maxText+100)
}

// The end of the context ends tesseract and what it started, though the child keeps the output open.
func TestContextEndsTesseractAndItsChildren(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "started")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	dir := fakeTesseract(t, `/bin/sleep 1000 & echo "$!" > `+pipe+`; wait`)
	ctx, cancel := context.WithCancel(t.Context())
	child := make(chan string, 1)
	go func() {
		f, err := os.Open(pipe) // waits for the script to get there
		if err == nil {
			line, _ := bufio.NewReader(f).ReadString('\n')
			child <- strings.TrimSpace(line)
			f.Close()
		}
		cancel()
	}()
	_, err := extract(ctx, t, dir, "-rf.png")
	require.ErrorIs(t, err, context.Canceled)
	pid := <-child
	for tries := 0; alive(pid); tries++ { // killed, and perhaps on its way out still
		require.Less(t, tries, 1000)
		runtime.Gosched()
	}
}

// alive reports whether a process runs; one that ended and nobody has waited for does not.
func alive(pid string) bool {
	state, err := exec.Command("/bin/ps", "-o", "stat=", "-p", pid).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}

// A tesseract that cannot be started at all is the machine's fault, not the picture's.
func TestUnusableProgram(t *testing.T) {
	dir := fakeTesseract(t, "")
	program, err := exec.LookPath("tesseract")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, []byte("not a program"), 0o755))
	_, err = extract(t.Context(), t, dir, "-rf.png")
	require.ErrorContains(t, err, "run tesseract")
}

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
		require.Equal(t, Errorf("%q is a pipe, device or socket, not a file", name), f.call("read_text", pathArg{name}))
		require.True(t, f.call("list_directory", pathArg{name}).IsError)
		require.True(t, f.call("list_directory", pathArg{name + "/x"}).IsError)
		require.True(t, f.call("move_file", moveInput{name, "x"}).IsError)
		require.True(t, f.call("move_file", moveInput{"x", name + "/x"}).IsError)
	}
	require.Equal(t, Text("link - alias\nspecial - pipe\nspecial - socket"), f.call("list_directory", struct{}{}))
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
