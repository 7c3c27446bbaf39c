package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/template/parse"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// SystemData is what a system text may show of its run, besides the definition.
type SystemData struct {
	Date string // the run's first day in UTC, 2006-01-02
	// the moment of this inference, RFC 3339 in UTC; "" = the text is built once, and .Now is an error
	Now          string
	Run          string          // the run's id
	Caller       string          // the agent that delegated the run; "" = nobody did
	Input        json.RawMessage // checked JSON; nil = the run started from a message, and .Input is an error
	Interactions run.Interactions
	Exhausted    bool
}

// RenderSystem builds the system text of a run: a Template over .Date, .Run, .Agent, .Caller (the agent that delegated
// the run; empty where nobody did), .Input (numbers keep their digits), .Tools (Name as the model knows it,
// Description), .Interactions (Current, Max, Exhausted) and, where the text is built for every inference, .Now. A
// missing key is an error.
func RenderSystem(d Definition, data SystemData) (string, error) {
	dot, err := systemDot(d, data)
	if err != nil {
		return "", fmt.Errorf("render system text of %s: input: %w", d.Name, err)
	}
	return d.render("system text", "system", d.System, dot)
}

// render executes a template of d's. Errors say which kind of text it is, and name it.
func (d *Definition) render(kind, name, text string, dot map[string]any) (string, error) {
	t, err := parseTemplate(name, text)
	if err != nil {
		return "", fmt.Errorf("parse %s of %s: %w", kind, d.Name, err)
	}
	made, err := executeTemplate(t, dot)
	if err != nil {
		return "", fmt.Errorf("render %s of %s: %w", kind, d.Name, err)
	}
	return made, nil
}

func systemDot(d Definition, data SystemData) (map[string]any, error) {
	left := data.Interactions
	dot := map[string]any{
		"Date": data.Date, "Run": data.Run, "Agent": d.Name, "Caller": data.Caller, "Tools": ToolDots(d.Tools),
		"Interactions": map[string]any{"Current": left.Current, "Max": left.Max, "Exhausted": data.Exhausted},
	}
	if data.Now != "" {
		dot["Now"] = data.Now
	}
	if data.Input == nil {
		return dot, nil
	}
	input, err := jsonx.DecodeNumbers(data.Input)
	dot["Input"] = input
	return dot, err
}

// ToolDots are tools as templates see them.
func ToolDots(tools []ToolSpec) []any {
	dots := make([]any, len(tools))
	for i, t := range tools {
		dots[i] = map[string]any{"Name": t.ModelName(), "Description": t.Description}
	}
	return dots
}

// sampleDot is the data of a text that is checked before there is a run: all that it may show but .Input.
func sampleDot(built SystemPrompt) map[string]any {
	data := SystemData{Date: "2026-01-01", Run: "r", Interactions: run.Interactions{Max: 1}}
	if built == SystemEveryInference {
		data.Now = "2026-01-01T00:00:00Z"
	}
	dot, _ := systemDot(Definition{Name: "check", Tools: []ToolSpec{{Name: "tool"}}}, data) // only an input can fail
	return dot
}

// CheckSystem finds what can be known to be wrong with a system text before there is a run: syntax, names that don't
// exist, and, where the text does not depend on .Input, everything else. {{define}}d templates are checked only if it
// doesn't. What exists depends on when the text is built.
func CheckSystem(text string, built SystemPrompt) error {
	if err := checkText("system", text, sampleDot(built)); err != nil {
		return fmt.Errorf("check system text: %w", err)
	}
	return nil
}

// checkText finds what can be known to be wrong with a text: syntax, names that neither the sample dot has nor are
// Input, and, where the text does not depend on .Input, what fails with the sample.
func checkText(name, text string, dot map[string]any) error {
	t, err := parseTemplate(name, text)
	if err != nil {
		return err
	}
	var v rootFields
	v.visit(t.Tree.Root, true)
	known := slices.Sorted(slices.Values(append(jsonx.SortedKeys(dot), "Input")))
	for _, name := range v.names {
		if !slices.Contains(known, name) {
			return fmt.Errorf(".%s does not exist; want one of .%s", name, strings.Join(known, ", ."))
		}
	}
	if !v.whole && !slices.Contains(v.names, "Input") && len(t.Templates()) == 1 {
		_, err = executeTemplate(t, dot)
	}
	return err
}

// rootFields collects what a template reads from its top-level dot, and which templates it uses.
type rootFields struct {
	names     []string
	whole     bool // dot is read as a whole
	templates []string
}

