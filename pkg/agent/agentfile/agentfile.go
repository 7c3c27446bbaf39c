// Package agentfile reads agents as people write them: the agent.yaml of docs/agent-file.md.
//
// Reading is strict. A file is read completely and every problem is told with its line and key, as FILE:LINE: KEY: got
// X, want Y. Unknown keys, anchors, aliases, tags, merge keys and several documents in one file are refused. Values
// that may be secret are never repeated in a message.
//
// Functions of this package keep no state and are safe for concurrent use.
package agentfile

import (
	"errors"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
)

// Options says what surrounds a file. The zero value knows no tools and wants a model.
type Options struct {
	Tools             func(name string) (agent.ToolSpec, bool) // tools that have code, by original name; nil = none
	Registered        []agent.ToolSpec                         // the same tools, to name in messages
	AllowUnknownTools bool                                     // tools need no code: a scenario brings canned ones
	Hooks             hook.Set                                 // the code that agents name beside tools
	// absolute path of the file's folder, which tools' roots are relative to; "" = they stay unset
	Dir string
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
