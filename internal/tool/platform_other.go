//go:build !unix

package tool

import "os/exec"

// Where there are no pipes in the file system no flags are needed.
const (
	nonblocking   = 0
	directoryOnly = 0
)

// killGroup leaves the command as it is: its own process is killed, and WaitDelay ends the wait for what it started.
func killGroup(*exec.Cmd) {}
