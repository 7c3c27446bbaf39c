package agentfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

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
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
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
