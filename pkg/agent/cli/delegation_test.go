package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/api"
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
	sub := filepath.Join(o.dir, "tidy")
	require.NoError(t, os.Mkdir(sub, 0o700))
	for name, text := range map[string]string{
		"agent.yaml": renamingAgent, "model.jsonl": strings.ReplaceAll(renamingModel, "\n\t", " "), "a.txt": "a", "d.txt": "d",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(sub, name), []byte(text), 0o600))
	}
	p, _ := o.newProgram("")
	tidy, err := p.loadAgent(sub, agentOverrides{})
	require.NoError(t, err)
	o.registry, err = o.registry.With(*tidy)
	require.NoError(t, err)
	o.root = agent.RunID(local.Tenant, "research", "k")
	o.child = agent.ChildID(local.Tenant, "tidy", o.root, "c1")
	return o
}

// writeDelegatedRun writes a run of tidy for a call of research. Nothing executes it yet.
func (o *delegationHarness) writeDelegatedRun(key string, parent run.Parent) string {
	o.t.Helper()
	p, _ := o.newProgram("")
	p.home = o.home()
	above, err := p.loadAgent(o.dir, agentOverrides{})
	require.NoError(o.t, err)
	written, err := p.loadAgent(filepath.Join(o.dir, "tidy"), agentOverrides{})
	require.NoError(o.t, err)
	child := policy.Delegated(above, *written)
	pinned, err := json.Marshal(child)
	require.NoError(o.t, err)
	e, err := p.openEngine(principals{})
	require.NoError(o.t, err)
	defer func() { require.NoError(o.t, e.Close()) }()
	ports, digest := e.home.Ports, store.BlobDigest(pinned)
	require.NoError(o.t, ports.Blobs.Put(o.t.Context(), local.Tenant, digest, pinned))
	runID2 := agent.RunID(local.Tenant, child.Name, key)
	d := run.NewDraft(run.AgentState{}, ports.IDs.Writer(), ports.Clock.Now())
	require.NoError(o.t, d.Add(run.RunStarted{
		Tenant: local.Tenant, Run: runID2, Agent: child.Name, Definition: digest, Owner: runtime.ExecutionName(runID2, 0), BodyDigest: key, Parent: &parent,
		MaxInteractions: child.Limits.Interactions, Messages: []run.UserBlock{{Block: run.Text{Text: "tidy"}}},
	}))
	// Who has begun does not look again whether the run above waits for it; those above wait for no run here, but for a service's answer.
	first, _, _ := strings.Cut(strings.ReplaceAll(renamingModel, "\n\t", " "), "\n")
	var reply struct {
		Text  string
		Calls []struct {
			ID, Name string
			Input    json.RawMessage
		}
	}
	require.NoError(o.t, json.Unmarshal([]byte(first), &reply))
	said := agent.Reply{Text: reply.Text}
	for _, c := range reply.Calls {
		said.Calls = append(said.Calls, agent.ReplyCall{ID: c.ID, Name: c.Name, Input: c.Input})
	}
	require.NoError(o.t, d.Add(policy.PlanReply(&child, &d.State, said, 1, "")))
	require.NoError(o.t, ports.Journal.Append(o.t.Context(), run.AgentState{}, d))
	return runID2
}

// showRun returns a run of show --json.
func (o *delegationHarness) showRun(run string) api.Run {
	o.t.Helper()
	who := o.run(o.t.Context(), "", "show", run, "--json")
	require.Equal(o.t, 0, who.code, who.stderr.String())
	var r api.Run
	require.NoError(o.t, json.Unmarshal([]byte(who.stdout.String()), &r))
	return r
}

// runWithoutPatience runs a command with a short store timeout.
func (o *delegationHarness) runWithoutPatience(typed string, args ...string) *commandResult {
	p, who := o.newProgram(typed)
	p.storeTimeout = 400 * time.Millisecond
	who.code = p.run(o.t.Context(), args)
	return who
}

// Who follows a run decides about what the runs below it ask as about its own, and is told who asks.
func TestRequestsBelowAreAskedAtTheRoot(t *testing.T) {
	o := newDelegationHarness(t)
	typed := strings.Join([]string{"one", "e", `{"source": "a.txt", "destination": "c.txt"}`, "d", "not this one"}, "\n")
	who := o.run(t.Context(), typed, "run", o.dir, "--message", "look", "--key", "k")
	require.Equal(t, 0, who.code, who.stderr.String())
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
	require.Equal(t, run.ReasonNaturalEnd, o.showRun(o.root).Reason)
}

