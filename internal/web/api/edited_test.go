package api_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/web/api"
)

// Once somebody has edited a request, it is approved by who says what they have seen of it, and by no other way: neither by the decision's route
// nor by the two lists of an input. A denial vetoes whatever is there.
func TestA8WhatWasEditedIsApprovedAsSeen(t *testing.T) {
	two := func(d *agent.Definition) {
		d.Permission.Rules = []agent.Rule{{Tool: "pay", Verdict: agent.VerdictAsk, Quorum: 2}}
	}
	ana, ben := []string{api.AsHeader, "user:ana,group:operators"}, []string{api.AsHeader, "user:ben,group:operators"}
	for name, last := range map[string]func(digest string) (body string, status int){
		"approve": func(digest string) (string, int) {
			return `{"action":"approve","digest":"` + digest + `"}`, http.StatusOK
		},
		"deny": func(string) (string, int) { return `{"action":"deny"}`, http.StatusOK },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, pay, two)
			run := b.start("k")
			decide, input := real("POST /v1/approvals/{id}/decision", run), real("POST /v1/runs/{id}/input", run)
			require.Equal(t, http.StatusOK, b.do(decide, `{"action":"edit","args":{"amount":50}}`, ana...).status)
			for _, c := range [][2]string{
				{decide, `{"action":"approve"}`}, {decide, `{"action":"approve","digest":""}`}, {decide, `{"action":"approve","digest":"` + run.Calls[0].ID + `"}`},
				{input, `{"decisions":[{"target":"c1","action":"resume"}]}`}, {input, `{"answers":[{"call":"c1","result":true}]}`},
			} {
				p := problemIn(t, b.do(c[0], c[1], ben...), 409, api.RequestChanged)
				require.JSONEq(t, `{"amount":50}`, string(p.Approval.Decisions[0].Args), "it shows what there is to be seen")
				require.Len(t, p.Approval.Decisions, 1)
			}
			a, err := b.client.Approval(t.Context(), run.Waiting[0].Approval)
			require.NoError(t, err)
			require.Equal(t, approval.Pending, a.Status)
			body, status := last(a.Digest)
			got := b.do(decide, body, ben...)
			require.Equal(t, status, got.status, got.body)
			require.NoError(t, json.Unmarshal([]byte(got.body), &a))
			require.NotEqual(t, approval.Pending, a.Status)
			again := b.do(decide, `{"action":"`+name+`"}`, ben...)
			require.Equal(t, http.StatusOK, again.status, "the same again, whose answer may have been lost, is what it was: %s", again.body)
		})
	}
}
