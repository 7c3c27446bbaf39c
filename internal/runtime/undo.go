package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
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
func (st *Starter) Undo(ctx context.Context, u Undo) (s agent.AgentState, again bool, err error) {
	l, err := st.Journal.Load(ctx, u.Tenant, u.Run)
	if err != nil {
		return agent.AgentState{}, false, fmt.Errorf("undo: %w", err)
	}
	run := undoRun(&l.State, u.Call)
	if there, err := st.Journal.Load(ctx, u.Tenant, run); err == nil {
		return there.State, true, st.launch(ctx, &there.State)
	} else if !errors.Is(err, store.ErrNoRun) {
		return agent.AgentState{}, false, fmt.Errorf("undo: %w", err)
	}
	if s, err = st.undo(ctx, u, l.State, run); err != nil {
		return agent.AgentState{}, false, err
	}
	return s, false, st.launch(ctx, &s)
}

// undoRun is the id of the run that takes a call back.
func undoRun(s *agent.AgentState, call string) string {
	return agent.RunID(s.Tenant, s.Agent, agent.UndoKey(s.Run, call))
}

func (st *Starter) undo(ctx context.Context, u Undo, past agent.AgentState, run string) (agent.AgentState, error) {
	from, err := agent.ContinueFrom(&past)
	if err != nil {
		return agent.AgentState{}, err
	}
	c, ok := past.Call(u.Call)
	if !ok {
		return agent.AgentState{}, fmt.Errorf("undo call %q of run %s: %w", u.Call, u.Run, ErrNoSuchCall)
	}
	def, err := readDefinition(ctx, st.Blobs, u.Tenant, past.Definition)
	if err != nil {
		return agent.AgentState{}, err
	}
	own, err := st.Undos(&past, def).own(ctx, c)
	if err != nil {
		return agent.AgentState{}, err
	}
	if !own {
		return agent.AgentState{}, fmt.Errorf("undo call %s of run %s, which began from run %s: %w", u.Call, u.Run, past.From.Run, ErrNotItsOwn)
	}
	use, err := st.undoCall(ctx, u.Tenant, def, c)
	if err != nil {
		return agent.AgentState{}, err
	}
	first := agent.RunStarted{
		Tenant: u.Tenant, Run: run, Agent: past.Agent, Version: past.Version, Definition: past.Definition, HooksVersion: past.HooksVersion,
		Owner: ExecutionName(run, 0), Subject: past.Subject, AccessControl: past.AccessControl, MaxInteractions: def.Limits.Interactions, From: &from,
		By: together([]string{u.By}, past.By),
	}
	if first.BodyDigest, err = u.bodyDigest(); err != nil {
		return agent.AgentState{}, err
	}
	return st.write(ctx, agent.Seed(past), first, def, func(s *agent.AgentState) agent.Event {
		return agent.OrderUndo(def, s, u.Call, use, cmp.Or(u.By, "?"))
	})
}

// bodyDigest is the digest of what the client asked for (R2); who asked is no part of it.
func (u Undo) bodyDigest() (string, error) {
	body, err := json.Marshal(struct{ UndoOf, Call string }{u.Run, u.Call})
	if err != nil {
		return "", fmt.Errorf("undo call %s of run %s: %w", u.Call, u.Run, err)
	}
	return store.BlobDigest(body), nil
}

// undoCall is the call that takes c back, with what a blob holds of c's result.
func (p Ports) undoCall(ctx context.Context, tenant string, def *agent.Definition, c agent.Call) (agent.UndoUse, error) {
	blob, text := agent.UndoResult(c)
	if blob != "" && c.Status == agent.StatusSucceeded && def.Undoable(c.Tool) {
		body, err := p.Blobs.Get(ctx, tenant, blob)
		if err != nil {
			return agent.UndoUse{}, fmt.Errorf("read result of call %s: %w", c.ID, err)
		}
		text = string(body)
	}
	return agent.UndoCall(def, c, text)
}

// Undos says of the calls of one run what would take them back. Not safe for concurrent use.
type Undos struct {
	ports Ports
	s     *agent.AgentState
	def   *agent.Definition
	past  *agent.AgentState // of a run that began from another, once it is read
}

// Undos looks at the calls of a run that is pinned to def.
func (p Ports) Undos(s *agent.AgentState, def *agent.Definition) *Undos {
	return &Undos{ports: p, s: s, def: def}
}

// Undoing is what is known of a call's undo.
type Undoing struct {
	Use    agent.UndoUse // that takes it back; zero where nothing does
	Reason string        // why nothing does; "" = Use does
	Run    string        // that takes it back; "" = nobody has asked for it
	Status agent.RunStatus
	Ended  agent.Reason
}

// Of is what is known of the undo of a call that has ended; false of one that is open, or whose tool has none.
func (u *Undos) Of(ctx context.Context, c agent.Call) (Undoing, bool, error) {
	if c.Open() || !u.def.Undoable(c.Tool) {
		return Undoing{}, false, nil
	}
	own, err := u.own(ctx, c)
	if err != nil {
		return Undoing{}, false, err
	}
	if !own {
		return Undoing{Reason: "it is taken back where it was made, in run " + u.s.From.Run + " or before it"}, true, nil
	}
	use, err := u.ports.undoCall(ctx, u.s.Tenant, u.def, c)
	var cannot *agent.UndoError
	switch {
	case errors.As(err, &cannot):
		return Undoing{Reason: cannot.Problem}, true, nil
	case err != nil:
		return Undoing{}, false, err
	}
	known := Undoing{Use: use}
	run := undoRun(u.s, c.ID)
	h, err := u.ports.Journal.Head(ctx, u.s.Tenant, run)
	if err == nil {
		known.Run, known.Status, known.Ended = run, h.Status, h.Reason
	} else if !errors.Is(err, store.ErrNoRun) {
		return Undoing{}, false, err
	}
	return known, true, nil
}

// own reports whether the call was made, or at least settled, in the run itself and not in one that it began from.
func (u *Undos) own(ctx context.Context, c agent.Call) (bool, error) {
	from := u.s.From
	if from == nil {
		return true, nil
	}
	if u.past == nil {
		past, err := u.ports.Journal.At(ctx, u.s.Tenant, from.Run, from.Seq)
		if err != nil {
			return false, fmt.Errorf("read run %s, from which run %s began: %w", from.Run, u.s.Run, err)
		}
		u.past = &past
	}
	before, had := u.past.Call(c.ID)
	return !had || before.Open(), nil
}
