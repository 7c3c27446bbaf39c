package web_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

// delegate starts a run that is carried out for a call of another, of the same agent below its own policy, and follows
// it until it is done or waits. Who decides early has done so before its execution starts.
func (b *bench) delegate(key string, p run.Parent, early ...run.DecisionKept) web.Run {
	b.t.Helper()
	written, ok := b.backend.Agents.Agent("payer")
	require.True(b.t, ok)
	child := policy.PinDelegated(written, *written)
	pinned := must(json.Marshal(child))
	digest := store.BlobDigest(pinned)
	require.NoError(b.t, b.Ports.Blobs.Put(b.t.Context(), local.Tenant, digest, pinned))
	runID := agent.RunID(local.Tenant, child.Name, key)
	d := run.NewDraft(run.AgentState{}, b.Ports.IDs.Writer(), b.Ports.Clock.Now())
	require.NoError(b.t, d.Add(run.RunStarted{
		Tenant: local.Tenant, Run: runID, Agent: child.Name, Version: child.Version, Definition: digest, Owner: runtime.ExecutionName(runID, 0),
		MaxInteractions: child.Limits.Interactions, BodyDigest: key, Parent: &p, By: []string{"user:ana"}, Messages: []run.UserBlock{{Block: run.Text{Text: "pay 5"}}},
	}))
	// Who has begun does not look again whether the run above waits for it; those above wait for no run here.
	require.NoError(b.t, d.Add(policy.PlanReply(&child, &d.State, agent.Reply{
		Text: "I will pay.", Calls: []agent.ReplyCall{{ID: "c1", Name: "pay", Input: json.RawMessage(`{"amount":5}`)}},
	}, 1, "")))
	require.NoError(b.t, b.Ports.Journal.Append(b.t.Context(), run.AgentState{}, d))
	for _, e := range early {
		must(b.Ports.Journal.Accept(b.t.Context(), local.Tenant, runID, e.By, e))
	}
	require.NoError(b.t, b.Ports.Waiter.Start(b.t.Context(), local.Tenant, runID, runtime.ExecutionName(runID, 0)))
	return b.waitUntilParked(runID)
}

// family is a run with two below it, one of them two steps down, and one that has nothing to do with them.
func family(b *bench) (root, child, grandchild, other web.Run) {
	root = b.start("root")
	b.later()
	child = b.delegate("child", run.Parent{Run: root.ID, Call: "c1", Root: root.ID, Depth: 1})
	b.later()
	grandchild = b.delegate("grandchild", run.Parent{Run: child.ID, Call: "c7", Root: root.ID, Depth: 2})
	b.later()
	return root, child, grandchild, b.start("other")
}

// later returns in another millisecond: lists are ordered by it, and by id within one.
func (b *bench) later() {
	for now := b.Ports.Clock.Now().UnixMilli(); b.Ports.Clock.Now().UnixMilli() == now; {
		continue
	}
}

// askedOf reads a whole list of requests by pages of n, and says how many pages there were.
func (b *bench) askedOf(q approval.Query) (runs []string, pages int) {
	b.t.Helper()
	for _, a := range everyPage(b.t, func(cursor string) (web.Page[approval.Approval], error) {
		q.Cursor = cursor
		p, err := b.client.FindApprovals(b.t.Context(), q)
		require.LessOrEqual(b.t, len(p.Items), cmp.Or(q.Limit, 50))
		pages++
		return p, err
	}) {
		runs = append(runs, a.Run)
	}
	return runs, pages
}

// What a delegated run asks is found at the run that nobody delegated, and says for whom it is asked.
func TestRequestsSurfaceAtTheRoot(t *testing.T) {
	b := newBench(t, pay)
	root, child, grandchild, other := family(b)

	var newest []string
	for _, a := range everyPage(t, func(cursor string) (web.Page[approval.Approval], error) {
		return b.client.FindApprovals(t.Context(), approval.Query{Newest: true, Limit: 3, Cursor: cursor})
	}) {
		newest = append(newest, a.Run)
	}
	require.Equal(t, []string{other.ID, grandchild.ID, child.ID, root.ID}, newest)
	for _, n := range []int{1, 2, 200} {
		of := func(run, under string) []string {
			runs, _ := b.askedOf(approval.Query{Run: run, Root: under, Limit: n})
			return runs
		}
		require.Equal(t, []string{root.ID, child.ID, grandchild.ID, other.ID}, of("", ""), "oldest first")
		require.Equal(t, []string{root.ID, child.ID, grandchild.ID}, of("", root.ID))
		require.Equal(t, []string{other.ID}, of("", other.ID))
		require.Equal(t, []string{child.ID}, of(child.ID, ""))
		require.Equal(t, []string{child.ID}, of(child.ID, root.ID))
		require.Equal(t, []string{child.ID}, of("", child.ID), "a run below is the root of nothing")
		require.Empty(t, of(child.ID, other.ID))
	}

	a := must(b.client.Approval(t.Context(), grandchild.Waiting[0].Approval))
	require.Equal(t, []string{child.ID, "c7", root.ID}, []string{a.Parent, a.ParentCall, a.Root})
	require.Equal(t, [][]string{{"group:operators"}}, a.Above, "the delegating agent's policy asks as well")
	own := must(b.client.Approval(t.Context(), root.Waiting[0].Approval))
	require.Equal(t, []string{"", "", ""}, []string{own.Parent, own.ParentCall, own.Root})
	require.Nil(t, own.Above)

	shown := must(b.client.Run(t.Context(), grandchild.ID))
	require.Equal(t, []string{child.ID, "c7", root.ID}, []string{shown.Parent, shown.ParentCall, shown.Root})

	require.Equal(t, run.ReasonNaturalEnd, b.decided(grandchild, approval.Approve).Reason)
	require.Equal(t, 5, <-b.paid)
	left, _ := b.askedOf(approval.Query{Root: root.ID})
	require.Equal(t, []string{root.ID, child.ID}, left)
	settled := must(b.client.FindApprovals(t.Context(), approval.Query{Status: approval.Approved, Root: root.ID}))
	require.Len(t, settled.Items, 1)
	require.Equal(t, root.ID, settled.Items[0].Root)

	for _, path := range []string{
		"approvals?root=" + root.ID, "approvals/" + child.Waiting[0].Approval, "runs?root=" + root.ID, "runs/" + child.ID,
	} {
		b.ask("GET /v1/"+path, "", http.StatusOK)
	}
}

