package tool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/countersign/countersign/internal/agent"
)

type moveInput struct {
	Source      string `json:"source" jsonschema_description:"The file to move or rename, relative to the top folder."`
	Destination string `json:"destination" jsonschema:"description=Its new path and file name relative to the top folder."`
}

// move renames one regular file. Folders and links are refused: a person who approves a call should see what it moves,
// and a relative link means something else elsewhere. The rename is one step of the file system that fails if anything
// is at the destination, and both folders are flushed to the disk before the result is given.
func (r Root) move(ctx context.Context, in moveInput) (string, error) {
	m, err := checkMove(in)
	if err != nil {
		return "", err
	}
	root, err := r.open(m.source, m.destination)
	if err != nil {
		return "", err
	}
	defer root.Close()
	info, err := root.Lstat(m.source)
	if err != nil {
		return "", explainPathError(root, m.source, err)
	}
	if err := wantRegular(m.source, info); err != nil {
		return "", err
	}
	if err := m.rename(ctx, root); err != nil {
		return "", err
	}
	return m.resultText(), nil
}

// movement is a move with clean paths.
type movement struct{ source, destination string }

func checkMove(in moveInput) (movement, error) {
	source, err := checkPath(in.Source)
	if err != nil {
		return movement{}, err
	}
	destination, err := checkPath(in.Destination)
	if err != nil {
		return movement{}, err
	}
	if source == "." || destination == "." {
		return movement{}, Refusef("the top folder itself cannot be moved or replaced")
	}
	if source == destination {
		return movement{}, Refusef("the source and the destination are both %s, there is nothing to move",
			quotePath(source))
	}
	return movement{source: source, destination: destination}, nil
}

// resultText is the result of a move, for the call that made it and for one that finds it done.
func (m movement) resultText() string {
	return fmt.Sprintf("Moved %s to %s.", quotePath(m.source), quotePath(m.destination))
}

// rename works on the two open folders, so a folder swapped for a link meanwhile changes nothing.
func (m movement) rename(ctx context.Context, root *os.Root) error {
	from, err := openDirectory(root, path.Dir(m.source))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := openDirectory(root, path.Dir(m.destination))
	if err != nil {
		return err
	}
	defer to.Close()
	if err := ctx.Err(); err != nil { // nothing has happened yet: the last moment to stop
		return fmt.Errorf("move %s: %w", quotePath(m.source), err)
	}
	err = renameExclusive(from, path.Base(m.source), to, path.Base(m.destination))
	if errors.Is(err, errors.ErrUnsupported) {
		err = linkThenRemove(root, m)
	}
	if err != nil {
		return m.explain(err)
	}
	// Make the move outlive a power failure. Where folders cannot be flushed there is nothing to wait for.
	for _, d := range []*os.File{to, from} {
		err := d.Sync()
		if err == nil || errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) ||
			errors.Is(err, fs.ErrPermission) {
			continue
		}
		return fmt.Errorf("moved %s to %s, but its folder could not be flushed to the disk: %w", quotePath(m.source),
			quotePath(m.destination), withoutPaths(err))
	}
	return nil
}

func (m movement) explain(err error) error {
	switch {
	case errors.As(err, new(Refusal)):
		return err
	case errors.Is(err, fs.ErrExist):
		return Refusef("%s already exists, nothing was moved; the destination is a path with a new file name",
			quotePath(m.destination))
	case errors.Is(err, fs.ErrNotExist):
		return Refusef("%s does not exist", quotePath(m.source))
	case errors.Is(err, fs.ErrPermission):
		return Refusef("moving %s to %s: permission denied", quotePath(m.source), quotePath(m.destination))
	case errors.Is(err, syscall.EXDEV):
		return Refusef("%s and %s are on different disks, a file cannot be moved between them", quotePath(m.source),
			quotePath(m.destination))
	default:
		return fmt.Errorf("move %s to %s: %w", quotePath(m.source), quotePath(m.destination), withoutPaths(err))
	}
}

// linkThenRemove moves a file where the system has no exclusive rename: the link fails if anything is at the
// destination. A crash between the two steps leaves one file under both names, which reconcileMove leaves to a person.
func linkThenRemove(root *os.Root, m movement) error {
	if err := root.Link(m.source, m.destination); err != nil {
		return err
	}
	if err := root.Remove(m.source); err != nil {
		return Refusef("%s is now at %s as well, but could not be removed from its old place: %v", quotePath(m.source),
			quotePath(m.destination), withoutPaths(err))
	}
	return nil
}

// reconcileMove says what became of a move whose claimant died, from what is at its two places now.
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
func reconcileMove(_ context.Context, c Call, in moveInput) (Outcome, agent.ToolResultData, error) {
	var nothing agent.ToolResultData
	m, err := checkMove(in)
	if err != nil { // such a call is refused before it touches anything
		return OutcomeNotDone, nothing, nil
	}
	r, err := rootOf(c)
	if err != nil {
		return OutcomeUnknown, nothing, err
	}
	root, err := r.open()
	if err != nil {
		return OutcomeUnknown, nothing, err
	}
	defer root.Close()
	source, err := statNoFollow(root, m.source)
	if err != nil {
		return OutcomeUnknown, nothing, err
	}
	destination, err := statNoFollow(root, m.destination)
	if err != nil {
		return OutcomeUnknown, nothing, err
	}
	switch {
	case source == nil && destination != nil && destination.Mode().IsRegular():
		return OutcomeDone, Text(m.resultText()), nil
	case source == nil, destination != nil && os.SameFile(source, destination):
		return OutcomeUnknown, nothing, nil
	default:
		return OutcomeNotDone, nothing, nil
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
