package local

// This file is a stand-in for a model: small deterministic programs that really read the conversation they are
// sent and decide the next call from it. It lets the demo and the first steps of README.md run without a model or a
// network, says in every first text that it is no model, and knows two jobs: tidying a folder (agents/screenshots, with
// or without MCP) and refunding (agents/refunds).

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// Hello is how the first text of each conversation begins.
const Hello = "I am the demo's stand-in, a small program and no model."

// DemoModel answers by rule. The zero Model is ready and safe for concurrent use.
type DemoModel struct{}

// job is one thing that the stand-in can do, by the conversation alone, so that a run picked up by another process goes
// on where it was.
type job struct {
	tools  []string // that it takes, by their model-facing names
	decide func(agent.Request) agent.Reply
}

// jobs are looked through in this order: who has the tools of the last one may have those of an earlier one, too.
var jobs = []job{tidying, tidyingServed, refunding}

// Generate decides the next call. A request without the tools of any job is refused.
func (DemoModel) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	if err := ctx.Err(); err != nil {
		return agent.Reply{}, err
	}
	i := jobOf(r)
	if i < 0 {
		return agent.Reply{}, &agent.ModelError{Class: agent.ModelInvalid, Model: "stand-in", Message: "the demo model " +
			"plays the agents screenshots, screenshots-mcp and refunds alone; for others use --model openai:MODEL[@BASE_URL] " +
			"or bedrock:MODEL_ID"}
	}
	reply := jobs[i].decide(r)
	reply.Model, reply.StopReason = "stand-in", "end_turn"
	reply.Usage = run.Usage{Input: int64(len(r.Messages)) * 20, Output: 20}
	return reply, nil
}

// DemoPlays reports whether the demo model knows the job of the agent that asks.
func DemoPlays(r agent.Request) bool { return jobOf(r) >= 0 }

// jobOf returns the place of the agent's job; -1 = it has none. An agent has a job's tools where it has every one. A
// tool that was called before counts although it is not offered: a guard withdraws one that fails too often.
func jobOf(r agent.Request) int {
	return slices.IndexFunc(jobs, func(j job) bool {
		return !slices.ContainsFunc(j.tools, func(tool string) bool {
			return !offers(r, tool) && !slices.ContainsFunc(r.Messages, func(m run.Message) bool {
				use, ok := m.Block.(run.ToolUse)
				return ok && use.Name == tool
			})
		})
	})
}

func offers(r agent.Request, tool string) bool {
	return slices.ContainsFunc(r.Tools, func(t agent.ToolSpec) bool { return t.ModelName() == tool })
}

func call(text, name string, args any) agent.Reply {
	input, err := json.Marshal(args)
	if err != nil {
		return agent.Reply{Text: "I could not write the call: " + err.Error()}
	}
	return agent.Reply{Text: text, Calls: []agent.ReplyCall{{Name: name, Input: input}}}
}

// answer is a call and what came of it.
type answer struct {
	tool    string // model-facing
	input   json.RawMessage
	content string
	failed  bool
}

// answers returns the calls of a conversation that have a result, in order.
func answers(messages []run.Message) (all []answer) {
	calls := map[string]run.ToolUse{}
	for _, m := range messages {
		switch b := m.Block.(type) {
		case run.ToolUse:
			calls[b.ID] = b
		case run.ToolResult:
			c := calls[b.ID]
			all = append(all, answer{c.Name, c.Input, b.Content, b.IsError})
		}
	}
	return all
}

func last(all []answer, tool string) (answer, bool) {
	for _, a := range slices.Backward(all) {
		if a.tool == tool {
			return a, true
		}
	}
	return answer{}, false
}

