package agent

import "encoding/json"

// goldenPatternsRun has calls under counted standing grants of patterns with every operator, with a snapshot while one of them runs.
func goldenPatternsRun() [][]Event {
	one := json.RawMessage("1")
	when := []Condition{
		{Path: "/n", Eq: one}, {Path: "/n", Ne: json.RawMessage("2")}, {Path: "/n", Gt: json.RawMessage("0.5")}, {Path: "/n", Gte: one},
		{Path: "/n", Lt: json.RawMessage("1.5")}, {Path: "/n", Lte: one}, {Path: "/n", In: []json.RawMessage{one}}, {Path: "/to", Matches: "^a"},
	}
	grant := func(used int) StandingGrant {
		return StandingGrant{
			Tool: "wire", Approval: "a-wire", Digest: "when-d", By: "user:ana", Note: "small ones", Expires: worldEpoch.Add(worldExpiry),
			When: when, Uses: 3, Used: used,
		}
	}
	checked := func(n int64, used int) PermissionChecked {
		return PermissionChecked{Inference: n, Tools: map[string]PermissionStatus{}, Standing: []StandingGrant{grant(used)}}
	}
	reply := func(n int64, id string) Replied {
		return Replied{Inference: n, Model: "m", Requests: 1, Calls: []RepliedCall{
			{ID: id, Name: "wire", Tool: "wire", Effect: EffectNonIdempotent, Input: json.RawMessage(`{"n":1,"to":"ana"}`)},
		}}
	}
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r9", Agent: "desk", Definition: "d1", Owner: "r9-0", MaxInteractions: 9, Messages: []UserBlock{{Text{"Settle this."}}}}},
		{reply(1, "c1")},
		{checked(1, 0), checked(1, 1), CallClaimed{Call: "c1", Under: "a-wire", Digest: "when-d"}, CallFinished{Call: "c1", Content: "wired"}},
		{Evicted{Total: 1, Summary: "Wired."}, reply(2, "c2"), checked(2, 2), CallClaimed{Call: "c2", Under: "a-wire", Digest: "when-d"}},
		{CallFinished{Call: "c2", Content: "wired"}, Finished{Reason: ReasonCancelled, By: "user:ana", OpenText: "Not done."}},
	}
}
