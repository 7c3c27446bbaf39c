package run_test

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// exact is everything a state is, unexported fields included, as text that shares no memory with it.
func exact(_ require.TestingT, s run.AgentState) string {
	return string(appendExact(nil, reflect.ValueOf(s)))
}

// appendExact writes v field by field. A list that grows by sharing memory, as Log does, is its elements.
func appendExact(b []byte, v reflect.Value) []byte {
	if v.CanInterface() {
		if all := v.MethodByName("All"); all.IsValid() && all.Type().NumIn() == 0 {
			return appendExact(b, all.Call(nil)[0])
		}
	}
	if v.Type() == reflect.TypeFor[time.Time]() { // without its place
		return fmt.Appendf(b, "%v %v", v.Field(0), v.Field(1))
	}
	switch v.Kind() {
	case reflect.Struct:
		b = append(append(b, v.Type().Name()...), '{')
		for i := range v.NumField() {
			b = append(appendExact(append(append(b, v.Type().Field(i).Name...), ':'), v.Field(i)), ' ')
		}
		return append(b, '}')
	case reflect.Slice, reflect.Array:
		b = append(b, '[')
		for i := range v.Len() {
			b = append(appendExact(b, v.Index(i)), ' ')
		}
		return append(b, ']')
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return append(b, '-')
		}
		return appendExact(b, v.Elem())
	default: // fmt sorts the keys of maps
		return fmt.Appendf(b, "%v", v)
	}
}

// randomJournal drives one of the small worlds for a while. Steps of one writer may share an entry.
func randomJournal(t *rapid.T) (*world, []run.Entry) {
	worlds := smallWorlds()
	w := &worlds[rapid.IntRange(0, len(worlds)-1).Draw(t, "world")]
	return w, w.randomJournal(t)
}

func (w *world) randomJournal(t *rapid.T) []run.Entry {
	w.def.Limits.Interactions, w.maxCalls = 20, 20
	var s run.AgentState
	var journal []run.Entry
	for n := rapid.IntRange(15, 40).Draw(t, "entries"); n > 0 && s.Status != run.RunDone; n-- {
		d := randomEntry(t, w, s)
		journal, s = append(journal, d.Entry), d.Committed()
	}
	return journal
}

func randomEntry(t *rapid.T, w *world, s run.AgentState) *run.Draft {
	leave, rest := drawEviction(t, s)
	st := randomStep(t, w, &rest)
	d := run.NewDraft(s, st.writer, worldTime(s.Entries))
	require.NoError(t, d.Add(append(leave, st.events...)...))
	for d.State.Status != run.RunDone && rapid.IntRange(0, 3).Draw(t, "more") == 0 {
		more := randomStep(t, w, &d.State)
		if more.writer != d.Entry.Writer {
			break
		}
		require.NoError(t, d.Add(more.events...))
	}
	d.Mark(kindsOf(d.Entry.Events)...)
	if rapid.Bool().Draw(t, "snapshot") {
		d.Before = run.AgentState{} // as if it were this entry that evicts
	}
	require.NoError(t, d.Snap())
	return d
}

// drawEviction now and then lets whole rounds leave that the model has seen, whatever policy says, and gives what is
// left.
func drawEviction(t *rapid.T, s run.AgentState) ([]run.Event, run.AgentState) {
	if s.Status != run.RunRunning || rapid.Bool().Draw(t, "stay") {
		return nil, s
	}
	var may []run.Evicted
	for n := 1; n < s.Messages.Len(); n++ {
		e := run.Evicted{Total: s.EvictedMessages + int64(n), Summary: fmt.Sprintf("%d were said", n)}
		if rest, err := run.Apply(s, e); err == nil && takenByProviders(rest.Messages.All()) == nil {
			may = append(may, e)
		}
	}
	if len(may) == 0 {
		return nil, s
	}
	e := rapid.SampledFrom(may).Draw(t, "leave")
	rest, err := run.Apply(s, e)
	require.NoError(t, err)
	return []run.Event{e}, rest
}

// randomStep seldom ends the run, or runs would be short.
func randomStep(t *rapid.T, w *world, s *run.AgentState) step {
	steps := w.steps(s)
	if rapid.IntRange(0, 9).Draw(t, "any") < 9 {
		goesOn := slices.DeleteFunc(slices.Clone(steps), func(st step) bool { return st.forced || endsIn(t, w, s, st) })
		if len(goesOn) > 0 {
			steps = goesOn
		}
	}
	st := rapid.SampledFrom(steps).Draw(t, "step")
	st.events = withPatches(t, st.events)
	return st
}

func endsIn(t *rapid.T, w *world, s *run.AgentState, st step) bool {
	d := run.NewDraft(*s, st.writer, worldTime(s.Entries))
	require.NoError(t, d.Add(st.events...))
	next := policy.Next(&w.def, &d.State).Kind
	return next == policy.ActDone || next == policy.ActEnd
}

// withPatches lets results change the shared state now and then.
func withPatches(t *rapid.T, events []run.Event) []run.Event {
	out := slices.Clone(events)
	for i, e := range out {
		switch e := e.(type) {
		case run.CallFinished:
			e.Patch = fuzzPatch(rapid.Byte().Draw(t, "patch"))
			out[i] = e
		case run.LateResult:
			e.Patch = fuzzPatch(rapid.Byte().Draw(t, "patch"))
			out[i] = e
		}
	}
	return out
}

