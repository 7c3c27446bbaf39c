package run_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// childRun is the id of every run that begins from another here.
const childRun = "r2"

// begun begins a run from past, by an entry that has been stored and read.
func begun(t require.TestingT, past run.AgentState, from run.Origin, said ...run.UserBlock) run.AgentState {
	d := run.NewDraft(run.Seed(past), "api", worldTime(1000))
	require.NoError(t, d.Add(run.RunStarted{
		Tenant: past.Tenant, Run: childRun, Agent: past.Agent, Definition: "d1", Owner: childRun + "-0", BodyDigest: "b2",
		Messages: said, MaxInteractions: 7, From: &from, Wait: past.Wait, Resume: past.Resume,
	}))
	back := fold(t, run.Seed(past), stored(t, []run.Entry{d.Entry}))
	require.Equal(t, exact(t, d.Committed()), exact(t, back))
	return back
}

// requireAnew: nothing that is counted, owned or awaited in the past is the child's, and its calls are those of the past.
func requireAnew(t require.TestingT, past, c *run.AgentState) {
	require.Equal(t, []any{childRun, run.RunRunning, run.Reason(""), childRun + "-0", "", int64(0), int64(0), int64(0), int64(0), int64(1)},
		[]any{c.Run, c.Status, c.Reason, c.Owner, c.FormerOwner, c.Generation, c.OwnedSince, c.WaitSeq, c.Drained, c.Entries})
	require.Equal(t, []any{int64(0), run.Interactions{Max: 7}, int64(0), run.Usage{}, int64(0), ""},
		[]any{c.Inferences, c.Interactions, c.ModelCalls, c.Usage, c.ExecutionUnits, c.System})
	require.Equal(t, []any{past.Prior + past.Inferences, past.EvictedMessages, past.Summary, past.Input},
		[]any{c.Prior, c.EvictedMessages, c.Summary, c.Input})
	require.Nil(t, c.Error)
	require.True(t, c.EndedAt.IsZero())
	require.NoError(t, wellFormed(c))
	have := map[string]bool{}
	for _, m := range past.Calls() {
		have[m.ID] = true
	}
	require.Len(t, c.Calls(), len(have), "every id stays taken")
}

// requireSaid: the child's conversation is that of the past, message by message, as often seen; it returns what stands behind it.
func requireSaid(t require.TestingT, past, c *run.AgentState) []run.Message {
	all := c.Messages.All()
	for i, m := range past.Messages.All() {
		require.Equal(t, m.Role, all[i].Role)
		require.Equal(t, m.Block, all[i].Block)
		require.Equal(t, m.Seen(past.Inferences), all[i].Seen(c.Inferences), "seenCount of message %d", i)
		want := m.Source
		if want.Run == "" {
			want.Run = past.Run
		}
		require.Equal(t, want, all[i].Source, "where the body of message %d stands", i)
	}
	unseen := 0
	for _, m := range all {
		if m.Role == run.RoleUser && m.Seen(c.Inferences) == 0 {
			unseen++
		}
	}
	require.Equal(t, unseen, c.Unseen)
	return all[past.Messages.Len():]
}

func TestForkIsTheParentAsItWas(t *testing.T) {
	branched, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		_, journal := randomJournal(t)
		for at := range journal {
			past := fold(t, run.AgentState{}, journal[:at+1])
			before := exact(t, past)
			from, err := policy.ForkFrom(&past, childRun, worldTime(1000))
			running := false
			for _, c := range past.Live {
				running = running || c.Status == run.StatusRunning
			}
			if running {
				require.ErrorIs(t, err, policy.ErrCallRunning)
				refused++
				continue
			}
			require.NoError(t, err)
			require.Equal(t, int64(at), from.Seq)
			c := begun(t, past, from)
			requireAnew(t, &past, &c)
			requireOpenAnew(t, &past, &c, requireSaid(t, &past, &c))
			require.Equal(t, before, exact(t, past), "the parent is as it was")
			branched++
		}
	})
	require.Positive(t, branched)
	if !testing.Short() { // few runs are drawn then, and a call runs in few of them
		require.Positive(t, refused)
	}
}

