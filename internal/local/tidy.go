package local

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// tidying is the job of agents/screenshots: look through a folder, find out what each file is about, and rename it.
var tidying = job{"screenshots", []string{listTool, readTool, ocrTool, moveTool}, tidyJob}

// the tools the job takes, by their model-facing names.
const (
	listTool = "list_directory"
	readTool = "read_text"
	ocrTool  = "extract_text"
	moveTool = "move_file"
)

// file is what the conversation says of one file.
type file struct {
	name    string
	read    bool   // somebody looked into it
	text    string // what was found; empty = it could not be read
	moved   bool
	newName string // where it is now
	left    string // why it was left as it was
}

// demoStory is the job as far as the conversation has come.
type demoStory struct {
	listed  bool
	problem string
	files   []*file
}

func (s *demoStory) find(name string) *file {
	for _, f := range s.files {
		if f.name == name {
			return f
		}
	}
	return &file{}
}

// readTurn follows the conversation: every call together with its result.
func readTurn(messages []run.Message) *demoStory {
	s := &demoStory{}
	calls := map[string]run.ToolUse{}
	for _, m := range messages {
		switch b := m.Block.(type) {
		case run.ToolUse:
			calls[b.ID] = b
		case run.ToolResult:
			s.learn(calls[b.ID], b)
		}
	}
	return s
}

// arguments are those of all four tools.
type arguments struct {
	Path        string `json:"path,omitempty"`
	Source      string `json:"source,omitempty"`
	Destination string `json:"destination,omitempty"`
}

func (s *demoStory) learn(call run.ToolUse, r run.ToolResult) {
	var args arguments
	if json.Unmarshal(call.Input, &args) != nil {
		return
	}
	switch call.Name {
	case listTool:
		s.listed = true
		if r.IsError {
			s.problem = r.Content
			return
		}
		s.files = listing(r.Content)
	case readTool, ocrTool:
		f := s.find(args.Path)
		f.read = true
		if r.IsError {
			f.left = firstLine(r.Content)
			return
		}
		f.text = r.Content
	case moveTool:
		f := s.find(args.Source)
		if r.IsError {
			f.left = firstLine(r.Content)
			return
		}
		f.moved, f.newName = true, args.Destination
		if _, edited, ok := strings.Cut(r.Content, "It ran with: "); ok { // a person chose another name
			var ran arguments
			if json.Unmarshal([]byte(firstLine(edited)), &ran) == nil {
				f.newName = ran.Destination
			}
		}
	}
}

// listing reads the lines of list_directory: kind, size, name; or, of a file server, [FILE] and the name.
func listing(text string) []*file {
	var files []*file
	for _, line := range strings.Split(text, "\n") {
		if name, ok := strings.CutPrefix(line, "[FILE] "); ok {
			files = append(files, &file{name: name})
			continue
		}
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		_, name, ok := strings.Cut(strings.TrimSpace(rest), " ")
		if kind == "file" && ok {
			files = append(files, &file{name: strings.TrimSpace(name)})
		}
	}
	return files
}

func tidyJob(r agent.Request) agent.Reply {
	s := readTurn(r.Messages)
	if !offers(r, ocrTool) {
		s.leavePictures()
	}
	return decide(s)
}

// leavePictures leaves the pictures that nobody has looked into, for the reason that the last one could not be read:
// their reader is offered no more.
func (s *demoStory) leavePictures() {
	why := ocrTool + " is not offered any more"
	for _, f := range s.files {
		if f.left != "" && reader(f.name) == ocrTool {
			why = f.left
		}
	}
	for _, f := range s.files {
		if !f.read && reader(f.name) == ocrTool {
			f.left = why
		}
	}
}

