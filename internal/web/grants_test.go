package web_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

// grantsStand lets grants of the agent's tools outlive their run.
func grantsStand(d *agent.Definition) {
	d.Permission.Scope, d.Permission.Grants = agent.ScopeTool, agent.GrantsStanding
}

// callsStand lets approvals of the agent's calls stand for the very calls in every run.
func callsStand(d *agent.Definition) { d.Permission.Grants = agent.GrantsStanding }

// granted is a bench on which an operator has granted pay to the agents for good, each in a run of its own.
func granted(t *testing.T, agents ...string) *bench {
	t.Helper()
	b := newBench(t, pay, grantsStand)
	for _, name := range agents {
		b.grant(name)
	}
	return b
}

// grant lets an agent of the name ask for pay, and grants it.
func (b *bench) grant(name string) web.Run {
	b.t.Helper()
	def, ok := b.backend.Agents.Agent("payer")
	require.True(b.t, ok)
	mine := *def
	mine.Name = name
	accepted := must(b.client.Start(b.t.Context(), web.Start{Definition: &mine, Message: []byte(`"pay 5"`)}))
	r := b.waitUntilParked(accepted.ID)
	approved := web.Verdict{Action: approval.Approve, Note: "it is fine"}
	_, err := b.client.Decide(b.t.Context(), r.Waiting[0].Approval, approved)
	require.NoError(b.t, err)
	return b.waitUntilParked(r.ID)
}

func (b *bench) grants(of string) []string {
	b.t.Helper()
	names := []string{}
	for _, g := range everyPage(b.t, func(cursor string) (web.Page[web.Grant], error) {
		p, err := b.client.Grants(b.t.Context(), of, cursor, 1)
		require.LessOrEqual(b.t, len(p.Items), 1)
		return p, err
	}) {
		names = append(names, g.Agent+" "+g.Tool)
	}
	return names
}

// A list shows what is granted, to whom, by whom and until when; page by page, and of one agent where that is asked.
func TestGrantsAreListed(t *testing.T) {
	b := granted(t)
	require.Equal(t, []string{}, b.grants(""))
	run := b.grant("payer")
	b.grant("payer-b")
	b.grant("pay")
	require.Equal(t, []string{"pay pay", "payer pay", "payer-b pay"}, b.grants(""))
	require.Equal(t, []string{"payer pay"}, b.grants("payer"))
	require.Equal(t, []string{}, b.grants("paye"))
	p := must(b.client.Grants(t.Context(), "payer", "", 0))
	g := p.Items[0]
	require.Equal(t, web.Grant{
		Agent: "payer", Tool: "pay", Scope: agent.ScopeTool, Digest: g.Digest, Approval: g.Approval, Run: run.ID, By: "user:local", Note: "it is fine",
		At: g.At, Expires: g.At.Add(agent.StandingLife), Approvers: []string{"group:operators"},
	}, g)
	require.NotEmpty(t, g.Digest)
	require.Equal(t, http.StatusBadRequest, b.do("GET /v1/grants?cursor=%2F%2F", "").status)

	bad := must(b.table.Query(t.Context(), store.Range{PK: "T#" + local.Tenant + "#GRANT#payer"})).Items[0]
	bad.Body = bad.Body[1:]
	require.NoError(t, b.table.Write(t.Context(), store.Op{Kind: store.Put, Item: bad}))
	damaged := problemIn(t, b.do("GET /v1/grants", ""), http.StatusInternalServerError, web.Damaged)
	require.Contains(t, damaged.Detail, bad.PK)
	b.ofTenant("globex") // where nothing is granted
	require.Equal(t, []string{}, b.grants(""))
	require.Equal(t, []string{}, b.grants("payer"))
	require.Equal(t, http.StatusNotFound, b.do("DELETE /v1/grants/payer/pay", "").status)
}

// Whoever decides about a tool revokes its grants, and says so as often as they like; nobody else does.
func TestGrantsAreRevoked(t *testing.T) {
	b := granted(t, "payer", "other")
	const revoke = "DELETE /v1/grants/payer/pay"
	for _, c := range []struct {
		line, as string
		status   int
	}{
		{revoke, "user:eve", http.StatusForbidden},
		{revoke, "user:local", http.StatusForbidden}, // gave it as one of a group, and is none of it any more
		{revoke, "group:operators", http.StatusForbidden},
		{"DELETE /v1/grants/payer/refund", "user:ben,group:operators", http.StatusNotFound},
		{"DELETE /v1/grants/nobody/pay", "user:ben,group:operators", http.StatusNotFound},
		{"DELETE /v1/grants/payer/p", "user:ben,group:operators", http.StatusNotFound},
		{"DELETE /v1/grants/payer/pay%23x", "user:ben,group:operators", http.StatusNotFound},
		{"DELETE /v1/grants/PAYER/pay", "user:ben,group:operators", http.StatusNotFound},
	} {
		require.Equal(t, c.status, b.do(c.line, "", web.AsHeader, c.as).status, fmt.Sprint(c))
		require.Len(t, b.grants(""), 2)
	}
	for _, as := range []string{"user:ben,group:operators", "user:ben,group:operators", "user:cleo,group:operators"} {
		got := b.ask(revoke, "", http.StatusNoContent, web.AsHeader, as)
		require.Empty(t, got.body)
		require.Equal(t, []string{"other pay"}, b.grants(""))
	}
	require.Equal(t, http.StatusForbidden, b.do(revoke, "", web.AsHeader, "user:eve").status)
	b.grant("payer") // somebody thinks better of it
	require.Equal(t, []string{"other pay", "payer pay"}, b.grants(""))
	require.NoError(t, b.client.Revoke(t.Context(), "payer", "pay", ""))
	require.Equal(t, []string{"other pay"}, b.grants(""))
}
