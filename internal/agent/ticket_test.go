package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTicketChecked(t *testing.T) {
	got, err := Ticket{Message: "a\xffb", Parameters: json.RawMessage(`{ "a" : 1.0 }`)}.Checked()
	require.NoError(t, err)
	require.Equal(t, Ticket{Message: "a\uFFFDb", Parameters: json.RawMessage(`{"a":1.0}`)}, got)
	for want, bad := range map[string]Ticket{
		"mode":              {Mode: "later"},
		"id":                {ID: strings.Repeat("x", 129)},
		"pending.id":        {Pending: Pending{ID: "a\nb"}},
		"pending.name":      {Pending: Pending{Name: "\xff"}},
		"action":            {Action: strings.Repeat("x", 201)},
		"message":           {Message: strings.Repeat("x", 4001)},
		"parameters":        {Parameters: json.RawMessage(`{"a":1,"a":2}`)},
		"responseSchema":    {ResponseSchema: json.RawMessage(`{`)},
		"pending.arguments": {Pending: Pending{Arguments: json.RawMessage(`nope`)}},
		"bytes":             {Parameters: json.RawMessage(`"` + strings.Repeat("x", 33<<10) + `"`)},
	} {
		_, err := bad.Checked()
		require.ErrorContains(t, err, want)
	}
}

// TestWaitingPrefersTheCall: what a tool names its suspension never takes a decision away from another call.
func TestWaitingPrefersTheCall(t *testing.T) {
	input := func(id string, ticket Ticket) Call {
		return Call{ID: id, Status: StatusSuspended, Wait: &Wait{For: ForInput, Approval: "a-" + id}, Ticket: &ticket}
	}
	s := &AgentState{Live: []Call{
		input("c1", Ticket{ID: "c2", Pending: Pending{ID: "s3"}}), input("c2", Ticket{ID: "s2", Pending: Pending{ID: "p2"}}), input("c3", Ticket{ID: "s3"}),
		{ID: "c4", Status: StatusSuspended, Wait: &Wait{For: ForApproval, Approval: "a-c4"}}, {ID: "c5", Status: StatusRunning, Ticket: &Ticket{ID: "s5"}},
	}}
	for target, want := range map[string]string{
		"c1": "c1", "c2": "c2", "s2": "c2", "p2": "c2", "s3": "c3", "a-c3": "c3", "c4": "c4", "a-c4": "c4", "fc_c4": "c4", "fc_c1": "", "s5": "", "c5": "", "": "",
	} {
		got, ok := s.Waiting(target)
		require.Equal(t, want, got.ID, target)
		require.Equal(t, want != "", ok, target)
	}
}
