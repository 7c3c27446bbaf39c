package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// PromptText is what the sections of a request say to the model that is asked.
type PromptText struct {
	System string // behind the system text; "" = nothing
	Turn   string // before the words of the newest user turn; "" = nothing
}

// PromptContext is what an agent's hooks gave for one request.
type PromptContext struct{ Planning, RAG string }

// BuildSystem is the system text of an agent: its own instructions, rendered or built, and around them the sections that do not depend on
// what a request offers. Without sections it is the instructions. Where the text is built once, that holds for the sections too.
func BuildSystem(d *Definition, instructions string, data SystemData) (string, error) {
	if !d.sectioned() {
		return instructions, nil
	}
	dot, err := d.promptDot(data, d.dialects())
	if err != nil {
		return "", err
	}
	dot["Instructions"] = instructions
	var text string
	for _, s := range inOrder(d.Prompt.Order, false) {
		said, err := d.saySection(s, dot)
		if err != nil {
			return "", err
		}
		if said != "" && (s.Name != sectionInstructions || d.Prompt.Order == PromptCode) {
			said = fenced(s.Name, said)
		}
		text = withParagraph(text, said)
	}
	return text, nil
}

// WithPrompt is a request with the sections that are made for it alone: r's tools, what the hooks gave and the rules of the dialect. They are
// made for every dialect of the chain, since which model will be asked is not known yet. Nothing of it is stored. It comes last, when r has
// the tools that are offered. The error is a text's own, which Check could not see.
func WithPrompt(d *Definition, s *AgentState, a Action, now time.Time, r Request, c PromptContext) (Request, error) {
	if !d.sectioned() {
		return r, nil
	}
	prompts := map[Dialect]PromptText{}
	for _, l := range d.dialects() {
		dot, err := d.promptDot(SystemFor(d, s, a, now), []Dialect{l})
		if err != nil {
			return r, err
		}
		dot["Tools"], dot["ToolPrompt"] = toolDots(r.Tools), ToolPrompt(r.Tools)
		dot["Planning"], dot["RAG"] = c.Planning, c.RAG
		text, err := d.sayTurn(l, len(r.Tools) > 0, dot)
		if err != nil {
			return r, err
		}
		if d.Prompt.Order == PromptCode {
			prompts[l] = PromptText{System: text}
		} else {
			prompts[l] = PromptText{Turn: text}
		}
	}
	r.Prompts = prompts
	return r, nil
}

// WithStepPrompt is the request for a plan's step with what a model that writes its calls as text has to be told: the tools, how they are
// called, and that one has to be. Nobody has given context for a step. Other requests are r as they are. The error is as WithPrompt's.
func WithStepPrompt(d *Definition, s *AgentState, a Action, now time.Time, r Request) (Request, error) {
	own := *d
	own.Model, own.Text = r.Model, TextRequireTool
	if a.Lifecycle != LifecycleRoute || !own.writesCalls() {
		return r, nil
	}
	dot, err := own.promptDot(SystemFor(d, s, a, now), []Dialect{DialectXML})
	if err != nil {
		return r, err
	}
	dot["Tools"], dot["ToolPrompt"], dot["Planning"], dot["RAG"] = toolDots(r.Tools), ToolPrompt(r.Tools), "", ""
	text, err := own.sayTurn(DialectXML, len(r.Tools) > 0, dot)
	if err != nil {
		return r, err
	}
	r.Prompts = map[Dialect]PromptText{DialectXML: {System: text}}
	return r, nil
}

// sayTurn is the sections of one request to a model of dialect l.
func (d *Definition) sayTurn(l Dialect, tools bool, dot map[string]any) (string, error) {
	var text string
	for _, s := range inOrder(d.Prompt.Order, true) {
		if s.XML && l != DialectXML || s.Tools && !tools {
			continue
		}
		said, err := d.saySection(s, dot)
		if err != nil {
			return "", err
		}
		if said != "" {
			text = withParagraph(text, fenced(s.Name, said))
		}
	}
	return text, nil
}

