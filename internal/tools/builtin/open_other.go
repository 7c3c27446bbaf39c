//go:build !unix

package files

// Where there are no pipes in the file system no flags are needed.
const (
	nonblocking   = 0
	directoryOnly = 0
)
