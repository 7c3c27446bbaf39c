package tool

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a path, those of the usual file systems.
const (
	maxPathBytes = 4096
	maxNameBytes = 255
)

// checkPath takes a path as a model wrote it and returns it clean: relative, with single slashes, without "." parts;
// the folder itself is ".". Paths that are absolute, have a "..", or characters that could disguise them in an approval
// are refused.
func checkPath(name string) (string, error) {
	parts := strings.Split(name, "/")
	switch {
	case name == "":
		return "", Refusef("the path is empty, the folder itself is %q", ".")
	case !utf8.ValidString(name) || strings.ContainsFunc(name, isDisguising):
		return "", Refusef("the path %s has control characters or is not UTF-8", quotePath(clipName(name)))
	case strings.HasPrefix(name, "/"):
		return "", Refusef("the path %s is absolute, only paths relative to the folder are taken", quotePath(clipName(name)))
	case slices.Contains(parts, ".."):
		return "", Refusef("the path %s has a %q, which could lead outside of the folder", quotePath(clipName(name)), "..")
	case len(name) > maxPathBytes || slices.ContainsFunc(parts, func(s string) bool { return len(s) > maxNameBytes }):
		return "", Refusef("the path %s is too long", quotePath(clipName(name)))
	case !filepath.IsLocal(filepath.FromSlash(name)): // a drive or a reserved name, elsewhere than on Unix
		return "", Refusef("the path %s does not stay in the folder", quotePath(clipName(name)))
	}
	return path.Clean(name), nil
}

// isDisguising reports characters that end a line or turn its direction: control characters and the bidirectional
// overrides and isolates (Unicode TR9). Other invisible characters stay allowed: real names have them, as macOS's
// screenshots do.
func isDisguising(r rune) bool {
	return unicode.IsControl(r) || (r >= 0x202A && r <= 0x202E) || (r >= 0x2066 && r <= 0x2069) || r == 0x2028 ||
		r == 0x2029
}

// quotePath quotes a path for a message. It escapes characters that could disguise the path and no others.
func quotePath(p string) string {
	if !utf8.ValidString(p) || strings.ContainsFunc(p, isDisguising) {
		return strconv.QuoteToASCII(p)
	}
	return `"` + p + `"`
}

// clipName shortens a path that is refused anyway.
func clipName(p string) string {
	const most = 100
	if utf8.RuneCountInString(p) <= most {
		return p
	}
	return string([]rune(p)[:most]) + "..."
}

// maxRead is how many bytes of a file one call returns at most.
const maxRead = 256 << 10

type readInput struct {
	Path   string `json:"path" jsonschema_description:"The file to read, relative to the top folder."`
	Offset int64  `json:"offset,omitempty" jsonschema:"minimum=0,description=Where to start in bytes. Default 0"`
	Limit  int    `json:"limit,omitempty" jsonschema:"minimum=1,maximum=262144,description=How many bytes. Default 262144"`
}

// read returns the text of a file, or a part of it with a notice that says which.
func (r Root) read(_ context.Context, in readInput) (string, error) {
	f, info, err := r.openFile(in.Path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if in.Offset > info.Size() {
		return "", Refusef("offset %d is beyond the end: %s has %d bytes", in.Offset, quotePath(in.Path), info.Size())
	}
	w, err := readWindow(f, in.Offset, cmp.Or(in.Limit, maxRead))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", quotePath(in.Path), withoutPaths(err))
	}
	if !utf8.Valid(w.text) || bytes.IndexByte(w.text, 0) >= 0 {
		return "", Refusef("%s looks binary: it is not UTF-8 text", quotePath(in.Path))
	}
	end := w.start + int64(len(w.text))
	switch {
	case w.start == 0 && w.last && len(w.text) == 0:
		return "(the file is empty)", nil
	case w.start == 0 && w.last:
		return string(w.text), nil
	case w.last:
		return fmt.Sprintf("%s\n(bytes %d to %d of %d, the end)", w.text, w.start, end, info.Size()), nil
	default:
		return fmt.Sprintf("%s\n(bytes %d to %d of %d shown, go on with offset %d)", w.text, w.start, end, info.Size(), end),
			nil
	}
}

