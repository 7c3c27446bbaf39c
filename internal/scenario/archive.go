package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// The files of an archive.
const (
	agentFile     = "agent.yaml"
	pinnedFile    = "agent.json" // in place of agent.yaml: the definition as a run was pinned to it
	inputFile     = "input.json"
	thenFile      = "then.json"
	toolsFile     = "tools.yaml"
	mcpFile       = "mcp.yaml"
	modelFile     = "model.jsonl"
	peopleFile    = "people.jsonl"
	directoryFile = "people.yaml"
	wantFile      = "want.json"
	nowFile       = "now.yaml" // agent.yaml after a line deploy; the tools stay those of tools.yaml
)

var allFiles = []string{agentFile, pinnedFile, inputFile, thenFile, toolsFile, mcpFile, modelFile, peopleFile,
	directoryFile, wantFile, nowFile}

// agentsFolder holds the files of the other agents, by name.
const agentsFolder = "agents/"

var delegateFiles = []string{agentFile, pinnedFile, toolsFile, modelFile}

// delegateOf returns the folder of a file below agents/: NAME, or NAME/CALL of what another run of that agent, which
// carries out the call, has of its own; "" = another file.
func delegateOf(name string) string {
	rest, ok := strings.CutPrefix(name, agentsFolder)
	of, file := path.Split(rest)
	of = strings.TrimSuffix(of, "/")
	switch strings.Count(of, "/") {
	case 0:
		ok = ok && slices.Contains(delegateFiles, file)
	case 1:
		ok = ok && (file == toolsFile || file == modelFile)
	default:
		ok = false
	}
	if !ok {
		return ""
	}
	return of
}

var requiredFiles = []string{agentFile, inputFile, modelFile, wantFile}

// section is one file of the archive. Line numbers are those of the archive, since that is the file that people edit.
type section struct {
	archive string
	before  int // lines of the archive before its first
	data    []byte
	pinned  bool // it is agent.json
}

// padded returns the content behind as many empty lines as precede it in the archive, so that parsers report the
// archive's lines.
func (s section) padded() []byte {
	return append(bytes.Repeat([]byte("\n"), s.before), s.data...)
}

// problem returns a problem in the section's n-th line, from 0.
func (s section) problem(n int, key, text string) agentfile.Problem {
	return agentfile.Problem{File: s.archive, Line: s.before + n + 1, Key: key, Text: text}
}

// lineOf returns the line, from 0, of the first occurrence of a key; 0 if there is none.
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

// openArchive splits the archive and reports unknown, repeated and missing files.
func openArchive(name string, data []byte, ps *problems) (description string, files map[string]section) {
	a := txtar.Parse(data)
	files = map[string]section{}
	line := bytes.Count(a.Comment, []byte("\n"))
	for _, f := range a.Files {
		s := section{archive: name, before: line + 1, data: f.Data}
		marker := agentfile.Problem{File: name, Line: line + 1, Key: f.Name}
		key := f.Name
		if in, ok := strings.CutSuffix(f.Name, pinnedFile); ok && (in == "" || strings.HasSuffix(in, "/")) {
			key, s.pinned = in+agentFile, true
		}
		_, twice := files[key]
		switch {
		case !slices.Contains(allFiles, f.Name) && delegateOf(f.Name) == "":
			marker.Text = "got an unknown file, want one of " + strings.Join(allFiles, ", ") + ", or agents/NAME/ with one of " +
				strings.Join(delegateFiles, ", ")
			ps.add(marker)
		case twice:
			marker.Text = "got the file a second time, want it once"
			ps.add(marker)
		default:
			files[key] = s
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

// decode decodes JSON that begins in the section's n-th line. Unknown and repeated keys are problems.
func (s section) decode(data []byte, n int, v any) *agentfile.Problem {
	err := jsonx.DecodeStrict(data, v)
	if err == nil {
		return nil
	}
	var where *jsonx.JSONError
	if !errors.As(err, &where) {
		p := s.problem(n, "", err.Error())
		return &p
	}
	key := strings.ReplaceAll(strings.TrimPrefix(where.Pointer, "/"), "/", ".") // the key path of a JSON Pointer
	if where.Offset > 0 && where.Offset <= len(data) {
		n += bytes.Count(data[:where.Offset], []byte("\n"))
	} else {
		n += section{data: data}.lineOf(key[strings.LastIndex(key, ".")+1:])
	}
	p := s.problem(n, key, "want "+where.Want)
	return &p
}

// decodeItem decodes an element of a YAML list. A problem has the element's line and the path of the key.
func decodeItem(archive string, item agentfile.Value, v any, ps *problems) bool {
	p := section{}.decode(item.JSON, 0, v)
	if p != nil {
		ps.add(agentfile.Problem{File: archive, Line: item.Line, Key: joinPath(item.Key, p.Key), Text: p.Text})
	}
	return p == nil
}

// isNull reports whether a value is missing or null.
func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// textOf returns the text of a string, and any other value as compact JSON.
func textOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil && !isNull(raw) {
		return s
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return string(raw)
	}
	return b.String()
}
