package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// waitingRun is a run that an execution of its own has brought to entry 2.
func restoredRun(t *testing.T) AgentState {
	t.Helper()
	return fold(t, AgentState{}, unmarshalled(t, linesOf(t, goldenRestored+".jsonl"))[:2])
}

func TestAWitnessIsAheadOfAnOlderCopy(t *testing.T) {
	s := restoredRun(t)
	epoch := NextEpoch(s.Generation, worldEpoch)
	for _, c := range []struct {
		w    Witness
		want bool
	}{
		{Witness{Run: "r11", Execution: "r11-0"}, false},
		{Witness{Run: "r11", Execution: "r11-0", Woken: 1, Seq: 1, At: 1}, false},
		{Witness{Run: "r11", Execution: "r11-0", Woken: 2}, true},
		{Witness{Run: "r11", Execution: "r11-0", Seq: 2}, true},
		{Witness{Run: "r11", Execution: "r11-0", At: 2}, true},
		{Witness{Run: "r11", Execution: "r11-1"}, true},
		{Witness{Run: "r11", Execution: fmt.Sprintf("r11-%d", epoch)}, true},
		{Witness{Run: "r11", Execution: "by-event", Seq: 9}, false}, // it owns nothing, and is turned away
		{Witness{Run: "r11", Execution: "r11-cleanup-3"}, false},
		{Witness{Run: "r11", Execution: "r11-01"}, false},
		{Witness{Run: "r11", Execution: "r11--1"}, false},
		{Witness{Run: "r1", Execution: "r11-5"}, false},
	} {
		require.Equal(t, c.want, c.w.Ahead(&s), "%+v", c.w)
	}
	done, err := Apply(s, Finished{Reason: ReasonCancelled})
	require.NoError(t, err)
	require.False(t, Witness{Run: "r11", Execution: "r11-0", Seq: 9}.Ahead(&done), "nothing of it can be done again")
	require.False(t, Witness{Run: "r11", Execution: "r11-0", Seq: 9}.Ahead(&AgentState{}))
}

func TestAQuarantinedRunOwesNothingButAWord(t *testing.T) {
	s := restoredRun(t)
	s.head.seq, s.head.time = 2, worldEpoch
	q := Quarantined{Why: QuarantineAhead, Owner: "r11-1000", Generation: 1000, Expires: worldEpoch.Add(time.Hour)}
	held, err := Apply(s, q)
	require.NoError(t, err)
	def, err := PresetDefaults(PresetCountersign)
	require.NoError(t, err)
	require.Equal(t, Action{Kind: ActWait, Expires: q.Expires}, Next(&def, &held))
	require.Equal(t, []any{"r11-1000", "r11-0", int64(1000), int64(1000)}, []any{held.Owner, held.FormerOwner, held.Generation, held.Epoch})
	require.False(t, Witness{Run: "r11", Execution: "r11-0", Seq: 9}.Ahead(&held), "whom it was taken from is turned away, however much it knows")

	other, err := Apply(held, Released{Seq: 1, By: "user:op"})
	require.NoError(t, err)
	require.NotNil(t, other.Quarantine, "a word on another quarantine")
	free, err := Apply(held, Released{Seq: 2, By: "user:op"})
	require.NoError(t, err)
	require.Nil(t, free.Quarantine)
	require.Equal(t, ActInfer, Next(&def, &free).Kind)

	for name, bad := range map[string]Quarantined{
		"no reason":          {Owner: "r11-1000", Generation: 1000, Expires: q.Expires},
		"no owner":           {Why: q.Why, Generation: 1000, Expires: q.Expires},
		"no expiry":          {Why: q.Why, Owner: "r11-1000", Generation: 1000},
		"an old generation":  {Why: q.Why, Owner: "r11-x", Generation: 0, Expires: q.Expires},
		"another of its own": {Why: q.Why, Owner: "r11-0", Generation: 4, Expires: q.Expires},
	} {
		_, err := Apply(s, bad)
		var forbidden *ApplyError
		require.ErrorAs(t, err, &forbidden, name)
	}
}

func TestEpochsHaveNamesOfTheirOwn(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	first := NextEpoch(7, at)
	require.Greater(t, NextEpoch(7, at.Add(time.Minute)), first+maxGenerations, "restored again, from the same copy")
	require.Greater(t, NextEpoch(first+3, at), first+maxGenerations, "a clock that stands still")
	require.LessOrEqual(t, len(fmt.Sprintf("%s-%d", RunID("acme", "clerk", "k"), NextEpoch(0, at.AddDate(500, 0, 0)))), 80, "the name of an execution")
}

// maxGenerations is far more than a run takes between two restores.
const maxGenerations = 900
