package agentfile

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
)

// working holds, for every key that is read, a value that changes the definition.
var working = map[string]string{
	"name": "other", "version": `"9"`, "preset": "arvo", "system": "other",
	"model.provider": "script", "model.id": "other", "model.baseURL": "http://x", "model.file": "f", "model.maxTokens": "7", "model.temperature": "0.5",
	"model.retry.attempts": "9", "model.retry.backoff": "1ms", "model.retry.maxBackoff": "9s",
	"model.fallbacks": "[{provider: openai, id: m}]", "model.staticText": "Sorry.", "model.price": "{input: 3, output: 15}",
	"model.retry.on": "[server]", "model.moveOn": "[]", "model.cutStream": "keep", "model.repair": "on",
	"tools[].name": "mail.send", "tools[].kind": "internal", "tools[].description": "other", "tools[].schema": "{type: object, title: x}",
	"tools[].effect": "idempotent", "tools[].priority": "5", "tools[].timeout": "9s",
	"tools[].retry": "{attempts: 2, backoff: 1s, maxBackoff: 9s}", "tools[].concurrency": "2", "tools[].maxResult": "9", "tools[].undo": "{tool: mail.unsend, args: {a: 1}}", "tools[].precondition": "{tool: mail.find, args: {a: {args: /a}}, compare: [/state], warn: [{path: /state, eq: gone}]}", "limits.parallel": "3",
	"mcp[].name": "files", "mcp[].command": "[npx, x]", "mcp[].dir": "/srv", "mcp[].env": "{A: b}", "mcp[].url": "https://x", "mcp[].headers": "{A: b}",
	"mcp[].tools": "{a: {effect: read}}", "mcp[].allow": "[a]", "mcp[].deny": "[a]", "mcp[].timeout": "9s", "mcp[].required": "false",
	"permission.mode": "block_and_retry", "permission.default": "ask", "permission.scope": "tool", "permission.approvers": `["user:bo"]`, "permission.early": "keep", "permission.grants": "once", "permission.approvalTool": "ask.people", "permission.backend": "other", "permission.policy": "other", "permission.standing": "{uses: 2, expires: 7d, when: [{path: /a, lte: 5}], pattern: true}",
	"permission.rules[].tool": "other", "permission.rules[].verdict": "deny", "permission.rules[].approvers": `["user:bo"]`,
	"permission.rules[].quorum": "2", "permission.rules[].fourEyes": "true", "permission.rules[].remind": "4h", "permission.rules[].escalate": `{after: 8h, to: ["group:b"]}`, "permission.rules[].via": "[api]", "permission.rules[].confirm": "code",
	"permission.rules[].expires": "1h", "permission.rules[].note": "other", "permission.rules[].when[].path": "/other",
	"permission.rules[].when[].eq": "1", "permission.rules[].when[].ne": "1", "permission.rules[].when[].gt": "1", "permission.rules[].when[].gte": "1",
	"permission.rules[].when[].lt": "1", "permission.rules[].when[].lte": "1", "permission.rules[].when[].in": "[1]", "permission.rules[].when[].matches": "x",
	"limits.interactions": "7", "limits.grace": "2", "limits.onLimit": "stop", "limits.tokens": "100000", "limits.usd": "0.25", "limits.onBudget": "ask", "limits.period": "{every: day, usd: 9}",
	"stop.rounds": "3", "stop.timeout": "5m", "stop.tokens": "9", "stop.consecutiveErrors": "2", "stop.onTool": "[mail.send]", "stop.contains": "DONE", "stop.loopWindow": "2",
	"corrections": "ephemeral", "input.schema": "{type: array}", "output.format": "json", "output.schema": "{type: array}", "output.history": "true",
	"batch": "first", "executor": "sequential", "resume": "all_answered", "textBesideCalls": "drop",
	"wait": "all_suspended", "dropped": "notify", "systemPrompt": "every_inference", "context.mask": "false", "plugins[].name": "reminder", "plugins[].config": "{a: 1}",
	"model.dialect": "xml", "text": "heuristic", "guards.duplicateCalls": "false", "guards.failedRounds": "9", "guards.toolFailures": "9",
	"analysis.incomplete": "[x]", "analysis.completion": "[x]", "analysis.deflection": "[x]", "analysis.deflectionRetries": "9", "analysis.emptyReplies": "9",
	"analysis.trustGate": "9", "xml.missingServer": "local", "xml.breaker": "9", "xml.disable": "[converse]", "prompt.order": "code", "prompt.sections": "{x: y}", "prompt.planning": "other", "prompt.rag": "other", "output.check": "other",
	"context.window": "9", "context.reserve": "{active: 9}", "context.evictBelow": "9", "context.roundMinimum": "9", "context.keep": "9", "context.summaryTokens": "9", "context.summary": "model",
	"context.truncateResult": "9", "context.compressAfter": "9", "context.prune": "9", "orchestrator.enabled": "true", "orchestrator.planner": "{provider: demo}",
	"orchestrator.router": "{provider: demo}", "orchestrator.topK": "9", "orchestrator.maxSteps": "9", "orchestrator.retries": "9", "prefilter.topK": "9", "prefilter.embeddings.provider": "openai", "prefilter.embeddings.id": "m",
	"prefilter.embeddings.baseURL": "http://127.0.0.1:1/v1", "prefilter.embeddings.key": "'${secret:K}'",
}