// visit walks n; atRoot says whether dot still is the top-level one there.
func (v *rootFields) visit(n parse.Node, atRoot bool) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			visitAll(v, n.Nodes, atRoot)
		}
	case *parse.ActionNode:
		v.visit(n.Pipe, atRoot)
	case *parse.TemplateNode:
		v.templates = append(v.templates, n.Name)
		v.visit(n.Pipe, atRoot)
	case *parse.IfNode:
		v.branch(&n.BranchNode, atRoot, atRoot)
	case *parse.RangeNode:
		v.branch(&n.BranchNode, atRoot, false)
	case *parse.WithNode:
		v.branch(&n.BranchNode, atRoot, false)
	case *parse.PipeNode:
		if n != nil {
			visitAll(v, n.Cmds, atRoot)
		}
	case *parse.CommandNode:
		visitAll(v, n.Args, atRoot)
	case *parse.ChainNode:
		v.visit(n.Node, atRoot)
	case *parse.DotNode:
		v.whole = v.whole || atRoot
	case *parse.FieldNode:
		if atRoot {
			v.names = append(v.names, n.Ident[0])
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			v.names = append(v.names, n.Ident[1])
		}
	}
}

func (v *rootFields) branch(n *parse.BranchNode, atRoot, bodyAtRoot bool) {
	v.visit(n.Pipe, atRoot)
	v.visit(n.List, bodyAtRoot)
	v.visit(n.ElseList, atRoot)
}

func visitAll[N parse.Node](v *rootFields, nodes []N, atRoot bool) {
	for _, n := range nodes {
		v.visit(n, atRoot)
	}
}

// ModelFacing is the tool as a model is told of it: its schema has no correlation field, which is written in when a
// service is called (seed 000). t stays as it is, and is what is pinned.
func (t ToolSpec) ModelFacing() ToolSpec {
	if !bytes.Contains(t.Schema, []byte("parentSubject")) && !bytes.Contains(t.Schema, []byte(`\u`)) {
		return t
	}
	schema, err := editMembers(t.Schema, func(key string, value json.RawMessage) (json.RawMessage, error) {
		switch {
		case key == "properties" && jsonx.JSONKind(value) == '{':
			return WithoutParent(value)
		case key == "required" && jsonx.JSONKind(value) == '[':
			return withoutParentName(value)
		default:
			return value, nil
		}
	})
	if err != nil { // a schema that is no JSON is refused with its definition
		return t
	}
	t.Schema = schema
	return t
}

// withoutParentName is a list of names without the correlation field's, nil where none is left of a list that had it.
func withoutParentName(list json.RawMessage) (json.RawMessage, error) {
	var names []json.RawMessage
	if err := json.Unmarshal(list, &names); err != nil {
		return nil, err
	}
	all := len(names)
	names = slices.DeleteFunc(names, func(raw json.RawMessage) bool {
		name, ok := jsonx.JSONString(raw)
		return ok && name == ParentSubject
	})
	switch len(names) {
	case all:
		return list, nil
	case 0:
		return nil, nil
	default:
		return jsonx.MarshalVerbatim(names)
	}
}

// ValidArguments checks arguments as valid does, without the correlation field in schema or arguments: the model is not
// asked for it.
func ValidArguments(valid Validator, t ToolSpec, args json.RawMessage) error {
	facing := t.ModelFacing()
	if bytes.Equal(facing.Schema, t.Schema) {
		return valid(t, args)
	}
	if own, err := WithoutParent(args); err == nil {
		args = own
	}
	return valid(facing, args)
}

// Section is a part of the prompt around an agent's own words (seed 004, "Prompt Building Process"). Its text is a
// Template.
type Section struct {
	Name  string // also its tag: the text stands between <name> and </name>
	About string
	Text  string // "" = nothing is built in

	Turn  bool // made for every request; the order seed has it in the turn's message, the order code in the system message
	Loop  bool // the built-in text stands only where the agent works by the rules of seed 004
	XML   bool // it stands only where the model that is asked has the dialect xml
	Tools bool // it stands only in requests that offer tools
}

// SectionInstructions is the section that holds the instructions of the definition.
const SectionInstructions = "custom_instructions"

