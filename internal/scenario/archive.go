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
	files := delegateFiles
	if strings.Contains(of, "/") {
		files = []string{toolsFile, modelFile}
	}
	if !ok || strings.Count(of, "/") > 1 || !slices.Contains(files, file) {
		return ""
	}
	return of
}

var requiredFiles = []string{agentFile, inputFile, modelFile, wantFile}

// section is one file of the archive. Line numbers are those of the archive, since that is the file that people edit.
type section struct {
	*problems
	before int // lines of the archive before its first
	data   []byte
	pinned bool // it is agent.json
}

// padded returns the content behind as many empty lines as precede it in the archive, so that parsers report the
// archive's lines.
func (s section) padded() []byte {
	return append(bytes.Repeat([]byte("\n"), s.before), s.data...)
}

// bad reports a problem with a key, at its first occurrence in the section, else in the first line.
func (s section) bad(key, format string, args ...any) {
	s.at(s.before+lineOf(s.data, key)+1, key, format, args...)
}

// lineOf returns the line, from 0, of the first occurrence of the last key of a path; 0 if there is none.
func lineOf(data []byte, path string) int {
	i := bytes.Index(data, fmt.Appendf(nil, "%q", path[strings.LastIndex(path, ".")+1:]))
	if i < 0 || path == "" {
		return 0
	}
	return bytes.Count(data[:i], []byte("\n"))
}

type problems struct {
	archive string
	found   []error
}

func (ps *problems) add(err error) {
	if err != nil {
		ps.found = append(ps.found, err)
	}
}

// at adds a problem in a line of the archive, from 1.
func (ps *problems) at(line int, key, format string, args ...any) {
	ps.add(agentfile.Problem{File: ps.archive, Line: line, Key: key, Text: fmt.Sprintf(format, args...)})
}

func (ps *problems) err() error { return errors.Join(ps.found...) }

// openArchive splits the archive and reports unknown, repeated and missing files.
func (ps *problems) openArchive(data []byte) (description string, files map[string]section) {
	a := txtar.Parse(data)
	files = map[string]section{}
	line := bytes.Count(a.Comment, []byte("\n"))
	for _, f := range a.Files {
		s := section{problems: ps, before: line + 1, data: f.Data}
		key := f.Name
		if in, ok := strings.CutSuffix(f.Name, pinnedFile); ok && (in == "" || strings.HasSuffix(in, "/")) {
			key, s.pinned = in+agentFile, true
		}
		_, twice := files[key]
		switch {
		case !slices.Contains(allFiles, f.Name) && delegateOf(f.Name) == "":
			ps.at(line+1, f.Name, "got an unknown file, want one of %s, or agents/NAME/ with one of %s",
				strings.Join(allFiles, ", "), strings.Join(delegateFiles, ", "))
		case twice:
			ps.at(line+1, f.Name, "got the file a second time, want it once")
		default:
			files[key] = s
		}
		line += 1 + bytes.Count(f.Data, []byte("\n"))
	}
	for _, f := range requiredFiles {
		if _, ok := files[f]; !ok {
			ps.at(1, f, "got no such file, want it behind a line -- %s --", f)
		}
	}
	return strings.TrimSpace(string(a.Comment)), files
}

// decodeLine decodes JSON that begins in the section's n-th line.
func (s section) decodeLine(data []byte, n int, v any) bool {
	line, key, text := decodeStrict(data, v)
	if text != "" {
		s.at(s.before+n+line+1, key, "%s", text)
	}
	return text == ""
}

// decodeItem decodes an element of a YAML list. A problem has the element's line and the path of the key.
func (ps *problems) decodeItem(item agentfile.Value, v any) bool {
	_, key, text := decodeStrict(item.JSON, v)
	if text != "" {
		ps.at(item.Line, joinPath(item.Key, key), "%s", text)
	}
	return text == ""
}

// decodeStrict decodes JSON. Unknown and repeated keys are problems. text describes the problem, if there is one; line,
// from 0, and key say where it is.
func decodeStrict(data []byte, v any) (line int, key, text string) {
	err := jsonx.DecodeStrict(data, v)
	if err == nil {
		return 0, "", ""
	}
	where, ok := errors.AsType[*jsonx.JSONError](err)
	if !ok {
		return 0, "", err.Error()
	}
	key = strings.ReplaceAll(strings.TrimPrefix(where.Pointer, "/"), "/", ".") // the key path of a JSON Pointer
	if where.Offset > 0 && where.Offset <= len(data) {
		return bytes.Count(data[:where.Offset], []byte("\n")), key, "want " + where.Want
	}
	return lineOf(data, key), key, "want " + where.Want
}

func joinPath(path, key string) string { return strings.TrimSuffix(path+"."+key, ".") }

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
