package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// The files of an archive.
const (
	agentFile     = "agent.yaml"
	inputFile     = "input.json"
	thenFile      = "then.json"
	toolsFile     = "tools.yaml"
	mcpFile       = "mcp.yaml"
	modelFile     = "model.jsonl"
	peopleFile    = "people.jsonl"
	directoryFile = "people.yaml"
	wantFile      = "want.json"
	nowFile       = "now.yaml" // agent.yaml as it is deployed from a line deploy on; tools are those of tools.yaml
)

var allFiles = []string{agentFile, inputFile, thenFile, toolsFile, mcpFile, modelFile, peopleFile, directoryFile, wantFile, nowFile}

// agentsFolder holds, by name, the files of the other agents.
const agentsFolder = "agents/"

var delegateFiles = []string{agentFile, toolsFile, modelFile}

// delegateOf is the name of the agent whose file that is; "" = it is none.
func delegateOf(name string) string {
	rest, ok := strings.CutPrefix(name, agentsFolder)
	of, file, found := strings.Cut(rest, "/")
	if !ok || !found || of == "" || !slices.Contains(delegateFiles, file) {
		return ""
	}
	return of
}

// delegateNames are the names of the other agents that have files, sorted.
func delegateNames(files map[string]section) []string {
	var names []string
	for name := range files {
		if of := delegateOf(name); of != "" && !slices.Contains(names, of) {
			names = append(names, of)
		}
	}
	slices.Sort(names)
	return names
}

var requiredFiles = []string{agentFile, inputFile, modelFile, wantFile}

// section is one file of the archive. Lines are counted in the archive, because that is what people have open.
type section struct {
	archive string
	before  int // lines of the archive before its first
	data    []byte
}

// padded is the content behind as many empty lines as the archive has before it: its readers then count the archive's lines.
func (s section) padded() []byte {
	return append(bytes.Repeat([]byte("\n"), s.before), s.data...)
}

// problem is one that stands in the section's n-th line, from 0.
func (s section) problem(n int, key, text string) agentfile.Problem {
	return agentfile.Problem{File: s.archive, Line: s.before + n + 1, Key: key, Text: text}
}

// lineOf is the section's line, from 0, in which the key first stands; 0 where it does not.
func (s section) lineOf(key string) int {
	i := bytes.Index(s.data, fmt.Appendf(nil, "%q", key))
	if i < 0 {
		return 0
	}
	return bytes.Count(s.data[:i], []byte("\n"))
}

// problems collects what is wrong with an archive.
type problems struct{ found []error }

func (ps *problems) add(err error) {
	if err != nil {
		ps.found = append(ps.found, err)
	}
}

func (ps *problems) err() error { return errors.Join(ps.found...) }

// openArchive splits the archive and finds the files that should not be there, and those that should.
func openArchive(name string, data []byte, ps *problems) (promise string, files map[string]section) {
	a := txtar.Parse(data)
	files = map[string]section{}
	line := bytes.Count(a.Comment, []byte("\n"))
	for _, f := range a.Files {
		s := section{archive: name, before: line + 1, data: f.Data}
		marker := agentfile.Problem{File: name, Line: line + 1, Key: f.Name}
		_, twice := files[f.Name]
		switch {
		case !slices.Contains(allFiles, f.Name) && delegateOf(f.Name) == "":
			marker.Text = "got an unknown file, want one of " + strings.Join(allFiles, ", ") + ", or agents/NAME/ with one of " + strings.Join(delegateFiles, ", ")
			ps.add(marker)
		case twice:
			marker.Text = "got the file a second time, want it once"
			ps.add(marker)
		default:
			files[f.Name] = s
		}
		line += 1 + bytes.Count(f.Data, []byte("\n"))
	}
	for _, f := range requiredFiles {
		if _, ok := files[f]; !ok {
			ps.add(agentfile.Problem{File: name, Line: 1, Key: f, Text: "got no such file, want it"})
		}
	}
	return strings.TrimSpace(string(a.Comment)), files
}
