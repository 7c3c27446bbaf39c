package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Fork is a request for a run that branches off another.
type Fork struct {
	Tenant string
	Run    string // the parent, finished or not
	At     int64  // the parent's entry behind which the two part, from 0
	// idempotency key, of the keys with which the parent's agent is started; empty = the run gets one of its own
	Key string
	// Model replaces provider, id, base URL and file of the parent's model; its settings stay. Nil = the parent's model.
	Model *agent.ModelSpec
	By    string // who forks it, for whom it acts besides; "" = nobody is known
}

// BadFork says why a fork is refused; it is fit to be shown.
type BadFork struct{ Problem string }

func (e *BadFork) Error() string { return "fork run: " + e.Problem }

// Fork writes a run that begins as the parent was after its entry At, and starts its execution, both idempotently: the
// same key, parent, entry and model give the same run (R1). It runs under the definition that the parent is pinned to,
// for the same subject. The errors are store.ErrNoRun, store.ErrNoEntry, agent.ErrCallRunning, ErrKeyReused and
// *BadFork; after these nothing is written.
func (st *Starter) Fork(ctx context.Context, f Fork) (run.AgentState, error) {
	if f.At < 0 {
		return run.AgentState{}, &BadFork{Problem: fmt.Sprintf("at: got %d, want an entry's sequence, from 0", f.At)}
	}
	if f.Key == "" {
		f.Key = st.IDs.Key()
	}
	parent, err := st.Journal.At(ctx, f.Tenant, f.Run, f.At)
	if err != nil {
		return run.AgentState{}, fmt.Errorf("fork: %w", err)
	}
	runID := agent.RunID(f.Tenant, parent.Agent, f.Key)
	from, err := policy.ForkFrom(&parent, runID, st.Clock.Now())
	if err != nil {
		return run.AgentState{}, err
	}
	def, digest, err := st.forkDefinition(ctx, f, &parent)
	if err != nil {
		return run.AgentState{}, err
	}
	first := run.RunStarted{
		Tenant: f.Tenant, Run: runID, Agent: parent.Agent, Version: parent.Version, Definition: digest, HooksVersion: parent.HooksVersion,
		Owner: ExecutionName(runID, 0), Subject: parent.Subject, AccessControl: parent.AccessControl, MaxInteractions: def.Limits.Interactions, From: &from,
		By: mergePeople([]string{f.By}, parent.By),
	}
	first.Wait, first.Resume = def.OpenRounds()
	if first.BodyDigest, err = f.bodyDigest(); err != nil {
		return run.AgentState{}, err
	}
	s, err := st.write(ctx, run.Seed(parent), first, def)
	if err != nil {
		return run.AgentState{}, err
	}
	return s, errors.Join(st.startExecution(ctx, &s), st.addStarters(ctx, &s, []string{f.By}))
}

// forkDefinition is the definition the parent is pinned to. If the fork names another model, it is a copy with that
// model, stored under its own digest.
func (st *Starter) forkDefinition(ctx context.Context, f Fork, parent *run.AgentState) (*agent.Definition, string, error) {
	def, err := readDefinition(ctx, st.Blobs, f.Tenant, parent.Definition)
	if err != nil || f.Model == nil {
		return def, parent.Definition, err
	}
	m := &def.Model
	m.Provider, m.ID, m.BaseURL, m.File, m.Key, m.Options = f.Model.Provider, f.Model.ID, f.Model.BaseURL, f.Model.File, "", nil // of the other model
	written := *def
	written.Ceilings = nil // no part of a definition as it is written; the fork stays below them
	if err := written.Check(); err != nil {
		return nil, "", &BadFork{Problem: err.Error()}
	}
	digest, err := st.storeDefinition(ctx, f.Tenant, def)
	return def, digest, err
}

// bodyDigest is the digest of what the client asked for (R2).
func (f Fork) bodyDigest() (string, error) {
	body, err := json.Marshal(struct {
		Fork  string
		At    int64
		Model *agent.ModelSpec `json:",omitempty"`
	}{f.Run, f.At, f.Model})
	if err != nil {
		return "", fmt.Errorf("fork run %s: %w", f.Run, err)
	}
	return store.BlobDigest(body), nil
}
