package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// dropTyped drops what was typed at a terminal and is not read yet. Other files have nothing of the kind.
func dropTyped(f *os.File) { _ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH) }
