// Package files has the built-in tools that work on a folder: list_directory, read_text and move_file.
//
// Nothing they do leaves the folder: every path is resolved by os.Root, component by component on open directories, so
// neither "..", nor an absolute path, nor a symbolic link, nor a directory swapped for a link in mid-call leads out.
// Symbolic links that stay inside are followed when reading and never moved. Pipes, devices and sockets are refused
// without being opened.
//
// What a model is told is a function of the folder's contents alone, names it by paths relative to the folder, and
// never shows where the folder is. On Windows and other systems os.Root's own documentation says how far the
// confinement holds.
package builtin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/countersign/countersign/internal/tool"
)

// Root is the folder tools are confined to. It is opened anew by every call, so it may be replaced between calls, and a
// run picked up by another process works as long as the path is there too. The zero Root refuses every call. It is safe
// for concurrent use.
type Root struct{ dir string }

// NewRoot takes an absolute path; a relative one is an error, since it would mean another folder in another process.
// The folder need not exist yet.
func NewRoot(dir string) (Root, error) {
	if !filepath.IsAbs(dir) {
		return Root{}, fmt.Errorf("root %q of the file tools is not an absolute path", dir)
	}
	return Root{dir: filepath.Clean(dir)}, nil
}

// OpenFile opens a regular file for reading, by a path relative to the folder, with / between its parts. The caller
// closes it. What a model should hear, such as a path that leads outside, is a tool.Refusal; other errors are the
// machine's.
func (r Root) OpenFile(name string) (*os.File, fs.FileInfo, error) {
	p, err := checkPath(name)
	if err != nil {
		return nil, nil, err
	}
	root, err := r.open()
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	// Open a regular file. It looks before it opens, since opening a device can have effects.
	info, err := root.Stat(p)
	if err != nil {
		return nil, nil, explain(root, p, err)
	}
	if err := wantRegular(p, info); err != nil {
		return nil, nil, err
	}
	return openRegular(root, p)
}

func (r Root) open() (*os.Root, error) {
	if r.dir == "" {
		return nil, errors.New("open root of the file tools: none is set")
	}
	root, err := os.OpenRoot(r.dir)
	if err != nil {
		return nil, fmt.Errorf("open root of the file tools: %w", withoutPaths(err))
	}
	return root, nil
}

// openRegular opens a file that was seen to be regular and checks it again. A pipe does not block the call.
func openRegular(root *os.Root, p string) (*os.File, fs.FileInfo, error) {
	f, err := root.OpenFile(p, os.O_RDONLY|nonblocking, 0)
	if err != nil {
		return nil, nil, explain(root, p, err)
	}
	info, err := f.Stat()
	if err == nil {
		err = wantRegular(p, info)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// openDirectory opens a directory.
func openDirectory(root *os.Root, p string) (*os.File, error) {
	info, err := root.Stat(p)
	if err != nil {
		return nil, explain(root, p, err)
	}
	if !info.IsDir() {
		return nil, tool.Refusef("%s is not a folder", quotePath(p))
	}
	d, err := root.OpenFile(p, os.O_RDONLY|directoryOnly|nonblocking, 0)
	if err != nil {
		return nil, explain(root, p, err)
	}
	return d, nil
}

func wantRegular(p string, info fs.FileInfo) error {
	switch {
	case info.Mode().IsRegular():
		return nil
	case info.IsDir():
		return tool.Refusef("%s is a folder, not a file", quotePath(p))
	case info.Mode()&fs.ModeSymlink != 0:
		return tool.Refusef("%s is a symbolic link, not a file", quotePath(p))
	default:
		return tool.Refusef("%s is a pipe, device or socket, not a file", quotePath(p))
	}
}

// explain turns an error about p into what a model can act upon.
func explain(root *os.Root, p string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return tool.Refusef("%s does not exist", quotePath(p))
	case errors.Is(err, fs.ErrPermission):
		return tool.Refusef("%s: permission denied", quotePath(p))
	case errors.Is(err, syscall.ENAMETOOLONG):
		return tool.Refusef("the path %s is too long", quotePath(p))
	case errors.Is(err, syscall.ENOTDIR):
		return tool.Refusef("%s does not exist: a part of the path is a file, not a folder", quotePath(p))
	case errors.Is(err, syscall.ELOOP), leadsOutside(root, err):
		return tool.Refusef("%s goes through a symbolic link that leads outside of the folder or in a circle", quotePath(p))
	default:
		return fmt.Errorf("access %s: %w", quotePath(p), withoutPaths(err))
	}
}

// leadsOutside reports whether err is os.Root's error for a path that leads outside. That error has no exported name,
// so it is compared with a provoked one.
func leadsOutside(root *os.Root, err error) bool {
	_, outside := root.Lstat("..")
	return errors.Is(err, withoutPaths(outside))
}

// withoutPaths removes the machine's paths from an error.
func withoutPaths(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		return le.Err
	}
	return err
}

// parent is the folder p is in, "." at the top.
func parent(p string) string { return path.Dir(p) }
