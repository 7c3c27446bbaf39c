package run_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/run"
)

// A reader that begins at ReadFrom ends up where a reader of the whole journal does, settled calls aside.
func TestRestoreIsTheFold(t *testing.T) {
	kept := map[string]json.RawMessage{}
	for _, w := range smallWorlds() {
		for seed := range 4 {
			journal := stored(t, rapid.Custom(w.randomJournal).Example(seed))
			var whole run.AgentState
			taken := false
			for i, e := range journal {
				whole = fold(t, whole, journal[i:i+1])
				from := whole.ReadFrom()
				part, ok, err := run.Restore(journal[from : i+1])
				require.NoError(t, err)
				taken = taken || e.Snapshot != nil
				require.Equal(t, taken, ok)
				if whole.Status != run.RunDone && !w.def.Orchestrator.Enabled {
					require.Equal(t, whole.EvictedMessages > 0, taken, "a run that has evicted has a snapshot")
				}
				if ok {
					require.True(t, part.Partial)
					require.Equal(t, shared(t, whole), shared(t, part), "%s, entry %d", w.name, e.Seq)
					require.Equal(t, from, part.ReadFrom())
				}
				if e.Snapshot != nil {
					var form map[string]json.RawMessage
					require.NoError(t, json.Unmarshal(e.Snapshot, &form))
					maps.Copy(kept, form)
				}
			}
		}
	}
	require.Greater(t, len(kept), 45, "most of what a run can have stood in one of the snapshots")
}

// place is where in its entry a state's newest fact stands.
var place = regexp.MustCompile(`event:\d+ `)

// shared is everything a restored state must share with the fold.
func shared(t require.TestingT, s run.AgentState) string {
	s.Settled, s.Partial, s.From = run.Log[run.Call]{}, false, nil
	return place.ReplaceAllString(exact(t, s), "")
}
