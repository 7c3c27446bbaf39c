package cli

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"
	"github.com/countersign/countersign/internal/tool"
)

// payerAgent asks people about its one call.
const payerAgent = `name: payer
system: You pay.
model: {provider: script, file: model.jsonl}
permission: {default: ask, approvers: ["group:operators"]}
tools:
  - {name: pay}
`

// asksOperators is what its run does next.
const asksOperators = "call c1: people are asked about pay: group:operators"

// newPayTool returns a tool whose arguments are In, and which nobody is to enter.
func newPayTool[In any](t *testing.T) tool.Tool {
	entered := func(context.Context, tool.Call, In) (agent.ToolResultData, error) {
		t.Error("a tool was entered")
		return agent.ToolResultData{}, nil
	}
	return tool.Must(tool.New("pay", "Pays.", run.EffectNonIdempotent, entered, nil))
}

// parkPayer parks a run of an agent, whose model is never asked again.
func parkPayer(t *testing.T, agentYAML string) (d *harness, run string) {
	t.Helper()
	d = newHarness(t, agentYAML, `{"calls": [{"id": "c1", "name": "pay", "input": {"amount": 40}}]}`)
	d.registry = testRegistry(newPayTool[struct {
		Amount float64 `json:"amount"`
	}](t))
	return d, runID.FindString(d.exits(3, "run", d.dir, "--message", "Pay.").stdout.String())
}

// rehearse returns what a rehearsal finds, which writes nothing.
func (d *harness) rehearse(args ...string) (rep rehearsalReport) {
	d.t.Helper()
	before := digestFolder(d.t, d.home())
	who := d.run(d.t.Context(), "", append([]string{"rehearse", "--json"}, args...)...)
	require.NoError(d.t, json.Unmarshal([]byte(who.stdout.String()), &rep), who.stderr.String())
	require.Equal(d.t, before, digestFolder(d.t, d.home()), "nothing is written")
	return rep
}

// TestNewDefinitions: what each change of a definition does to a run that waits for a person (A17, R12). The script
// rehearse.txtar has other approvers, and a tool that is gone.
func TestNewDefinitions(t *testing.T) {
	d, _ := parkPayer(t, payerAgent)
	const rule, denied = "default: ask, rules: [{tool: %, verdict: deny}]", "call c1: pay is not carried out (denied)"
	for name, c := range map[string]struct {
		old, replacement, next string
		breaks, changes        int
	}{
		"the same":        {"", "", asksOperators, 0, 0},
		"another prompt":  {"You pay.", "You pay well.", asksOperators, 0, 0},
		"a looser policy": {"default: ask", "default: allow", asksOperators, 0, 0},
		"a quorum": {`default: ask`, `rules: [{tool: pay, verdict: ask, approvers: ["group:operators"], quorum: 2}]`,
			asksOperators + ", 2 of them", 0, 1},
		"a deny rule":            {"default: ask", strings.Replace(rule, "%", "pay", 1), denied, 1, 1},
		"a rule for other tools": {"default: ask", strings.Replace(rule, "%", "send", 1), asksOperators, 0, 0},
	} {
		d.write("agent.yaml", strings.Replace(payerAgent, c.old, c.replacement, 1))
		rep := d.rehearse("--agent", d.dir)
		require.Equal(t, []string{c.next}, rep.Runs[0].Next, name)
		require.Equal(t, []int{c.breaks, c.changes}, []int{rep.Breaks, rep.Changes}, "%s: %+v", name, rep.Runs)
	}
	rep := d.rehearse() // the agent is gone
	require.Equal(t, []string{asksOperators}, rep.Runs[0].Next, "it goes on with what it is pinned to")
	require.Equal(t, "unknown", rep.Runs[0].Deployed)
	require.Zero(t, rep.Breaks)
}

// TestNewBuilds: what a run needs of the code that is linked, and what this build does not read.
func TestNewBuilds(t *testing.T) {
	const newer = "deploy the version that wrote it"
	for name, c := range map[string]struct {
		change func(d *harness, run string)
		breaks []string // parts of it
	}{
		"a newer fact": {func(d *harness, run string) {
			d.rewrite(run, "J#0000000001", func(e map[string]any) {
				e["e"] = append(e["e"].([]any), map[string]any{"call_judged": map[string]any{}})
			})
		}, []string{`"call_judged": unknown to this version`, newer}},
		"a newer definition": {func(d *harness, run string) { d.pinTo(run, `{"name":"payer","oversight":"strict"}`) },
			[]string{`definition: json: unknown field "oversight"`, newer}},
		"the tool's code is gone": {func(d *harness, _ string) { d.registry = testRegistry() },
			[]string{"tool pay is not in this build, and call c1 is open"}},
		"it takes other arguments": {func(d *harness, _ string) {
			d.registry = testRegistry(newPayTool[struct {
				Amount string `json:"amount"`
			}](d.t))
		}, []string{"the arguments of call c1 are not what tool pay takes in this build"}},
		"a plugin is gone": {func(d *harness, run string) {
			d.pinTo(run, `{"name":"payer","plugins":[{"name":"audit"}]}`)
		}, []string{"code that its definition names is not in this build"}},
	} {
		t.Run(name, func(t *testing.T) {
			d, run := parkPayer(t, payerAgent)
			c.change(d, run)
			rep := d.rehearse()
			require.Equal(t, 1, rep.Breaks)
			for _, part := range c.breaks {
				require.Contains(t, strings.Join(rep.Runs[0].Breaks, "\n"), part)
			}
		})
	}
}

