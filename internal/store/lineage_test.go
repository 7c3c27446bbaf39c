package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// lineage is a family of runs that is written at random, and what each run is.
type lineage struct {
	*rapid.T
	table store.Table
	warm  *store.Journal
	runs  []run.AgentState
	past  map[string][]run.AgentState // of each run, the state after each of its entries
	kinds map[string]int
}

// Whoever reads a run of any family, from a warm journal or a cold one, with the hint or without, whole or as it was
// once, ends up with what its writer had: the same conversation, seenCounts, calls and counters.
func TestEveryReaderOfAFamilyAgrees(t *testing.T) {
	kinds := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		table := store.NewMemory()
		f := &lineage{T: t, table: table, past: map[string][]run.AgentState{}, kinds: kinds}
		f.warm = store.NewJournal(table, rapid.IntRange(0, 3).Draw(t, "warm"))
		f.begin(run.AgentState{}, nil)
		for range rapid.IntRange(5, 40).Draw(t, "facts") {
			f.next()
		}
		for _, s := range f.runs {
			f.everyReader(s)
		}
	})
	if testing.Short() { // too few draws to meet everything
		return
	}
	for _, kind := range []string{"fork", "continues", "fork of a child", "in doubt", "evicted child", "partial child"} {
		require.Positive(t, kinds[kind], "%s never happened", kind)
	}
}

// begin writes the first entry of a run, which begins from past where there is an origin.
func (f *lineage) begin(past run.AgentState, from *run.Origin) {
	runID2 := fmt.Sprintf("r%d", len(f.runs))
	first := run.RunStarted{Tenant: acme, Run: runID2, Agent: "clerk", Owner: runID2 + "-0", MaxInteractions: 1000, From: from, Definition: "d",
		Trace: rapid.SampledFrom([]*run.Trace{nil, {Traceparent: "of " + runID2}}).Draw(f.T, "trace"),
		Messages: []run.UserBlock{
			{Block: run.Text{Text: "Begin " + runID2}}, {Block: run.Media{MediaType: "image/png", Blob: "b1"}},
		}}
	seed := run.AgentState{}
	if from != nil {
		seed = run.Seed(past)
		f.kinds[string(from.Kind)]++
		f.count("fork of a child", from.Kind == run.OriginFork && past.From != nil)
		f.count("in doubt", len(from.Unknown) > 0)
	}
	f.runs = append(f.runs, run.AgentState{})
	f.commit(len(f.runs)-1, seed, first)
}

func (f *lineage) count(kind string, yes bool) {
	if yes {
		f.kinds[kind]++
	}
}

// commit writes an entry through the warm journal, or through another that has never seen the run.
func (f *lineage) commit(i int, s run.AgentState, events ...run.Event) {
	d := run.NewDraft(s, fmt.Sprintf("w%d", s.Entries), day.Add(time.Duration(s.Entries)*time.Second))
	require.NoError(f, d.Add(events...))
	require.NoError(f, d.Snap())
	j := f.warm
	if rapid.IntRange(0, 3).Draw(f.T, "elsewhere") == 0 {
		j = store.NewJournal(f.table, 0)
	}
	before := s
	if s.Status == "" {
		before = run.AgentState{}
	}
	require.NoError(f, j.Append(context.Background(), before, d))
	after := d.Committed()
	f.runs[i] = after
	f.past[after.Run] = append(f.past[after.Run], after)
	f.count("evicted child", after.From != nil && len(d.Entry.Snapshot) > 0)
}

// next is one fact about one of the runs, or a run that begins from one of them.
func (f *lineage) next() {
	i := rapid.IntRange(0, len(f.runs)-1).Draw(f.T, "run")
	s := f.runs[i]
	if len(f.runs) < 8 && rapid.IntRange(0, 4).Draw(f.T, "child") == 0 {
		f.child(s)
		return
	}
	if s.Status == run.RunDone {
		return
	}
	var open []run.Call
	for _, c := range s.Live {
		if c.Open() {
			open = append(open, c)
		}
	}
	if len(open) == 0 {
		f.reply(i, s)
		return
	}
	f.settle(i, s, rapid.SampledFrom(open).Draw(f.T, "call"))
}

// child begins a run from an entry of s that may be branched off at, or from its end.
func (f *lineage) child(s run.AgentState) {
	if s.Status == run.RunDone && rapid.Bool().Draw(f.T, "continue") {
		from, err := policy.ContinueFrom(&s)
		require.NoError(f, err)
		f.begin(s, &from)
		return
	}
	all := f.past[s.Run]
	past := rapid.SampledFrom(all).Draw(f.T, "entry")
	from, err := policy.ForkFrom(&past, fmt.Sprintf("r%d", len(f.runs)), day)
	if errors.Is(err, policy.ErrCallRunning) {
		return
	}
	require.NoError(f, err)
	f.begin(past, &from)
}

