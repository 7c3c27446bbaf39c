package builtin

import (
	"context"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// FileTools returns list_directory and read_text (effect read) and move_file (non_idempotent, a tool.Reconciler), confined
// to the folder at root, an absolute path that need not exist yet.
//
// list_directory lists a folder, an entry a line, at most 1000 of them. read_text returns up to 256 KiB of a UTF-8
// file. Both say what they left out. move_file moves or renames one file; it never replaces anything and makes no
// folders.
func FileTools(root string) ([]tool.Tool, error) {
	r, err := NewRoot(root)
	if err != nil {
		return nil, err
	}
	list, err := tool.New("list_directory",
		"Lists a folder, one entry a line: kind (file, folder, link, special), size in bytes (- for anything but a file), name.",
		run.EffectRead, textTool(r.list), nil)
	if err != nil {
		return nil, err
	}
	read, err := tool.New("read_text", "Returns the text of a UTF-8 file, or a part of it.", run.EffectRead, textTool(r.read), nil)
	if err != nil {
		return nil, err
	}
	move, err := tool.New("move_file",
		"Moves or renames one file. Never replaces an existing file and creates no folders.",
		run.EffectNonIdempotent, textTool(r.move), &tool.Options[moveInput]{Reconcile: r.reconcile})
	if err != nil {
		return nil, err
	}
	return []tool.Tool{list, read, move}, nil
}

// textTool makes a tool's function of a function that returns text.
func textTool[In any](f func(context.Context, In) (string, error)) func(context.Context, tool.Call, In) (agent.ToolResultData, error) {
	return func(ctx context.Context, _ tool.Call, in In) (agent.ToolResultData, error) {
		s, err := f(ctx, in)
		if err != nil {
			return agent.ToolResultData{}, err
		}
		return tool.Text(s), nil
	}
}
