//go:build unix

package builtin

import "syscall"

// Flags that keep an open from waiting for a pipe's writer, and from opening anything but a directory.
const (
	nonblocking   = syscall.O_NONBLOCK
	directoryOnly = syscall.O_DIRECTORY
)
