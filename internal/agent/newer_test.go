package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNewerFormsAreRefused: what only a newer build knows is refused by its name, with what this build knows instead (R12, invariant 9). The first one is read.
func TestNewerFormsAreRefused(t *testing.T) {
	entry := func(v int, kind, event string) string {
		return fmt.Sprintf(`{"v":%d,"s":3,"w":"w1","t":0,"k":["%s"],"e":[%s]}`, v, kind, event)
	}
	parked := `{"parked":{"expires":"2026-01-01T00:00:00Z"}}`
	_, err := UnmarshalEntry([]byte(entry(1, "F", parked)))
	require.NoError(t, err)
	for name, c := range map[string]struct{ stored, says string }{
		"a form of entry":                  {entry(2, "F", parked), "unmarshal entry 3: entry: found form 2, this build knows form 1"},
		"a form of entry of another shape": {`{"v":7,"e":{"more":1}}`, "entry: found form 7"},
		"a key of the entry":               {strings.Replace(entry(1, "F", parked), `"w":`, `"lease":4,"w":`, 1), `unmarshal entry 3: entry: found the key "lease", this build knows no such key`},
		"a checkpoint":                     {entry(1, "X", parked), `checkpoint: found "X"`},
		"a fact":                           {entry(1, "F", `{"call_judged":{"call":"c1"}}`), `unmarshal entry 3 event 0: event: found "call_judged"`},
		"a key of a fact":                  {entry(1, "F", `{"call_finished":{"call":"c1","content":"","judge":"x"}}`), `event call_finished: found the key "judge"`},
		"a key deep in a fact":             {entry(1, "F", `{"replied":{"n":1,"model":"m","requests":1,"units":0,"usage":{"input":1,"output":1,"thinking":9}}}`), `event replied: found the key "thinking"`},
		"another wait":                     {entry(1, "F", `{"call_suspended":{"call":"c1","approval":"a","digest":"d","expires":"2026-01-01T00:00:00Z","for":"review"}}`), `event call_suspended: for: found "review", this build knows approval, outcome, input, answer`},
		"another reason to ask again":      {entry(1, "F", `{"call_suspended":{"call":"c1","approval":"a","digest":"d","expires":"2026-01-01T00:00:00Z","why":"budget_changed"}}`), `why: found "budget_changed"`},
		"another action":                   {entry(1, "F", `{"decided":{"slot":1,"call":"c1","approval":"a","action":"abstain","by":"user:ana"}}`), `event decided: action: found "abstain"`},
		"another action that is kept":      {entry(1, "F", `{"decision_kept":{"slot":1,"target":"c1","action":"abstain","by":"user:ana"}}`), `event decision_kept: action: found "abstain"`},
		"a block":                          {entry(1, "U", `{"input_received":{"slot":1,"id":"m","msgs":[{"type":"audio","data":"x"}]}}`), `content block: type: found "audio"`},
		"a key of a block":                 {entry(1, "U", `{"input_received":{"slot":1,"id":"m","msgs":[{"type":"text","text":"x","language":"de"}]}}`), `content block: found the key "language"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := UnmarshalEntry([]byte(c.stored))
			require.ErrorIs(t, err, ErrNewer)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, "written by a newer version; deploy it, or wait until it is deployed")
		})
	}
}

// TestUnknownSnapshotIsAnError: a snapshot with a key that this build does not know belongs to a newer version's run.
func TestUnknownSnapshotIsAnError(t *testing.T) {
	for snapshot, newer := range map[string]bool{`{"lease":4}`: true, `{"start":[]}`: false} {
		_, _, err := Restore([]Entry{{Seq: 7, Writer: "w", Snapshot: json.RawMessage(snapshot)}})
		require.ErrorContains(t, err, "read snapshot of entry 7", snapshot)
		require.Equal(t, newer, errors.Is(err, ErrNewer), snapshot)
	}
}

// TestDamagedIsNotNewer: what no version writes is told apart from what a newer one may have.
func TestDamagedIsNotNewer(t *testing.T) {
	for _, stored := range []string{`{"v":1,"s":"3"`, `{"v":0,"s":3,"w":"w","t":0,"e":[]}`, `{"v":1,"s":3,"w":"w","t":0,"e":[{}]}`, `{"v":1,"s":3,"w":"w","t":0,"e":[{"parked":[]}]}`, `{"v":1,"s":3,"w":"w","t":0,"e":[]} {}`, ``} {
		_, err := UnmarshalEntry([]byte(stored))
		require.Error(t, err, stored)
		require.NotErrorIs(t, err, ErrNewer, stored)
	}
}

// TestStoredFactsAreWrittenAsTheyWere: a fact that is read and written again is the same to the byte, so that digests over facts hold across versions: the marker of
// an accepted input has one.
func TestStoredFactsAreWrittenAsTheyWere(t *testing.T) {
	for _, line := range sampleLines(t) {
		var f struct {
			Events []json.RawMessage `json:"e"`
		}
		require.NoError(t, json.Unmarshal(line, &f))
		for _, raw := range f.Events {
			e, err := UnmarshalEvent(raw)
			require.NoError(t, err)
			again, err := MarshalEvent(e)
			require.NoError(t, err)
			require.Equal(t, string(raw), string(again))
		}
	}
}
