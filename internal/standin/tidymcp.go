package standin

import (
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// tidyingServed is the job of agents/screenshots-mcp: the same one, where an MCP server has the files.
var tidyingServed = job{"screenshots-mcp", []string{served[listTool], served[readTool], ocrTool, served[moveTool]}, func(r agent.Request) agent.Reply {
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
var served = map[string]string{listTool: "files_list_directory", readTool: "files_read_text_file", moveTool: "files_move_file"}

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
