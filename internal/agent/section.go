package agent

import (
	"fmt"
	"slices"
	"strings"
)

// Section is a part of the prompt around an agent's own words (seed 004, "Prompt Building Process"). Its text is a Template.
type Section struct {
	Name  string // also its tag: the text stands between <name> and </name>
	About string
	Text  string // "" = nothing is built in

	Turn  bool // made for every request; the order seed has it in the turn's message, the order code in the system message
	Loop  bool // the built-in text stands only where the agent works by the rules of seed 004
	XML   bool // it stands only where the model that is asked has the dialect xml
	Tools bool // it stands only in requests that offer tools
}

// Names of sections that the builder treats in a way of their own.
const sectionInstructions = "custom_instructions"

// sections are all of them in the order seed, which is also the order of reading.
var sections = []Section{
	{Name: sectionInstructions, About: "the agent's own system text", Text: "{{.Instructions}}"},
	{Name: "repository_context", About: "what is known of the place the agent works in"},
	{Name: "agent_loop", About: "how work goes on, and how it ends", Loop: true, Text: textAgentLoop},
	{Name: "system_capabilities", About: "what the agent can do", Loop: true, Text: textCapabilities},
	{Name: "chain_of_thought", About: "that reasoning comes first, in tags", Loop: true, Text: textChainOfThought},
	{Name: "available_tools", About: "the tools of the request", Turn: true, Loop: true, XML: true, Tools: true, Text: "{{.ToolPrompt}}"},
	{Name: "tool_calling", About: "how a call is written", Turn: true, Loop: true, XML: true, Tools: true, Text: textToolCalling},
	{Name: "tool_use_rules", About: "the rules of calling", Turn: true, Loop: true, Tools: true, Text: textToolRules},
	{Name: "planning_context", About: "what the hook prompt.planning gave", Turn: true, Text: "{{.Planning}}"},
	{Name: "rag_context", About: "what the hook prompt.rag gave", Turn: true, Text: "{{.RAG}}"},
}

// codeOrder is the order code of the same.
var codeOrder = []string{
	sectionInstructions, "repository_context", "system_capabilities", "agent_loop", "chain_of_thought",
	"tool_calling", "available_tools", "tool_use_rules", "planning_context", "rag_context",
}

const textAgentLoop = `You work in a loop until the task is finished:
1. Read the task and the newest result.
2. Decide on the one next step.
3. Call {{if .OneTool}}the tool{{else}}the tools{{end}} for it. What came of it is in the next message.
4. Go on from there. Where the result is an error, change what you do; do not repeat a call that failed as it was.
{{if .ToolRequired -}}
Every response makes a call: one without a call does nothing and is sent back to you.
{{- if .LoopBreaking}} When you are finished, cannot go on without the user, or only want to talk, call {{range $i, $name := .LoopBreaking}}{{if $i}} or {{end}}{{$name}}{{end}}: nothing else ends the loop.{{end}}
{{- else -}}
When the task is finished, answer without a call: that ends the loop.
{{- end}}`

const textCapabilities = `You act through tools and in no other way: without a call you can neither read, nor change, nor remember anything. A tool does what its description says. A result is what really happened; what no result says, you do not know.`

const textChainOfThought = `Before every call, reason between <thinking> and </thinking>: what you know, what is missing, which step comes next and why. Be brief. Only what stands outside these tags is meant for others.`

const textToolCalling = `To call a tool, write one such block and nothing behind it:
<tool>{"server_name": "SERVER", "tool_name": "TOOL", "arguments": {"NAME": "VALUE"}}</tool>
Between the tags stands one JSON object. server_name and tool_name are as available_tools has them; arguments is an object that fits the tool's schema, {} where it needs none.`

const textToolRules = `{{if .ToolRequired}}{{if .OneTool}}- Call exactly one tool in every response.{{else}}- Call a tool in every response.{{end}}
{{else if .OneTool}}- Call at most one tool in a response.
{{end}}- Reason in <thinking> tags first, then call.
- Call only tools that are listed, with arguments that fit their schemas.
- Do not name tools to the user: say what you do, not what it is called.`

// Sections lists every section of a prompt, in the order seed.
func Sections() []Section { return slices.Clone(sections) }

// Code is the section's place in the order code, from 1.
func (s Section) Code() int { return slices.Index(codeOrder, s.Name) + 1 }

func sectionOf(name string) (Section, bool) {
	i := slices.IndexFunc(sections, func(s Section) bool { return s.Name == name })
	if i < 0 {
		return Section{}, false
	}
	return sections[i], true
}

func sectionNames() []string {
	names := make([]string, len(sections))
	for i, s := range sections {
		names[i] = s.Name
	}
	return names
}

// inOrder are the sections of one kind, those of the turn or the others, as they stand under an order.
func inOrder(o PromptOrder, turn bool) []Section {
	var list []Section
	for i, s := range sections {
		if o == PromptCode {
			s, _ = sectionOf(codeOrder[i])
		}
		if s.Turn == turn {
			list = append(list, s)
		}
	}
	return list
}

// Names that a section's text may show besides those of a system text.
var (
	sectionNamesSystem = []string{".Instructions", ".LoopBreaking", ".OneTool", ".ToolRequired"}
	sectionNamesTurn   = []string{".LoopBreaking", ".OneTool", ".Planning", ".RAG", ".ToolPrompt", ".ToolRequired"}
)

// fields are the names that the section's text may show.
func (s Section) fields(built SystemPrompt) []string {
	own := sectionNamesSystem
	if s.Turn {
		own = sectionNamesTurn
	}
	known := slices.Concat(systemFields(built), own)
	slices.Sort(known)
	return known
}

// check finds what can be known to be wrong with a text for the section before there is a run, as CheckSystem does.
func (s Section) check(text string, built SystemPrompt) error {
	t, err := parseTemplate(s.Name, text)
	if err != nil {
		return fmt.Errorf("check section: %w", err)
	}
	v := rootFields{known: s.fields(built)}
	v.visit(t.Tree.Root, true)
	if v.unknown != "" {
		return fmt.Errorf("check section: .%s does not exist; want one of %s", v.unknown, strings.Join(v.known, ", "))
	}
	if v.input || len(t.Templates()) > 1 {
		return nil
	}
	dot, err := systemDot(Definition{Name: "check", Tools: []ToolSpec{{Name: "tool"}}}, checkedSystem(built))
	if err != nil {
		return fmt.Errorf("check section: %w", err)
	}
	for _, name := range slices.Concat(sectionNamesSystem, sectionNamesTurn) {
		dot[name[1:]] = "x"
	}
	dot["LoopBreaking"], dot["OneTool"], dot["ToolRequired"] = []any{"x"}, true, true
	if _, err := executeTemplate(t, dot); err != nil {
		return fmt.Errorf("check section: %w", err)
	}
	return nil
}
