package local_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/local"
)

// A program does not outlive a process that is killed, even if it does not read its input.
func TestProgramsEndWithAProcessThatIsKilled(t *testing.T) {
	if os.Getenv("STARTS_A_PROGRAM") != "" { // the process that is killed
		p, err := local.Programs{Path: os.Getenv("PATH")}.Start([]string{"sh", "-c", programSays("$$") + "exec sleep 1000"}, "", nil)
		require.NoError(t, err)
		c, err := p.Connect(t.Context())
		require.NoError(t, err)
		fmt.Println(programHeard(t, c))
		select {}
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^TestProgramsEndWithAProcessThatIsKilled$")
	cmd.Env = append(os.Environ(), "STARTS_A_PROGRAM=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	pid, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid = strings.TrimSpace(pid)
	require.True(t, programAlive(t, pid))
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	require.Eventually(t, func() bool { return !programAlive(t, pid) }, 2*time.Minute, 10*time.Millisecond, "process %s", pid)
}