// decide is the next call: list, then for each file look into it and rename it, then say what was done.
func decide(s *demoStory) agent.Reply {
	if !s.listed {
		return call(Hello+" I will look at the folder first.", listTool, arguments{Path: "."})
	}
	if s.problem != "" {
		return agent.Reply{Text: "I could not list the folder: " + s.problem}
	}
	taken := map[string]bool{}
	for _, f := range s.files {
		taken[f.name] = true
		taken[f.newName] = true
	}
	for _, f := range s.files {
		switch {
		case f.moved || f.left != "":
		case !f.read:
			return call("", reader(f.name), arguments{Path: f.name})
		default:
			if to := title(f.text, f.name, taken); to != f.name {
				return call("", moveTool, arguments{Source: f.name, Destination: to})
			}
		}
	}
	return agent.Reply{Text: summary(s.files)}
}

// reader is the tool that can look into the file.
func reader(name string) string {
	switch strings.ToLower(path.Ext(name)) {
	case ".png", ".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff", ".bmp":
		return ocrTool
	default:
		return readTool
	}
}

// titleWords is how many words a new name has at most.
const titleWords = 5

// title makes a name of the first words of the text: those of its first line, and of more lines while it has fewer than
// two. A text without words keeps its name; a name that is taken gets a number.
func title(text, old string, taken map[string]bool) string {
	var words []string
	for _, line := range strings.Split(text, "\n") {
		if len(words) >= 2 {
			break
		}
		words = append(words, wordsOf(line)...)
	}
	if len(words) == 0 {
		return old
	}
	base := strings.Join(words[:min(len(words), titleWords)], "_")
	ext := strings.ToLower(path.Ext(old))
	name := base + ext
	for n := 2; taken[name] && name != old; n++ {
		name = fmt.Sprintf("%s_%d%s", base, n, ext)
	}
	return name
}

// wordsOf are the words of three letters or more, in lower case; what a picture's reader makes of window buttons is not
// one.
func wordsOf(line string) []string {
	line = strings.ReplaceAll(strings.ReplaceAll(line, "'", ""), "’", "")
	var out []string
	for _, w := range strings.FieldsFunc(line, func(c rune) bool { return !unicode.IsLetter(c) }) {
		if w = strings.ToLower(w); len([]rune(w)) >= 3 && strings.Trim(w, w[:1]) != "" {
			out = append(out, w)
		}
	}
	return out
}

func summary(files []*file) string {
	var done, left []string
	for _, f := range files {
		switch {
		case f.moved:
			done = append(done, f.name+" is now "+f.newName)
		case f.left != "":
			left = append(left, f.name+" ("+f.left+")")
		}
	}
	text := fmt.Sprintf("I looked through %d files and renamed %d.", len(files), len(done))
	if len(done) > 0 {
		text += "\n- " + strings.Join(done, "\n- ")
	}
	if len(left) > 0 {
		text += "\nLeft as they are:\n- " + strings.Join(left, "\n- ")
	}
	return text
}

// tidyingServed is the job of agents/screenshots-mcp: the same one, where an MCP server has the files.
var tidyingServed = job{"screenshots-mcp", []string{served[listTool], served[readTool], ocrTool, served[moveTool]},
	func(r agent.Request) agent.Reply {
		r.Messages = asBuiltIn(r.Messages)
		reply := tidyJob(r)
		for i, c := range reply.Calls {
			if name, ok := served[c.Name]; ok {
				reply.Calls[i].Name = name
			}
		}
		return reply
	}}

// served are the server's tools, by those that do the same and are built in.
var served = map[string]string{listTool: "files_list_directory", readTool: "files_read_text_file",
	moveTool: "files_move_file"}

// asBuiltIn is the conversation as if the built-in tools had been called.
func asBuiltIn(messages []run.Message) []run.Message {
	out := slices.Clone(messages)
	for i, m := range out {
		use, ok := m.Block.(run.ToolUse)
		for name, at := range served {
			if ok && use.Name == at {
				use.Name = name
				out[i].Block = use
				break
			}
		}
	}
	return out
}
