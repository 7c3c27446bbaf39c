package builtin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/tool"
)

// maxRead is how many bytes of a file one call returns at most.
const maxRead = 256 << 10

type readInput struct {
	Path   string `json:"path" jsonschema_description:"The file to read, relative to the top folder."`
	Offset int64  `json:"offset,omitempty" jsonschema:"minimum=0" jsonschema_description:"Where to start, in bytes. Default: at the beginning."`
	Limit  int    `json:"limit,omitempty" jsonschema:"minimum=1,maximum=262144" jsonschema_description:"How many bytes to read at most. Default: 262144, which is also the most."`
}

// read returns the text of a file, or a part of it with a notice that says which.
func (r Root) read(_ context.Context, in readInput) (string, error) {
	f, info, err := r.OpenFile(in.Path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if in.Limit == 0 {
		in.Limit = maxRead
	}
	if in.Offset > info.Size() {
		return "", tool.Refusef("offset %d is beyond the end: %s has %d bytes", in.Offset, quotePath(in.Path), info.Size())
	}
	w, err := readWindow(f, in.Offset, in.Limit)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", quotePath(in.Path), withoutPaths(err))
	}
	if !utf8.Valid(w.text) || bytes.IndexByte(w.text, 0) >= 0 {
		return "", tool.Refusef("%s looks binary: it is not UTF-8 text", quotePath(in.Path))
	}
	return w.result(info.Size()), nil
}

// window is a part of a file, whole characters only.
type window struct {
	text  []byte
	start int64 // of text in the file, bytes
	last  bool  // nothing follows
}

// readWindow reads up to limit bytes at offset. A character the window begins or ends in the middle of is left out,
// unless it is the only one, which is then read whole: every call gets further.
func readWindow(f *os.File, offset int64, limit int) (window, error) {
	buf := make([]byte, limit+2*utf8.UTFMax) // room for a whole character after one skipped
	n, err := f.ReadAt(buf, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return window{}, err
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
	return window{text: text, start: offset + int64(skipped), last: atEnd && len(text) == len(rest)}, nil
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

func (w window) result(size int64) string {
	end := w.start + int64(len(w.text))
	switch {
	case w.start == 0 && w.last && len(w.text) == 0:
		return "(the file is empty)"
	case w.start == 0 && w.last:
		return string(w.text)
	case w.last:
		return fmt.Sprintf("%s\n(bytes %d to %d of %d, the end)", w.text, w.start, end, size)
	default:
		return fmt.Sprintf("%s\n(bytes %d to %d of %d shown, go on with offset %d)", w.text, w.start, end, size, end)
	}
}