// saidNothingDone: the last thing that the call's tool said is that it asks for input first.
func saidNothingDone(c run.Call) bool {
	if c.Status == run.StatusSuspended {
		return c.Wait.For == run.ForInput
	}
	return c.Status == run.StatusResuming && c.Resume != nil && c.Grant != nil && !c.Grant.Consumed
}

// requireOpenAnew compares the calls of a fork with those of its parent. More is what was said at the fork: results that had not been.
func requireOpenAnew(t require.TestingT, past, c *run.AgentState, more []run.Message) {
	shown := 0
	for _, was := range past.Calls() {
		is, ok := c.Call(was.ID)
		require.True(t, ok)
		executions := was.Executions
		if saidNothingDone(was) { // a question is asked anew, by the tool
			executions = 0
		}
		require.Equal(t, []any{was.Tool, was.Name, was.Effect, was.Inference, executions}, []any{is.Tool, is.Name, is.Effect, is.Inference, is.Executions})
		switch {
		case was.Status.Terminal():
			require.Equal(t, []any{was.Status, was.Reason, string(was.Input), was.Result.Content}, []any{is.Status, is.Reason, string(is.Input), is.Result.Content})
			if is.Result.Shown && !was.Result.Shown {
				shown += 1 + len(is.Result.Media)
			}
		case executions > 0:
			require.Equal(t, run.StatusSuspended, is.Status)
			require.Equal(t, run.ForOutcome, is.Wait.For)
			require.Equal(t, run.ApprovalID(childRun, was.ID, 1), is.Wait.Approval)
			require.Nil(t, is.Grant)
			require.Equal(t, []string{was.Editor(), string(was.Input)}, []string{is.Editor(), string(is.Input)}, "what was entered, and whose it is")
		default:
			require.Equal(t, run.StatusNew, is.Status)
			require.Equal(t, was.Hidden, is.Hidden, "what the model was not offered")
			require.Nil(t, is.Grant)
			require.Zero(t, is.Asks)
			require.Equal(t, string(useOf(past, was.ID).Input), string(is.Input), "an edit is not inherited")
			require.Empty(t, is.Editor())
		}
	}
	queuedLeft := len(c.Queued)
	require.Len(t, more, shown+len(past.Queued)-queuedLeft)
}

func useOf(s *run.AgentState, id string) run.ToolUse {
	for _, m := range s.Messages.All() {
		if u, ok := m.Block.(run.ToolUse); ok && u.ID == id {
			return u
		}
	}
	for _, u := range s.Plan.Uses {
		if u.ID == id {
			return run.ToolUse{ID: id, Name: u.Name, Input: u.Input}
		}
	}
	return run.ToolUse{}
}

// ended is a random journal whose run is done.
func ended(t *rapid.T) (*world, run.AgentState) {
	w, journal := randomJournal(t)
	s := fold(t, run.AgentState{}, journal)
	if s.Status != run.RunDone {
		s = commit(t, s, "api", policy.CancelRun("user:ana", "wrong customer"))
	}
	return w, s
}

func TestContinuationTakesTheConversationOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, past := ended(t)
		from, err := policy.ContinueFrom(&past)
		require.NoError(t, err)
		c := begun(t, past, from, run.UserBlock{Block: run.Text{Text: "And now?"}})
		requireAnew(t, &past, &c)
		more := requireSaid(t, &past, &c)
		require.Len(t, more, 1)
		require.Equal(t, run.Text{Text: "And now?"}, more[0].Block)
		require.Empty(t, c.Live)
		a := policy.Next(&w.def, &c)
		if len(w.def.MCP) > 0 { // its servers are asked for their tools before anything else
			require.Equal(t, policy.ActList, a.Kind)
			return
		}
		require.Equal(t, policy.ActInfer, a.Kind, "every call has its result: the model can be asked")
		require.NoError(t, answered(&w.def, &c, a))
	})
}

