package cli

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/registry"
)

// TestCodeNotLinked: a program without the code that an agent names beside tools neither decides about its runs nor
// carries them on, and may cancel them. The program that has the code finds them as they were. A tool that is not linked
// is in the script notlinked.txtar.
func TestCodeNotLinked(t *testing.T) {
	linked := func() *registry.Registry {
		r := testRegistry()
		require.NoError(t, r.Hook(hook.Set{
			Plugins: map[string]hook.Factory{"audit": func(json.RawMessage) (hook.Plugin, error) { return hook.Plugin{}, nil }},
			Contexts: map[string]hook.ContextSource{"audit": func(context.Context, hook.ContextInput) (string, error) {
				return "Be careful.", nil
			}},
			Outputs: map[string]hook.CheckOutput{"audit": func(context.Context, hook.OutputInput) (string, error) {
				return "", nil
			}},
			Policies: map[string]hook.Policy{"audit": func(context.Context, hook.PolicyInput) ([]string, error) {
				return nil, nil
			}},
		}))
		return r
	}
	for name, names := range map[string]string{
		"a plugin":         "plugins: [{name: audit}]",
		"a context source": "prompt: {rag: audit}",
		"an output check":  "output: {format: json, check: audit}",
		"a policy":         `permission: {policy: audit, default: by_effect, approvers: ["group:operators"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			d := newHarness(t, "name: tidy\nsystem: You tidy.\nmodel: {provider: script, file: model.jsonl}\n"+
				"tools: [{name: move_file, root: .}]\n"+names+"\n",
				`{"calls": [{"id": "m1", "name": "move_file", "input": {"source": "a.txt", "destination": "b.txt"}}]}`+
					"\n"+`{"text": "{}"}`)
			d.registry = linked()
			run := runID.FindString(d.exits(3, "run", d.dir, "--message", "Tidy up.").stdout.String())
			var asked struct{ Items []struct{ ID string } }
			require.NoError(t, json.Unmarshal([]byte(d.exits(0, "approvals", "--json").stdout.String()), &asked))

			d.registry = testRegistry()
			who := d.exits(1, "approve", asked.Items[0].ID)
			require.Contains(t, who.stderr.String(), "audit")
			require.Contains(t, who.stderr.String(), "not part of this program")
			require.Contains(t, d.exits(0, "runs", "--status", "waiting").stdout.String(), run)
			d.run(t.Context(), "", "send", run, "--message", "Go on.")
			d.run(t.Context(), "", "resume")
			d.exits(0, "audit", "replay", run)
			require.Contains(t, d.exits(0, "events", run).stdout.String(), `"source":"a.txt"`)
			require.NotContains(t, d.exits(0, "runs").stdout.String(), "done")

			d.registry = linked()
			d.exits(0, "approve", asked.Items[0].ID)
			require.Contains(t, d.exits(0, "runs").stdout.String(), "natural_end")
		})
	}
}

// TestCodeNotLinkedStopsNobody: a run that a program cannot carry on, and whose request for more budget it looks at, keeps
// it from no other run.
func TestCodeNotLinkedStopsNobody(t *testing.T) {
	const audited = "name: tidy\nsystem: You tidy.\nmodel: {provider: script, file: model.jsonl, price: {input: 1, output: 1}}\n" +
		"plugins: [{name: audit}]\nlimits: {period: {every: day, tokens: 1}, onBudget: ask}\n"
	d := newHarness(t, audited, `{"calls": [{"id": "m1", "name": "none", "input": {}}], "usage": {"input": 5, "output": 5}}`)
	d.registry = testRegistry()
	require.NoError(t, d.registry.Hook(hook.Set{Plugins: map[string]hook.Factory{
		"audit": func(json.RawMessage) (hook.Plugin, error) { return hook.Plugin{}, nil },
	}}))
	d.exits(3, "run", d.dir, "--message", "Tidy up.")

	d.registry = testRegistry()
	d.write("other/agent.yaml", "name: other\nsystem: You tidy.\nmodel: {provider: script, file: model.jsonl}\ntools: [{name: book}]\n")
	d.write("other/model.jsonl", `{"calls": [{"id": "m1", "name": "book", "input": {}}]}`)
	waits := runID.FindString(d.exits(3, "run", d.dir+"/other", "--message", "Book it.").stdout.String())
	who := d.run(t.Context(), "", "resume")
	require.Contains(t, who.stdout.String(), waits, who.stderr.String())
}
