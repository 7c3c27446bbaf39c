package policy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

func TestTicketChecked(t *testing.T) {
	got, err := policy.NormalizeTicket(run.Ticket{Message: "a\xffb", Parameters: json.RawMessage(`{ "a" : 1.0 }`)})
	require.NoError(t, err)
	require.Equal(t, run.Ticket{Message: "a\uFFFDb", Parameters: json.RawMessage(`{"a":1.0}`)}, got)
	for want, bad := range map[string]run.Ticket{
		"mode":              {Mode: "later"},
		"id":                {ID: strings.Repeat("x", 129)},
		"pending.id":        {Pending: run.Pending{ID: "a\nb"}},
		"pending.name":      {Pending: run.Pending{Name: "\xff"}},
		"action":            {Action: strings.Repeat("x", 201)},
		"message":           {Message: strings.Repeat("x", 4001)},
		"parameters":        {Parameters: json.RawMessage(`{"a":1,"a":2}`)},
		"responseSchema":    {ResponseSchema: json.RawMessage(`{`)},
		"pending.arguments": {Pending: run.Pending{Arguments: json.RawMessage(`nope`)}},
		"bytes":             {Parameters: json.RawMessage(`"` + strings.Repeat("x", 33<<10) + `"`)},
	} {
		_, err := policy.NormalizeTicket(bad)
		require.ErrorContains(t, err, want)
	}
}

// TestWaitingPrefersTheCall: what a tool names its suspension never takes a decision away from another call.
func TestWaitingPrefersTheCall(t *testing.T) {
	input := func(id string, ticket run.Ticket) run.Call {
		return run.Call{ID: id, Status: run.StatusSuspended, Wait: &run.Wait{For: run.ForInput, Approval: "a-" + id}, Ticket: &ticket}
	}
	s := &run.AgentState{Live: []run.Call{
		input("c1", run.Ticket{ID: "c2", Pending: run.Pending{ID: "s3"}}), input("c2", run.Ticket{ID: "s2", Pending: run.Pending{ID: "p2"}}), input("c3", run.Ticket{ID: "s3"}),
		{ID: "c4", Status: run.StatusSuspended, Wait: &run.Wait{For: run.ForApproval, Approval: "a-c4"}}, {ID: "c5", Status: run.StatusRunning, Ticket: &run.Ticket{ID: "s5"}},
	}}
	for target, want := range map[string]string{
		"c1": "c1", "c2": "c2", "s2": "c2", "p2": "c2", "s3": "c3", "a-c3": "c3", "c4": "c4", "a-c4": "c4", "fc_c4": "c4", "fc_c1": "", "s5": "", "c5": "", "": "",
	} {
		got, ok := policy.FindSuspended(s, target)
		require.Equal(t, want, got.ID, target)
		require.Equal(t, want != "", ok, target)
	}
}
