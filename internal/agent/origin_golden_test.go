package agent

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// goldenChildren begin from the stored journal of form 1: at the wait in it, and at its end.
func goldenChildren() map[string]struct {
	at     int
	events [][]Event
} {
	expires := worldEpoch.Add(OutcomeExpiry)
	start := RunStarted{Tenant: "default", Run: "r2", Agent: "billing", Version: "3", Definition: "d1", Owner: "r2-0", BodyDigest: "b2", MaxInteractions: 5}
	fork, goOn := start, start
	fork.From = &Origin{Kind: OriginFork, Run: "r1", Seq: 3, Unknown: []CallUnknown{{Call: "c4", Approval: "a9", Expires: expires}}}
	goOn.From = &Origin{Kind: OriginContinues, Run: "r1", Seq: 11, At: 1}
	goOn.Messages = []UserBlock{{Text{"Try again."}}}
	return map[string]struct {
		at     int
		events [][]Event
	}{
		"fork": {3, [][]Event{{fork}, {CallFinished{Call: "c2", IsError: true, Reason: WhyVoided, Content: "no"},
			CallSuspended{Call: "c3", Approval: "a8", Digest: "x8", Expires: expires}, Parked{Expires: expires}}}},
		"continues": {11, [][]Event{{goOn}, {Replied{Inference: 1, Model: "m", Requests: 1, Usage: Usage{Input: 7, Output: 2}, Units: 9, Text: "Done."},
			Finished{Reason: ReasonNaturalEnd, Output: json.RawMessage(`"Done."`)}}}},
	}
}

// TestStoredChildrenStillFold is invariant 9 for runs that began from another.
func TestStoredChildrenStillFold(t *testing.T) {
	parent := unmarshalled(t, goldenLines(t))
	for name, c := range goldenChildren() {
		name, past := golden+"-"+name, fold(t, AgentState{}, parent[:c.at+1])
		if *update {
			addGolden(t, name, Seed(past), c.events)
		}
		s := fold(t, Seed(past), unmarshalled(t, linesOf(t, name+".jsonl")))
		require.NoError(t, wellFormedButEvicted(&s))
		requireGoldenState(t, name, s)
	}
}

// wellFormedButEvicted leaves out what does not hold once calls have left the conversation.
func wellFormedButEvicted(s *AgentState) error {
	if s.EvictedMessages > 0 {
		return nil
	}
	return wellFormed(s)
}

func unmarshalled(t *testing.T, lines [][]byte) []Entry {
	t.Helper()
	out := make([]Entry, len(lines))
	for i, line := range lines {
		var err error
		out[i], err = UnmarshalEntry(line)
		require.NoError(t, err)
	}
	return out
}