// sections are all of them in the order seed, which is also the order of reading.
var sections = []Section{
	{Name: SectionInstructions, About: "the agent's own system text", Text: "{{.Instructions}}"},
	{Name: "repository_context", About: "what is known of the place the agent works in"},
	{Name: "agent_loop", About: "how work goes on, and how it ends", Loop: true, Text: textAgentLoop},
	{Name: "system_capabilities", About: "what the agent can do", Loop: true, Text: textCapabilities},
	{Name: "chain_of_thought", About: "that reasoning comes first, in tags", Loop: true, Text: textChainOfThought},
	{Name: "available_tools", About: "the tools of the request", Turn: true, Loop: true, XML: true, Tools: true,
		Text: "{{.ToolPrompt}}"},
	{Name: "tool_calling", About: "how a call is written", Turn: true, Loop: true, XML: true, Tools: true,
		Text: textToolCalling},
	{Name: "tool_use_rules", About: "the rules of calling", Turn: true, Loop: true, Tools: true, Text: textToolRules},
	{Name: "planning_context", About: "what the hook prompt.planning gave", Turn: true, Text: "{{.Planning}}"},
	{Name: "rag_context", About: "what the hook prompt.rag gave", Turn: true, Text: "{{.RAG}}"},
}

// codeOrder is the order code of the same sections.
var codeOrder = []string{
	SectionInstructions, "repository_context", "system_capabilities", "agent_loop", "chain_of_thought",
	"tool_calling", "available_tools", "tool_use_rules", "planning_context", "rag_context",
}

const textAgentLoop = `You work in a loop until the task is finished:
1. Read the task and the newest result.
2. Decide on the one next step.
3. Call {{if .OneTool}}the tool{{else}}the tools{{end}} for it. What came of it is in the next message.
4. Go on from there. Where the result is an error, change what you do; do not repeat a call that failed as it was.
{{if .ToolRequired -}}
Every response makes a call: one without a call does nothing and is sent back to you.
{{- if .LoopBreaking}} When you are finished, cannot go on without the user, or only want to talk, call
{{- range $i, $name := .LoopBreaking}}{{if $i}} or{{end}} {{$name}}{{end}}: nothing else ends the loop.{{end}}
{{- else -}}
When the task is finished, answer without a call: that ends the loop.
{{- end}}`

const textCapabilities = `You act through tools and in no other way: without a call you can neither read, nor ` +
	`change, nor remember anything. A tool does what its description says. A result is what really happened; what no ` +
	`result says, you do not know.`

const textChainOfThought = `Before every call, reason between <thinking> and </thinking>: what you know, what is ` +
	`missing, which step comes next and why. Be brief. Only what stands outside these tags is meant for others.`

const textToolCalling = `To call a tool, write one such block and nothing behind it:
<tool>{"server_name": "SERVER", "tool_name": "TOOL", "arguments": {"NAME": "VALUE"}}</tool>
Between the tags stands one JSON object. server_name and tool_name are as available_tools has them; arguments is ` +
	`an object that fits the tool's schema, {} where it needs none.`

const textToolRules = `{{if .ToolRequired}}- Call {{if .OneTool}}exactly one{{else}}a{{end}} tool in every response.
{{else if .OneTool}}- Call at most one tool in a response.
{{end}}- Reason in <thinking> tags first, then call.
- Call only tools that are listed, with arguments that fit their schemas.
- Do not name tools to the user: say what you do, not what it is called.`

// InOrder are the sections of one kind, those of the turn or the others, as they stand under an order.
func InOrder(o PromptOrder, turn bool) []Section {
	list := slices.DeleteFunc(slices.Clone(sections), func(s Section) bool { return s.Turn != turn })
	if o == PromptCode {
		slices.SortFunc(list, func(a, b Section) int {
			return cmp.Compare(slices.Index(codeOrder, a.Name), slices.Index(codeOrder, b.Name))
		})
	}
	return list
}

// check finds what can be known to be wrong with a text for the section before there is a run, as CheckSystem does.
func (s Section) check(text string, built SystemPrompt) error {
	dot := sampleDot(built) // and what a section's text may show besides
	dot["LoopBreaking"], dot["OneTool"], dot["ToolRequired"] = []any{"x"}, true, true
	if s.Turn {
		dot["Planning"], dot["RAG"], dot["ToolPrompt"] = "x", "x", "x"
	} else {
		dot["Instructions"] = "x"
	}
	if err := checkText(s.Name, text, dot); err != nil {
		return fmt.Errorf("check section: %w", err)
	}
	return nil
}

// PromptText is what the sections of a request say to the model that is asked.
type PromptText struct {
	System string // behind the system text; "" = nothing
	Turn   string // before the words of the newest user turn; "" = nothing
}

// SaySection is what a section says; "" = nothing, and it does not stand.
func (d *Definition) SaySection(s Section, dot map[string]any) (string, error) {
	text := s.Text
	if s.Loop && !d.loops() {
		text = ""
	}
	if own, ok := d.Prompt.Sections[s.Name]; ok {
		text = own
	}
	said, err := d.render("section", s.Name, text, dot)
	trimmed := strings.TrimSpace(said)
	if s.Name == SectionInstructions && trimmed != "" {
		return said, err
	}
	return trimmed, err
}

