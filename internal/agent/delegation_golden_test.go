package agent

import "encoding/json"

// goldenChild is a journal with a snapshot of a run that is carried out for another one, while runs of its own calls are open.
const goldenChild = "testdata/journal-v1-child"

// goldenChildRun is delegated at the second level, asks two agents, one of which answers, and evicts while the other one is open.
func goldenChildRun() [][]Event {
	later := worldEpoch.Add(DelegateExpiry)
	ask := func(n int64, ids ...string) Replied {
		r := Replied{Inference: n, Model: "m", Requests: 1, Usage: Usage{Input: 9, Output: 3}, Units: 12}
		for _, id := range ids {
			r.Calls = append(r.Calls, RepliedCall{ID: id, Name: "ask_aide", Tool: "ask.aide", Effect: EffectIdempotent, Service: true, Input: json.RawMessage(`{"message":"Help."}`)})
		}
		return r
	}
	claim := func(id string) CallClaimed {
		return CallClaimed{Call: id, Child: &Child{Run: "r-" + id, Tokens: 500, USD: 250_000_000_000}}
	}
	out := func(id string) CallSuspended { return CallSuspended{Call: id, For: ForAnswer, Expires: later} }
	answer := func(slot int64, id, text string) Answered {
		return Answered{
			Slot: slot, Call: id, Content: text, By: "run:r-" + id,
			Used: &ChildUsage{Usage: Usage{Input: 40, Output: 2, CacheRead: 1, CacheWrite: 1}, Requests: 3, Units: 42, Cost: 1_000_000},
		}
	}
	return [][]Event{
		{RunStarted{
			Tenant: "default", Run: "r9", Agent: "b", Definition: "d1", Owner: "r9-0", MaxInteractions: 5, Subject: "s1", Messages: []UserBlock{{Text{"Help."}}},
			Parent: &Parent{Run: "r8", Call: "c1", Root: "r7", Depth: 2, Agents: []string{"root", "a"}, Domain: "eu"},
		}},
		{ask(1, "c1")},
		{claim("c1")},
		{out("c1"), Parked{Expires: later}},
		{Resumed{}, answer(1, "c1", "Helped.")},
		{Evicted{Total: 1, Summary: "Somebody helped."}, ask(2, "c2", "c3"), claim("c2"), claim("c3"), out("c2"), out("c3"), Parked{Expires: later}},
		{Resumed{}, CallCancelled{Call: "c2", Reason: WhyExpired, Content: TextAnswerExpired()}, answer(2, "c2", "Too late.")},
		{answer(3, "c3", "Helped again.")},
		{Replied{Inference: 3, Model: "m", Requests: 1, Text: "Done."}, Finished{Reason: ReasonNaturalEnd, Output: json.RawMessage(`"Done."`)}},
	}
}