// asked returns the text that the conversation begins with.
func asked(messages []run.Message) string {
	for _, m := range messages {
		if t, ok := m.Block.(run.Text); ok && m.Role == run.RoleUser {
			return t.Text
		}
	}
	return ""
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// refunding is the job of agents/refunds: look the order up that a customer names, and refund what they ask for, or all
// of it.
var refunding = job{[]string{orderTool, refundTool}, refund}

const (
	orderTool  = "orders_get"
	refundTool = "refunds_create"
)

var (
	orderNumber = regexp.MustCompile(`(?i)order\s+(?:no\.?\s*)?(\d+)`)
	wantedBack  = regexp.MustCompile(`(?i)refund\s+(\d+(?:\.\d+)?)`)
)

func refund(r agent.Request) agent.Reply {
	message, all := asked(r.Messages), answers(r.Messages)
	number := orderNumber.FindStringSubmatch(message)
	if number == nil {
		return agent.Reply{Text: Hello + " I look for \"order\" and its number in what you say, and there is none."}
	}
	order, looked := last(all, orderTool)
	if !looked {
		return call(Hello+" I will look order "+number[1]+" up.", orderTool, map[string]string{"order": number[1]})
	}
	var found struct {
		Item string      `json:"item"`
		Paid json.Number `json:"paid"`
	}
	if order.failed || json.Unmarshal([]byte(order.content), &found) != nil {
		return agent.Reply{Text: "I could not look the order up: " + firstLine(order.content)}
	}
	paid, tried := last(all, refundTool)
	switch {
	case !tried:
		return call("", refundTool, map[string]any{"order": number[1], "amount": owed(message, found.Paid),
			"reason": firstLine(message)})
	case paid.failed:
		return agent.Reply{Text: "I am sorry: the refund for your " + strings.ToLower(found.Item) + " was not made. " +
			firstLine(paid.content)}
	default:
		return agent.Reply{Text: "Your refund is on its way: " + paid.content}
	}
}

// owed returns the amount of "refund 20" if it is no more than was paid, and else all that was paid.
func owed(message string, paid json.Number) json.Number {
	m := wantedBack.FindStringSubmatch(message)
	if m == nil {
		return paid
	}
	want, _ := new(big.Rat).SetString(m[1])
	all, ok := new(big.Rat).SetString(paid.String())
	if !ok || want.Cmp(all) > 0 {
		return paid
	}
	return json.Number(m[1])
}

// tidying is the job of agents/screenshots: look through a folder, find out what each file is about, and rename it.
var tidying = job{[]string{listTool, readTool, ocrTool, moveTool}, tidyFolder}

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

// arguments are those of all four tools.
type arguments struct {
	Path        string `json:"path,omitempty"`
	Source      string `json:"source,omitempty"`
	Destination string `json:"destination,omitempty"`
}

// learn returns what the conversation says about the files of the folder. listed is false before the folder was listed.
// problem says why it could not be listed.
func learn(messages []run.Message) (files []*file, listed bool, problem string) {
	for _, a := range answers(messages) {
		var args arguments
		if json.Unmarshal(a.input, &args) != nil {
			continue
		}
		f := &file{} // of another folder
		name := cmp.Or(args.Source, args.Path)
		if i := slices.IndexFunc(files, func(f *file) bool { return f.name == name }); i >= 0 {
			f = files[i]
		}
		switch a.tool {
		case listTool:
			listed = true
			if a.failed {
				problem = a.content
			} else {
				files = listing(a.content)
			}
		case readTool, ocrTool:
			f.read = true
			if a.failed {
				f.left = firstLine(a.content)
			} else {
				f.text = a.content
			}
		case moveTool:
			if a.failed {
				f.left = firstLine(a.content)
				continue
			}
			f.moved, f.newName = true, args.Destination
			if _, edited, ok := strings.Cut(a.content, "It ran with: "); ok { // a person chose another name
				var ran arguments
				if json.Unmarshal([]byte(firstLine(edited)), &ran) == nil {
					f.newName = ran.Destination
				}
			}
		}
	}
	return files, listed, problem
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

// tidyFolder returns the next call: list, then look into each file and rename it, then say what was done.
func tidyFolder(r agent.Request) agent.Reply {
	files, listed, problem := learn(r.Messages)
	switch {
	case !listed:
		return call(Hello+" I will look at the folder first.", listTool, arguments{Path: "."})
	case problem != "":
		return agent.Reply{Text: "I could not list the folder: " + problem}
	case !offers(r, ocrTool): // pictures that are not read yet are left, for the reason of the last one
		why := ocrTool + " is not offered any more"
		for _, f := range files {
			if f.left != "" && reader(f.name) == ocrTool {
				why = f.left
			}
		}
		for _, f := range files {
			if !f.read && reader(f.name) == ocrTool {
				f.left = why
			}
		}
	}
	taken := map[string]bool{}
	for _, f := range files {
		taken[f.name], taken[f.newName] = true, true
	}
	for _, f := range files {
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
	return agent.Reply{Text: summary(files)}
}

// reader returns the tool that can look into the file.
func reader(name string) string {
	switch strings.ToLower(path.Ext(name)) {
	case ".png", ".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff", ".bmp":
		return ocrTool
	default:
		return readTool
	}
}

// title makes a name of the first five words of the text: those of its first line, and of more lines while it has fewer
// than two. A word has three letters or more; what a picture's reader makes of window buttons is none. A text without
// words keeps its name; a name that is taken gets a number.
func title(text, old string, taken map[string]bool) string {
	var words []string
	for line := range strings.SplitSeq(strings.NewReplacer("'", "", "’", "").Replace(text), "\n") {
		if len(words) >= 2 {
			break
		}
		for _, w := range strings.FieldsFunc(line, func(c rune) bool { return !unicode.IsLetter(c) }) {
			if w = strings.ToLower(w); len([]rune(w)) >= 3 && strings.Trim(w, w[:1]) != "" {
				words = append(words, w)
			}
		}
	}
	if len(words) == 0 {
		return old
	}
	base := strings.Join(words[:min(len(words), 5)], "_")
	ext := strings.ToLower(path.Ext(old))
	name := base + ext
	for n := 2; taken[name] && name != old; n++ {
		name = fmt.Sprintf("%s_%d%s", base, n, ext)
	}
	return name
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
	if len(files) == 1 {
		text = fmt.Sprintf("I looked through 1 file and renamed %d.", len(done))
	}
	if len(done) > 0 {
		text += "\n- " + strings.Join(done, "\n- ")
	}
	if len(left) > 0 {
		text += "\nLeft as they are:\n- " + strings.Join(left, "\n- ")
	}
	return text
}

// tidyingServed is the job of agents/screenshots-mcp: the same one, where an MCP server has the files. It goes by the
// conversation as if the built-in tools had been called.
var tidyingServed = job{[]string{served[listTool], served[readTool], ocrTool, served[moveTool]},
	func(r agent.Request) agent.Reply {
		r.Messages = slices.Clone(r.Messages)
		for i, m := range r.Messages {
			use, _ := m.Block.(run.ToolUse)
			for name, at := range served {
				if use.Name == at {
					use.Name = name
					r.Messages[i].Block = use
					break
				}
			}
		}
		reply := tidyFolder(r)
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
