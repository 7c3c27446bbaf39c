package standins

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A contained server is in another network than the tests: no address of the machine leads to it.
func TestContainedServerIsInAnotherNetwork(t *testing.T) {
	s, _ := launched(t, true)
	ours, err := os.Readlink("/proc/self/ns/net")
	require.NoError(t, err)
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", s.cmd.Process.Pid))
	require.NoError(t, err)
	require.NotEqual(t, ours, theirs)
	require.NoError(t, s.stop())
}
