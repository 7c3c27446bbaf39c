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

// SystemData is what a system text may show of its run, in addition to the definition.
type SystemData struct {
	Date string // the run's first day in UTC, 2006-01-02
	// time of this inference, RFC 3339 in UTC; "" = the text is built once per run, and .Now is an error
	Now          string
	Run          string          // the run's id
	Caller       string          // name of the agent that delegated the run; "" = none
	Input        json.RawMessage // checked JSON; nil = the run started from a message, and .Input is an error
	Interactions run.Interactions
	Exhausted    bool
}

// RenderSystem returns the system text of a run. The text is a Template over .Date, .Run, .Agent, .Caller (the agent
// that delegated the run, or ""), .Input (numbers keep their digits), .Tools (model-facing Name, Description) and
// .Interactions (Current, Max, Exhausted). A text that is built for every inference also has .Now. A missing key is an
// error.
func RenderSystem(d Definition, data SystemData) (string, error) {
	dot, err := systemDot(d, data)
	if err != nil {
		return "", fmt.Errorf("render system text of %s: input: %w", d.Name, err)
	}
	return d.render("system text", "system", d.System, dot)
}

// render executes a template of the definition. kind and name identify the text in errors.
func (d *Definition) render(kind, name, text string, dot map[string]any) (string, error) {
	t, err := parseTemplate(name, text)
	if err != nil {
		return "", fmt.Errorf("parse %s of %s: %w", kind, d.Name, err)
	}
	rendered, err := executeTemplate(t, dot)
	if err != nil {
		return "", fmt.Errorf("render %s of %s: %w", kind, d.Name, err)
	}
	return rendered, nil
}

func systemDot(d Definition, data SystemData) (map[string]any, error) {
	quota := data.Interactions
	dot := map[string]any{
		"Date": data.Date, "Run": data.Run, "Agent": d.Name, "Caller": data.Caller, "Tools": ToolData(d.Tools),
		"Interactions": map[string]any{"Current": quota.Current, "Max": quota.Max, "Exhausted": data.Exhausted},
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

// ToolData returns tools in the form that templates read.
func ToolData(tools []ToolSpec) []any {
	return run.Map(tools, func(t ToolSpec) any {
		return map[string]any{"Name": t.ModelName(), "Description": t.Description}
	})
}

// sampleDot returns sample data to check a text before there is a run: everything that the text may show except .Input.
func sampleDot(built SystemPrompt) map[string]any {
	data := SystemData{Date: "2026-01-01", Run: "r", Interactions: run.Interactions{Max: 1}}
	if built == SystemEveryInference {
		data.Now = "2026-01-01T00:00:00Z"
	}
	// only an input can cause an error
	dot, _ := systemDot(Definition{Name: "check", Tools: []ToolSpec{{Name: "tool"}}}, data)
	return dot
}

// CheckSystem returns the errors of a system text that can be found before there is a run: its syntax and unknown
// names, which depend on when the text is built. A text that does not use .Input and does not {{define}} templates is
// also executed.
func CheckSystem(text string, built SystemPrompt) error {
	if err := checkText("system", text, sampleDot(built)); err != nil {
		return fmt.Errorf("check system text: %w", err)
	}
	return nil
}

// checkText returns the errors of a text that can be found before there is a run. It checks the syntax and that every
// name is in dot or is Input. A text that does not use .Input and does not {{define}} templates is executed with dot.
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

// rootFields collects the fields that a template reads from its top-level dot, and the templates that it uses.
type rootFields struct {
	names     []string
	whole     bool // the top-level dot is read as a whole
	templates []string
}

// visit walks n. atRoot says whether dot is still the top-level one there.
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

// ModelFacing returns the tool as a model sees it. Its schema has no correlation field, because that field is added
// when a service is called (seed 000). t itself, which is pinned, does not change.
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
	if err != nil { // Check refuses a definition with a schema that is not JSON
		return t
	}
	t.Schema = schema
	return t
}

// withoutParentName returns a list of names without the correlation field. It returns nil if that was the only name.
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

// ValidArguments checks arguments with valid. It ignores the correlation field in schema and arguments, because the
// model is not asked for it.
func ValidArguments(valid Validator, t ToolSpec, args json.RawMessage) error {
	facing := t.ModelFacing()
	if bytes.Equal(facing.Schema, t.Schema) {
		return valid(t, args)
	}
	if visible, err := WithoutParent(args); err == nil {
		args = visible
	}
	return valid(facing, args)
}

// Section is a part of the prompt around an agent's own text (seed 004, "Prompt Building Process"). Its text is a
// Template.
type Section struct {
	Name  string // also the tag around the text: <name> and </name>
	About string
	Text  string // the built-in text; "" = none

	// rendered for every request; the order seed puts it into the turn's message, the order code into the system message
	Turn  bool
	Loop  bool // the built-in text is used only by agents that follow the rules of seed 004
	XML   bool // only for models of dialect xml
	Tools bool // only in requests that offer tools
}

// SectionInstructions is the name of the section that holds the definition's instructions.
const SectionInstructions = "custom_instructions"

// sections lists all sections in the order seed.
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

// codeOrder lists the names of the same sections in the order code.
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

// InOrder returns the sections of the turn, or all other sections, sorted by an order.
func InOrder(o PromptOrder, turn bool) []Section {
	list := slices.DeleteFunc(slices.Clone(sections), func(s Section) bool { return s.Turn != turn })
	if o == PromptCode {
		slices.SortFunc(list, func(a, b Section) int {
			return cmp.Compare(slices.Index(codeOrder, a.Name), slices.Index(codeOrder, b.Name))
		})
	}
	return list
}

// check returns the errors of a text for the section that can be found before there is a run, as CheckSystem does.
func (s Section) check(text string, built SystemPrompt) error {
	dot := sampleDot(built) // sections may show more than a system text
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

// PromptText is the rendered text of the sections of a request, for one dialect.
type PromptText struct {
	System string // added behind the system text; "" = nothing
	Turn   string // inserted before the text of the newest user turn; "" = nothing
}

// RenderSection returns the rendered text of a section; "" = the request has no such section.
func (d *Definition) RenderSection(s Section, dot map[string]any) (string, error) {
	text := s.Text
	if s.Loop && !d.loops() {
		text = ""
	}
	if own, ok := d.Prompt.Sections[s.Name]; ok {
		text = own
	}
	rendered, err := d.render("section", s.Name, text, dot)
	trimmed := strings.TrimSpace(rendered)
	if s.Name == SectionInstructions && trimmed != "" {
		return rendered, err
	}
	return trimmed, err
}

// TemplateData returns the data for all sections: that of a system text, and the rules that apply to models of these
// dialects.
func (d *Definition) TemplateData(data SystemData, dialects []Dialect) (map[string]any, error) {
	dot, err := systemDot(*d, data)
	if err != nil {
		return nil, fmt.Errorf("render sections of %s: input: %w", d.Name, err)
	}
	native := slices.ContainsFunc(dialects, func(l Dialect) bool { return l != DialectXML })
	dot["OneTool"] = !native || d.Batch == BatchFirst // a reply in dialect xml has one call
	dot["ToolRequired"] = d.Text == TextRequireTool
	// names of the tools that end a run
	dot["LoopBreaking"] = run.Map(d.LoopBreaking(), func(t ToolSpec) any { return t.Name })
	return dot, nil
}

// WithParagraph appends a paragraph to a text. If the paragraph is empty, it returns the text unchanged.
func WithParagraph(first, second string) string {
	if second == "" {
		return first
	}
	return Paragraphs(first, second)
}

// Prompted returns r with the sections rendered for its model's dialect. They are appended to System, and Turn gets the
// ones that belong before the newest user turn. r is not changed. A second call changes nothing.
func (r Request) Prompted() Request {
	prompt := r.Prompts[cmp.Or(r.Model.Dialect, DialectNative)]
	r.Prompts = nil
	r.System, r.Turn = WithParagraph(r.System, prompt.System), WithParagraph(r.Turn, prompt.Turn)
	return r
}

// turnIndex returns where the turn's text is inserted in the newest user turn, or len(messages) if there is none. The
// text comes after tool results and their media, because providers expect those first.
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
			if at == i && i > begin { // belongs to the result before it
				at = i + 1
			}
		}
	}
	return at
}

