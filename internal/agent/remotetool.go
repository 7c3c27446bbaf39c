package agent

import (
	"encoding/json"
	"time"
)

// Remote reports whether a tool's calls are carried out somewhere else, by what its description says alone: no code of the deployment
// runs them.
func (k ToolKind) Remote() bool {
	return k == KindMCP || k == KindLambda || k == KindHTTP
}

// MCPTool is where a tool of an MCP server comes from, and the definition of it that people have seen.
type MCPTool struct {
	Server string `json:"server"` // by MCPServer.Name
	Tool   string `json:"tool"`   // the server's own name
	Digest string `json:"digest"` // of the server's definition of the tool: name, description, schemas and annotations
}

// HTTPTool is a request that a tool makes. Templates hold {name} for the value at that top-level key of the arguments, and
// ${secret:NAME} for a secret, which is put in when the request is sent and is never stored.
type HTTPTool struct {
	Method  string            `json:"method"`            // upper case
	URL     string            `json:"url"`               // a template in its path and query; scheme and host are fixed
	Headers map[string]string `json:"headers,omitempty"` // templates
	Query   map[string]string `json:"query,omitempty"`   // templates; one whose argument is missing is left out
	Body    json.RawMessage   `json:"body,omitempty"`    // JSON whose strings are templates; one that is a single {name} becomes that value. nil = all arguments that nothing else takes, if the method has a body
	Allow   []string          `json:"allow,omitempty"`   // other hosts, host or host:port, that redirects may lead to
}

// LambdaTool is a function that a tool invokes.
type LambdaTool struct {
	Function string `json:"function"`        // name, ARN or partial ARN, with an optional version or alias
	Async    bool   `json:"async,omitempty"` // the function answers later, as a service does
}

// Delegate is another agent that a tool is: its call is a run of that agent.
type Delegate struct {
	Agent   string `json:"agent"`             // by name, of the same deployment
	History bool   `json:"history,omitempty"` // its conversation is part of the result

	Tokens int64 `json:"tokens,omitempty"` // at most so many of the tokens that the caller has left; 0 = all of them
	USD    USD   `json:"usd,omitempty"`    // likewise
}

// ToolRetry says how often a call is entered again in one invocation after an error of infrastructure. Only calls of effect read or
// idempotent are. The zero value is one attempt.
type ToolRetry struct {
	Attempts   int           `json:"attempts,omitempty"`   // in all; 0 and 1 = one
	Backoff    time.Duration `json:"backoff,omitempty"`    // before the second; doubled for each one after it
	MaxBackoff time.Duration `json:"maxBackoff,omitempty"` // 0 = no bound
}

// Undo is a call that takes a call back which has succeeded. It is never made without a person's word.
type Undo struct {
	Tool string          `json:"tool"`           // original name, of the same agent
	Args json.RawMessage `json:"args,omitempty"` // an object; strings that are {"result": "/pointer"} or {"args": "/pointer"} objects take the value there
}
