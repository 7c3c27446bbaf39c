package agent

import "encoding/json"

// mayDecide is how tests let somebody change a call.
func (p Principal) mayDecide(dec Decision) bool { return dec.May(p) }

// goldenQuorum is a journal with what several people, and a policy that changed, leave in a run; with a snapshot while one call waits and
// another is approved.
const goldenQuorum = "testdata/journal-v1-quorum"

func goldenQuorumRun() [][]Event {
	later := worldEpoch.Add(worldExpiry)
	call := func(id string) RepliedCall {
		return RepliedCall{ID: id, Name: "wire", Tool: "wire", Effect: EffectNonIdempotent, Input: json.RawMessage(`{"amount":100}`)}
	}
	asks := func(call, approval, policy string, why AskReason) CallSuspended {
		return CallSuspended{Call: call, Approval: approval, Digest: "d" + approval, Expires: later, Policy: policy, Why: why}
	}
	return [][]Event{
		{RunStarted{
			Tenant: "default", Run: "r9", Agent: "a", Definition: "d1", Owner: "r9-0", MaxInteractions: 5, Subject: "user:cem", By: []string{"user:ana", "user:ben"},
			Messages: []UserBlock{{Text{"Pay."}}},
		}},
		{Replied{Inference: 1, Model: "m", Requests: 1, Text: "Whom?"}, InputReceived{Slot: 1, ID: "m1", Blocks: []UserBlock{{Text{"Her."}}}}},
		{
			Evicted{Total: 1, Summary: "Somebody asked."}, Replied{Inference: 2, Model: "m", Requests: 1, Calls: []RepliedCall{call("c1"), call("c2"), call("c3")}},
			asks("c1", "a1", "p1", ""), asks("c2", "a2", "", ""),
			Decided{Slot: 2, Call: "c2", Approval: "a2", Action: ActionApprove, By: "user:eve", With: []string{"user:dan"}, Args: json.RawMessage(`{"amount":40}`), Editor: "user:dan", Digest: "x", Policy: "p2"},
			CallClaimed{Call: "c3"}, CallUnknown{Call: "c3", Approval: "a3", Expires: later},
		},
		{
			Decided{Slot: 3, Call: "c1", Approval: "a1", Action: ActionAskAgain, By: "policy"}, asks("c1", "a4", "p3", ""),
			asks("c2", "a5", "p3", WhyPolicyChanged),
			Answered{Slot: 4, Call: "c3", Approval: "a3", Rerun: true, By: "user:eve", With: []string{"user:dan"}},
		},
		{Finished{Reason: ReasonCancelled, By: "user:ana", OpenText: "Not done.", UnknownText: "Nobody knows."}},
	}
}
