package tool

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// renameExclusive renames within open directories and fails with fs.ErrExist if the new name is taken, in one step.
// File systems without RENAME_EXCL answer ENOTSUP or EINVAL: errors.ErrUnsupported.
func renameExclusive(from *os.File, source string, to *os.File, destination string) error {
	err := unix.RenameatxNp(int(from.Fd()), source, int(to.Fd()), destination, unix.RENAME_EXCL)
	if errors.Is(err, unix.EINVAL) {
		return errors.ErrUnsupported
	}
	return err
}
