package dialect

import (
	"encoding/json"
	"strings"

	"github.com/countersign/countersign/internal/agent"
)

// CallFormat is how the definition's model is to write a call.
func CallFormat(d *agent.Definition) string {
	if d.Model.Dialect != agent.DialectXML {
		return d.Word(agent.WordFormatNative, nil)
	}
	// A call of a tool that d has.
	example := agent.ToolSpec{Name: "TOOL"}
	if own := append(d.LoopBreaking(), d.Tools...); len(own) > 0 {
		example = own[0]
	}
	arguments := `{}`
	switch example.Name {
	case agent.ToolCompletion:
		arguments = `{"result": "The report is written."}`
	case agent.ToolAsk:
		arguments = `{"question": "Which of the two?"}`
	case agent.ToolConverse:
		arguments = `{"message": "Good morning."}`
	}
	return d.Word(agent.WordFormatXML, map[string]any{"Example": textOfCall(example, json.RawMessage(arguments))})
}

// ToolLine is the line about a tool in the list that a system text shows.
func ToolLine(t agent.ToolSpec) string {
	server, name := ServerOf(t)
	line := "- " + name
	if server != localServer {
		line += " (server_name " + server + ")"
	}
	if t.Description != "" {
		line += ": " + strings.TrimSpace(t.Description)
	}
	return line
}

// ServerOf is the server of a tool and its name there: of an MCP tool what stands before and behind the dot, else local
// and the name that the model knows.
func ServerOf(t agent.ToolSpec) (server, name string) {
	if server, name, ok := strings.Cut(t.Name, "."); ok && t.Kind == agent.KindMCP && server != localServer {
		return server, name
	}
	return localServer, t.ModelName()
}

// textOfCall is a call of a tool as a model in DialectXML writes it. What stands in the arguments never ends the tag.
func textOfCall(t agent.ToolSpec, arguments json.RawMessage) string {
	server, name := ServerOf(t)
	form := `{"server_name": ` + string(agent.TextOutput(server)) + `, "tool_name": ` + string(agent.TextOutput(name)) + `, "arguments": ` + string(arguments) + `}`
	return tagTool + "\n" + strings.ReplaceAll(form, "</", `<\/`) + "\n" + tagToolEnd
}
