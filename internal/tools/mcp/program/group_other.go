//go:build !unix

package program

import "os/exec"

// There are no groups of processes here: what a program has started is its own care.
func ownGroup(*exec.Cmd)      {}
func askGroup(*exec.Cmd)      {}
func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() } // it may have ended
