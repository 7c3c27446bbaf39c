package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
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
		journal, state := "testdata/journal-v1-"+name+".jsonl", "testdata/journal-v1-"+name+".state.json"
		past := fold(t, AgentState{}, parent[:c.at+1])
		if _, err := os.Stat(journal); *update && errors.Is(err, fs.ErrNotExist) {
			addGoldenChild(t, past, c.events, journal, state)
		}
		raw, err := os.ReadFile(journal)
		require.NoError(t, err)
		s := fold(t, Seed(past), unmarshalled(t, bytes.Split(bytes.TrimSpace(raw), []byte("\n"))))
		require.NoError(t, wellFormedButEvicted(&s))
		got, err := json.Marshal(s)
		require.NoError(t, err)
		want, err := os.ReadFile(state)
		require.NoError(t, err)
		requireKnownFields(t, name, decoded(t, want), decoded(t, got))
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

func addGoldenChild(t *testing.T, past AgentState, events [][]Event, journal, state string) {
	t.Helper()
	var out bytes.Buffer
	s := Seed(past)
	for _, e := range events {
		d := NewDraft(s, "w1", worldTime(100+s.Entries))
		require.NoError(t, d.Add(e...))
		raw, err := MarshalEntry(d.Entry)
		require.NoError(t, err)
		out.Write(append(raw, '\n'))
		s = d.Committed()
	}
	shown, err := json.MarshalIndent(s, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(journal, out.Bytes(), 0o644))
	require.NoError(t, os.WriteFile(state, append(shown, '\n'), 0o644))
}
