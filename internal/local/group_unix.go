//go:build unix

package local

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the program the first of a group of processes.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = endsWithUs(syscall.SysProcAttr{Setpgid: true}) }

// killGroup kills what is left of the group.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // nothing may be left
