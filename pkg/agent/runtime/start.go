package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/store"
)

// ExecutionName is the name of the execution that owns a run in a generation: <run>-<generation>.
func ExecutionName(run string, generation int64) string { return fmt.Sprintf("%s-%d", run, generation) }

// Start is a request for a run. Exactly one of Message and Input is set.
type Start struct {
	Tenant        string
	Agent         *agent.Definition
	Key           string            // idempotency key; empty = the run gets one of its own
	Message       []agent.UserBlock // what a user said
	Input         json.RawMessage   // any JSON, handed to the system text and, less parentSubject$$, said as one user text
	Subject       string
	AccessControl string
}

// ErrKeyReused says that the key started a run with another body (R2).
var ErrKeyReused = errors.New("the key has started a run with another body")

// BadStart says why a start is refused; it is fit to be shown.
type BadStart struct{ Problem string }

func (e *BadStart) Error() string { return "start run: " + e.Problem }

// Starter starts runs. Safe for concurrent use.
type Starter struct{ Ports }

// Start writes the run and then starts its execution, both idempotently: the same key and body give the same run, however often
// and from however many clients at once (R1).
func (st *Starter) Start(ctx context.Context, r Start) (agent.AgentState, error) {
	if r.Key == "" {
		r.Key = st.IDs.Key()
	}
	run := agent.RunID(r.Tenant, r.Agent.Name, r.Key)
	s, err := st.Create(ctx, r, run, ExecutionName(run, 0))
	if err != nil {
		return agent.AgentState{}, err
	}
	if s.Status != agent.RunDone {
		if err := st.Waiter.Start(ctx, r.Tenant, run, s.Owner); err != nil {
			return agent.AgentState{}, fmt.Errorf("start execution of run %s: %w", run, err)
		}
	}
	return s, nil
}

// Create writes the run's first entry for an owner, or finds that it is there. It starts nothing.
func (st *Starter) Create(ctx context.Context, r Start, run, owner string) (agent.AgentState, error) {
	first, err := st.first(ctx, r, run, owner)
	if err != nil {
		return agent.AgentState{}, err
	}
	d := agent.NewDraft(agent.AgentState{}, st.IDs.Writer(), st.Clock.Now())
	if err := d.Add(first); err != nil {
		return agent.AgentState{}, fmt.Errorf("start run %s: %w", run, err)
	}
	d.Mark(agent.CheckpointUserMessage)
	err = st.commit(ctx, agent.AgentState{}, d, r.Agent)
	if err == nil {
		return d.Committed(), nil
	}
	return st.found(ctx, r.Tenant, run, first.BodyDigest, err)
}

// found looks for the run where its first entry could not be written, or nobody knows whether it was.
func (st *Starter) found(ctx context.Context, tenant, run, body string, cause error) (agent.AgentState, error) {
	l, err := st.Journal.Load(ctx, tenant, run)
	if errors.Is(err, store.ErrNoRun) {
		return agent.AgentState{}, fmt.Errorf("start run %s: %w", run, cause)
	}
	if err != nil {
		return agent.AgentState{}, fmt.Errorf("start run %s: %w", run, err)
	}
	if l.State.BodyDigest != body {
		return agent.AgentState{}, fmt.Errorf("start run %s: %w", run, ErrKeyReused)
	}
	return l.State, nil
}

// first is the run's first fact. The definition's blob is written before the fact that points at it.
func (st *Starter) first(ctx context.Context, r Start, run, owner string) (agent.RunStarted, error) {
	if !agent.ValidTenant(r.Tenant) { // it becomes part of every key
		return agent.RunStarted{}, &BadStart{Problem: "tenant: want ^[a-z0-9][a-z0-9-]{0,39}$"}
	}
	said, err := agent.StartMessages(r.Message, r.Input)
	if err != nil {
		return agent.RunStarted{}, &BadStart{Problem: err.Error()}
	}
	def, err := json.Marshal(r.Agent)
	if err != nil {
		return agent.RunStarted{}, fmt.Errorf("start run %s: %w", run, err)
	}
	digest := store.BlobDigest(def)
	if err := st.Blobs.Put(ctx, r.Tenant, digest, def); err != nil {
		return agent.RunStarted{}, fmt.Errorf("store definition of run %s: %w", run, err)
	}
	e := agent.RunStarted{
		Tenant: r.Tenant, Run: run, Agent: r.Agent.Name, Version: r.Agent.Version, Definition: digest, HooksVersion: r.Agent.HooksVersion,
		Owner: owner, Subject: r.Subject, AccessControl: r.AccessControl, Input: r.Input, Messages: said, MaxInteractions: r.Agent.Limits.Interactions,
	}
	if st.Trace != nil {
		e.Trace = st.Trace.Begin(ctx, r.Agent.Name)
	}
	e.BodyDigest, err = bodyDigest(e)
	return e, err
}

// bodyDigest is the digest of what the client asked for; which build of the agent answered is not part of it.
func bodyDigest(e agent.RunStarted) (string, error) {
	body, err := json.Marshal(struct {
		Agent, Subject, AccessControl string
		Input                         json.RawMessage `json:",omitempty"`
		Messages                      []agent.UserBlock
	}{e.Agent, e.Subject, e.AccessControl, e.Input, e.Messages})
	if err != nil {
		return "", fmt.Errorf("start run %s: %w", e.Run, err)
	}
	return store.BlobDigest(body), nil
}
