package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Bounds of one call.
const (
	extractTimeout = time.Minute
	maxPicture     = 20 << 20  // bytes of the file
	maxText        = 256 << 10 // bytes of text returned
	maxComplaint   = 4 << 10   // bytes of standard error kept
)

const notInstalled = "Text in pictures cannot be read: tesseract is not installed on this machine. " +
	"To install it: apt-get install tesseract-ocr (Debian, Ubuntu) or brew install tesseract (macOS)."

type extractInput struct {
	Path string `json:"path" jsonschema_description:"The picture to read, relative to the top folder."`
}

// extractText has tesseract read the text in a picture. tesseract is looked up in PATH at each call. The picture is
// recognised by its first bytes and handed to it as standard input: no path is ever an argument, no shell is involved,
// and nothing is written. The call ends when its context does; tesseract and what it started are killed then.
func (r Root) extractText(ctx context.Context, in extractInput) (string, error) {
	picture, info, err := r.openFile(in.Path)
	if err != nil {
		return "", err
	}
	defer picture.Close()
	head := make([]byte, 16) // what isPicture looks at
	n, err := picture.ReadAt(head, 0)
	switch { // What tesseract could not read is refused before it is started.
	case err != nil && !errors.Is(err, io.EOF):
		return "", fmt.Errorf("read the beginning of a picture: %w", err)
	case !isPicture(head[:n]):
		return "", Refusef("%q is not a picture of a kind that can be read: PNG, JPEG, GIF, BMP, TIFF or WebP", in.Path)
	case info.Size() > maxPicture:
		return "", Refusef("%q has %d bytes, pictures of at most %d are read", in.Path, info.Size(), maxPicture)
	}
	program, err := exec.LookPath("tesseract")
	if err != nil {
		return "", Refusef(notInstalled)
	}
	text, err := runTesseract(ctx, program, picture)
	if err == nil && text == "" {
		text = "No text was found in the picture."
	}
	return text, err
}

// runTesseract has tesseract read the picture. It gets no environment but what makes its output the same everywhere.
func runTesseract(ctx context.Context, program string, picture *os.File) (string, error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	text := &cappedOutput{most: maxText, full: stop}
	complaint := &cappedOutput{most: maxComplaint, full: func() {}}
	cmd := exec.CommandContext(running, program, "stdin", "stdout")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = picture, text, complaint
	cmd.Env = []string{"LC_ALL=C", "OMP_THREAD_LIMIT=1"}
	cmd.WaitDelay = time.Second // for pipes kept open by what tesseract started
	killGroup(cmd)
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("read text of a picture: %w", ctx.Err())
	case text.cut:
		shown := fmt.Sprintf("\n(only the first %d bytes of the text are shown)", maxText)
		return cleanOutput(text.kept.String()) + shown, nil
	case err != nil:
		var exit *exec.ExitError
		if !errors.As(err, &exit) { // it did not run: the machine's error, and not for the model
			return "", fmt.Errorf("run tesseract: %w", err)
		}
		if line := lastLine(complaint.kept.String()); line != "" {
			return "", Refusef("tesseract could not read the picture (%s): %q", exit.ProcessState, line)
		}
		return "", Refusef("tesseract could not read the picture (%s)", exit.ProcessState)
	default:
		return cleanOutput(text.kept.String()), nil
	}
}

// cleanOutput leaves out page breaks and the empty space around the text.
func cleanOutput(s string) string {
	return strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\f", "\n"))
}

func lastLine(s string) string {
	const most = 200
	s = cleanOutput(s)
	s = s[strings.LastIndexByte(s, '\n')+1:]
	return strings.ToValidUTF8(s[:min(len(s), most)], "")
}

// isPicture reports whether a file that begins so is a picture tesseract reads; a file's name says nothing. It looks at
// the signature alone: whether the rest is sound is tesseract's to find out.
func isPicture(head []byte) bool {
	signatures := []string{"\x89PNG\r\n\x1a\n", "\xFF\xD8\xFF", "GIF87a", "GIF89a", "BM", "II*\x00", "MM\x00*"}
	return slices.ContainsFunc(signatures, func(s string) bool { return strings.HasPrefix(string(head), s) }) ||
		bytes.HasPrefix(head, []byte("RIFF")) && len(head) >= 12 && string(head[8:12]) == "WEBP"
}

// cappedOutput keeps the first bytes written to it, and calls full when there are more. What comes after is dropped, so
// that the writer is not held up. It is written to by one goroutine at a time.
type cappedOutput struct {
	kept bytes.Buffer // a field, since its ReadFrom would go round the cap
	most int
	full func()
	cut  bool
}

// Write never fails.
func (c *cappedOutput) Write(p []byte) (int, error) {
	keep := min(len(p), c.most-c.kept.Len())
	c.kept.Write(p[:keep])
	if keep < len(p) && !c.cut {
		c.cut = true
		c.full()
	}
	return len(p), nil
}