// TestNextWords: whatever comes next is said.
func TestNextWords(t *testing.T) {
	for _, kind := range []policy.ActionKind{policy.ActList, policy.ActInfer, policy.ActTools, policy.ActBudget,
		policy.ActWait, policy.ActContinue, policy.ActEnd, policy.ActDone} {
		require.NotEmpty(t, nextWords[kind], kind)
	}
}

// pinTo has the run's first entry name another definition.
func (d *harness) pinTo(run, definition string) {
	d.t.Helper()
	blobs, err := bolt.OpenFolder(filepath.Join(d.home(), "blobs"))
	require.NoError(d.t, err)
	digest := store.BlobDigest([]byte(definition))
	require.NoError(d.t, blobs.Put(d.t.Context(), local.Tenant, digest, []byte(definition)))
	d.rewrite(run, "J#0000000000", func(e map[string]any) {
		e["e"].([]any)[0].(map[string]any)["run_started"].(map[string]any)["definition"] = digest
	})
}

// rewrite changes an entry, and the hashes of those behind it: the journal is one that another version wrote.
func (d *harness) rewrite(of, sk string, change func(map[string]any)) {
	d.t.Helper()
	table, err := local.OpenTable(d.home())
	require.NoError(d.t, err)
	defer func() { require.NoError(d.t, table.Close()) }()
	entries := store.Range{PK: store.RunKey(local.Tenant, of).PK, From: sk, To: "J#9999999999"}
	page, err := table.Query(d.t.Context(), entries)
	require.NoError(d.t, err)
	require.NotEmpty(d.t, page.Items)
	for _, it := range page.Items {
		var e map[string]any
		require.NoError(d.t, json.Unmarshal(it.Body, &e))
		change(e)
		it.Body, err = json.Marshal(e)
		require.NoError(d.t, err)
		require.NoError(d.t, table.Write(d.t.Context(), store.Op{Kind: store.Put, Item: it}))
		hash := run.HashBody(it.Body)
		change = func(e map[string]any) { e["h"] = hash }
	}
}

// TestServiceCall: a call that a service is to answer goes on waiting for it.
func TestServiceCall(t *testing.T) {
	service := strings.NewReplacer("default: ask", "default: allow", "{name: pay}", "{name: pay, kind: service}")
	d, _ := parkPayer(t, service.Replace(payerAgent))
	rep := d.rehearse("--agent", d.dir)
	require.Equal(t, []string{"call c1: pay waits for an answer"}, rep.Runs[0].Next)
	require.Zero(t, rep.Breaks+rep.Changes, "%+v", rep.Runs)
}

// TestServerGone: the tools of a server that the new definition does not have are named.
func TestServerGone(t *testing.T) {
	d, run := parkPayer(t, payerAgent)
	d.pinTo(run, `{"name":"payer","mcp":[{"name":"files","url":"https://files.example.com/mcp"}],
		"tools":[{"name":"files.delete","kind":"mcp","effect":"read","mcp":{"server":"files","tool":"delete","digest":"d"}}]}`)
	rep := d.rehearse("--agent", d.dir)
	require.Equal(t, []string{"the new definition has no tool files.delete: calls of it are denied"}, rep.Runs[0].Changes)
}

// TestAgentGone: a call that is to be delegated breaks without the agent, and one that is delegated does not.
func TestAgentGone(t *testing.T) {
	for verdict, breaks := range map[string]int{"ask": 1, "allow": 0} {
		o := newDelegationHarness(t)
		o.write("agent.yaml", strings.Replace(delegatingAgent, "default: allow", "default: "+verdict, 1))
		o.exits(3, "run", o.dir, "--message", "Search.")
		rep := o.rehearse()
		require.Zero(t, rep.Breaks, "%s: %+v", verdict, rep.Runs)
		o.registry = testRegistry()
		rep = o.rehearse()
		require.Equal(t, breaks, rep.Breaks, "%s: %+v", verdict, rep.Runs)
		require.Contains(t, rep.Runs[0].Changes, "agent tidy is not in this build: calls of search fail")
	}
}
