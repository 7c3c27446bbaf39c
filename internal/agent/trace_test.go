package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A run keeps the trace it was started with; what is stored of an untraced run does not speak of traces.
func TestTraceIsKept(t *testing.T) {
	for name, c := range map[string]struct{ want *Trace }{
		"none": {nil}, "kept": {&Trace{Traceparent: "one", Tracestate: "a=1", Parent: "p"}},
	} {
		t.Run(name, func(t *testing.T) {
			var entries []Entry
			var s AgentState
			for _, events := range [][]Event{
				{RunStarted{Tenant: "default", Run: "r1", Agent: "a", Definition: "d", Owner: "r1-0", MaxInteractions: 9, Messages: []UserBlock{{Text{"Go."}}}, Trace: c.want}},
				{Replied{Inference: 1, Model: "m", Calls: []RepliedCall{{ID: "c1", Name: "pay", Effect: EffectNonIdempotent, Input: []byte(`{}`)}}}},
				{CallSuspended{Call: "c1", Approval: "a1", Digest: "x", Expires: worldEpoch.Add(time.Hour)}, Parked{Expires: worldEpoch.Add(time.Hour)}},
				{Resumed{}, Finished{Reason: ReasonCancelled}},
			} {
				d := NewDraft(s, "w", worldEpoch)
				require.NoError(t, d.Add(events...))
				raw, err := MarshalEntry(d.Entry)
				require.NoError(t, err)
				if c.want == nil {
					require.NotContains(t, string(raw), "trace")
				}
				e, err := UnmarshalEntry(raw)
				require.NoError(t, err)
				entries, s = append(entries, e), d.Committed()
			}
			folded, err := Fold(AgentState{}, entries)
			require.NoError(t, err)
			require.Equal(t, c.want, folded.Trace)
			shown, err := folded.MarshalJSON()
			require.NoError(t, err)
			require.NotContains(t, string(shown), "trace", "it is not the run's business")
		})
	}
}