// Prompt arranges the sections around the agent's own text (seed 004), and names the code that fills two of them.
type Prompt struct {
	Order PromptOrder `json:"order,omitempty"`
	// templates that replace the built-in ones, by name; "" removes a section
	Sections map[string]string `json:"sections,omitempty"`
	// name of the hook.ContextSource for planning_context; "" = none
	Planning string `json:"planning,omitempty"`
	RAG      string `json:"rag,omitempty"` // name of the hook.ContextSource for rag_context; "" = none
}

// loops reports whether an agent follows the rules of seed 004: a reply without a call is never its final answer, or
// one of its models writes calls as text. Only such an agent has built-in sections besides its instructions and those
// of hooks.
func (d *Definition) loops() bool { return d.Text == TextRequireTool || d.WritesCalls() }

// Dialects returns the dialects of the chain's models without duplicates.
func (d *Definition) Dialects() []Dialect {
	var all []Dialect
	for _, m := range d.Model.Chain() {
		if l := cmp.Or(m.Dialect, DialectNative); !slices.Contains(all, l) {
			all = append(all, l)
		}
	}
	return all
}

// HasSections reports whether the agent may have sections besides its instructions.
func (d *Definition) HasSections() bool {
	p := d.Prompt
	return len(p.Sections) > 0 || p.Planning != "" || p.RAG != "" || d.loops()
}

// prompt checks the order, the names and the texts of sections. Every text is executed with all its fields.
func (c *checker) prompt(at string, d *Definition) {
	p := d.Prompt
	c.enumOrNone(at+".order", p.Order)
	for _, name := range jsonx.SortedKeys(p.Sections) {
		path := at + ".sections." + name
		i := slices.IndexFunc(sections, func(s Section) bool { return s.Name == name })
		if i < 0 {
			c.add(path, "got an unknown section, want one of %s",
				strings.Join(run.Map(sections, func(s Section) string { return s.Name }), ", "))
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