// PromptDot is what every section may show: what a system text may, and the rules that hold for models of these
// dialects.
func (d *Definition) PromptDot(data SystemData, asked []Dialect) (map[string]any, error) {
	dot, err := systemDot(*d, data)
	if err != nil {
		return nil, fmt.Errorf("render sections of %s: input: %w", d.Name, err)
	}
	native := slices.ContainsFunc(asked, func(l Dialect) bool { return l != DialectXML })
	dot["OneTool"] = !native || d.Batch == BatchFirst // in tags there is one call a reply
	dot["ToolRequired"] = d.Text == TextRequireTool
	ends := []any{} // the names of the tools that end a run
	for _, t := range d.LoopBreaking() {
		ends = append(ends, t.Name)
	}
	dot["LoopBreaking"] = ends
	return dot, nil
}

// WithParagraph adds a paragraph that may be empty.
func WithParagraph(first, second string) string {
	if second == "" {
		return first
	}
	return Paragraphs(first, second)
}

// Prompted is r with what its sections say to the model that is asked: System has all of its words, Turn those that are
// to stand before the newest user turn. r is left as it is. Doing it again changes nothing.
func (r Request) Prompted() Request {
	said := r.Prompts[cmp.Or(r.Model.Dialect, DialectNative)]
	r.Prompts = nil
	r.System, r.Turn = WithParagraph(r.System, said.System), WithParagraph(r.Turn, said.Turn)
	return r
}

// turnIndex returns where the turn's words stand in the newest user turn, or len(messages) if there is none. Results
// of tools and their media, which providers want first, stand before them.
func turnIndex(messages []run.Message) int {
	begin := len(messages)
	for begin > 0 && messages[begin-1].Role == run.RoleUser {
		begin--
	}
	at := begin
	for i := begin; i < len(messages); i++ {
		switch messages[i].Block.(type) {
		case run.ToolResult:
			at = i + 1
		case run.Media:
			if at == i && i > begin { // of the result before it
				at = i + 1
			}
		}
	}
	return at
}

// Prompt arranges the sections that stand around the agent's own words (seed 004), where the preset or the dialect has
// any, and names the code that gives two of them what they say.
type Prompt struct {
	Order PromptOrder `json:"order,omitempty"`
	// templates instead of the built-in ones, by name; "" leaves a section out
	Sections map[string]string `json:"sections,omitempty"`
	Planning string            `json:"planning,omitempty"` // a hook.ContextSource for planning_context; "" = none
	RAG      string            `json:"rag,omitempty"`      // a hook.ContextSource for rag_context; "" = none
}

// loops reports whether an agent works by the rules of seed 004: no reply without a call is its last word, or one of
// its models calls tools in tags. Only such an agent has built-in sections beside its own words and what its hooks
// give.
func (d *Definition) loops() bool { return d.Text == TextRequireTool || d.WritesCalls() }

// Dialects are those of the chain's models, each once.
func (d *Definition) Dialects() []Dialect {
	var all []Dialect
	for _, m := range d.Model.Chain() {
		if l := cmp.Or(m.Dialect, DialectNative); !slices.Contains(all, l) {
			all = append(all, l)
		}
	}
	return all
}

// Sectioned reports whether the agent may have any section beside its own words.
func (d *Definition) Sectioned() bool {
	p := d.Prompt
	return len(p.Sections) > 0 || p.Planning != "" || p.RAG != "" || d.loops()
}

// prompt checks order, names and texts: every text is executed with everything it may name.
func (c *checker) prompt(at string, d *Definition) {
	p := d.Prompt
	c.enumOrNone(at+".order", p.Order)
	for _, name := range jsonx.SortedKeys(p.Sections) {
		path := at + ".sections." + name
		i := slices.IndexFunc(sections, func(s Section) bool { return s.Name == name })
		if i < 0 {
			c.add(path, "got an unknown section, want one of %s",
				joined(sections, ", ", func(s Section) string { return s.Name }))
			continue
		}
		s := sections[i]
		if s.XML && p.Sections[name] != "" && !slices.Contains(d.Dialects(), DialectXML) {
			c.add(path, "got a text, want none: none of the agent's models has the dialect xml, and others are told of their "+
				"tools by the provider")
		}
		c.noError(path, s.check(p.Sections[name], d.SystemPrompt))
	}
}
