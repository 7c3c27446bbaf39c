package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What was typed before a request is shown does not answer it.
func TestTypedAheadDecidesNothing(t *testing.T) {
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer keys.Close()
	require.NoError(t, unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer terminal.Close()
	_, err = keys.WriteString("a\n")
	require.NoError(t, err)

	d := newHarness(t, renamingAgent, movingModel)
	p, who := d.newProgram("at a terminal")
	p.stdin = terminal
	done := make(chan int, 1)
	go func() { done <- p.run(t.Context(), []string{"run", d.dir, "--message", "tidy"}) }()
	require.Eventually(t, func() bool { return strings.Contains(who.stderr.String(), "approve, deny, edit") }, time.Minute,
		10*time.Millisecond)
	_, err = keys.WriteString("d\nno\n")
	require.NoError(t, err)
	require.Zero(t, <-done, who.stderr.String())
	require.FileExists(t, filepath.Join(d.dir, "a.txt"))
}
