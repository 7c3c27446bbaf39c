package agent

import (
	"encoding/json"
	"time"
)

// MCPServer is a server of tools by the Model Context Protocol. Its tools are not part of the definition an agent is written as: they are
// listed when a run begins, and the definition that the run is pinned to from then on has them.
type MCPServer struct {
	Name    string            `json:"name"`              // [a-z0-9][a-z0-9_-]*; the first part of its tools' names
	Command []string          `json:"command,omitempty"` // a program on this machine that speaks over its standard streams; a deployed function refuses it
	Dir     string            `json:"dir,omitempty"`     // absolute path of the folder the command runs in
	Env     map[string]string `json:"env,omitempty"`     // of the command, beside PATH and HOME; values may hold ${secret:NAME}
	URL     string            `json:"url,omitempty"`     // streamable HTTP
	Headers map[string]string `json:"headers,omitempty"` // of each request; values may hold ${secret:NAME}
	Tools   []MCPPattern      `json:"tools,omitempty"`   // what holds of its tools; the first that matches wins
	Allow   []string          `json:"allow,omitempty"`   // patterns of the server's own names; none = all of them
	Deny    []string          `json:"deny,omitempty"`    // likewise, before Allow
	Timeout time.Duration     `json:"timeout,omitempty"` // to connect and to list; 0 = 20 s

	Optional bool `json:"optional,omitempty"` // a run goes on without its tools where it cannot be listed; else that ends the run
}

// MCPPattern is what an agent's author says of the tools of a server whose names match. What the server says of them is a hint at most.
type MCPPattern struct {
	Match    string        `json:"match"`            // the server's own name; * stands for any characters
	Effect   Effect        `json:"effect,omitempty"` // "" = non_idempotent
	Timeout  time.Duration `json:"timeout,omitempty"`
	Priority int           `json:"priority,omitempty"`
}

// ServerTools is what an MCP server says it has, as it was read and held to its bounds; nothing of it is trusted.
type ServerTools struct {
	Protocol string       // the version that was spoken
	Tools    []ServerTool // in the server's order, each name once
	Left     []LeftTool   // what it listed and cannot be used
}

// ServerTool is one tool as a server describes it.
type ServerTool struct {
	Name        string          // the server's own
	Description string          // valid text
	Schema      json.RawMessage // of the arguments: compact, self-contained, of an object
	Hints       MCPHints
	Digest      string // of all of the definition, as the server sent it
}

// LeftTool is a tool that a server listed and that is not to be had.
type LeftTool struct{ Name, Why string }

// MCPHints are a server's annotations of a tool. They are shown to people and decide nothing.
type MCPHints struct {
	Title       string `json:"title,omitempty"`
	ReadOnly    bool   `json:"readOnly,omitempty"`
	Destructive bool   `json:"destructive,omitempty"`
	Idempotent  bool   `json:"idempotent,omitempty"`
	OpenWorld   bool   `json:"openWorld,omitempty"`
}
