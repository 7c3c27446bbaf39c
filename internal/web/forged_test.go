package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

// The people of these tests. Operators approve.
const (
	ana = "user:ana,group:operators" // starts the runs
	bo  = "user:bo,group:operators"
	cy  = "user:cy,group:operators"
	di  = "user:di,group:operators"
	eve = "user:eve,group:guests"
)

// startedBy starts the agent's run of a key, and is the run once it waits or is done.
func (b *bench) startedBy(who, key string) web.Run {
	b.t.Helper()
	start := b.do("POST /v1/runs", `{"agent": "payer", "message": "pay", "key": "`+key+`"}`, web.AsHeader, who)
	require.Less(b.t, start.status, 300, start.body)
	return b.waitUntilParked(agent.RunID(local.Tenant, "payer", key))
}

// approvedBy approves a request, and is its run afterwards.
func (b *bench) approvedBy(who string, run web.Run, request string) web.Run {
	b.t.Helper()
	got := b.do("POST /v1/approvals/"+request+"/decision", `{"action": "approve"}`, web.AsHeader, who)
	require.Equal(b.t, http.StatusOK, got.status, got.body)
	return b.waitUntilParked(run.ID)
}

// pending is the oldest request of a run that nobody has decided.
func (b *bench) pending(run web.Run) string {
	b.t.Helper()
	page := must(b.client.FindApprovals(b.t.Context(), approval.Query{Run: run.ID}))
	require.NotEmpty(b.t, page.Items, "people are asked")
	return page.Items[0].ID
}

// forgeries are what is written into a request of pay's policy, and who decides then.
var forgeries = map[string]struct {
	rule   agent.Rule
	before []string // who decide before the item is written
	forged func(request map[string]any)
	by     string   // decides on the forged request
	then   []string // decide on what is asked again
}{
	"approvers": {
		by: eve, then: []string{bo},
		forged: func(r map[string]any) {
			r["approvers"] = []string{"user:eve"}
			ofTools(r, func(p map[string]any) {
				p["calls"].([]any)[0].(map[string]any)["approvers"] = []string{"user:eve"}
			})
		},
	},
	"quorum": {
		rule: agent.Rule{Quorum: 2}, by: bo, then: []string{bo, cy},
		forged: func(r map[string]any) {
			r["quorum"] = 1
			ofTools(r, func(p map[string]any) { p["quorum"] = 1 })
		},
	},
	"decisions": {
		rule: agent.Rule{Quorum: 2}, by: bo, then: []string{bo, cy},
		forged: func(r map[string]any) {
			for _, action := range []string{"approve", "rerun"} {
				r["decisions"] = append(r["decisions"].([]any), map[string]any{
					"by": "user:cy", "action": action, "at": r["requestedAt"], "tools": []string{"pay"},
				})
			}
		},
	},
	"quorum behind an approval": {
		rule: agent.Rule{Quorum: 3}, before: []string{bo}, by: cy, then: []string{bo, cy, di},
		forged: func(r map[string]any) {
			r["quorum"] = 2
			ofTools(r, func(p map[string]any) { p["quorum"] = 2 })
		},
	},
	"four eyes": {
		rule: agent.Rule{FourEyes: true}, by: ana, then: []string{bo},
		forged: func(r map[string]any) { delete(r, "fourEyes"); delete(r, "requesters") },
	},
}

// forge writes a request's item as somebody would who can write that item and nothing else.
func (b *bench) forge(id string, change func(request map[string]any)) {
	b.t.Helper()
	it, found, err := b.table.Get(b.t.Context(), store.Key{PK: "T#" + local.Tenant + "#APPROVAL#" + id, SK: "A"})
	require.NoError(b.t, err)
	require.True(b.t, found)
	b.rewrite(it, change)
}

// ofTools changes what a request says of its tools.
func ofTools(request map[string]any, change func(permission map[string]any)) {
	permissions, _ := request["permissions"].([]any)
	for _, p := range permissions {
		change(p.(map[string]any))
	}
}

// payAsks has a rule about pay, and people asked as those say.
func payAsks(rule agent.Rule, as func(p *agent.Permission)) func(*agent.Definition) {
	return func(d *agent.Definition) {
		rule.Tool, rule.Verdict = "pay", agent.VerdictAsk
		d.Permission.Rules = []agent.Rule{rule}
		as(&d.Permission)
	}
}

