package run_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// verified is how many entries of a journal are as they were written, and what is wrong with the next one.
func verified(journal [][]byte) (c store.Chain, wrong error) {
	for _, entry := range journal {
		if err := c.Add(entry); err != nil {
			return c, err
		}
	}
	return c, nil
}

// C5: whatever of a journal is changed, taken out, doubled or moved is found where it begins; what is cut off at the end shows by the last hash.
func TestC5ChainsShowWhatWasChanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, entries := randomJournal(t)
		journal := written(t, entries)
		whole, err := verified(journal)
		require.NoError(t, err)
		folded := fold(t, run.AgentState{}, stored(t, entries))
		require.Equal(t, folded.Hash(), whole.Hash)
		require.Equal(t, folded.Entries, whole.Entries)
		require.Equal(t, folded.Status == run.RunDone, whole.Done)

		at := rapid.IntRange(0, len(journal)-1).Draw(t, "at")
		spoiled := slices.Clone(journal)
		switch rapid.SampledFrom([]string{"changed", "dropped", "doubled", "moved"}).Draw(t, "how") {
		case "changed":
			var e map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(journal[at], &e))
			e["w"] = json.RawMessage(`"somebody else"`)
			spoiled[at], err = json.Marshal(e)
			require.NoError(t, err)
		case "dropped":
			spoiled = slices.Delete(spoiled, at, at+1)
		case "doubled":
			spoiled = slices.Insert(spoiled, at, journal[at])
		case "moved":
			if at == 0 {
				return
			}
			spoiled[at-1], spoiled[at] = spoiled[at], spoiled[at-1]
		}
		c, err := verified(spoiled)
		if err == nil { // nothing follows that could say so
			require.NotEqual(t, whole.Hash, c.Hash)
			return
		}
		require.LessOrEqual(t, c.Entries, int64(at)+1)
		require.False(t, bytes.Contains([]byte(err.Error()), []byte("somebody else")), "nothing of an entry is quoted")
	})
}

// An entry does not fold behind another entry than the one that it was written behind.
func TestC5AChangedEntryDoesNotFold(t *testing.T) {
	d := run.NewDraft(run.AgentState{}, "w1", worldTime(1))
	require.NoError(t, d.Add(run.RunStarted{Tenant: "default", Run: "r1", Agent: "small", Owner: "r1-0", MaxInteractions: 5}))
	first := d.Entry
	d = run.NewDraft(d.Committed(), "w2", worldTime(2))
	require.NoError(t, d.Add(run.InputReceived{Slot: 1, ID: "m", Blocks: []run.UserBlock{{Block: run.Text{Text: "Hello."}}}}))
	second := d.Entry
	require.Equal(t, first.Hash(), second.Prev)
	_, err := run.Fold(run.AgentState{}, []run.Entry{first, second})
	require.NoError(t, err)
	first.Writer = "w3"
	_, err = run.Fold(run.AgentState{}, []run.Entry{first, second})
	require.EqualError(t, err, "apply entry 1: it follows another entry 0 than the one that is there")
}
