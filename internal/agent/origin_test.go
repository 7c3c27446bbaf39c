package agent

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// childRun is the id of every run that begins from another here.
const childRun = "r2"

// begun begins a run from past, by an entry that has been stored and read.
func begun(t require.TestingT, past AgentState, from Origin, said ...UserBlock) AgentState {
	d := NewDraft(Seed(past), "api", worldTime(1000))
	require.NoError(t, d.Add(RunStarted{
		Tenant: past.Tenant, Run: childRun, Agent: past.Agent, Definition: "d1", Owner: childRun + "-0", BodyDigest: "b2",
		Messages: said, MaxInteractions: 7, From: &from, Wait: past.Wait, Resume: past.Resume,
	}))
	back := fold(t, Seed(past), stored(t, []Entry{d.Entry}))
	require.Equal(t, exact(t, d.Committed()), exact(t, back))
	return back
}

// requireAnew: nothing that is counted, owned or awaited in the past is the child's, and its calls are those of the past.
func requireAnew(t require.TestingT, past, c *AgentState) {
	require.Equal(t, []any{childRun, RunRunning, Reason(""), childRun + "-0", "", int64(0), int64(0), int64(0), int64(0), int64(1)},
		[]any{c.Run, c.Status, c.Reason, c.Owner, c.FormerOwner, c.Generation, c.OwnedSince, c.WaitSeq, c.Drained, c.Entries})
	require.Equal(t, []any{int64(0), Interactions{Max: 7}, int64(0), Usage{}, int64(0), ""},
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
func requireSaid(t require.TestingT, past, c *AgentState) []Message {
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
		if m.Role == RoleUser && m.Seen(c.Inferences) == 0 {
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
			past := fold(t, AgentState{}, journal[:at+1])
			before := exact(t, past)
			from, err := ForkFrom(&past, childRun, worldTime(1000))
			running := false
			for _, c := range past.Live {
				running = running || c.Status == StatusRunning
			}
			if running {
				require.ErrorIs(t, err, ErrCallRunning)
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
func saidNothingDone(c Call) bool {
	if c.Status == StatusSuspended {
		return c.Wait.For == ForInput
	}
	return c.Status == StatusResuming && c.Resume != nil && c.Grant != nil && !c.Grant.Consumed
}

// requireOpenAnew compares the calls of a fork with those of its parent. More is what was said at the fork: results that had not been.
func requireOpenAnew(t require.TestingT, past, c *AgentState, more []Message) {
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
			require.Equal(t, StatusSuspended, is.Status)
			require.Equal(t, ForOutcome, is.Wait.For)
			require.Equal(t, ApprovalID(childRun, was.ID, 1), is.Wait.Approval)
			require.Nil(t, is.Grant)
			require.Equal(t, []string{was.Editor(), string(was.Input)}, []string{is.Editor(), string(is.Input)}, "what was entered, and whose it is")
		default:
			require.Equal(t, StatusNew, is.Status)
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

func useOf(s *AgentState, id string) ToolUse {
	for _, m := range s.Messages.All() {
		if u, ok := m.Block.(ToolUse); ok && u.ID == id {
			return u
		}
	}
	for _, step := range s.Plan.Steps {
		if step.Use.ID == id {
			return ToolUse{ID: id, Name: step.Use.Name, Input: step.Use.Input}
		}
	}
	return ToolUse{}
}

// ended is a random journal whose run is done.
func ended(t *rapid.T) (*world, AgentState) {
	w, journal := randomJournal(t)
	s := fold(t, AgentState{}, journal)
	if s.Status != RunDone {
		d := NewDraft(s, "api", worldTime(s.Entries))
		require.NoError(t, d.Add(CancelRun("user:ana", "wrong customer")))
		s = d.Committed()
	}
	return w, s
}

func TestContinuationTakesTheConversationOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, past := ended(t)
		from, err := ContinueFrom(&past)
		require.NoError(t, err)
		c := begun(t, past, from, UserBlock{Text{"And now?"}})
		requireAnew(t, &past, &c)
		more := requireSaid(t, &past, &c)
		require.Len(t, more, 1)
		require.Equal(t, Text{"And now?"}, more[0].Block)
		require.Empty(t, c.Live)
		a := Next(&w.def, &c)
		if len(w.def.MCP) > 0 { // its servers are asked for their tools before anything else
			require.Equal(t, ActList, a.Kind)
			return
		}
		require.Equal(t, ActInfer, a.Kind, "every call has its result: the model can be asked")
		require.NoError(t, answered(&w.def, &c, a))
	})
}

// No decision on a request of the parent settles or lets run a call of the child.
func TestParentsApprovalsAreNotTheChilds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, journal := randomJournal(t)
		past := fold(t, AgentState{}, journal)
		from, err := ForkFrom(&past, childRun, worldTime(1000))
		if err != nil {
			t.Skip()
		}
		c := begun(t, past, from)
		for _, was := range past.Calls() {
			for ask := range was.Asks + 1 {
				id := ApprovalID(past.Run, was.ID, ask)
				for _, e := range []Event{
					Decided{Slot: 1, Call: was.ID, Approval: id, Action: ActionApprove, By: "user:ana"},
					Answered{Slot: 1, Call: was.ID, Approval: id, Rerun: true, By: "user:ana"},
				} {
					after, err := Apply(c, e)
					require.NoError(t, err)
					after.Drained, after.Heard = c.Drained, c.Heard // whoever said it is a requester at most
					require.Equal(t, exact(t, c), exact(t, after))
				}
			}
		}
	})
}

