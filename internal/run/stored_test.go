package run_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/run"
)

// TestUnknownFormsAreRefused: whatever this version does not write is refused, with where it stands (R12, invariant 9). The first one is read.
func TestUnknownFormsAreRefused(t *testing.T) {
	entry := func(v int, kind, event string) string {
		return fmt.Sprintf(`{"v":%d,"s":3,"w":"w1","t":0,"k":["%s"],"e":[%s]}`, v, kind, event)
	}
	parked := `{"parked":{"expires":"2026-01-01T00:00:00Z"}}`
	_, err := run.UnmarshalEntry([]byte(entry(1, "R", parked)))
	require.NoError(t, err)
	for name, c := range map[string]struct{ stored, says string }{
		"a form of entry":                  {entry(2, "R", parked), "unmarshal entry 3: v: got 2, want 1"},
		"a form of entry of another shape": {`{"v":7,"e":{"more":1}}`, "v: got 7, want 1"},
		"a key of the entry":               {strings.Replace(entry(1, "R", parked), `"w":`, `"lease":4,"w":`, 1), `unmarshal entry 3: entry: json: unknown field "lease"`},
		"an entry that is cut off":         {`{"v":1,"s":"3"`, "unmarshal entry"},
		"an entry and something more":      {entry(1, "R", parked) + " {}", "unmarshal entry"},
		"a fact of no kind":                {entry(1, "R", `{}`), "unmarshal entry 3 event 0"},
		"a fact of another shape":          {entry(1, "R", `{"parked":[]}`), "event parked: "},
		"a checkpoint":                     {entry(1, "X", parked), `checkpoint: want one of: U, A, T, R`},
		"a fact":                           {entry(1, "R", `{"call_judged":{"call":"c1"}}`), `unmarshal entry 3 event 0: event: "call_judged" is none that this version knows`},
		"a key of a fact":                  {entry(1, "R", `{"call_finished":{"call":"c1","content":"","judge":"x"}}`), `event call_finished: json: unknown field "judge"`},
		"a key deep in a fact":             {entry(1, "R", `{"replied":{"n":1,"model":"m","requests":1,"units":0,"usage":{"input":1,"output":1,"thinking":9}}}`), `event replied: json: unknown field "thinking"`},
		"another wait":                     {entry(1, "R", `{"call_suspended":{"call":"c1","approval":"a","digest":"d","expires":"2026-01-01T00:00:00Z","for":"review"}}`), `event call_suspended: for: want one of: approval, outcome, input, answer`},
		"another reason to ask again":      {entry(1, "R", `{"call_suspended":{"call":"c1","approval":"a","digest":"d","expires":"2026-01-01T00:00:00Z","why":"budget_changed"}}`), `event call_suspended: why: want one of: `},
		"another action":                   {entry(1, "R", `{"decided":{"slot":1,"call":"c1","approval":"a","action":"abstain","by":"user:ana"}}`), `event decided: action: want one of: `},
		"another action that is kept":      {entry(1, "R", `{"decision_kept":{"slot":1,"target":"c1","action":"abstain","by":"user:ana"}}`), `event decision_kept: action: want one of: `},
		"a block":                          {entry(1, "U", `{"input_received":{"slot":1,"id":"m","msgs":[{"type":"audio","data":"x"}]}}`), `content block: type: want one of: `},
		"a key of a block":                 {entry(1, "U", `{"input_received":{"slot":1,"id":"m","msgs":[{"type":"text","text":"x","language":"de"}]}}`), `json: unknown field "language"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run.UnmarshalEntry([]byte(c.stored))
			require.ErrorContains(t, err, c.says)
		})
	}
}

// TestUnknownSnapshotIsAnError: an unknown key of a snapshot, or a value of another kind, spoils the entry.
func TestUnknownSnapshotIsAnError(t *testing.T) {
	for _, snapshot := range []string{`{"lease":4}`, `{"start":[]}`} {
		_, _, err := run.Restore([]run.Entry{{Seq: 7, Writer: "w", Snapshot: json.RawMessage(snapshot)}})
		require.ErrorContains(t, err, "read snapshot of entry 7", snapshot)
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
			e, err := run.UnmarshalEvent(raw)
			require.NoError(t, err)
			again, err := run.MarshalEvent(e)
			require.NoError(t, err)
			require.Equal(t, string(raw), string(again))
		}
	}
}