// payments is a script of calls of pay, one after the other, and the end.
func payments(amounts ...int) string {
	var lines strings.Builder
	for i, n := range amounts {
		fmt.Fprintf(&lines, `{"calls": [{"id": "c%d", "name": "pay", "input": {"amount": %d}}]}`+"\n", i+1, n)
	}
	return lines.String() + `{"text": "Paid."}`
}

// TestAForgedRequestLetsNothingRun: whoever can write a request's item sets approvers, quorum, four eyes and decisions
// there. The claim counts the decisions on record against the pinned policy, for every call that they cover, and the
// call is asked about again.
func TestAForgedRequestLetsNothingRun(t *testing.T) {
	const two = `{"calls": [{"id": "c1", "name": "pay", "input": {"amount": 5}}, ` +
		`{"id": "c2", "name": "pay", "input": {"amount": 6}}]}` + "\n" + `{"text": "Paid."}`
	for _, of := range []struct {
		mode  agent.PermissionMode
		scope agent.Scope
		lines string
	}{
		{agent.ModeSuspendAndReplay, agent.ScopeCall, payments(5)},
		{agent.ModeSuspendAndReplay, agent.ScopeTool, two},
		{agent.ModeBlockAndRetry, agent.ScopeTool, payments(5, 5, 5)},
	} {
		for name, c := range forgeries {
			t.Run(fmt.Sprint(of.mode, " ", of.scope, " ", name), func(t *testing.T) {
				b := newBench(t, of.lines, payAsks(c.rule, func(p *agent.Permission) { p.Mode, p.Scope = of.mode, of.scope }))
				one := b.startedBy(ana, "k")
				id := b.pending(one)
				for _, who := range c.before {
					b.approvedBy(who, one, id)
				}
				b.forge(id, c.forged)
				one = b.approvedBy(c.by, one, id)
				require.Empty(t, b.paid)
				if of.lines == two { // c2 waits under a request of its own, which nobody has forged
					require.Len(t, one.Waiting, 2)
				}
				require.NotEqual(t, id, b.pending(one), "it is asked about again")
				id = b.pending(one)
				for i, who := range c.then {
					require.Empty(t, b.paid)
					if one = b.approvedBy(who, one, id); i < len(c.then)-1 {
						id = b.pending(one)
					}
				}
				require.Equal(t, run.RunDone, one.Status)
				require.NotEmpty(t, b.paid)
			})
		}
	}
}

// TestAForgedOrderLetsNothingRun: whether a call whose outcome is unknown is run again is for those who approve it, by
// the policy and not by the request's item. What became of it is asked again.
func TestAForgedOrderLetsNothingRun(t *testing.T) {
	executions := func(b *bench, run web.Run) int {
		b.t.Helper()
		page := must(b.client.Calls(b.t.Context(), run.ID, "", 0))
		return page.Items[0].Executions
	}
	for name, c := range forgeries {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, payments(0), payAsks(c.rule, func(*agent.Permission) {}))
			one := b.startedBy(ana, "k")
			for _, who := range c.then {
				one = b.approvedBy(who, one, one.Waiting[0].Approval)
			}
			ordered := func(who string) {
				t.Helper()
				id := one.Waiting[0].Approval
				got := b.do("POST /v1/runs/"+one.ID+"/input",
					`{"answers": [{"call": "c1", "approval": "`+id+`", "rerun": true}]}`, web.AsHeader, who)
				require.Less(t, got.status, 300, got.body)
				one = b.waitUntilParked(one.ID)
				require.Equal(t, run.ForOutcome, one.Waiting[0].For, "nobody knows what became of it")
			}
			require.Equal(t, 1, executions(b, one))
			for _, who := range c.before {
				ordered(who)
			}
			id := one.Waiting[0].Approval
			b.forge(id, c.forged)
			ordered(c.by)
			require.NotEqual(t, id, one.Waiting[0].Approval, "it is asked again")
			for _, who := range c.then {
				require.Equal(t, 1, executions(b, one))
				ordered(who)
			}
			require.Equal(t, 2, executions(b, one))
		})
	}
}

