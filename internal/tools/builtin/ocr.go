package builtin

// This file has the built-in tool extract_text: the text in a picture, read by tesseract where that is installed.
//
// The picture is opened through files.Root, so it is confined to a folder as the file tools are, recognised by its
// first bytes and handed to tesseract as standard input: no path is ever an argument, no shell is involved, and nothing
// is written.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// Bounds of one call.
const (
	timeout      = time.Minute
	maxPicture   = 20 << 20  // bytes of the file
	maxText      = 256 << 10 // bytes of text returned
	maxComplaint = 4 << 10   // bytes of standard error kept
)

const notInstalled = "Text in pictures cannot be read: tesseract is not installed on this machine. " +
	"To install it: apt-get install tesseract-ocr (Debian, Ubuntu) or brew install tesseract (macOS)."

type input struct {
	Path string `json:"path" jsonschema_description:"The picture to read, relative to the top folder."`
}

// Tool returns extract_text (effect read), confined to the folder at root, an absolute path that need not exist yet.
// tesseract is looked up in PATH at each call; where it is missing the call is answered with an error result that says
// how to install it.
//
// tesseract gets no environment but env, entries of the form NAME=value (TESSDATA_PREFIX, say), and what makes its
// output the same everywhere. A call ends when its context does; tesseract and what it started are killed then.
func Tool(root string, env ...string) (tool.Tool, error) {
	r, err := NewRoot(root)
	if err != nil {
		return nil, err
	}
	o := reader{root: r, env: append([]string{"LC_ALL=C", "OMP_THREAD_LIMIT=1"}, env...)}
	return tool.New("extract_text",
		"Reads the text in a picture (PNG, JPEG, GIF, BMP, TIFF, WebP), such as a screenshot or a scan.",
		run.EffectRead, o.call, &tool.Options[input]{Timeout: timeout})
}

type reader struct {
	root Root
	env  []string
}

func (o reader) call(ctx context.Context, _ tool.Call, in input) (agent.ToolResultData, error) {
	picture, err := o.open(in.Path)
	if err != nil {
		return agent.ToolResultData{}, err
	}
	defer picture.Close()
	program, err := exec.LookPath("tesseract")
	if err != nil {
		return tool.Errorf(notInstalled), nil
	}
	text, err := o.run(ctx, program, picture)
	if err != nil {
		return agent.ToolResultData{}, err
	}
	if text == "" {
		return tool.Text("No text was found in the picture."), nil
	}
	return tool.Text(text), nil
}

// open refuses what tesseract could not read before it is started.
func (o reader) open(name string) (*os.File, error) {
	f, info, err := o.root.OpenFile(name)
	if err != nil {
		return nil, err
	}
	head := make([]byte, sniffed)
	n, err := f.ReadAt(head, 0)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		err = fmt.Errorf("read the beginning of a picture: %w", err)
	case !isPicture(head[:n]):
		err = tool.Refusef("%q is not a picture of a kind that can be read: PNG, JPEG, GIF, BMP, TIFF or WebP", name)
	case info.Size() > maxPicture:
		err = tool.Refusef("%q has %d bytes, pictures of at most %d are read", name, info.Size(), maxPicture)
	default:
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}

// run has tesseract read the picture.
func (o reader) run(ctx context.Context, program string, picture *os.File) (string, error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	text := &capped{most: maxText, full: stop}
	complaint := &capped{most: maxComplaint, full: func() {}}
	cmd := exec.CommandContext(running, program, "stdin", "stdout")
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = picture, text, complaint, o.env
	cmd.WaitDelay = time.Second // for pipes kept open by what tesseract started
	killGroup(cmd)
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("read text of a picture: %w", ctx.Err())
	case text.cut:
		return clean(text.kept.String()) + fmt.Sprintf("\n(only the first %d bytes of the text are shown)", maxText), nil
	case err != nil:
		return "", failure(err, complaint.kept.String())
	default:
		return clean(text.kept.String()), nil
	}
}

// failure words the end of a tesseract that ran and failed for the model; one that did not run is the machine's error.
func failure(err error, complaint string) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("run tesseract: %w", err)
	}
	if line := lastLine(complaint); line != "" {
		return tool.Refusef("tesseract could not read the picture (%s): %q", exit.ProcessState, line)
	}
	return tool.Refusef("tesseract could not read the picture (%s)", exit.ProcessState)
}

// clean leaves out page breaks and the empty space around the text.
func clean(s string) string {
	return strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\f", "\n"))
}

func lastLine(s string) string {
	const most = 200
	s = clean(s)
	s = s[strings.LastIndexByte(s, '\n')+1:]
	return strings.ToValidUTF8(s[:min(len(s), most)], "")
}

// sniffed is how many bytes isPicture looks at.
const sniffed = 16

// isPicture reports whether a file that begins so is a picture tesseract reads; a file's name says nothing. It looks at
// the signature alone: whether the rest is sound is tesseract's to find out.
func isPicture(head []byte) bool {
	for _, signature := range []string{"\x89PNG\r\n\x1a\n", "\xFF\xD8\xFF", "GIF87a", "GIF89a", "BM", "II*\x00",
		"MM\x00*"} {
		if strings.HasPrefix(string(head), signature) {
			return true
		}
	}
	return bytes.HasPrefix(head, []byte("RIFF")) && len(head) >= 12 && string(head[8:12]) == "WEBP"
}
