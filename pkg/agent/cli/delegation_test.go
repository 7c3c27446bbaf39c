package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web"
)

// delegatingAgent delegates its one call to another agent.
const delegatingAgent = `name: research
system: You ask.
model: {provider: script, file: model.jsonl}
permission: {default: allow, rules: [{tool: move_file, verdict: ask, note: "mind the archive"}]}
tools:
  - {name: search, kind: agent, agent: tidy, description: Search.}
`

const delegatingModel = `{"calls": [{"id": "c1", "name": "search", "input": {"message": "tidy"}}]}
{"text": "Researched."}`

// delegationHarness is a harness with the agent research, and the agent tidy, to which it delegates, in a subfolder.
type delegationHarness struct {
	*harness
	root, child string
}

func newDelegationHarness(t *testing.T) *delegationHarness {
	t.Helper()
	o := &delegationHarness{harness: newHarness(t, delegatingAgent, delegatingModel)}
	for name, text := range map[string]string{
		"agent.yaml": renamingAgent, "model.jsonl": strings.ReplaceAll(renamingModel, "\n\t", " "), "a.txt": "a", "d.txt": "d",
	} {
		o.write("tidy/"+name, text)
	}
	o.register("tidy")
	o.root = agent.RunID(local.Tenant, "research", "k")
	o.child = agent.ChildID(local.Tenant, "tidy", o.root, "c1")
	return o
}

// register registers the agent of a subfolder.
func (o *delegationHarness) register(sub string) {
	o.t.Helper()
	p, _ := o.newProgram("")
	def, err := p.loadAgent(filepath.Join(o.dir, sub), agentOverrides{})
	require.NoError(o.t, err)
	o.registry, err = o.registry.With(*def)
	require.NoError(o.t, err)
}

// Who follows a run decides about what the runs below it ask as about its own, and is told who asks.
func TestRequestsBelowAreAskedAtTheRoot(t *testing.T) {
	o := newDelegationHarness(t)
	typed := strings.Join([]string{"one", "e", `{"source": "a.txt", "destination": "c.txt"}`, "d", "not this one"}, "\n")
	who := o.typed(typed, 0, "run", o.dir, "--message", "look", "--key", "k")
	require.Equal(t, "Researched.\n", who.stdout.String())
	for _, want := range []string{
		"  run        " + o.child + ", call m1\n", "  below      call c1 of run " + o.root + ", for run " + o.root + "\n",
		"  policy     mind the archive\n", "  approvers  group:operators\n", `    destination: "\u{202E}b.txt"` + "\n",
		"below    " + o.child + " of agent tidy for call c1: waiting suspended",
	} {
		require.Contains(t, who.stderr.String(), want)
	}
	require.Contains(t, o.run(t.Context(), "", "show", o.root).stdout.String(), "below     "+o.child+" of agent tidy for call c1: done natural_end")
	require.FileExists(t, filepath.Join(o.dir, "tidy", "c.txt"))
	require.FileExists(t, filepath.Join(o.dir, "tidy", "d.txt"))
	require.Equal(t, run.ReasonNaturalEnd, o.loadRun(o.root).Reason)
}

// Approvals and runs are listed by the run they surface at; show has the tree; a run's events are its own.
func TestShowsWhatIsBelow(t *testing.T) {
	o := newDelegationHarness(t)
	o.write("desk/agent.yaml", strings.NewReplacer("research", "desk", "agent: tidy", "agent: research").Replace(delegatingAgent)+
		"limits: {depth: 2}\n")
	o.write("desk/model.jsonl", delegatingModel)
	o.register(".")
	root := agent.RunID(local.Tenant, "desk", "k")
	child := agent.ChildID(local.Tenant, "research", root, "c1")
	grandchild := agent.ChildID(local.Tenant, "tidy", child, "c1")
	lone := agent.RunID(local.Tenant, "tidy", "lone")
	for key, dir := range map[string]string{"k": "desk", "lone": "tidy"} {
		o.exits(3, "run", filepath.Join(o.dir, dir), "--message", "look", "--key", key)
	}

	out := func(args ...string) string {
		t.Helper()
		who := o.exits(0, args...)
		return who.stdout.String()
	}
	shown := out("show", root)
	require.Regexp(t, "(?m)^below     "+child+" of agent research for call c1: waiting suspended", shown)
	require.Regexp(t, "(?m)^below       "+grandchild+" of agent tidy for call c1: waiting suspended, "+
		"m1 waits for approval a[a-z2-7]{25}, m2 waits for approval a[a-z2-7]{25}$", shown)
	require.NotContains(t, out("show", lone), "below")
	middle := out("show", child)
	require.Contains(t, middle, "below     call c1 of run "+root+", for run "+root+"\n")
	require.Contains(t, middle, "below     "+grandchild)
	require.NotContains(t, out("show", grandchild), "below     "+child)

	require.Zero(t, o.rehearse().Breaks)
	require.Equal(t, 1, strings.Count(out("runs", "--root", root), " tidy "))
	require.Equal(t, "no runs\n", out("runs", "--root", lone))
	for flag, run := range map[string]string{"--root": root, "--run": grandchild} {
		var page web.Page[approval.Approval]
		require.NoError(t, json.Unmarshal([]byte(out("approvals", "--json", flag, run)), &page))
		require.Len(t, page.Items, 2)
		for _, a := range page.Items {
			require.Equal(t, []string{root, grandchild}, []string{a.Root, a.Run})
		}
	}
	require.NotContains(t, out("approvals", "--run", child), "(pending)")
	require.NotContains(t, out("approvals", "--root", lone), root)
	require.Contains(t, out("approvals", "--run", grandchild), "  below      call c1 of run "+child+", for run "+root+"\n")
	require.Equal(t, 2, o.run(t.Context(), "", "approvals", "--root", "rnone").code)

	require.NotContains(t, out("events", root, "--format", "canonical"), "move_file", "events are the run's own")
	require.Contains(t, out("events", grandchild, "--format", "canonical"), "move_file")
}

// All sets of people are named, each once.
func TestDeciders(t *testing.T) {
	for _, c := range []struct {
		approvers []string
		above     [][]string
		want      string
	}{
		{[]string{"user:a", "group:b"}, nil, "user:a, group:b"},
		{[]string{"group:a"}, [][]string{{"group:a"}}, "group:a"},
		{[]string{"group:a"}, [][]string{{"group:b", "user:c"}, {"group:a"}}, "group:a; and at once group:b, user:c"},
		{nil, [][]string{{}}, "nobody"},
		{[]string{"group:a"}, [][]string{nil}, "group:a; and at once nobody"},
	} {
		require.Equal(t, c.want, people.ApproversText(c.approvers, c.above).String())
	}
	var b strings.Builder
	require.NoError(t, writeApproval(&b, approval.Approval{
		Kind: approval.KindTools, Calls: []string{"c1"}, Agent: "x\u202e", Root: "r1", Parent: "r0", ParentCall: "c0", Args: json.RawMessage("null"),
		Permissions: []approval.Permission{{Tool: "t", Calls: []approval.BlockedCall{{Call: "c1", Args: json.RawMessage(`{}`), Approvers: []string{"group:a"}, Above: [][]string{{"group:b"}}}}}},
	}, people.DocumentView{}))
	require.Contains(t, b.String(), "    approvers  call c1: group:a; and at once group:b\n")
	require.Contains(t, b.String(), "  below      call c0 of run r0, for run r1\n")
	require.NotContains(t, b.String(), "\u202e")
}
