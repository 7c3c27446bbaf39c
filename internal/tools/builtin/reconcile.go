package builtin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/tool"
)

// reconcile says what became of a move whose claimant died, from what is at its two places now.
//
//	source             destination    answer
//	nothing            a file         done: what the call was to bring about is so, and it could do nothing more
//	there              nothing        not_done: the rename is one step, and would have taken the source away
//	there              there          not_done: the same; run again, it finds the destination taken and moves nothing
//	the same file at both             unknown: half of a link-then-remove, or two names it always had
//	nothing            nothing        unknown: moved and taken further, or never there
//	nothing            no plain file  unknown: not what this tool leaves behind
//	a place cannot be looked at       unknown
//
// The evidence is about the folder, not about who acted: done can be another's work, and not_done a file put back
// since. Both answers are given only where that makes no difference: after done nothing is run, and a run after
// not_done replaces nothing and moves only the file that is at the source now. Like every Reconciler it trusts that the
// claimant is dead: one that is only slow may still rename, and the second of the two then hears that the source is
// gone.
func (r Root) reconcile(_ context.Context, _ tool.Call, in moveInput) (tool.Outcome, agent.ToolResultData, error) {
	var nothing agent.ToolResultData
	m, err := checkMove(in)
	if err != nil { // such a call is refused before it touches anything
		return tool.OutcomeNotDone, nothing, nil
	}
	root, err := r.open()
	if err != nil {
		return tool.OutcomeUnknown, nothing, err
	}
	defer root.Close()
	source, err := statNoFollow(root, m.source)
	if err != nil {
		return tool.OutcomeUnknown, nothing, err
	}
	destination, err := statNoFollow(root, m.destination)
	if err != nil {
		return tool.OutcomeUnknown, nothing, err
	}
	outcome := moveOutcome(source, destination)
	if outcome == tool.OutcomeDone {
		return outcome, tool.Text(m.resultText()), nil
	}
	return outcome, nothing, nil
}

// moveOutcome returns the outcome by the table above; nil means that the file does not exist.
func moveOutcome(source, destination fs.FileInfo) tool.Outcome {
	switch {
	case source == nil && destination != nil && destination.Mode().IsRegular():
		return tool.OutcomeDone
	case source == nil:
		return tool.OutcomeUnknown
	case destination != nil && os.SameFile(source, destination):
		return tool.OutcomeUnknown
	default:
		return tool.OutcomeNotDone
	}
}

// statNoFollow returns the file at p without following links, or nil if there is none.
func statNoFollow(root *os.Root, p string) (fs.FileInfo, error) {
	info, err := root.Lstat(p)
	switch {
	case err == nil:
		return info, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	default:
		return nil, fmt.Errorf("look at %s: %w", quotePath(p), withoutPaths(err))
	}
}