func kindsOf(events []run.Event) []run.Checkpoint {
	var kinds []run.Checkpoint
	for _, e := range events {
		switch e.(type) {
		case run.RunStarted, run.InputReceived:
			kinds = append(kinds, run.CheckpointUserMessage)
		case run.Replied:
			kinds = append(kinds, run.CheckpointAssistantTurn)
		case run.CallFinished:
			kinds = append(kinds, run.CheckpointToolResults)
		case run.Finished:
			kinds = append(kinds, run.CheckpointRunFinished)
		}
	}
	return kinds
}

func fold(t require.TestingT, s run.AgentState, entries []run.Entry) run.AgentState {
	s, err := run.Fold(s, entries)
	require.NoError(t, err)
	return s
}

// stored is the journal as it comes back from storage: equal facts in memory of its own.
func stored(t require.TestingT, journal []run.Entry) []run.Entry {
	out := make([]run.Entry, len(journal))
	for i, raw := range written(t, journal) {
		var err error
		out[i], err = run.UnmarshalEntry(raw)
		require.NoError(t, err)
	}
	return out
}

func written(t require.TestingT, journal []run.Entry) [][]byte {
	lines := make([][]byte, len(journal))
	for i, e := range journal {
		var err error
		lines[i], err = run.MarshalEntry(e)
		require.NoError(t, err)
	}
	return lines
}

// However a journal is read, in two pieces, with entries again, or from storage, it gives the same run; and it is stored
// as it was, to the byte: digests are over facts as they are stored.
func TestAJournalIsOneRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, journal := randomJournal(t)
		back := stored(t, journal)
		require.Equal(t, back, stored(t, back))
		require.Equal(t, written(t, journal), written(t, back))
		all := exact(t, fold(t, run.AgentState{}, back))
		var s run.AgentState
		for i, e := range journal {
			require.Equal(t, all, exact(t, fold(t, s, journal[i:])), "cut at %d", i)
			s = fold(t, s, journal[i:i+1])
			want := exact(t, s)
			require.Equal(t, want, exact(t, fold(t, s, journal[:i+1])), "entries up to %d again", i)
			last := e.Events[len(e.Events)-1]
			again, err := run.Apply(s, last)
			require.NoError(t, err, run.EventType(last))
			require.Equal(t, want, exact(t, again), run.EventType(last))
		}
	})
}

func TestApplyLeavesItsArgument(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, journal := randomJournal(t)
		s := fold(t, run.AgentState{}, journal[:rapid.IntRange(0, len(journal)).Draw(t, "cut")])
		before := exact(t, s)
		for _, st := range w.steps(&s) {
			d := run.NewDraft(s, st.writer, worldTime(s.Entries))
			require.NoError(t, d.Add(st.events...))
			require.Equal(t, before, exact(t, s), st.name)
		}
		for _, e := range everyEvent(&s) { // most are refused
			n, err := run.Apply(s, e)
			require.Equal(t, before, exact(t, s), run.EventType(e))
			if err != nil {
				require.Equal(t, before, exact(t, n), run.EventType(e))
			}
		}
	})
}

// TestContinuationsDoNotDisturbEachOther grows several runs out of one state at once, as retries, zombies and a warm
// cache do. They share memory with it, and under -race with each other.
func TestContinuationsDoNotDisturbEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, journal := randomJournal(t)
		base := fold(t, run.AgentState{}, journal[:rapid.IntRange(0, len(journal)-1).Draw(t, "cut")])
		before := exact(t, base)
		branches := make([][]run.Entry, 4)
		want := make([]string, len(branches))
		for i := range branches {
			branches[i], want[i] = branch(t, w, journal[:base.Entries])
		}
		for i, got := range growTogether(t, base, branches) {
			require.Equal(t, want[i], exact(t, got), "branch %d", i)
		}
		require.Equal(t, before, exact(t, base))
	})
}

// branch is one way on from the end of a journal, and where it leads when nothing is shared.
func branch(t *rapid.T, w *world, journal []run.Entry) ([]run.Entry, string) {
	s := fold(t, run.AgentState{}, stored(t, journal))
	var more []run.Entry
	for n := rapid.IntRange(1, 8).Draw(t, "more entries"); n > 0 && s.Status != run.RunDone; n-- {
		d := randomEntry(t, w, s)
		more, s = append(more, d.Entry), d.Committed()
	}
	return more, exact(t, s)
}

func growTogether(t *rapid.T, base run.AgentState, branches [][]run.Entry) []run.AgentState {
	got, errs := make([]run.AgentState, len(branches)), make([]error, len(branches))
	var wg sync.WaitGroup
	for i := range branches {
		wg.Go(func() { got[i], errs[i] = run.Fold(base, branches[i]) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	return got
}

func TestTheEndIsTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, s := ended(t)
		want := exact(t, s)
		require.Equal(t, policy.ActDone, policy.Next(&w.def, &s).Kind)
		for _, e := range everyEvent(&s) {
			n, _ := run.Apply(s, e)
			require.Equal(t, want, exact(t, n), run.EventType(e))
		}
	})
}

// TestDraftIsWhatItsEntryFoldsTo: what a shell holds after a commit is what the next one reads.
func TestDraftIsWhatItsEntryFoldsTo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, journal := randomJournal(t)
		s := fold(t, run.AgentState{}, journal[:len(journal)-1])
		d := randomEntry(t, w, s)
		require.Equal(t, exact(t, fold(t, s, []run.Entry{d.Entry})), exact(t, d.Committed()))
	})
}
