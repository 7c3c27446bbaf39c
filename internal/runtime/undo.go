package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Undo is a request to undo a call of a finished run.
type Undo struct {
	Tenant, Run, Call string
	By                string // the person who asks
}

// ErrNoSuchCall is an error of Undo, like store.ErrNoRun, policy.ErrNotFinished and *policy.UndoError.
var ErrNoSuchCall = errors.New("the run has no such call")

// Undo writes the run that undoes a call, and starts its execution. Both are idempotent: there is one such run for a
// call, and again is true if it existed before. The run continues the call's run under the same pinned definition, asks
// people, and ends with the result of the undoing call. It calls no model.
func (st *Starter) Undo(ctx context.Context, u Undo) (s run.AgentState, again bool, err error) {
	l, err := st.Journal.Load(ctx, u.Tenant, u.Run)
	if err != nil {
		return s, false, fmt.Errorf("undo: %w", err)
	}
	past := l.State
	first := run.RunStarted{
		Tenant: u.Tenant, Run: agent.UndoID(u.Tenant, past.Agent, u.Run, u.Call), Agent: past.Agent,
		Version: past.Version, Definition: past.Definition, HooksVersion: past.HooksVersion,
		By: mergePeople([]string{u.By}),
	}
	if l, err = st.Journal.Load(ctx, u.Tenant, first.Run); err == nil {
		s = l.State
		return s, true, errors.Join(st.startExecution(ctx, &s), st.addStarters(ctx, &s, []string{u.By}))
	} else if !errors.Is(err, store.ErrNoRun) {
		return s, false, fmt.Errorf("undo: %w", err)
	}
	if past.Status != run.RunDone {
		return s, false, fmt.Errorf("undo call %q of run %s, which is %s: %w", u.Call, u.Run, past.Status,
			policy.ErrNotFinished)
	}
	if _, err = st.continueRun(ctx, u.Run, &first); err != nil {
		return s, false, err
	}
	c, ok := past.Call(u.Call)
	if !ok {
		return s, false, fmt.Errorf("undo call %q of run %s: %w", u.Call, u.Run, ErrNoSuchCall)
	}
	def, err := st.definition(ctx, u.Tenant, past.Definition)
	if err != nil {
		return s, false, err
	}
	use, err := st.callUndo(ctx, &past, def, c, st.origin(ctx, &past))
	if err != nil {
		return s, false, err
	} else if use.Reason != "" {
		return s, false, &policy.UndoError{Problem: use.Reason}
	}
	body, err := json.Marshal(struct{ UndoOf, Call string }{u.Run, u.Call}) // the digest does not cover who asks (R2)
	if err != nil {
		return s, false, err
	}
	first.Owner, first.MaxInteractions = ExecutionName(first.Run, 0), def.Limits.Interactions
	first.BodyDigest = store.BlobDigest(body)
	s, err = st.write(ctx, run.Seed(past), first, def, func(s *run.AgentState) run.Event {
		t, _ := def.Tool(use.Tool)
		id := agent.CallID("", func(id string) bool { return s.UsedID(id, s.Prior+1) }, s.Prior+1, 0)
		call := policy.PlannedCall(def, id, agent.ReplyCall{Name: t.ModelName(), Input: use.Input})
		return run.UndoOrdered{Call: call, Of: u.Call, By: cmp.Or(u.By, "?")}
	})
	if err != nil {
		return s, false, err
	}
	return s, false, errors.Join(st.startExecution(ctx, &s), st.addStarters(ctx, &s, []string{u.By}))
}

// Undos returns the calls that would undo calls of run s, by call id. It omits open calls and tools without undo.
func (p Ports) Undos(
	ctx context.Context, s *run.AgentState, def *agent.Definition, calls []string,
) (map[string]*policy.CallUndo, error) {
	undos, origin := map[string]*policy.CallUndo{}, p.origin(ctx, s)
	for _, id := range calls {
		c, ok := s.Call(id)
		if t, _ := def.Tool(c.Tool); !ok || c.Open() || t.Undo == nil {
			continue
		}
		u, err := p.callUndo(ctx, s, def, c, origin)
		if err != nil {
			return nil, err
		}
		if u.Reason == "" {
			h, err := p.Journal.Head(ctx, s.Tenant, agent.UndoID(s.Tenant, s.Agent, s.Run, id))
			if err == nil {
				u.Run, u.Status, u.Ended = h.Run, h.Status, h.Reason
			} else if !errors.Is(err, store.ErrNoRun) {
				return nil, err
			}
		}
		undos[id] = u
	}
	return undos, nil
}

// origin returns a function that loads the run that s began from, in its state of that time. For a run without an
// origin, it returns a state without calls.
func (p Ports) origin(ctx context.Context, s *run.AgentState) func() (run.AgentState, error) {
	return sync.OnceValues(func() (run.AgentState, error) {
		if s.From == nil {
			return run.AgentState{}, nil
		}
		return p.Journal.At(ctx, s.Tenant, s.From.Run, s.From.Seq)
	})
}

// callUndo returns the call that would undo call c of run s. It reads the result of c from its blob if necessary.
func (p Ports) callUndo(
	ctx context.Context, s *run.AgentState, def *agent.Definition, c run.Call, origin func() (run.AgentState, error),
) (*policy.CallUndo, error) {
	past, err := origin()
	if err != nil {
		return nil, fmt.Errorf("read the run from which run %s began: %w", s.Run, err)
	}
	was, had := past.Call(c.ID) // a fork may have run a call again whose outcome was unknown in the origin
	if had && (!was.Open() || was.Entered() && c.Executions <= was.Executions) {
		return &policy.CallUndo{Reason: "it is taken back where it was made, in run " + s.From.Run + " or before it"}, nil
	}
	result := ""
	t, _ := def.Tool(c.Tool)
	if c.Result != nil && c.Status == run.StatusSucceeded && t.Undo != nil {
		blob := c.Result.Blob
		if w := c.Result.Whole; w != nil && w.Call == "" { // the full text of a cut result
			blob = w.Blob
		}
		result = c.Result.Content
		if blob != "" {
			body, err := p.Blobs.Get(ctx, s.Tenant, blob)
			if err != nil {
				return nil, fmt.Errorf("read result of call %s: %w", c.ID, err)
			}
			result = string(body)
		}
	}
	input, err := policy.UndoCall(def, c, result)
	if cannot, ok := errors.AsType[*policy.UndoError](err); ok {
		return &policy.CallUndo{Reason: cannot.Problem}, nil
	}
	return &policy.CallUndo{Tool: t.Undo.Tool, Input: input}, nil
}
