package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Undo is a request to take back a call of a finished run.
type Undo struct {
	Tenant, Run, Call string
	By                string // who asks
}

// The errors of Undo, beside store.ErrNoRun, agent.ErrNotFinished and an *agent.UndoError.
var (
	ErrNoSuchCall = errors.New("the run has no such call")
	ErrNotItsOwn  = errors.New("the call was made in the run that this one began from: it is taken back there")
)

// Undo writes the run that takes a call back, and starts its execution, both idempotently: there is one such run for a call, and again is
// true where it was there before. It continues the call's run, under the definition which that is pinned to, asks people, and ends with what
// became of the call that it makes; no model is asked.
func (st *Starter) Undo(ctx context.Context, u Undo) (s run.AgentState, again bool, err error) {
	l, err := st.Journal.Load(ctx, u.Tenant, u.Run)
	if err != nil {
		return run.AgentState{}, false, fmt.Errorf("undo: %w", err)
	}
	runID := undoRun(&l.State, u.Call)
	if there, err := st.Journal.Load(ctx, u.Tenant, runID); err == nil {
		return there.State, true, st.startExecution(ctx, &there.State)
	} else if !errors.Is(err, store.ErrNoRun) {
		return run.AgentState{}, false, fmt.Errorf("undo: %w", err)
	}
	if s, err = st.undo(ctx, u, l.State, runID); err != nil {
		return run.AgentState{}, false, err
	}
	return s, false, st.startExecution(ctx, &s)
}

// undoRun is the id of the run that takes a call back.
func undoRun(s *run.AgentState, call string) string {
	return agent.RunID(s.Tenant, s.Agent, policy.UndoKey(s.Run, call))
}

func (st *Starter) undo(ctx context.Context, u Undo, past run.AgentState, runID string) (run.AgentState, error) {
	from, err := policy.ContinueFrom(&past)
	if err != nil {
		return run.AgentState{}, err
	}
	c, ok := past.Call(u.Call)
	if !ok {
		return run.AgentState{}, fmt.Errorf("undo call %q of run %s: %w", u.Call, u.Run, ErrNoSuchCall)
	}
	def, err := readDefinition(ctx, st.Blobs, u.Tenant, past.Definition)
	if err != nil {
		return run.AgentState{}, err
	}
	if before, err := st.originState(ctx, &past); err != nil {
		return run.AgentState{}, err
	} else if isInherited(before, u.Call) {
		return run.AgentState{}, fmt.Errorf("undo call %s of run %s, which began from run %s: %w", u.Call, u.Run, past.From.Run, ErrNotItsOwn)
	}
	use, err := st.undoCall(ctx, u.Tenant, def, c)
	if err != nil {
		return run.AgentState{}, err
	}
	first := run.RunStarted{
		Tenant: u.Tenant, Run: runID, Agent: past.Agent, Version: past.Version, Definition: past.Definition, HooksVersion: past.HooksVersion,
		Owner: ExecutionName(runID, 0), Subject: past.Subject, AccessControl: past.AccessControl, MaxInteractions: def.Limits.Interactions, From: &from,
		By: mergePeople([]string{u.By}, past.By),
	}
	body, err := json.Marshal(struct{ UndoOf, Call string }{u.Run, u.Call}) // who asks is no part of the digest (R2)
	if err != nil {
		return run.AgentState{}, err
	}
	first.BodyDigest = store.BlobDigest(body)
	return st.write(ctx, run.Seed(past), first, def, func(s *run.AgentState) run.Event {
		return policy.OrderUndo(def, s, u.Call, use, cmp.Or(u.By, "?"))
	})
}

// undoCall is the call that takes c back, with what a blob holds of c's result.
func (p Ports) undoCall(ctx context.Context, tenant string, def *agent.Definition, c run.Call) (policy.UndoUse, error) {
	blob, text := policy.UndoResult(c)
	if blob != "" && c.Status == run.StatusSucceeded && def.Undoable(c.Tool) {
		body, err := p.Blobs.Get(ctx, tenant, blob)
		if err != nil {
			return policy.UndoUse{}, fmt.Errorf("read result of call %s: %w", c.ID, err)
		}
		text = string(body)
	}
	return policy.UndoCall(def, c, text)
}

// CallUndo is what would take a call back, or why nothing does.
type CallUndo struct {
	Tool   string          `json:"tool,omitempty"`   // of the call that would, by its original name
	Input  json.RawMessage `json:"input,omitempty"`  // and its arguments
	Reason string          `json:"reason,omitempty"` // why nothing does
	Run    string          `json:"run,omitempty"`    // that takes it back, once somebody has asked for it
	Status run.RunStatus   `json:"status,omitempty"` // of that run
	Ended  run.Reason      `json:"ended,omitempty"`  // why that run has ended
}

// Undos returns what would take calls of run s back, by call id. Calls that are open or whose tool has no undo are left
// out.
func (p Ports) Undos(
	ctx context.Context, s *run.AgentState, def *agent.Definition, calls []string,
) (map[string]*CallUndo, error) {
	undos := map[string]*CallUndo{}
	var past *run.AgentState
	for _, id := range calls {
		c, ok := s.Call(id)
		if !ok || c.Open() || !def.Undoable(c.Tool) {
			continue
		}
		if past == nil {
			var err error
			if past, err = p.originState(ctx, s); err != nil {
				return nil, err
			}
		}
		if isInherited(past, id) {
			undos[id] = &CallUndo{Reason: "it is taken back where it was made, in run " + s.From.Run + " or before it"}
			continue
		}
		use, err := p.undoCall(ctx, s.Tenant, def, c)
		var cannot *policy.UndoError
		if errors.As(err, &cannot) {
			undos[id] = &CallUndo{Reason: cannot.Problem}
			continue
		} else if err != nil {
			return nil, err
		}
		u := &CallUndo{Tool: use.Tool, Input: use.Input}
		run := undoRun(s, id)
		if h, err := p.Journal.Head(ctx, s.Tenant, run); err == nil {
			u.Run, u.Status, u.Ended = run, h.Status, h.Reason
		} else if !errors.Is(err, store.ErrNoRun) {
			return nil, err
		}
		undos[id] = u
	}
	return undos, nil
}

// originState is the state that s began from. A run that continues none began without calls.
func (p Ports) originState(ctx context.Context, s *run.AgentState) (*run.AgentState, error) {
	if s.From == nil {
		return &run.AgentState{}, nil
	}
	past, err := p.Journal.At(ctx, s.Tenant, s.From.Run, s.From.Seq)
	if err != nil {
		return nil, fmt.Errorf("read run %s, from which run %s began: %w", s.From.Run, s.Run, err)
	}
	return &past, nil
}

// isInherited reports whether a call was settled before its run began.
func isInherited(past *run.AgentState, call string) bool {
	c, had := past.Call(call)
	return had && !c.Open()
}
