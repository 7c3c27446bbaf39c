// Package agentfile reads agents as people write them: the agent.yaml of docs/agent-file.md.
//
// Reading is strict. A file is read completely and every problem is told with its line and key, as FILE:LINE: KEY: got
// X, want Y. Unknown keys, anchors, aliases, tags, merge keys and several documents in one file are refused. Values
// that may be secret are never repeated in a message.
//
// Functions of this package keep no state and are safe for concurrent use.
package agentfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/run"
)

// Options says what surrounds a file. The zero value knows no tools and wants a model.
type Options struct {
	Tools             func(name string) (agent.ToolSpec, bool) // tools that have code, by original name; nil = none
	Registered        []agent.ToolSpec                         // the same tools, to name in messages
	AllowUnknownTools bool                                     // tools need no code: a scenario brings canned ones
	Hooks             hook.Set                                 // the code that agents name beside tools
	// absolute path of the file's folder, which tools' roots are relative to; "" = they stay unset
	Dir string
	// the file's folder, where it is embedded: documents that it names are read there; nil = in Dir
	Files fs.FS
	// provider, id and file may be missing: somebody else chooses the model
	ModelOptional bool
}

// Parse reads an agent.yaml into a resolved and checked definition. name is the file's name, for messages. A non-nil
// error is Problems, sorted by line. With ModelOptional the caller fills Model.Provider and what goes with it, keeps
// the rest of Model, and calls Definition.Check.
func Parse(name string, data []byte, opt Options) (agent.Definition, error) {
	r := newReader(name, opt)
	root, ok := r.tree(data)
	if !ok {
		return agent.Definition{}, r.err()
	}
	d := r.definition(root)
	check := d.Check
	if opt.ModelOptional {
		check = d.CheckWithoutModel
	}
	r.addChecked(opt.Hooks.Check(&d), "")
	r.addChecked(check(), "")
	if err := r.err(); err != nil {
		return agent.Definition{}, err
	}
	return d, nil
}

// addChecked adds what the core found, with the lines of its paths, less what has been told already. strip is what the
// core's paths start with and the file's don't.
func (r *reader) addChecked(err error, strip string) {
	var found agent.Problems
	if !errors.As(err, &found) {
		return
	}
	for _, p := range found {
		path := p.Path[len(strip):]
		if !r.hasProblem(path) {
			r.add(path, p.Text)
		}
	}
}

// Problem is one thing that is wrong with a file.
type Problem struct {
	File string
	Line int    // from 1
	Key  string // full path, as in permission.rules[0].when[1].gt; "" = the file as a whole
	Text string // what was got and what is wanted
}

func (p Problem) Error() string {
	if p.Key == "" {
		return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
	}
	return fmt.Sprintf("%s:%d: %s: %s", p.File, p.Line, p.Key, p.Text)
}

// Problems is everything that is wrong with a file, sorted by line; the first 200 if there are more.
type Problems []Problem

func (ps Problems) Error() string {
	return strings.Join(run.Map(ps, Problem.Error), "\n")
}

// maxProblems is how many are told; a file with more is not an agent.yaml.
const maxProblems = 200

func (r *reader) add(path, text string) { r.addProblem(r.line(path), path, text) }

func (r *reader) addProblem(line int, key, text string) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, Problem{r.file, max(line, 1), key, text})
	}
}

// line is where a path stands, or what it would stand in.
func (r *reader) line(path string) int {
	for path != "" {
		if line, ok := r.lines[path]; ok {
			return line
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return 1
}

// hasProblem reports whether there is a problem already with path, with a part of it or with what contains it.
func (r *reader) hasProblem(path string) bool {
	return slices.ContainsFunc(r.problems, func(p Problem) bool { return isWithin(path, p.Key) || isWithin(p.Key, path) })
}

func isWithin(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || outer == "" || rest[0] == '.' || rest[0] == '[')
}

func (r *reader) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return r.problems
}
