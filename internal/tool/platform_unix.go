//go:build unix

package tool

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// Flags that keep an open from waiting for a pipe's writer, and from opening anything but a directory.
const (
	nonblocking   = syscall.O_NONBLOCK
	directoryOnly = syscall.O_DIRECTORY
)

// killGroup has the command killed together with everything it started.
func killGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
}
