//go:build unix

package program

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the program the first of a group of processes.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = endsWithUs(syscall.SysProcAttr{Setpgid: true}) }

func askGroup(cmd *exec.Cmd)  { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) } // it may be gone
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
