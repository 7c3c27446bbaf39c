package agentfile

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
)

// otherValues are of keys whose values in everything.yaml say what holds without them.
var otherValues = map[string]string{
	"preset": "arvo", "batch": "first", "resume": "all_answered", "wait": "all_suspended", "textBesideCalls": "drop",
	"corrections": "ephemeral", "systemPrompt": "every_inference", "dropped": "notify", "cutText": "notice", "text": "heuristic",
	"builder": "other", "wording": "{noToolCall: x}", "context.keep": "9", "context.keepWhole": "false", "context.reserve.system": "9",
	"output.history": "true", "output.check": "other", "permission.mode": "block_and_retry", "permission.scope": "tool",
	"permission.early": "keep", "permission.approvalTool": "ask.people", "permission.backend": "other", "permission.policy": "other",
	"prompt": "{order: code}", "prompt.order": "code", "prompt.sections": "{x: y}", "prompt.planning": "other", "prompt.rag": "other",
	"orchestrator.enabled": "true", "mcp[].dir": "/srv", "tools[].schema": "{type: object, title: x}", "tools[].async": "true",
	"xml.missingServer": "local",
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

// Every key says something: without it, the definition is another one.
func TestEveryKeyIsRead(t *testing.T) {
	root, opt := everything(t)
	opt.Hooks = hook.Set{
		Builders: map[string]hook.Builder{"other": nil}, Outputs: map[string]hook.CheckOutput{"other": nil},
		Policies: map[string]hook.Policy{"other": nil}, Backends: map[string]hook.PermissionBackend{"other": nil},
		Contexts: map[string]hook.ContextSource{"other": nil},
	}
	definition := func(n *node) (agent.Definition, Problems) {
		r := newReader("agent.yaml", opt)
		text, _ := write(n)
		root, _ := r.tree([]byte(text))
		return r.definition(root), r.problems
	}
	says, keys := map[string]bool{}, grammar(t, root, opt)
	for _, path := range slices.Sorted(maps.Keys(keys)) {
		for _, m := range at(root, path).members {
			name := m.key + " of " + strings.Join(keys[path], " ") // a model is read alike wherever one stands
			if says[name] {
				continue
			}
			at := join(path, m.key)
			part := about(root, at)
			if value, ok := otherValues[pattern(at)]; ok {
				part = edited(part, "", at, func(n *node) { *n = node{kind: raw, text: value} })
			}
			with, problems := definition(part)
			require.Empty(t, problems, at)
			without, _ := definition(edited(part, "", path, func(n *node) {
				n.members = slices.DeleteFunc(n.members, func(other member) bool { return other.key == m.key })
			}))
			says[name] = !reflect.DeepEqual(with, without)
		}
	}
	for name, is := range says {
		require.True(t, is, name)
	}
}
