//go:build !linux && !darwin

package tool

import (
	"errors"
	"os"
)

// renameExclusive is not to be had here; linkThenRemove takes over.
func renameExclusive(_ *os.File, _ string, _ *os.File, _ string) error { return errors.ErrUnsupported }
