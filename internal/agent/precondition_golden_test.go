package agent

import (
	"encoding/json"
	"time"
)

// goldenPreconditionRun has people asked twice about what a call depends on, with a snapshot while they are.
func goldenPreconditionRun() [][]Event {
	later := worldEpoch.Add(worldExpiry)
	was := Checked{Tool: "orders.get", Args: json.RawMessage(`{"id":"o7"}`), Content: `{"status":"paid & sent"}`, IsError: true, At: worldEpoch}
	now := Checked{
		Tool: "orders.get", Args: json.RawMessage(`{"id":"o8"}`), Content: "no such order", IsError: true, At: worldEpoch.Add(time.Hour),
		Was: &Was{Args: was.Args, Content: was.Content, IsError: was.IsError, At: was.At},
	}
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r8", Agent: "a", Definition: "d1", Owner: "r8-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Refund."}}}}},
		{Replied{Inference: 1, Model: "m", Requests: 1, Text: "Which?"}, InputReceived{Slot: 1, ID: "m1", Blocks: []UserBlock{{Text{"o7."}}}}},
		{
			Evicted{Total: 1, Summary: "Somebody asked."},
			Replied{Inference: 2, Model: "m", Requests: 1, Calls: []RepliedCall{{ID: "c1", Name: "refund", Tool: "refund", Effect: EffectNonIdempotent, Input: json.RawMessage(`{"order":"o7"}`)}}},
			CallSuspended{Call: "c1", Approval: "a1", Digest: "d1", Expires: later, Checked: &was},
			Decided{Slot: 2, Call: "c1", Approval: "a1", Action: ActionApprove, By: "user:ana", Digest: "d1"},
			CallSuspended{Call: "c1", Approval: "a2", Digest: "d2", Expires: later, Checked: &now}, Parked{Expires: later},
		},
		{Finished{Reason: ReasonCancelled, By: "user:ana", OpenText: "Not done."}},
	}
}