// reply is an inference with thoughts, text and perhaps calls, before which old messages may leave; or the run's end.
func (f *lineage) reply(i int, s run.AgentState) {
	if rapid.IntRange(0, 5).Draw(f.T, "end") == 0 {
		f.commit(i, s, policy.CancelRun("user:ana", "enough"))
		return
	}
	var events []run.Event
	if seen := s.Messages.Len() - s.Unseen; seen > 0 && rapid.Bool().Draw(f.T, "evict") {
		events = append(events, run.Evicted{
			Total: s.EvictedMessages + int64(rapid.IntRange(1, seen).Draw(f.T, "leave")), Summary: "much was said",
		})
	}
	r := run.Replied{
		Inference: s.Inferences + 1, Model: "m", Requests: 1, Text: rapid.SampledFrom([]string{"", "So be it."}).Draw(f.T, "text"),
	}
	for k := range rapid.IntRange(0, 2).Draw(f.T, "calls") {
		r.Calls = append(r.Calls, run.RepliedCall{
			ID:   fmt.Sprintf("c%d-%d", s.Prior+r.Inference, k),
			Name: "pay", Effect: run.EffectNonIdempotent, Input: json.RawMessage(`{"n":1}`),
		})
	}
	if rapid.Bool().Draw(f.T, "think") {
		r.Reasoning = []run.RepliedReasoning{
			{Reasoning: run.Reasoning{Text: "hm", Signature: "s"}}, {Reasoning: run.Reasoning{Redacted: []byte{1}}, AfterText: len(r.Text), AfterCalls: len(r.Calls)},
		}
	}
	f.commit(i, s, append(events, r)...)
}

// settle leads an open call on: to a claim, to a person, to doubt, to a result.
func (f *lineage) settle(i int, s run.AgentState, c run.Call) {
	asked, expires := run.ApprovalID(s.Run, c.ID, c.Asks+1), day.Add(time.Hour)
	switch {
	case c.Status == run.StatusRunning && rapid.Bool().Draw(f.T, "lost"):
		f.commit(i, s, run.CallUnknown{Call: c.ID, Approval: asked, Expires: expires})
	case c.Status == run.StatusRunning:
		f.commit(i, s, run.LateResult{Slot: s.Drained + 1, Writer: c.Claim, CallFinished: run.CallFinished{
			Call: c.ID, Content: "late", Media: []run.Media{{MediaType: "image/png", Blob: "b2"}},
		}})
	case c.Status != run.StatusSuspended && rapid.Bool().Draw(f.T, "claim"):
		f.commit(i, s, run.CallClaimed{Call: c.ID})
	case c.Status != run.StatusSuspended:
		f.commit(i, s, run.CallSuspended{Call: c.ID, Approval: asked, Digest: "x", Expires: expires})
	case c.Wait.For == run.ForOutcome:
		f.commit(i, s,
			run.InputReceived{Slot: s.Drained + 1, ID: "i", Blocks: []run.UserBlock{{Block: run.Text{Text: "And?"}}}},
			run.Answered{Slot: s.Drained + 2, Call: c.ID, Content: strings.Repeat("x", 10),
				Rerun: rapid.Bool().Draw(f.T, "rerun"), By: "user:ana"})
	default:
		f.commit(i, s, run.Decided{
			Slot: s.Drained + 1, Call: c.ID, Approval: c.Wait.Approval, By: "user:ana", Text: "no",
			Action: rapid.SampledFrom([]run.DecisionAction{run.ActionApprove, run.ActionDeny}).Draw(f.T, "action"),
			Args:   rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage(`{"n":2}`)}).Draw(f.T, "edit"),
		})
	}
}

// everyReader reads s in every way there is.
func (f *lineage) everyReader(s run.AgentState) {
	ctx := context.Background()
	want := f.shown(s, false)
	for name, j := range map[string]*store.Journal{
		"warm": f.warm, "cold": store.NewJournal(f.table, 0), "cold, then warm": store.NewJournal(f.table, 2),
	} {
		for range 2 {
			at, err := j.LoadAt(ctx, acme, s.Run, s.ReadFrom())
			require.NoError(f, err)
			require.Equal(f, want, f.shown(at.State, false), "%s: %s with the hint", name, s.Run)
			f.count("partial child", at.State.Partial && s.From != nil)
			whole, err := j.Load(ctx, acme, s.Run)
			require.NoError(f, err)
			require.False(f, whole.State.Partial)
			require.Equal(f, f.shown(s, true), f.shown(whole.State, true), "%s: %s whole", name, s.Run)
		}
	}
	entries, err := f.warm.Entries(ctx, acme, s.Run, 0, 0)
	require.NoError(f, err)
	folded, err := f.warm.Fold(ctx, acme, entries)
	require.NoError(f, err)
	require.Equal(f, f.shown(s, true), f.shown(folded, true), "%s folded", s.Run)
	once := rapid.SampledFrom(f.past[s.Run]).Draw(f.T, "once")
	then, err := f.warm.At(ctx, acme, s.Run, once.Seq())
	require.NoError(f, err)
	require.Equal(f, f.shown(once, true), f.shown(then, true), "%s at %d", s.Run, once.Seq())
}

// shown is everything about a run that a reader is promised; calls that are settled are promised to whoever reads it
// whole.
func (f *lineage) shown(s run.AgentState, whole bool) string {
	messages := s.Messages.All()
	settled := s.Settled.All()
	if !whole {
		settled = nil
	}
	type plain run.AgentState
	p := plain(s)
	p.Messages, p.Settled, p.Partial, p.Queued = run.Log[run.Message]{}, run.Log[run.Call]{}, false, nil
	out, err := json.MarshalIndent(struct {
		Run      plain
		Messages []run.Message
		Settled  []run.Call
		Next     policy.Action
		ReadFrom int64
		Queued   int
	}{p, messages, settled, policy.Next(&agent.Definition{}, &s), s.ReadFrom(), len(s.Queued)}, "", " ")
	require.NoError(f, err)
	return string(out)
}