func TestOriginIsChecked(t *testing.T) {
	open := fold(t, run.AgentState{}, interrupted(t))
	done := fold(t, run.AgentState{}, append(interrupted(t), run.Entry{Seq: 4, Events: []run.Event{policy.CancelRun("user:ana", "")}}))
	unknown, err := policy.ForkFrom(&open, childRun, worldTime(9))
	require.NoError(t, err)
	require.Len(t, unknown.Unknown, 1)
	start := func(tenant string, from *run.Origin) run.RunStarted {
		return run.RunStarted{Tenant: tenant, Run: childRun, Owner: childRun + "-0", From: from}
	}
	for name, c := range map[string]struct {
		seed  run.AgentState
		start run.RunStarted
		want  string
	}{
		"no past":              {run.AgentState{}, start("default", &unknown), "not that of the run's origin"},
		"a past unasked for":   {run.Seed(open), start("default", nil), "not that of the run's origin"},
		"another tenant's":     {run.Seed(open), start("rival", &unknown), "not that of the run's origin"},
		"another run":          {run.Seed(open), start("default", &run.Origin{Kind: run.OriginFork, Run: "r9", Seq: 3}), "not that of the run's origin"},
		"another entry":        {run.Seed(open), start("default", &run.Origin{Kind: run.OriginFork, Run: "r1", Seq: 2}), "not that of the run's origin"},
		"no kind":              {run.Seed(done), start("default", &run.Origin{Run: "r1", Seq: 4}), "no kind of origin"},
		"not finished":         {run.Seed(open), start("default", &run.Origin{Kind: run.OriginContinues, Run: "r1", Seq: 3}), "only a finished run"},
		"doubt that is hidden": {run.Seed(open), start("default", &run.Origin{Kind: run.OriginFork, Run: "r1", Seq: 3}), "nobody is asked"},
		"doubt that is not":    {run.Seed(done), start("default", &run.Origin{Kind: run.OriginFork, Run: "r1", Seq: 4, Unknown: unknown.Unknown}), "not in doubt"},
		"doubt at an end":      {run.Seed(done), start("default", &run.Origin{Kind: run.OriginContinues, Run: "r1", Seq: 4, Unknown: unknown.Unknown}), "nothing of it is open"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run.Apply(c.seed, c.start)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err = policy.ContinueFrom(&open)
	require.ErrorIs(t, err, policy.ErrNotFinished)
	_, err = run.Apply(run.Seed(open), run.Resumed{})
	require.ErrorContains(t, err, "has not started")
}

// interrupted is a run whose one call was claimed and lost, and that waits for somebody's word.
func interrupted(t require.TestingT) []run.Entry {
	var s run.AgentState
	var out []run.Entry
	for _, events := range [][]run.Event{
		{run.RunStarted{Tenant: "default", Run: "r1", Agent: "a", Owner: "r1-0", MaxInteractions: 3, Messages: []run.UserBlock{{Block: run.Text{Text: "Pay."}}}}},
		{run.Replied{Inference: 1, Model: "m", Calls: []run.RepliedCall{{ID: "c1", Name: "pay", Effect: run.EffectNonIdempotent, Input: json.RawMessage(`{"n":1}`)}}}},
		{run.CallClaimed{Call: "c1"}},
		{run.CallUnknown{Call: "c1", Approval: "a1", Expires: worldTime(99)}, run.Parked{Expires: worldTime(99)}},
	} {
		d := run.NewDraft(s, fmt.Sprintf("w%d", s.Entries), worldTime(s.Entries))
		require.NoError(t, d.Add(events...))
		out, s = append(out, d.Entry), d.Committed()
	}
	return out
}
