package agent

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	goldenUndo     = golden + "-undo"     // takes back a call of the stored journal of form 1
	goldenAttempts = golden + "-attempts" // whose tools were entered several times
)

// goldenUndoRun has a service take a payment back, whose answer comes once a person has agreed.
func goldenUndoRun() [][]Event {
	later := worldEpoch.Add(OutcomeExpiry)
	start := RunStarted{
		Tenant: "default", Run: "r3", Agent: "billing", Version: "3", Definition: "d1", Owner: "r3-0", BodyDigest: "b3", MaxInteractions: 5,
		From: &Origin{Kind: OriginContinues, Run: "r1", Seq: 11, At: 1},
	}
	id := ApprovalID("r3", "c4-0", 1)
	return [][]Event{
		{start, UndoOrdered{
			Call: RepliedCall{ID: "c4-0", Name: "payments_recall", Tool: "payments.recall", Effect: EffectNonIdempotent, Input: json.RawMessage(`{"payment":"p1"}`), Service: true},
			Of:   "c2", By: "user:ana",
		}},
		{CallSuspended{Call: "c4-0", Approval: id, Digest: "x4", Expires: later}, Parked{Expires: later}},
		{Resumed{}, Decided{Slot: 1, Call: "c4-0", Approval: id, Action: ActionApprove, By: "user:bo", Digest: "x4"}, CallClaimed{Call: "c4-0"}},
		{CallSuspended{Call: "c4-0", For: ForAnswer, Expires: later}, Parked{Expires: later}},
		{Resumed{}, Answered{Slot: 2, Call: "c4-0", Content: "recalled", By: "user:bank"}, Finished{Reason: ReasonNaturalEnd, Output: json.RawMessage(`"recalled"`)}},
	}
}

// goldenAttemptsRun has results, a question and late words of tools that were entered more than once.
func goldenAttemptsRun() [][]Event {
	later := worldEpoch.Add(InputExpiry)
	call := func(id string, e Effect) RepliedCall {
		return RepliedCall{ID: id, Name: "orders_get", Tool: "orders.get", Effect: e, Input: json.RawMessage(`{}`)}
	}
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r9", Agent: "a", Definition: "d1", Owner: "r9-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Look."}}}}},
		{Replied{Inference: 1, Model: "m", Requests: 1, Calls: []RepliedCall{
			call("c1", EffectRead), call("c2", EffectRead), call("c3", EffectNonIdempotent), call("c4", EffectNonIdempotent),
		}}},
		{CallClaimed{Call: "c3"}, CallClaimed{Call: "c4"}},
		{
			CallFinished{Call: "c1", Ran: true, Content: "in Berlin", Entered: 3},
			CallSuspended{Call: "c2", Approval: "a1", Digest: "d2", Expires: later, For: ForInput, Ticket: &Ticket{ID: "s1"}, Ran: true, Entered: 2},
		},
		{
			LateResult{Slot: 1, Call: "c3", Writer: "w1", Content: "late", Entered: 4},
			LateSuspended{Slot: 2, Call: "c4", Writer: "w1", Ticket: &Ticket{}, Digest: "d4", Expires: later, Entered: 5},
		},
	}
}

func TestStoredUndoAndAttemptsStillFold(t *testing.T) {
	past := fold(t, AgentState{}, unmarshalled(t, goldenLines(t)))
	if *update {
		addGolden(t, goldenUndo, Seed(past), goldenUndoRun())
		addGolden(t, goldenAttempts, AgentState{}, goldenAttemptsRun())
	}
	undo := fold(t, Seed(past), unmarshalled(t, linesOf(t, goldenUndo+".jsonl")))
	requireGoldenState(t, goldenUndo, undo)
	c, _ := undo.Call("c4-0")
	require.Equal(t, []any{"c2", StatusSucceeded, RunDone, ReasonNaturalEnd}, []any{c.Undoes, c.Status, undo.Status, undo.Reason})

	s := fold(t, AgentState{}, unmarshalled(t, linesOf(t, goldenAttempts+".jsonl")))
	requireGoldenState(t, goldenAttempts, s)
	for id, want := range map[string]int{"c1": 3, "c2": 2, "c3": 4, "c4": 5} {
		c, _ := s.Call(id)
		require.Equal(t, want, c.Executions, id)
	}
}
