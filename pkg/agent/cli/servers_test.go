package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"
)

// serveFiles is an MCP server over its standard streams. Each line of tools.txt in its folder is a tool: name and
// description.
func serveFiles() {
	text, err := os.ReadFile("tools.txt")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "files", Version: "1"}, nil)
	for l := range strings.Lines(string(text)) {
		name, description, _ := strings.Cut(strings.TrimSpace(l), " ")
		s.AddTool(&sdk.Tool{Name: name, Description: description, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "a.txt"}}}, nil
			})
	}
	if err := s.Run(context.Background(), &sdk.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// newest AGENT sets RUN to the newest run of an agent.
func newest(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: newest AGENT")
	}
	ts.Check(ts.Exec("countersign", "runs", "--agent", args[0], "--json"))
	var page struct{ Items []struct{ ID string } }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &page))
	if len(page.Items) == 0 {
		ts.Fatalf("no run of %s", args[0])
	}
	ts.Setenv("RUN", page.Items[0].ID)
}
