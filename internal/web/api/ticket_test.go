package api_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

const payFromWhere = `{"calls": [{"id": "c1", "name": "pay", "input": {"amount": 7}}]}
{"text": "Paid."}`

// A tool's question is in sight, in the run and among the approvals, whole; it is answered under the suspension's id, by one who may, with
// what fits, once; and what comes behind the end changes nothing.
func TestTicket(t *testing.T) {
	b := newBench(t, payFromWhere)
	one := b.start("k")
	input := "POST /v1/runs/" + one.ID + "/input"
	require.Equal(t, 202, b.do(input, `{"decisions":[{"target":"fc_c1","action":"resume"}]}`).status, "the approval's pending call")
	r := b.waitUntilParked(one.ID)
	for r.Status == run.RunWaiting && r.Waiting[0].For == run.ForApproval {
		r = b.waitUntilParked(one.ID)
	}
	require.Equal(t, run.RunWaiting, r.Status)
	w := r.Waiting[0]
	require.Equal(t, run.ForInput, w.For)
	require.Equal(t, run.Ticket{
		ID: "from-where", Action: "tool:pay", Message: "From where?", Parameters: json.RawMessage(`{"amount":7}`), ResponseSchema: json.RawMessage(`{"type":"string"}`),
		Mode: run.TicketReplay, Pending: run.Pending{ID: "c1", Name: "pay", Arguments: json.RawMessage(`{"amount":7}`)},
	}, *w.Ticket)
	var page api.Page[approval.Approval]
	require.NoError(t, json.Unmarshal([]byte(b.do("GET /v1/approvals", "").body), &page))
	require.Equal(t, approval.KindInput, page.Items[0].Kind)
	require.Equal(t, "From where?", page.Items[0].Ticket.Message)

	decide := "POST /v1/approvals/" + w.Approval + "/decision"
	require.Contains(t, problemIn(t, b.do(decide, `{"action":"approve","result":7}`), 400, api.AnswerRefused).Detail, "does not fit the response schema of call c1")
	problemIn(t, b.do(decide, `{"action":"approve"}`), 400, api.AnswerRefused)
	problemIn(t, b.do(decide, `{"action":"deny","result":"x"}`), 400, api.InvalidRequest)
	problemIn(t, b.do(decide, `{"action":"edit","args":{"amount":8}}`), 409, api.WrongKind)
	problemIn(t, b.do(input, `{"decisions":[{"target":"from-where","action":"resume","result":"savings"}]}`, api.AsHeader, "user:eve"), 403, api.NotAllowed)
	problemIn(t, b.do(input, `{"decisions":[{"target":"from-where","action":"cancel","result":"savings"}]}`), 400, api.InvalidRequest)
	problemIn(t, b.do(input, `{"decisions":[{"target":"from","action":"resume"}]}`), 404, api.CallNotFound)
	problemIn(t, b.do(input, `{"answers":[{"call":"c1","rerun":true}]}`), 409, api.WrongKind)
	for range 2 {
		got := b.do(input, `{"decisions":[{"target":"from-where","id":"d1","action":"resume","result":"savings"}]}`)
		require.Equal(t, 202, got.status, got.body)
	}
	for r = b.waitUntilParked(one.ID); r.Status != run.RunDone; {
		r = b.waitUntilParked(one.ID)
	}
	require.Equal(t, run.StatusSucceeded, r.Calls[0].Status)
	require.Equal(t, 2, r.Calls[0].Executions)
	require.Len(t, b.paid, 1)
	for _, body := range []string{
		`{"decisions":[{"target":"from-where","action":"cancel"}]}`, `{"decisions":[{"target":"nobody","action":"resume"}]}`, `{"answers":[{"call":"c1","result":"x"}]}`,
	} {
		got := b.do(input, body)
		require.Equal(t, 202, got.status, got.body)
		require.Contains(t, got.body, `"applied":false`)
	}
}