// What is left for later, and what nobody is there to ask about, is named at the root with the commands that decide it; deciding by id
// carries on all of it.
func TestRequestsBelowAreNamedAtTheRoot(t *testing.T) {
	for name, typed := range map[string]string{"later": "one\nl\nl\n", "nobody there": ""} {
		t.Run(name, func(t *testing.T) {
			o := newDelegationHarness(t)
			who := o.runWithoutPatience(typed, "run", o.dir, "--message", "look", "--key", "k")
			require.Equal(t, 3, who.code, who.stderr.String())
			out := who.stdout.String()
			require.Contains(t, out, "run "+o.root+" waits for run "+o.child+" of agent tidy (c1)\n")
			require.NotContains(t, out, "countersign answer", "the answer is the other run's to give")
			require.Contains(t, out, "run "+o.child+" of agent tidy, for run "+o.root+", waits for approval a")
			ids := approvalID.FindAllStringSubmatch(out, -1)
			require.Len(t, ids, 2)

			require.Equal(t, typed != "", strings.Contains(who.stderr.String(), "approve, deny, edit, ask or later?"))
			first := o.runWithoutPatience("", "approve", ids[0][1])
			require.Equal(t, 3, first.code)
			require.Contains(t, first.stdout.String(), "waits for run "+o.child)
			require.NotContains(t, first.stdout.String(), ids[0][1])
			require.Contains(t, first.stdout.String(), ids[1][1])
			last := o.run(t.Context(), "", "deny", ids[1][1])
			require.Equal(t, 0, last.code, last.stderr.String())
			require.Equal(t, "Researched.\n", last.stdout.String())
			require.Equal(t, run.ReasonNaturalEnd, o.showRun(o.child).Reason)
		})
	}
}

// Approvals and runs are listed by the run they surface at; show has the tree; a run's events are its own.
func TestShowsWhatIsBelow(t *testing.T) {
	o := newDelegationHarness(t)
	grandchild := o.writeDelegatedRun("deeper", run.Parent{Run: o.child, Call: "m9", Root: o.root, Depth: 2})
	require.Equal(t, 3, o.runWithoutPatience("", "run", o.dir, "--message", "look", "--key", "k").code)
	lone := agent.RunID(local.Tenant, "tidy", "lone")
	require.Equal(t, 3, o.runWithoutPatience("", "run", filepath.Join(o.dir, "tidy"), "--message", "tidy", "--key", "lone").code)

	out := func(args ...string) string {
		t.Helper()
		who := o.run(t.Context(), "", args...)
		require.Equal(t, 0, who.code, who.stderr.String())
		return who.stdout.String()
	}
	shown := out("show", o.root)
	require.Regexp(t, "(?m)^below     "+o.child+" of agent tidy for call c1: waiting suspended, m1 waits for approval a[a-z2-7]{25}, m2 waits for approval a[a-z2-7]{25}$", shown)
	require.Regexp(t, "(?m)^below       "+grandchild+" of agent tidy for call m9: waiting suspended, ", shown)
	require.NotContains(t, out("show", lone), "below")
	middle := out("show", o.child)
	require.Contains(t, middle, "below     call c1 of run "+o.root+", for run "+o.root+"\n")
	require.Contains(t, middle, "below     "+grandchild)
	require.NotContains(t, out("show", grandchild), "below     "+o.child)

	require.Equal(t, 2, strings.Count(out("runs", "--root", o.root), " tidy "))
	require.Equal(t, "no runs\n", out("runs", "--root", lone))
	asked := func(flags ...string) (runs []string) {
		t.Helper()
		var page api.Page[approval.Approval]
		require.NoError(t, json.Unmarshal([]byte(out(append([]string{"approvals", "--json"}, flags...)...)), &page))
		for _, a := range page.Items {
			require.Equal(t, o.root, a.Root)
			runs = append(runs, a.Run)
		}
		return runs
	}
	require.ElementsMatch(t, []string{o.child, o.child, grandchild, grandchild}, asked("--root", o.root))
	require.Equal(t, []string{grandchild, grandchild}, asked("--run", grandchild))
	require.NotContains(t, out("approvals", "--root", lone), o.root)
	require.Contains(t, out("approvals", "--run", grandchild), "  below      call m9 of run "+o.child+", for run "+o.root+"\n")
	require.Equal(t, 2, o.run(t.Context(), "", "approvals", "--root", "rnone").code)

	require.NotContains(t, out("events", o.root, "--format", "canonical"), "move_file", "events are the run's own")
	require.Contains(t, out("events", o.child, "--format", "canonical"), "move_file")
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
		require.Equal(t, c.want, formatDeciders(c.approvers, c.above))
	}
	var b strings.Builder
	require.NoError(t, writeApproval(&b, approval.Approval{
		Kind: approval.KindTools, Calls: []string{"c1"}, Agent: "x\u202e", Root: "r1", Parent: "r0", ParentCall: "c0", Args: json.RawMessage("null"),
		Permissions: []approval.Permission{{Tool: "t", Calls: []approval.BlockedCall{{Call: "c1", Args: json.RawMessage(`{}`), Approvers: []string{"group:a"}, Above: [][]string{{"group:b"}}}}}},
	}, show.View{}))
	require.Contains(t, b.String(), "    approvers  call c1: group:a; and at once group:b\n")
	require.Contains(t, b.String(), "  below      call c0 of run r0, for run r1\n")
	require.NotContains(t, b.String(), "\u202e")
}

// A part of a tree is what is below one of its runs, and nothing beside it.
func TestPartOfATree(t *testing.T) {
	all := runTree{{ID: "a", Parent: "root", ParentCall: "c1"}, {ID: "b", Parent: "root", ParentCall: "c2"}, {ID: "aa", Parent: "a", ParentCall: "c1"}, {ID: "aaa", Parent: "aa"}}
	ids := func(t runTree) (ids []string) {
		for _, h := range t {
			ids = append(ids, h.ID)
		}
		return ids
	}
	require.Equal(t, []string{"aa", "aaa"}, ids(all.subtree("a")))
	require.Empty(t, all.subtree("b"))
	require.Equal(t, []string{"a", "b"}, ids(all.children("root")))
}
