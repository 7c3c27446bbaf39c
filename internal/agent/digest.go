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

// CanonicalWhen are the conditions, each in its canonical form, in an order of their own.
func CanonicalWhen(when []run.Condition) []string {
	out := make([]string, len(when))
	for i, c := range when {
		out[i] = string(jsonx.AppendCanonical(nil, CanonicalCondition(c)))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ToolHash is the hex SHA-256 of a tool's definition. White space, key order and string escapes of the schema don't
// count, so storing and loading a definition leaves it as it is.
func ToolHash(t ToolSpec) string {
	spec := map[string]any{
		"name": t.Name, "kind": string(t.Kind), "description": t.Description, "schema": jsonx.CanonicalText(t.Schema),
		"effect": string(t.Effect), "priority": strconv.Itoa(t.Priority), "timeout": t.Timeout.String(), "root": t.Root,
	}
	for key, value := range map[string]string{"event": t.Event, "domain": t.Domain, "describe": t.Describe} {
		if value != "" { // a tool of before there were such keys keeps its hash
			spec[key] = value
		}
	}
	// The rest is where the tool's calls go and how they are made. Loading what it was stored as leaves it as it is:
	// struct fields have one order, JSON's maps are sorted, and the marshaller writes raw values in one form.
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
	if err != nil { // raw JSON that is none, which Check refuses: no two of them are the same
		spec["remote"] = "unreadable: " + err.Error()
	} else if string(rest) != "{}" {
		spec["remote"] = string(rest)
	}
	return HashCanonical(spec)
}

// CanonicalCondition is a condition as digests contain it.
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

// HashCanonical is the SHA-256, in hex, of the canonical JSON of v.
func HashCanonical(v map[string]any) string { return HashHex(jsonx.AppendCanonical(nil, v)) }

// HashHex is the SHA-256 of b in hex.
func HashHex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
