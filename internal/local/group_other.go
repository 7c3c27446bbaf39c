//go:build !unix

package local

import "os/exec"

// There are no groups of processes here: what a program has started is its own care.
func ownGroup(*exec.Cmd)  {}
func killGroup(*exec.Cmd) {}
