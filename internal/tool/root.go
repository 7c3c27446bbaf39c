package tool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
)

// Root is the folder that tools are confined to: an absolute path, which need not exist yet. Every call opens it anew,
// so it may be replaced between calls, and a run picked up by another process works as long as the path is there too.
type Root string

// rootOf returns the folder of a call. A relative path is an error, since it would mean another folder in another
// process.
func rootOf(c Call) (Root, error) {
	switch {
	case c.Root == "":
		return "", Refusef("%s is confined to no folder: the agent's definition must name one as the tool's root, "+
			"by an absolute path if the agent is embedded in a program", c.Name)
	case !filepath.IsAbs(c.Root):
		return "", fmt.Errorf("root %q of the file tools is not an absolute path", c.Root)
	}
	return Root(filepath.Clean(c.Root)), nil
}

// openFile opens a regular file for reading, by a path relative to the folder, with / between its parts. The caller
// closes it. What a model should hear, such as a path that leads outside, is a Refusal; other errors are the
// machine's.
func (r Root) openFile(name string) (*os.File, fs.FileInfo, error) {
	p, err := checkPath(name)
	if err != nil {
		return nil, nil, err
	}
	root, err := r.open(p)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	// Open a regular file. It looks before it opens, since opening a device can have effects.
	info, err := root.Stat(p)
	if err != nil {
		return nil, nil, explainPathError(root, p, err)
	}
	if err := wantRegular(p, info); err != nil {
		return nil, nil, err
	}
	return openRegular(root, p)
}

// open opens the folder for the use of clean paths. Those of a store directory are refused, which the command line
// makes where it is called: with its token, keys and secrets calls are approved and made.
func (r Root) open(paths ...string) (*os.Root, error) {
	root, err := os.OpenRoot(string(r))
	if err != nil {
		return nil, fmt.Errorf("open root of the file tools: %w", withoutPaths(err))
	}
	for _, p := range paths {
		for dir := p; dir != ".." && err == nil; dir = path.Join(dir, "..") {
			_, noTable := root.Lstat(path.Join(dir, "store.db"))
			if _, noBlobs := root.Lstat(path.Join(dir, "blobs")); noTable == nil && noBlobs == nil {
				err = Refusef("%s is in a store directory of Countersign, which is closed to file tools", quotePath(p))
			}
		}
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// openRegular opens a file that was seen to be regular and checks it again. A pipe does not block the call.
func openRegular(root *os.Root, p string) (*os.File, fs.FileInfo, error) {
	f, err := root.OpenFile(p, os.O_RDONLY|nonblocking, 0)
	if err != nil {
		return nil, nil, explainPathError(root, p, err)
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

func openDirectory(root *os.Root, p string) (*os.File, error) {
	info, err := root.Stat(p)
	if err != nil {
		return nil, explainPathError(root, p, err)
	}
	if !info.IsDir() {
		return nil, Refusef("%s is not a folder", quotePath(p))
	}
	d, err := root.OpenFile(p, os.O_RDONLY|directoryOnly|nonblocking, 0)
	if err != nil {
		return nil, explainPathError(root, p, err)
	}
	return d, nil
}

func wantRegular(p string, info fs.FileInfo) error {
	switch {
	case info.Mode().IsRegular():
		return nil
	case info.IsDir():
		return Refusef("%s is a folder, not a file", quotePath(p))
	case info.Mode()&fs.ModeSymlink != 0:
		return Refusef("%s is a symbolic link, not a file", quotePath(p))
	default:
		return Refusef("%s is a pipe, device or socket, not a file", quotePath(p))
	}
}

// explainPathError turns an error about p into what a model can act upon.
func explainPathError(root *os.Root, p string, err error) error {
	_, outside := root.Lstat("..") // os.Root's error for a path that leads outside has no exported name
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Refusef("%s does not exist", quotePath(p))
	case errors.Is(err, fs.ErrPermission):
		return Refusef("%s: permission denied", quotePath(p))
	case errors.Is(err, syscall.ENAMETOOLONG):
		return Refusef("the path %s is too long", quotePath(p))
	case errors.Is(err, syscall.ENOTDIR):
		return Refusef("%s does not exist: a part of the path is a file, not a folder", quotePath(p))
	case errors.Is(err, syscall.ELOOP), errors.Is(err, withoutPaths(outside)):
		return Refusef("%s goes through a symbolic link that leads outside of the folder or in a circle", quotePath(p))
	default:
		return fmt.Errorf("access %s: %w", quotePath(p), withoutPaths(err))
	}
}

// withoutPaths removes the machine's paths from an error.
func withoutPaths(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return link.Err
	}
	return err
}
