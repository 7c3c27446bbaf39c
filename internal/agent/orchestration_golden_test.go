package agent

import (
	"encoding/json"
	"strings"
)

// The journals of plans: one that is left, with a snapshot of it, and one that gives the answer, with a snapshot behind it.
const (
	goldenPlanLeft = "testdata/journal-v1-plan-left"
	goldenPlanDone = "testdata/journal-v1-plan-done"
)

// goldenSpent is what a reply for a plan took, with every field.
func goldenSpent(n int64) Spent {
	return Spent{N: n, Model: "m", Requests: 2, Usage: Usage{Input: 9, Output: 3, CacheRead: 2, CacheWrite: 1}, Units: 12, At: 1_700_000_000_123, Cost: 42, Halt: &Halt{Code: StopContains, Detail: "Done"}}
}

// seenBefore are messages that a builder gave and that may be evicted.
func seenBefore() ContextBuilt {
	return ContextBuilt{Messages: []BuiltMessage{{Role: RoleUser, Content: UserBlock{Text{"Before."}}, Seen: 1}, {Role: RoleAssistant, Content: UserBlock{Text{"Yes."}}, Seen: 1}}}
}

// goldenPlanLeftRun makes its plan twice, calls tools under approvals and without, and leaves it to the loop where a router fails.
func goldenPlanLeftRun() [][]Event {
	later := worldEpoch.Add(worldExpiry)
	call := func(id string) *RepliedCall {
		return &RepliedCall{ID: id, Name: "payments_send", Tool: "payments.send", Effect: EffectNonIdempotent, Input: json.RawMessage(`{"amount":100.10}`), Unoffered: true}
	}
	post := &RepliedCall{ID: "p1", Name: "post", Effect: EffectRead, Input: json.RawMessage(`{}`), Service: true, Ahead: true, Repaired: true}
	steps := []PlanStep{
		{Number: 1, Description: "Pay.", Server: "payments", Hints: json.RawMessage(`{"amount":100.10}`)}, {Number: 2, Description: "Post.", Server: "post"},
		{Number: 3, Description: "Sing."}, {Number: 4, Description: "Look at what step 1 gave."},
	}
	loop := RepliedCall{ID: "c9", Name: "look", Effect: EffectRead, Input: json.RawMessage(`{}`), Unoffered: true}
	spent := func(n int64) Spent { return Spent{N: n, Model: "m", Requests: 1} }
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r20", Agent: "a", Definition: "d1", Owner: "r20-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Pay, post and sing."}}}}, seenBefore()},
		{Planned{Spent: goldenSpent(1), Steps: steps[:1], Again: true, System: strings.Repeat("ab", 32), SystemText: "Plan."}},
		{Planned{Spent: Spent{N: 2, Requests: 1}, Steps: steps, System: strings.Repeat("cd", 32), SystemBlob: true}},
		{StepRouted{Spent: goldenSpent(3), Step: 1, Call: call("c1"), Sequential: true, Offered: []string{"payments.send", "look"}}, CallSuspended{Call: "c1", Approval: "a1", Digest: "d", Expires: later}, Parked{Expires: later}},
		{Resumed{}, Decided{Slot: 1, Call: "c1", Approval: "a1", Action: ActionApprove, By: "user:ana", Digest: "d"}, CallClaimed{Call: "c1"}},
		{CallFinished{Call: "c1", Content: "paid", Media: []Media{{Name: "p", MediaType: "image/png", Data: "iVBORw=="}}}, InputReceived{Slot: 2, ID: "i", Blocks: []UserBlock{{Text{"Loudly."}}}}},
		{StepRouted{Spent: spent(4), Step: 2, Call: post}, CallClaimed{Call: "p1"}},
		{CallFinished{Call: "p1", IsError: true, Reason: WhyToolError, Content: "no"}},
		{StepRouted{Spent: spent(5), Step: 3, Failed: true}},
		{StepRouted{Spent: spent(6), Step: 4}},
		{PlanLeft{N: 7, Why: LeftModelFailed, Step: 4, Detail: "model m: server", Requests: 3}, Evicted{Total: 1, Summary: "Somebody was here."}},
		{Replied{Inference: 1, Model: "m", Requests: 1, Calls: []RepliedCall{loop}, Offered: []string{"post"}}},
		{CallFinished{Call: "c9", IsError: true, Reason: WhyOutOfScope, Content: "no"}},
		{Replied{Inference: 2, Model: "m", Requests: 1, Text: "Paid."}, Finished{Reason: ReasonNaturalEnd, Output: json.RawMessage(`"Paid."`)}},
	}
}

// goldenPlanDoneRun is answered by its plan, which a stop policy would have stopped, and goes on with what was said meanwhile.
func goldenPlanDoneRun() [][]Event {
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r21", Agent: "a", Definition: "d1", Owner: "r21-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Look."}}}}, seenBefore()},
		{Planned{Spent: goldenSpent(1), Steps: []PlanStep{{Number: 1, Description: "Look."}}}},
		{StepRouted{Spent: goldenSpent(2), Step: 1, Call: &RepliedCall{ID: "c1", Name: "look", Effect: EffectRead, Input: json.RawMessage(`{}`)}}},
		{CallFinished{Call: "c1", Ran: true, Content: "there", Blob: strings.Repeat("ab", 32)}, InputReceived{Slot: 1, ID: "i", Blocks: []UserBlock{{Text{"And?"}}}}},
		{Synthesised{Spent: goldenSpent(3), Text: "Done: it is there."}, Evicted{Total: 1}},
		{Replied{Inference: 1, Model: "m", Requests: 1, Text: "Nothing else."}, Finished{Reason: ReasonNaturalEnd, Output: json.RawMessage(`"Nothing else."`)}},
	}
}

// goldenPlans are runs that a plan ends: the planner's own answer, and a list in place of one.
func goldenPlans() map[string]func() [][]Event {
	start := func(run string) RunStarted {
		return RunStarted{Tenant: "default", Run: run, Agent: "a", Definition: "d1", Owner: run + "-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Look."}}}}
	}
	return map[string]func() [][]Event{
		golden + "-plan-direct": func() [][]Event {
			return [][]Event{{start("r22")}, {Planned{Spent: goldenSpent(1), Text: "Hello."}, Finished{Reason: ReasonNaturalEnd, Output: json.RawMessage(`"Hello."`)}}}
		},
		golden + "-plan-static": func() [][]Event {
			return [][]Event{
				{start("r23")}, {Planned{Spent: goldenSpent(1), Steps: []PlanStep{{Number: 1, Description: "Look."}}}},
				{StepRouted{Spent: goldenSpent(2), Step: 1, Call: &RepliedCall{ID: "c1", Name: "look", Effect: EffectRead, Input: json.RawMessage(`{}`)}}},
				{CallFinished{Call: "c1", Ran: true, Content: "there"}},
				{Synthesised{Spent: Spent{N: 3, Requests: 1}, Static: "- Look: there"}, Finished{Reason: ReasonNaturalEnd, Output: json.RawMessage(`"- Look: there"`)}},
			}
		},
	}
}
