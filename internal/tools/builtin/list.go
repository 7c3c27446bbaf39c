package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/tool"
)

// Bounds of a listing.
const (
	maxListed  = 1000    // entries shown
	maxCounted = 100_000 // entries a folder may have at all; sorting needs every name
	listBatch  = 1024
)

type listInput struct {
	Path string `json:"path,omitempty" jsonschema:"default=." jsonschema_description:"The folder to list, relative to the top folder. Default: the top folder itself."`
}

// list writes an entry a line, sorted by the bytes of the name: kind, size in bytes and name.
func (r Root) list(ctx context.Context, in listInput) (string, error) {
	if in.Path == "" {
		in.Path = "."
	}
	p, err := checkPath(in.Path)
	if err != nil {
		return "", err
	}
	root, err := r.open()
	if err != nil {
		return "", err
	}
	defer root.Close()
	entries, err := readEntries(ctx, root, p)
	if err != nil {
		return "", err
	}
	return listing(p, entries), nil
}

// entry is a line of a listing.
type entry struct {
	kind, size, name string
}

func readEntries(ctx context.Context, root *os.Root, p string) ([]entry, error) {
	d, err := openDirectory(root, p)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var all []entry
	for len(all) <= maxCounted {
		batch, err := d.ReadDir(listBatch)
		for _, e := range batch {
			all = appendEntry(all, e)
		}
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, fmt.Errorf("list %s: %w", quotePath(p), withoutPaths(err))
		}
	}
	return nil, tool.Refusef("%s has more than %d entries, too many to list", quotePath(p), maxCounted)
}

// appendEntry leaves out what was removed while the folder was read.
func appendEntry(all []entry, e fs.DirEntry) []entry {
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return all
	}
	kind, size := "special", "-"
	switch {
	case err != nil: // there, but it cannot be looked at: nothing a model can read either
	case info.Mode().IsRegular():
		kind, size = "file", strconv.FormatInt(info.Size(), 10)
	case info.IsDir():
		kind = "folder"
	case info.Mode()&fs.ModeSymlink != 0:
		kind = "link"
	}
	return append(all, entry{kind: kind, size: size, name: e.Name()})
}

func listing(p string, entries []entry) string {
	if len(entries) == 0 {
		return fmt.Sprintf("%s is empty.", quotePath(p))
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	var b strings.Builder
	for _, e := range entries[:min(len(entries), maxListed)] {
		fmt.Fprintf(&b, "%s %s %s\n", e.kind, e.size, listedName(e.name))
	}
	if len(entries) > maxListed {
		fmt.Fprintf(&b, "(%d of %d entries shown)\n", maxListed, len(entries))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// listedName is a name as it is, or quoted where it could break the line or disguise itself.
func listedName(name string) string {
	if !utf8.ValidString(name) || strings.ContainsFunc(name, isDisguising) {
		return quotePath(name)
	}
	return name
}