// saySection is what a section says; "" = nothing, and it does not stand.
func (d *Definition) saySection(s Section, dot map[string]any) (string, error) {
	text := d.sectionText(s)
	if text == "" {
		return "", nil
	}
	t, err := parseTemplate(s.Name, text)
	if err != nil {
		return "", fmt.Errorf("parse section of %s: %w", d.Name, err)
	}
	said, err := executeTemplate(t, dot)
	if err != nil {
		return "", fmt.Errorf("render section of %s: %w", d.Name, err)
	}
	if strings.TrimSpace(said) == "" {
		return "", nil
	}
	if s.Name == sectionInstructions {
		return said, nil
	}
	return strings.TrimSpace(said), nil
}

// promptDot is what every section may show: what a system text may, and the rules that hold for models of these dialects.
func (d *Definition) promptDot(data SystemData, asked []Dialect) (map[string]any, error) {
	dot, err := systemDot(*d, data)
	if err != nil {
		return nil, fmt.Errorf("render sections of %s: input: %w", d.Name, err)
	}
	tags := true // in tags there is one call a reply
	for _, l := range asked {
		tags = tags && l == DialectXML
	}
	dot["OneTool"] = tags || d.Batch == BatchFirst
	dot["ToolRequired"] = d.Text == TextRequireTool
	dot["LoopBreaking"] = d.loopBreakingNames()
	return dot, nil
}

// loopBreakingNames are the names of the tools that end a run, where there are any.
func (d *Definition) loopBreakingNames() []any {
	names := []any{}
	for _, t := range d.loopBreaking() {
		names = append(names, t.Name)
	}
	return names
}

// fenced puts a text between tags of its name. What is in it cannot close them.
func fenced(name, text string) string {
	return "<" + name + ">\n" + strings.ReplaceAll(text, "</"+name, `<\/`+name) + "\n</" + name + ">"
}

// withParagraph adds a paragraph that may be empty.
func withParagraph(first, second string) string {
	if second == "" {
		return first
	}
	return paragraphs(first, second)
}

// promptedTool is a tool as a model is told of it in words.
type promptedTool struct {
	Server      string          `json:"server_name"`
	Name        string          `json:"tool_name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
}

// ToolPrompt tells of tools in words, a line of compact JSON each: server, model-facing name, description and schema, without the correlation
// field. Of no tools it is "". A schema that is no JSON, which is refused with its definition, is left out.
func ToolPrompt(tools []ToolSpec) string {
	var text bytes.Buffer
	for _, t := range tools {
		server, name := serverOf(t)
		p := promptedTool{Server: server, Name: name, Description: t.Description}
		if json.Valid(t.Schema) {
			p.Schema = t.ModelFacing().Schema
		}
		line, err := MarshalVerbatim(p)
		if err != nil { // there is nothing in it that could not be written
			continue
		}
		if text.Len() > 0 {
			text.WriteByte('\n')
		}
		text.Write(line)
	}
	return text.String()
}

// Prompted is r with what its sections say to the model that is asked: System has all of its words, Turn those that are to stand before the
// newest user turn. r is left as it is. Doing it again changes nothing.
func (r Request) Prompted() Request {
	said := r.Prompts[cmp.Or(r.Model.Dialect, DialectNative)]
	r.Prompts = nil
	r.System, r.Turn = withParagraph(r.System, said.System), withParagraph(r.Turn, said.Turn)
	return r
}

// withTurn is a prompted request with the turn's words as a message, before the words of the newest user turn. Results of tools and their
// media, which providers want first, stand before it.
func (r Request) withTurn() Request {
	if r.Turn == "" {
		return r
	}
	at := turnPlace(r.Messages)
	messages := make([]Message, 0, len(r.Messages)+1)
	messages = append(append(messages, r.Messages[:at]...), r.once(r.Turn))
	r.Messages, r.Turn = append(messages, r.Messages[at:]...), ""
	return r
}

// turnPlace is where in the newest user turn the turn's words stand; behind a conversation whose newest words are the model's.
func turnPlace(messages []Message) int {
	begin := len(messages)
	for begin > 0 && messages[begin-1].Role == RoleUser {
		begin--
	}
	at := begin
	for i := begin; i < len(messages); i++ {
		switch messages[i].Block.(type) {
		case ToolResult:
			at = i + 1
		case Media:
			if at == i && i > begin { // of the result before it
				at = i + 1
			}
		}
	}
	return at
}