// A list of what a run asks is looked through from the run's beginning, and no further than so many pages: it goes on
// at its cursor.
func TestRequestsOfARunAmongMany(t *testing.T) {
	b := newBench(t, pay)
	root := b.start("root")
	for i := range 25 {
		b.start(fmt.Sprint("other", i))
	}
	child := b.delegate("child", run.Parent{Run: root.ID, Call: "c1", Root: root.ID, Depth: 1})
	got, pages := b.askedOf(approval.Query{Root: root.ID, Limit: 1})
	require.Equal(t, []string{root.ID, child.ID}, got)
	require.Equal(t, 3, pages, "the first has one, the second looks at twenty and has none, the third has the other")
}

// Runs below a run are listed by it, in every status.
func TestRunsBelowARun(t *testing.T) {
	b := newBench(t, pay)
	root, child, grandchild, other := family(b)
	must(b.client.Cancel(t.Context(), child.ID, ""))
	below := func(q web.RunQuery) (ids []string) {
		t.Helper()
		for _, h := range everyPage(t, func(cursor string) (web.Page[web.RunHead], error) {
			q.Cursor = cursor
			return b.client.Runs(t.Context(), q)
		}) {
			ids = append(ids, h.ID)
			require.Equal(t, root.ID, h.Root)
			require.NotEmpty(t, h.Parent)
			require.NotEmpty(t, h.ParentCall)
		}
		return ids
	}
	for _, n := range []int{1, 200} {
		require.Equal(t, []string{grandchild.ID, child.ID}, below(web.RunQuery{Root: root.ID, Limit: n}))
		require.Equal(t, []string{child.ID}, below(web.RunQuery{Root: root.ID, Status: "done", Limit: n}))
		require.Empty(t, below(web.RunQuery{Root: root.ID, Agent: "other", Limit: n}))
		require.Empty(t, below(web.RunQuery{Root: other.ID, Limit: n}))
	}
	all := must(b.client.Runs(t.Context(), web.RunQuery{}))
	require.Len(t, all.Items, 4)
}

// Who starts a run again under its key while a run below it asks is a requester there, too (A10).
func TestWhoStartsTheRootAgainIsARequesterBelow(t *testing.T) {
	b := newBench(t, pay, payAsks(agent.Rule{FourEyes: true}, func(*agent.Permission) {}))
	root := b.startedBy(ana, "k")
	child := b.delegate("child", run.Parent{Run: root.ID, Call: "c1", Root: root.ID, Depth: 1})
	grandchild := b.delegate("grandchild", run.Parent{Run: child.ID, Call: "c7", Root: root.ID, Depth: 2})
	b.startedBy(di, "k")
	decide := func(who string, status int) {
		t.Helper()
		b.ask(real("POST /v1/approvals/{id}/decision", grandchild), `{"action": "approve"}`, status, web.AsHeader, who)
	}
	decide(di, http.StatusForbidden)
	decide(bo, http.StatusOK)
}

// The same of a decision that is kept until the run below asks.
func TestWhoStartsTheRootAgainDecidesNothingEarlyBelow(t *testing.T) {
	b := newBench(t, pay, payAsks(agent.Rule{FourEyes: true}, func(*agent.Permission) {}),
		func(d *agent.Definition) { d.Early = agent.EarlyKeep })
	root := b.startedBy(ana, "k")
	b.startedBy(di, "k")
	for who, status := range map[string]run.RunStatus{"user:di": run.RunWaiting, "user:bo": run.RunDone} {
		below := b.delegate(who, run.Parent{Run: root.ID, Call: "c1", Root: root.ID, Depth: 1}, run.DecisionKept{
			Target: "c1", Action: run.ActionApprove, By: who, Groups: []string{"group:operators"}, Via: agent.ViaAPI,
		})
		require.Equal(t, status, below.Status, who)
	}
}