func TestOriginIsChecked(t *testing.T) {
	open := fold(t, AgentState{}, interrupted(t))
	done := fold(t, AgentState{}, append(interrupted(t), Entry{Seq: 4, Events: []Event{CancelRun("user:ana", "")}}))
	unknown, err := ForkFrom(&open, childRun, worldTime(9))
	require.NoError(t, err)
	require.Len(t, unknown.Unknown, 1)
	start := func(tenant string, from *Origin) RunStarted {
		return RunStarted{Tenant: tenant, Run: childRun, Owner: childRun + "-0", From: from}
	}
	for name, c := range map[string]struct {
		seed  AgentState
		start RunStarted
		want  string
	}{
		"no past":              {AgentState{}, start("default", &unknown), "not the one it names"},
		"a past unasked for":   {Seed(open), start("default", nil), "not the one it names"},
		"another tenant's":     {Seed(open), start("rival", &unknown), "not the one it names"},
		"another run":          {Seed(open), start("default", &Origin{Kind: OriginFork, Run: "r9", Seq: 3}), "not the one it names"},
		"another entry":        {Seed(open), start("default", &Origin{Kind: OriginFork, Run: "r1", Seq: 2}), "not the one it names"},
		"no kind":              {Seed(done), start("default", &Origin{Run: "r1", Seq: 4}), "no kind of origin"},
		"not finished":         {Seed(open), start("default", &Origin{Kind: OriginContinues, Run: "r1", Seq: 3}), "only a finished run"},
		"doubt that is hidden": {Seed(open), start("default", &Origin{Kind: OriginFork, Run: "r1", Seq: 3}), "nobody is asked"},
		"doubt that is not":    {Seed(done), start("default", &Origin{Kind: OriginFork, Run: "r1", Seq: 4, Unknown: unknown.Unknown}), "not in doubt"},
		"doubt at an end":      {Seed(done), start("default", &Origin{Kind: OriginContinues, Run: "r1", Seq: 4, Unknown: unknown.Unknown}), "nothing of it is open"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Apply(c.seed, c.start)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err = ContinueFrom(&open)
	require.ErrorIs(t, err, ErrNotFinished)
	_, err = Apply(Seed(open), Resumed{})
	require.ErrorContains(t, err, "has not started")
}

// interrupted is a run whose one call was claimed and lost, and that waits for somebody's word.
func interrupted(t require.TestingT) []Entry {
	var s AgentState
	var out []Entry
	for _, events := range [][]Event{
		{RunStarted{Tenant: "default", Run: "r1", Agent: "a", Owner: "r1-0", MaxInteractions: 3, Messages: []UserBlock{{Text{"Pay."}}}}},
		{Replied{Inference: 1, Model: "m", Calls: []RepliedCall{{ID: "c1", Name: "pay", Effect: EffectNonIdempotent, Input: json.RawMessage(`{"n":1}`)}}}},
		{CallClaimed{Call: "c1"}},
		{CallUnknown{Call: "c1", Approval: "a1", Expires: worldTime(99)}, Parked{Expires: worldTime(99)}},
	} {
		d := NewDraft(s, fmt.Sprintf("w%d", s.Entries), worldTime(s.Entries))
		require.NoError(t, d.Add(events...))
		out, s = append(out, d.Entry), d.Committed()
	}
	return out
}