// TestAForgedStandingGrantLetsNothingRun: a standing grant covers a call where it can be traced to a decision of those
// whom the call's policy wants, which nobody has taken back.
func TestAForgedStandingGrantLetsNothingRun(t *testing.T) {
	grants := func(b *bench) []store.Item {
		b.t.Helper()
		p := must(b.table.Query(b.t.Context(), store.Range{PK: "T#" + local.Tenant + "#GRANT#payer"}))
		return p.Items
	}
	granted := func(b *bench, who ...string) {
		b.t.Helper()
		run := b.startedBy(ana, "first")
		for _, by := range who {
			run = b.approvedBy(by, run, run.Waiting[0].Approval)
		}
		require.Equal(b.t, 5, <-b.paid)
		require.Len(b.t, grants(b), 1)
	}
	forged := func(name string) func(b *bench) {
		return func(b *bench) {
			run := b.startedBy(ana, "first")
			id := b.pending(run)
			b.forge(id, forgeries[name].forged)
			run = b.approvedBy(forgeries[name].by, run, id)
			require.NotEqual(b.t, id, b.pending(run))
			require.Len(b.t, grants(b), 1)
		}
	}
	for name, c := range map[string]struct {
		rule  agent.Rule
		forge func(b *bench)
		runs  bool
	}{
		"as it is": {forge: func(b *bench) { granted(b, bo) }, runs: true},
		"as it is, of two": {
			rule: agent.Rule{Quorum: 2}, forge: func(b *bench) { granted(b, bo, cy) }, runs: true,
		},
		"made up": {forge: func(b *bench) {
			granted(b, bo)
			b.rewrite(grants(b)[0], func(g map[string]any) { g["run"] = "r-of-nobody" })
		}},
		"made up on another request": {forge: func(b *bench) {
			granted(b, bo)
			it := grants(b)[0]
			it.Attrs["approval"] = store.Str("a-of-nobody")
			b.rewrite(it, func(g map[string]any) { g["approval"] = "a-of-nobody" })
		}},
		"revoked, and made live": {forge: func(b *bench) {
			granted(b, bo)
			live := grants(b)[0]
			require.Equal(b.t, http.StatusNoContent, b.do("DELETE /v1/grants/payer/pay", "", web.AsHeader, cy).status)
			b.rewrite(live, func(map[string]any) {})
		}},
		"given by those whom a forged request names":        {forge: forged("approvers")},
		"given by one, where a forged request wants no two": {rule: agent.Rule{Quorum: 2}, forge: forged("quorum")},
		"given by whom four eyes keep from it":              {rule: agent.Rule{FourEyes: true}, forge: forged("four eyes")},
	} {
		for _, scope := range []agent.Scope{agent.ScopeCall, agent.ScopeTool} {
			t.Run(name+" "+string(scope), func(t *testing.T) {
				b := newBench(t, payments(5), payAsks(c.rule, func(p *agent.Permission) {
					p.Scope, p.Grants = scope, agent.GrantsStanding
				}))
				c.forge(b)
				one := b.startedBy(cy, "second")
				if c.runs {
					require.Equal(t, 5, <-b.paid)
					require.Equal(t, run.RunDone, one.Status)
					return
				}
				require.Empty(t, b.paid)
				require.Len(t, one.Waiting, 1)
			})
		}
	}
}

// rewrite writes an item with another body.
func (b *bench) rewrite(it store.Item, change func(body map[string]any)) {
	b.t.Helper()
	var body map[string]any
	require.NoError(b.t, json.Unmarshal(it.Body, &body))
	change(body)
	var err error
	it.Body, err = json.Marshal(body)
	require.NoError(b.t, err)
	if _, ok := it.Attrs["seal"]; ok {
		it.Attrs["seal"] = store.Str(store.BlobDigest(it.Body))
	}
	require.NoError(b.t, b.table.Write(b.t.Context(), store.Op{Kind: store.Put, Item: it}))
}

// TestAForgedCoverGrantsNothing: what an approval of a call grants for good is what the run and its definition say of
// that call, whatever its request's item says.
func TestAForgedCoverGrantsNothing(t *testing.T) {
	for _, mode := range []agent.PermissionMode{agent.ModeSuspendAndReplay, agent.ModeBlockAndRetry} {
		t.Run(string(mode), func(t *testing.T) {
			b := newBench(t, payments(5, 9, 5), payAsks(agent.Rule{}, func(p *agent.Permission) {
				p.Mode, p.Grants = mode, agent.GrantsStanding
			}))
			cover := func(id string) (cover any) {
				b.forge(id, func(r map[string]any) { ofTools(r, func(p map[string]any) { cover = p["standing"] }) })
				return cover
			}
			run := b.startedBy(ana, "first")
			run = b.approvedBy(bo, run, b.pending(run)) // of 5
			large := cover(b.pending(run))              // of 9
			require.NotNil(t, large)

			require.Equal(t, http.StatusNoContent, b.do("DELETE /v1/grants/payer/pay", "", web.AsHeader, cy).status)
			run = b.startedBy(ana, "second")
			id := b.pending(run)
			b.forge(id, func(r map[string]any) { ofTools(r, func(p map[string]any) { p["standing"] = large }) })
			run = b.approvedBy(bo, run, id)
			b.pending(run) // 9 is asked about
			for len(b.paid) > 0 {
				require.Equal(t, 5, <-b.paid)
			}
		})
	}
}