// textWindow is a part of a file, whole characters only.
type textWindow struct {
	text  []byte
	start int64 // of text in the file, bytes
	last  bool  // nothing follows
}

// readWindow reads up to limit bytes at offset. A character the window begins or ends in the middle of is left out,
// unless it is the only one, which is then read whole: every call gets further.
func readWindow(f *os.File, offset int64, limit int) (textWindow, error) {
	buf := make([]byte, limit+2*utf8.UTFMax) // room for a whole character after one skipped
	n, err := f.ReadAt(buf, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return textWindow{}, err
	}
	atEnd := n < len(buf)
	skipped := 0
	if offset > 0 { // skip what belongs to a character that began before
		for skipped < min(n, utf8.UTFMax-1) && !utf8.RuneStart(buf[skipped]) {
			skipped++
		}
	}
	rest := buf[skipped:n]
	text := rest
	if !atEnd || len(rest) > limit {
		text = wholeRunes(rest, limit)
	}
	return textWindow{text: text, start: offset + int64(skipped), last: atEnd && len(text) == len(rest)}, nil
}

// wholeRunes is the longest part of b within limit that ends with a whole character, or the first character if there is
// none.
func wholeRunes(b []byte, limit int) []byte {
	end := min(limit, len(b))
	for i := end - 1; i >= max(0, end-utf8.UTFMax); i-- {
		if !utf8.RuneStart(b[i]) {
			continue
		}
		if !utf8.FullRune(b[i:end]) {
			end = i
		}
		break
	}
	if end == 0 {
		_, end = utf8.DecodeRune(b)
	}
	return b[:end]
}

// Bounds of a listing.
const (
	maxListed  = 1000    // entries shown
	maxCounted = 100_000 // entries a folder may have at all; sorting needs every name
	listBatch  = 1024
)

type listInput struct {
	Path string `json:"path,omitempty" jsonschema:"default=.,description=The folder to list relative to the top folder."`
}

// list writes an entry a line, sorted by the bytes of the name: kind, size in bytes and name.
func (r Root) list(ctx context.Context, in listInput) (string, error) {
	p, err := checkPath(cmp.Or(in.Path, "."))
	if err != nil {
		return "", err
	}
	root, err := r.open(p)
	if err != nil {
		return "", err
	}
	defer root.Close()
	entries, err := readEntries(ctx, root, p)
	if err != nil {
		return "", err
	}
	if len(entries) == 0 {
		return fmt.Sprintf("%s is empty.", quotePath(p)), nil
	}
	slices.SortFunc(entries, func(a, b folderEntry) int { return strings.Compare(a.name, b.name) })
	var b strings.Builder
	for _, e := range entries[:min(len(entries), maxListed)] {
		name := e.name
		if strings.ContainsFunc(name, isDisguising) || !utf8.ValidString(name) { // it could break the line
			name = quotePath(name)
		}
		fmt.Fprintf(&b, "%s %s %s\n", e.kind, e.size, name)
	}
	if len(entries) > maxListed {
		fmt.Fprintf(&b, "(%d of %d entries shown)\n", maxListed, len(entries))
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

type folderEntry struct {
	kind, size, name string
}

func readEntries(ctx context.Context, root *os.Root, p string) ([]folderEntry, error) {
	d, err := openDirectory(root, p)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var all []folderEntry
	for len(all) <= maxCounted {
		batch, err := d.ReadDir(listBatch)
		for _, e := range batch {
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) { // it was removed while the folder was read
				continue
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
			all = append(all, folderEntry{kind, size, e.Name()})
		}
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, fmt.Errorf("list %s: %w", quotePath(p), withoutPaths(err))
		}
	}
	return nil, Refusef("%s has more than %d entries, too many to list", quotePath(p), maxCounted)
}
