package agent

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// ValidTenant reports whether s may name a tenant: ^[a-z0-9][a-z0-9-]{0,39}$.
func ValidTenant(s string) bool {
	return run.Spelled(s, run.Lowercase+run.Digits, run.Lowercase+run.Digits+"-", 40)
}

// ValidAgentName reports whether s may name an agent: ^[a-z][a-z0-9-]{0,39}$.
func ValidAgentName(s string) bool {
	return run.Spelled(s, run.Lowercase, run.Lowercase+run.Digits+"-", 40)
}

const agentNameForm = `^[a-z][a-z0-9-]{0,39}$`

// ValidWord reports whether s may be the id of a call, or a tool's name to a model: ^[A-Za-z0-9_-]{1,64}$.
func ValidWord(s string) bool {
	const word = run.Letters + run.Digits + "_-"
	return run.Spelled(s, word, word, 64)
}

// ValidToolName reports whether s may be a tool's original name: ^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$.
func ValidToolName(s string) bool {
	const word = run.Letters + run.Digits + "_-"
	for part := range strings.SplitSeq(s, ".") {
		if !run.Spelled(part, word, word, len(part)) {
			return false
		}
	}
	return true
}

// validToolPattern reports whether s may be a pattern over original tool names: ^[A-Za-z0-9_.*-]+$.
func validToolPattern(s string) bool {
	const pattern = run.Letters + run.Digits + "_.*-"
	return run.Spelled(s, pattern, pattern, len(s))
}

// ValidPrincipal reports whether s is user:NAME or group:NAME: ^(user|group):[A-Za-z0-9._@+-]{1,128}$.
func ValidPrincipal(s string) bool {
	return run.IsPrincipal("user:", s) || run.IsPrincipal("group:", s)
}

// ToolHash is the hex SHA-256 of a tool's definition. White space, key order and string escapes of the schema don't count,
// so storing and loading a definition leaves it as it is.
func ToolHash(t ToolSpec) string {
	spec := map[string]any{
		"name": t.Name, "kind": string(t.Kind), "description": t.Description, "schema": jsonx.CanonicalText(t.Schema),
		"effect": string(t.Effect), "priority": strconv.Itoa(t.Priority), "timeout": t.Timeout.String(), "root": t.Root,
	}
	for key, value := range map[string]string{"event": t.Event, "domain": t.Domain} {
		if value != "" { // a tool of before there were such keys keeps its hash
			spec[key] = value
		}
	}
	if where := canonicalRemote(t); where != "{}" {
		spec["remote"] = where
	}
	return HashCanonical(spec)
}

// canonicalRemote is the rest of a tool's definition: where its calls go and how they are made. Loading what it was stored as leaves it as
// it is: struct fields have one order, JSON's maps are sorted, and the marshaller writes raw values in one form.
func canonicalRemote(t ToolSpec) string {
	text, err := json.Marshal(struct {
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
		return "unreadable: " + err.Error()
	}
	return string(text)
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
		"gt": jsonx.CanonicalText(c.Gt), "gte": jsonx.CanonicalText(c.Gte), "lt": jsonx.CanonicalText(c.Lt), "lte": jsonx.CanonicalText(c.Lte),
	}
}

// HashCanonical is the SHA-256, in hex, of the canonical JSON of v.
func HashCanonical(v map[string]any) string { return HashHex(jsonx.AppendCanonical(nil, v)) }

// HashHex is the SHA-256 of b in hex.
func HashHex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// EveryBuiltin are all tools that d may ever offer behind its own.
func (d *Definition) EveryBuiltin() []ToolSpec {
	tools := d.LoopBreaking()
	if t, ok := d.readMore(); ok {
		tools = append(tools, t)
	}
	return tools
}

// Wants reports whether the agent's author wants a tool of that name, the server's own.
func (m MCPServer) Wants(tool string) bool {
	matches := func(pattern string) bool { return MatchTool(pattern, tool) }
	return !slices.ContainsFunc(m.Deny, matches) && (len(m.Allow) == 0 || slices.ContainsFunc(m.Allow, matches))
}

// Spec is a tool of the server as an agent has it.
func (m MCPServer) Spec(t ServerTool) ToolSpec {
	spec := ToolSpec{
		Name: m.Name + "." + t.Name, Kind: KindMCP, Description: strings.ToValidUTF8(t.Description, "\uFFFD"), Schema: t.Schema, Effect: run.EffectNonIdempotent,
		MCP: &MCPTool{Server: m.Name, Tool: t.Name, Digest: t.Digest},
	}
	if i := slices.IndexFunc(m.Tools, func(p MCPPattern) bool { return MatchTool(p.Match, t.Name) }); i >= 0 {
		p := m.Tools[i]
		spec.Effect, spec.Timeout, spec.Priority = cmp.Or(p.Effect, run.EffectNonIdempotent), p.Timeout, p.Priority
	}
	return spec
}

// RunID is a run's id: "r" and 25 characters that follow from tenant, agent and key alone, so starting is idempotent (R1).
func RunID(tenant, agent, key string) string { return "r" + run.HashID(tenant, agent, key) }

// ChildID is the id of the run that a call is: "r" and 25 characters. No key that anybody may choose leads to it.
func ChildID(tenant, agent, runID, call string) string {
	return "r" + run.HashID(tenant, agent, runID, call)
}

// CallID is the id a call has in its run: the model's, if it is 1 to 64 of [A-Za-z0-9_-] and new in the run, since some
// servers restart their ids every turn; else c<inference>-<index>, with -2, -3 and so on behind it should the model have
// used that. used reports whether an id is taken in the run, by this reply's earlier calls too.
func CallID(modelID string, used func(id string) bool, inference int64, index int) string {
	if ValidWord(modelID) && !used(modelID) {
		return modelID
	}
	minted := fmt.Sprintf("c%d-%d", inference, index)
	id := minted
	for n := 2; used(id); n++ {
		id = fmt.Sprintf("%s-%d", minted, n)
	}
	return id
}