// TestAForgedRequestCannotShowOtherArguments: what a request's item shows is not what its digest stands for. Approving it
// runs nothing, and people are asked again with the arguments that the call has.
func TestAForgedRequestCannotShowOtherArguments(t *testing.T) {
	b := newBench(t, pay, payAsks(agent.Rule{}, func(*agent.Permission) {}))
	one := b.startedBy(ana, "k")
	forged := b.pending(one)
	b.forge(forged, func(r map[string]any) { r["args"] = map[string]any{"amount": 1} })
	b.ask("POST /v1/approvals/"+forged+"/decision", `{"action": "approve"}`, http.StatusConflict, web.AsHeader, bo)

	again := b.pending(b.waitUntilParked(one.ID))
	require.NotEqual(t, forged, again)
	shown := b.do("GET /v1/approvals/"+again, "", web.AsHeader, bo)
	require.Contains(t, shown.body, `"args":{"amount":5}`)
	require.Equal(t, run.RunDone, b.approvedBy(bo, one, again).Status)
}

// TestWhoStartsARunAgainIsARequester: two people who send the same request under the same key both want what comes of
// it, whether the call has asked by then or not. Neither of them approves it where the rule wants four eyes.
func TestWhoStartsARunAgainIsARequester(t *testing.T) {
	b := newBench(t, pay, payAsks(agent.Rule{FourEyes: true}, func(*agent.Permission) {}))
	decide := func(who string, status int) {
		t.Helper()
		line := real("POST /v1/approvals/{id}/decision", b.startedBy(ana, "k"))
		b.ask(line, `{"action": "approve"}`, status, web.AsHeader, who)
	}
	decide(ana, http.StatusForbidden)
	b.startedBy(di, "k")
	b.startedBy(di, "k")
	decide(di, http.StatusForbidden)
	decide(bo, http.StatusOK)
	require.Equal(t, 5, <-b.paid)
}

// Once somebody has edited a request, it is approved by who says what they have seen of it, and by no other way: neither by the decision's route
// nor by the two lists of an input. A denial vetoes whatever is there.
func TestA8WhatWasEditedIsApprovedAsSeen(t *testing.T) {
	for name, last := range map[string]string{
		"approve": `{"action":"approve","digest":"DIGEST"}`, "deny": `{"action":"deny"}`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, pay, payAsks(agent.Rule{Quorum: 2}, func(*agent.Permission) {}))
			run := b.start("k")
			decide, input := real("POST /v1/approvals/{id}/decision", run), real("POST /v1/runs/{id}/input", run)
			require.Equal(t, http.StatusOK, b.do(decide, `{"action":"edit","args":{"amount":50}}`, web.AsHeader, ana).status)
			for _, c := range [][2]string{
				{decide, `{"action":"approve"}`}, {decide, `{"action":"approve","digest":""}`}, {decide, `{"action":"approve","digest":"` + run.Calls[0].ID + `"}`},
				{input, `{"decisions":[{"target":"c1","action":"resume"}]}`}, {input, `{"answers":[{"call":"c1","result":true}]}`},
			} {
				p := problemIn(t, b.do(c[0], c[1], web.AsHeader, bo), 409, web.RequestChanged)
				require.JSONEq(t, `{"amount":50}`, string(p.Approval.Decisions[0].Args), "it shows what there is to be seen")
				require.Len(t, p.Approval.Decisions, 1)
			}
			a := must(b.client.Approval(t.Context(), run.Waiting[0].Approval))
			require.Equal(t, approval.Pending, a.Status)
			got := b.ask(decide, strings.Replace(last, "DIGEST", a.Digest, 1), http.StatusOK, web.AsHeader, bo)
			require.NoError(t, json.Unmarshal([]byte(got.body), &a))
			require.NotEqual(t, approval.Pending, a.Status)
			again := b.do(decide, `{"action":"`+name+`"}`, web.AsHeader, bo)
			require.Equal(t, http.StatusOK, again.status, "the same again, whose answer may have been lost, is what it was: %s", again.body)
		})
	}
}
