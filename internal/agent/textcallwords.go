package agent

import (
	"encoding/json"
	"strings"
)

// The keys of what a model is told of the calls it writes.
const (
	wordNoToolCall    = "noToolCall"
	wordMalformed     = "malformedCall"
	wordMissingField  = "missingField"
	wordUnknownTool   = "unknownTool"
	wordFailedTool    = "failedTool"
	wordFormatXML     = "callFormat"
	wordFormatNative  = "callFormatNative"
	wordCompletion    = "taskCompletion"
	wordAsk           = "askQuestion"
	wordConverse      = "converse"
	formatOfTextCalls = "Write the call in exactly this form, as your reply's only one:\n<tool>\n" +
		`{"server_name": "local", "tool_name": "NAME", "arguments": {"KEY": "VALUE"}}` + "\n</tool>\nFor example:\n{{.Example}}"
)

// wordingsOfTextCalls are what a model is told where it has to call tools, and where it writes calls as text.
var wordingsOfTextCalls = []Wording{
	{
		Key: wordNoToolCall, About: "to a model whose reply calls no tool and has to", Fields: []string{"Format"},
		Text: "Your last reply called no tool, so nothing came of it. Every reply has to call exactly one tool: one that gets you further, or one that " +
			"ends your work.\n{{.Format}}",
	},
	{
		Key: wordMalformed, About: "to a model whose call in tags cannot be read", Fields: []string{"Error", "Content", "Format"},
		Text: "Your last call could not be read: {{.Error}}\nThis is what stood between the tags:\n{{.Content}}\n{{.Format}}",
	},
	{
		Key: wordMissingField, About: "to a model whose call in tags lacks a name", Fields: []string{"Field", "Content", "Format"},
		Text: "Your last call was not carried out, because {{.Field}} is missing.\nThis is what stood between the tags:\n{{.Content}}\n{{.Format}}",
	},
	{
		Key: wordUnknownTool, About: "beside the result of a call of a tool that does not exist", Fields: []string{"Tool", "Tools", "Format"},
		Text: "There is no tool {{.Tool}}. The tools are:\n{{.Tools}}\n{{.Format}}",
	},
	{
		Key: wordFailedTool, About: "beside the result of a call that failed", Fields: []string{"Tool", "Error", "Format"},
		Text: "{{.Tool}} failed: {{.Error}}\nAdjust the call, or change your approach. Do not repeat it as it was.",
	},
	{
		Key: wordFormatXML, About: "the form of a call, within the texts above, to a model that writes calls as text", Fields: []string{"Example"},
		Text: formatOfTextCalls,
	},
	{
		Key: wordFormatNative, About: "the same to a model that has calls of its own",
		Text: "Call it the way your other calls are made; a text that describes a call is none.",
	},
	{
		Key: wordCompletion, About: "describes the tool task_completion",
		Text: "Ends your work. Call it once all of what was asked for is done, or cannot be done, with what came of it as the result.",
	},
	{
		Key: wordAsk, About: "describes the tool ask_question",
		Text: "Asks the user a question and ends your work until they answer. Call it where you cannot go on without an answer. Suggest up to four answers.",
	},
	{
		Key: wordConverse, About: "describes the tool converse",
		Text: "Says something to the user and ends your work until they reply. Call it where nothing has to be done.",
	},
}

// callFormat is how the definition's model is to write a call.
func (d *Definition) callFormat() string {
	if d.Model.Dialect != DialectXML {
		return d.word(wordFormatNative, nil)
	}
	return d.word(wordFormatXML, map[string]any{"Example": d.exampleCall()})
}

// exampleCall is a call of a tool that d has.
func (d *Definition) exampleCall() string {
	example := ToolSpec{Name: "TOOL"}
	if own := append(d.loopBreaking(), d.Tools...); len(own) > 0 {
		example = own[0]
	}
	arguments := `{}`
	switch example.Name {
	case toolCompletion:
		arguments = `{"result": "The report is written."}`
	case toolAsk:
		arguments = `{"question": "Which of the two?"}`
	case toolConverse:
		arguments = `{"message": "Good morning."}`
	}
	return textOfCall(example, json.RawMessage(arguments))
}

// toolList names the tools that s's model is offered, a line each.
func (d *Definition) toolList(s *AgentState) string {
	var lines []string
	for _, t := range offered(d, s, Action{}) {
		lines = append(lines, toolLine(t))
	}
	return strings.Join(lines, "\n")
}

func toolLine(t ToolSpec) string {
	server, name := serverOf(t)
	line := "- " + name
	if server != localServer {
		line += " (server_name " + server + ")"
	}
	if t.Description != "" {
		line += ": " + strings.TrimSpace(t.Description)
	}
	return line
}

// serverOf is the server of a tool and its name there: of an MCP tool what stands before and behind the dot, else local and the name that
// the model knows.
func serverOf(t ToolSpec) (server, name string) {
	if server, name, ok := strings.Cut(t.Name, "."); ok && t.Kind == KindMCP && server != localServer {
		return server, name
	}
	return localServer, t.ModelName()
}

// textOfCall is a call of a tool as a model in DialectXML writes it. What stands in the arguments never ends the tag.
func textOfCall(t ToolSpec, arguments json.RawMessage) string {
	server, name := serverOf(t)
	form := `{"server_name": ` + string(textOutput(server)) + `, "tool_name": ` + string(textOutput(name)) + `, "arguments": ` + string(arguments) + `}`
	return tagTool + "\n" + strings.ReplaceAll(form, "</", `<\/`) + "\n" + tagToolEnd
}