// Keys whose only working value is the one in force, so that reading them changes nothing.
var oneValue = []string{"tools[].kind", "mcp[].dir"} // a folder means nothing in a file that stands in none

// readKeys runs one of the keys through the reader and returns what it made and what it complained of.
func readKeys(t *testing.T, path, value string) (agent.Definition, Problems) {
	t.Helper()
	r := newReader("agent.yaml", Options{AllowUnknownTools: true, Hooks: hook.Set{Policies: map[string]hook.Policy{"other": nil}, Backends: map[string]hook.PermissionBackend{"other": nil}, Contexts: map[string]hook.ContextSource{"other": nil}, Outputs: map[string]hook.CheckOutput{"other": nil}}})
	root, ok := r.tree([]byte(nested(path, value)))
	require.True(t, ok, "%s: %v", path, r.problems)
	return r.definition(root), r.problems
}

// around is the definition of a file in which there is only what path stands in.
func around(t *testing.T, path string) agent.Definition {
	t.Helper()
	i := strings.LastIndex(path, ".")
	if i < 0 {
		d, _ := readKeys(t, "name", `""`)
		return d
	}
	d, _ := readKeys(t, path[:i], "{}")
	return d
}

// nested writes path: value as flow YAML.
func nested(path, value string) string {
	parts := strings.Split(path, ".")
	for _, part := range slices.Backward(parts) {
		name, isList := strings.CutSuffix(part, "[]")
		if isList {
			value = "[" + value + "]"
		}
		value = "{" + name + ": " + value + "}"
	}
	return value
}

func TestWorkingKeysAreRead(t *testing.T) {
	for path, value := range working {
		d, problems := readKeys(t, path, value)
		require.Empty(t, problems, path)
		base := around(t, path)
		if !slices.Contains(oneValue, path) {
			require.NotEqual(t, base, d, path)
		} else {
			require.Equal(t, base, d, path)
		}
	}
}

// Every key of docs/agent-file.md works; testdata/fixed.txt lists them.
func TestEveryFixedKeyIsKnown(t *testing.T) {
	data, err := os.ReadFile("testdata/fixed.txt")
	require.NoError(t, err)
	fixed := strings.Fields(string(regexp.MustCompile(`(?m)#.*$`).ReplaceAll(data, nil)))
	known := []string{}
	for path := range working {
		known = append(known, path)
	}
	require.ElementsMatch(t, fixed, known)
}
