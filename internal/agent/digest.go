package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// CanonicalWhen returns the canonical form of each condition, sorted and without duplicates.
func CanonicalWhen(when []run.Condition) []string {
	out := make([]string, len(when))
	for i, c := range when {
		out[i] = string(jsonx.AppendCanonical(nil, CanonicalCondition(c)))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ToolHash returns the hex SHA-256 of a tool's definition. White space, key order and string escapes of the schema do
// not count, so storing and loading a definition does not change it.
func ToolHash(t ToolSpec) string {
	spec := map[string]any{
		"name": t.Name, "kind": string(t.Kind), "description": t.Description, "schema": jsonx.CanonicalText(t.Schema),
		"effect": string(t.Effect), "priority": strconv.Itoa(t.Priority), "timeout": t.Timeout.String(), "root": t.Root,
	}
	for key, value := range map[string]string{"event": t.Event, "domain": t.Domain, "describe": t.Describe} {
		if value != "" { // a tool without these keys keeps the hash from before they existed
			spec[key] = value
		}
	}
	// The rest says where and how the tool's calls are made. Its JSON is the same after storing and loading: struct fields
	// have one order, keys of maps are sorted, and raw values are written in one form.
	rest, err := json.Marshal(struct {
		MCP         *MCPTool    `json:"mcp,omitempty"`
		Lambda      *LambdaTool `json:"lambda,omitempty"`
		HTTP        *HTTPTool   `json:"http,omitempty"`
		Agent       *Delegate   `json:"agent,omitempty"`
		Retry       ToolRetry   `json:"retry,omitzero"`
		Concurrency int         `json:"concurrency,omitempty"`
		MaxResult   int64       `json:"maxResult,omitempty"`
		Undo        *Undo       `json:"undo,omitempty"`

		Precondition *Precondition `json:"precondition,omitempty"`
	}{t.MCP, t.Lambda, t.HTTP, t.Agent, t.Retry, t.Concurrency, t.MaxResult, t.Undo, t.Precondition})
	if err != nil { // invalid raw JSON, which Check refuses; the error makes the hash unique
		spec["remote"] = "unreadable: " + err.Error()
	} else if string(rest) != "{}" {
		spec["remote"] = string(rest)
	}
	return HashCanonical(spec)
}

// CanonicalCondition returns a condition in the form that digests contain.
func CanonicalCondition(c run.Condition) map[string]any {
	in := make([]any, len(c.In))
	for i, v := range c.In {
		in[i] = jsonx.CanonicalText(v)
	}
	return map[string]any{
		"path": c.Path, "matches": c.Matches, "in": in,
		"eq": jsonx.CanonicalText(c.Eq), "ne": jsonx.CanonicalText(c.Ne),
		"gt": jsonx.CanonicalText(c.Gt), "gte": jsonx.CanonicalText(c.Gte), "lt": jsonx.CanonicalText(c.Lt),
		"lte": jsonx.CanonicalText(c.Lte),
	}
}

// HashCanonical returns the hex SHA-256 of the canonical JSON of v.
func HashCanonical(v map[string]any) string { return HashHex(jsonx.AppendCanonical(nil, v)) }

// HashHex returns the hex SHA-256 of b.
func HashHex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
