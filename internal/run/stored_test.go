package run_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
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
		"a fact":                           {entry(1, "R", `{"call_judged":{"call":"c1"}}`), `unmarshal entry 3 event 0: event "call_judged": unknown to this version`},
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

// FuzzReadStored: what is taken has no key that is not known, and none twice; written again, it is read as the same.
func FuzzReadStored(f *testing.F) {
	f.Add([]byte(`{"name":"clerk","system":"Hi.","model":{"provider":"demo"},"tools":[{"name":"x","schema":{"type":"object"}}]}`))
	f.Add([]byte(`{"name":"clerk","name":"other"}`))
	f.Add([]byte(`{"Name":"clerk"}`))
	f.Add([]byte(`{"permission":{"rules":[{"tool":"*","when":[{"path":"/a","eq":1e400}]}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var d agent.Definition
		if jsonx.ReadStored("definition", raw, &d) != nil {
			return
		}
		once, err := jsonx.MarshalVerbatim(d)
		require.NoError(t, err)
		var again agent.Definition
		require.NoError(t, jsonx.ReadStored("definition", once, &again))
		twice, err := jsonx.MarshalVerbatim(again)
		require.NoError(t, err)
		require.Equal(t, string(once), string(twice))
	})
}

// FuzzRestore: a snapshot is restored to a state that can be shown, or it is none, or an error; it never panics, whatever it says.
func FuzzRestore(f *testing.F) {
	snapshots := 0
	for _, e := range sampleEntries() {
		if e.Snapshot != nil {
			f.Add([]byte(e.Snapshot))
			snapshots++
		}
	}
	require.Positive(f, snapshots)
	f.Add([]byte(`{"start":{"tenant":"t","run":"r","agent":"a","definition":"","owner":"o","msgs":null,"max":1},"status":"running","times":[0,0],"infer":1,"msgs":[{"r":"user","b":0,"f":{}}]}`))
	f.Fuzz(func(t *testing.T, snapshot []byte) {
		if !json.Valid(snapshot) {
			return
		}
		s, ok, err := run.Restore([]run.Entry{{Seq: 7, Writer: "w", Snapshot: snapshot}, {Seq: 8, Writer: "w", Events: []run.Event{run.HandedOver{Owner: "x"}}}})
		if err != nil || !ok {
			return
		}
		if _, err := policy.View(&s); err != nil {
			var bad *json.MarshalerError
			require.True(t, errors.As(err, &bad), "%v", err)
		}
	})
}
