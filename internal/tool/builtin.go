package tool

// This file holds the tools that every definition may name without bringing them: list_directory, read_text, move_file
// and extract_text.
//
// Each call works in the folder that the run's definition names (Call.Root). Nothing leaves it: os.Root resolves every
// path, component by component on open directories, so that neither "..", nor an absolute path, nor a symbolic link,
// nor a directory swapped for a link in mid-call leads out. Symbolic links that stay inside are followed when reading
// and never moved. Pipes, devices and sockets are refused without being opened.
//
// What a model is told is a function of the folder's contents alone, names it by paths relative to the folder, and
// never shows where the folder is. On Windows and other systems os.Root's own documentation says how far the
// confinement holds.

import (
	"context"
	"errors"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// Builtin returns the built-in tools.
//
// list_directory lists a folder, an entry a line, at most 1000 of them. read_text returns up to 256 KiB of a UTF-8
// file. Both say what they left out. move_file moves or renames one file; it never replaces anything and makes no
// folders; it is a Reconciler. extract_text returns the text in a picture.
func Builtin() ([]Tool, error) {
	list, err1 := New("list_directory",
		"Lists a folder, one entry a line: kind (file, folder, link, special), size in bytes (- for "+
			"anything but a file), name.",
		run.EffectRead, inFolder(Root.list), nil)
	read, err2 := New("read_text", "Returns the text of a UTF-8 file, or a part of it.", run.EffectRead,
		inFolder(Root.read), nil)
	move, err3 := New("move_file",
		"Moves or renames one file. Never replaces an existing file and creates no folders.",
		run.EffectNonIdempotent, inFolder(Root.move), &Options[moveInput]{Reconcile: reconcileMove})
	extract, err4 := New("extract_text",
		"Reads the text in a picture (PNG, JPEG, GIF, BMP, TIFF, WebP), such as a screenshot or a scan.",
		run.EffectRead, inFolder(Root.extractText), &Options[extractInput]{Timeout: extractTimeout})
	return []Tool{list, read, move, extract}, errors.Join(err1, err2, err3, err4)
}

// inFolder makes a tool's function of a function that returns text from the call's folder.
func inFolder[In any](
	f func(Root, context.Context, In) (string, error),
) func(context.Context, Call, In) (agent.ToolResultData, error) {
	return func(ctx context.Context, c Call, in In) (agent.ToolResultData, error) {
		r, err := rootOf(c)
		if err != nil {
			return agent.ToolResultData{}, err
		}
		text, err := f(r, ctx, in)
		if err != nil {
			return agent.ToolResultData{}, err
		}
		return Text(text), nil
	}
}
