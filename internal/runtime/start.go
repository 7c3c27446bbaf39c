package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// ExecutionName returns the name of the execution that owns a run in a generation: <run>-<generation>.
func ExecutionName(run string, generation int64) string { return fmt.Sprintf("%s-%d", run, generation) }

// Start is a request for a run. Exactly one of Message and Input is set.
type Start struct {
	Tenant  string
	Agent   *agent.Definition
	Key     string          // idempotency key; "" = a new key is created
	Message []run.UserBlock // a user's message
	// any JSON, available to the system text and, without parentSubject$$, sent as one user text
	Input         json.RawMessage
	Continues     string      // id of a finished run of the tenant to continue; "" = none
	Subject       string      // "" = that of the continued run
	AccessControl string      // "" = that of the continued run
	Parent        *run.Parent // the call that delegates the run; nil = none
	contributors  []string    // people whose messages the delegating run has received
	// who starts the run, or for whom the delegating run acts; those of a continued run are added
	By []string
}

// ErrKeyReused says that the key has started a run with another body (R2).
var ErrKeyReused = errors.New("the key has started a run with another body")

// ErrUnstarted says that a run is written but its execution could not be started. A request with the same key starts
// it, and so does the sweeper (rule 14).
var ErrUnstarted = errors.New("the run is written and its execution has not started")

// ErrTooManyRuns says that the tenant has as many running runs as it may. Nothing was written.
var ErrTooManyRuns = errors.New("the tenant has as many running runs as it may have: try again later")

// BadStart says why a start is refused. It is safe to show.
type BadStart struct{ Problem string }

func (e *BadStart) Error() string { return "start run: " + e.Problem }

// Starter starts runs. Safe for concurrent use.
type Starter struct {
	Ports
	// MaxRunning is how many runs of a tenant may be running, not waiting, when another one is started or forked. The
	// count may be late. Delegated runs and undo runs are counted but never refused. 0 = no limit.
	MaxRunning int
}

// Start writes the run and then starts its execution. Both are idempotent: the same key and body give the same run,
// however often and from however many clients at once (R1). With ErrUnstarted the run is returned as well.
func (st *Starter) Start(ctx context.Context, r Start) (run.AgentState, error) {
	if r.Key == "" {
		r.Key = st.IDs.Key()
	}
	runID := agent.RunID(r.Tenant, r.Agent.Name, r.Key)
	s, err := st.Create(ctx, r, runID, ExecutionName(runID, 0))
	if err != nil {
		return run.AgentState{}, err
	}
	return s, errors.Join(st.startExecution(ctx, &s), st.addStarters(ctx, &s, r.By))
}

// addStarters adds other people who started the run to those it acts for, because they are requesters like the first. A
// run that has ended needs no more requesters.
func (st *Starter) addStarters(ctx context.Context, s *run.AgentState, by []string) error {
	for _, id := range by {
		if s.Status == run.RunDone || id == "" || slices.Contains(s.By, id) || slices.Contains(s.Again, id) {
			continue
		}
		fact := run.InputReceived{ID: "start/" + id, By: id, Starts: true}
		if _, err := st.Journal.Accept(ctx, s.Tenant, s.Run, "start/"+id, fact); err != nil {
			return fmt.Errorf("note that %s has started run %s, too: %w", id, s.Run, err)
		}
		if err := st.Wake(ctx, s.Tenant, s.Run); err != nil {
			return err
		}
	}
	return nil
}

// startExecution starts the execution of a written run. Starting it again is not an error.
func (st *Starter) startExecution(ctx context.Context, s *run.AgentState) error {
	if s.Status == run.RunDone {
		return nil
	}
	if err := st.Waiter.Start(ctx, s.Tenant, s.Run, s.Owner); err != nil {
		return fmt.Errorf("%w: start execution of run %s: %w", ErrUnstarted, s.Run, err)
	}
	return nil
}

// Create writes the run's first entry for an owner, or finds it written. It starts nothing. Errors that a client can
// correct are *BadStart, ErrTooManyRuns, ErrUnknownBlob and ErrKeyReused. A run to continue has to exist and to be
// finished: store.ErrNoRun, policy.ErrNotFinished.
func (st *Starter) Create(ctx context.Context, r Start, runID, owner string) (run.AgentState, error) {
	if !agent.ValidTenant(r.Tenant) { // the tenant becomes part of every key
		return run.AgentState{}, &BadStart{Problem: "tenant: want ^[a-z0-9][a-z0-9-]{0,39}$"}
	}
	if len(r.Message) > 0 && string(r.Input) == "null" { // left out
		r.Input = nil
	}
	messages, err := policy.StartMessages(r.Message, r.Input)
	if err != nil {
		return run.AgentState{}, &BadStart{Problem: err.Error()}
	}
	first := run.RunStarted{
		Tenant: r.Tenant, Run: runID, Agent: r.Agent.Name, Version: r.Agent.Version, HooksVersion: r.Agent.HooksVersion,
		Owner: owner, Subject: r.Subject, AccessControl: r.AccessControl, Input: r.Input, Messages: messages,
		MaxInteractions: r.Agent.Limits.Interactions, Parent: r.Parent, By: mergePeople(r.By),
		Contributors: mergePeople(r.contributors),
	}
	first.Wait, first.Resume = r.Agent.OpenRounds()
	body, err := json.Marshal(struct { // the client's request; the agent's build is not part of it
		Agent, Subject, AccessControl string
		Input                         json.RawMessage `json:",omitempty"`
		Messages                      []run.UserBlock
		Continues                     string `json:",omitempty"`
	}{first.Agent, r.Subject, r.AccessControl, r.Input, messages, r.Continues})
	if err != nil {
		return run.AgentState{}, fmt.Errorf("start run %s: %w", runID, err)
	}
	first.BodyDigest = store.BlobDigest(body)
	if r.Agent.Builder != "" && len(r.Message) == 0 { // the builder makes the messages from the input
		first.Messages = nil
	}
	if err := st.checkInput(ctx, r, runID); err != nil {
		return run.AgentState{}, err
	}
	if err := st.checkRoom(ctx, r.Tenant, runID); err != nil {
		return run.AgentState{}, err
	}
	seed := run.AgentState{}
	if r.Continues != "" {
		past, err := st.continueRun(ctx, r.Continues, &first)
		if err != nil {
			return run.AgentState{}, err
		}
		seed = run.Seed(past)
	}
	if err := st.checkMedia(ctx, r.Tenant, runID, first.Messages); err != nil {
		return run.AgentState{}, fmt.Errorf("start run: message: %w", err)
	}
	if first.Definition, err = st.storeDefinition(ctx, r.Tenant, r.Agent); err != nil {
		return run.AgentState{}, fmt.Errorf("start run %s: %w", runID, err)
	}
	return st.write(ctx, seed, first, r.Agent)
}

// checkRoom refuses a new run if the tenant has as many running runs as it may.
func (st *Starter) checkRoom(ctx context.Context, tenant, runID string) error {
	running, cursor := 0, ""
	for running < st.MaxRunning {
		heads, next, err := st.Journal.List(ctx, tenant, run.RunRunning, st.MaxRunning-running, cursor)
		if err != nil && !errors.Is(err, store.ErrDamaged) {
			return fmt.Errorf("start run %s: %w", runID, err)
		}
		running += len(heads)
		if cursor = next; cursor == "" {
			break
		}
	}
	if running < st.MaxRunning || st.MaxRunning == 0 {
		return nil
	}
	var deleted *store.DeletedError
	_, err := st.Journal.Load(ctx, tenant, runID)
	if errors.Is(err, store.ErrNoRun) && !errors.As(err, &deleted) {
		return fmt.Errorf("start run: %w", ErrTooManyRuns)
	}
	return nil // the run exists or was deleted: the write returns the right error
}

// checkInput refuses an input that does not fit the agent's schema. A continued run may also go on with a message.
func (st *Starter) checkInput(ctx context.Context, r Start, runID string) error {
	schema := r.Agent.Input.Schema
	if schema == nil || r.Input == nil && r.Continues != "" {
		return nil
	}
	problem := "got a message, want an input that fits input.schema of agent " + r.Agent.Name
	if r.Input != nil {
		input, err := jsonx.CompactJSON(r.Input, jsonx.JSONLimits{})
		if err == nil {
			input, err = agent.WithoutParent(input)
		}
		if err == nil {
			err = st.Valid(agent.ToolSpec{Name: "input", Schema: schema}, input)
		}
		if err == nil {
			return nil
		}
		problem = err.Error()
	}
	if _, err := st.Journal.Head(ctx, r.Tenant, runID); err == nil { // the run started before the agent had this schema
		return nil
	}
	return &BadStart{Problem: "input: " + problem}
}

// continueRun makes a first event continue another run, and returns that run. Subject and access control come from that
// run unless the request sets them. Its starters are added to By.
func (st *Starter) continueRun(ctx context.Context, past string, first *run.RunStarted) (run.AgentState, error) {
	l, err := st.Journal.Load(ctx, first.Tenant, past)
	if err != nil {
		return run.AgentState{}, fmt.Errorf("continue run %s: %w", past, err)
	}
	from, err := policy.ContinueFrom(&l.State)
	if err != nil {
		return run.AgentState{}, err
	}
	first.From = &from
	first.Subject = cmp.Or(first.Subject, l.State.Subject)
	first.AccessControl = cmp.Or(first.AccessControl, l.State.AccessControl)
	first.By = mergePeople(first.By, policy.StartersOf(&l.State))
	return l.State, nil
}

// write commits a run's first fact, followed by the facts of then, or finds the run written.
func (st *Starter) write(
	ctx context.Context, seed run.AgentState, first run.RunStarted, def *agent.Definition,
	then ...func(*run.AgentState) run.Event,
) (run.AgentState, error) {
	if st.Trace != nil {
		first.Trace = st.Trace.Begin(ctx, first.Agent)
	}
	d := run.NewDraft(seed, st.IDs.Writer(), st.Clock.Now())
	if err := d.Add(first); err != nil {
		return run.AgentState{}, fmt.Errorf("start run %s: %w", first.Run, err)
	}
	for _, next := range then {
		if err := d.Add(next(&d.State)); err != nil {
			return run.AgentState{}, fmt.Errorf("start run %s: %w", first.Run, err)
		}
	}
	if len(first.Messages) > 0 {
		d.Mark(run.CheckpointUserMessage)
	}
	var beside []store.Op
	if first.From != nil {
		beside = store.BranchOps(first.Tenant, first.From.Run, first.Run)
	}
	err := st.commit(ctx, d, def, beside...)
	switch {
	case err == nil:
		return d.Committed(), nil
	case first.From != nil && errors.Is(err, store.ErrGuardFailed):
		return run.AgentState{}, fmt.Errorf("start run %s from run %s: %w", first.Run, first.From.Run, store.ErrNoRun)
	}
	l, failed := st.Journal.Load(ctx, first.Tenant, first.Run) // the run may be written, now or before
	var deleted *store.DeletedError
	switch {
	case errors.As(failed, &deleted):
		return run.AgentState{}, fmt.Errorf("start run %s again: %w: use another key", first.Run, deleted)
	case errors.Is(failed, store.ErrNoRun):
		return run.AgentState{}, fmt.Errorf("start run %s: %w", first.Run, err)
	case failed != nil:
		return run.AgentState{}, fmt.Errorf("start run %s: %w", first.Run, failed)
	case l.State.BodyDigest != first.BodyDigest:
		return run.AgentState{}, fmt.Errorf("start run %s: %w", first.Run, ErrKeyReused)
	}
	return l.State, nil
}

// mergePeople returns the people of all lists, each once, in order.
func mergePeople(lists ...[]string) []string {
	var people []string
	for _, id := range slices.Concat(lists...) {
		if id != "" && !slices.Contains(people, id) {
			people = append(people, id)
		}
	}
	return people
}

// storeDefinition stores a definition as a blob, before the event that refers to it.
func (p Ports) storeDefinition(ctx context.Context, tenant string, d *agent.Definition) (digest string, err error) {
	def, err := json.Marshal(d)
	if err != nil {
		return "", fmt.Errorf("write definition of agent %s: %w", d.Name, err)
	}
	digest = store.BlobDigest(def)
	if err := p.Blobs.Put(ctx, tenant, digest, def); err != nil {
		return "", fmt.Errorf("store definition of agent %s: %w", d.Name, err)
	}
	return digest, nil
}

// Fork is a request for a run that branches off another.
type Fork struct {
	Tenant string
	Run    string // the parent run, finished or not
	At     int64  // the parent's last entry that both runs share, from 0
	// idempotency key, in the same space as the keys for starting the agent; "" = a new key is created
	Key string
	// Model replaces every model of the parent and of the runs below (Definition.WithModelForAll). Nil = no change.
	Model *agent.ModelSpec
	By    string // who forks the run, an additional person it acts for; "" = unknown
}

// BadFork says why a fork is refused. It is safe to show.
type BadFork struct{ Problem string }

func (e *BadFork) Error() string { return "fork run: " + e.Problem }

// Fork writes a run that begins with the parent's state after entry At, and starts its execution. Both are idempotent:
// the same key, parent, entry and model give the same run (R1). It runs under the parent's pinned definition, for the
// same subject. The errors are store.ErrNoRun, store.ErrNoEntry, policy.ErrCallRunning, policy.ErrUndoing,
// ErrTooManyRuns, ErrKeyReused and *BadFork; after these nothing is written.
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
	if err := st.checkRoom(ctx, f.Tenant, runID); err != nil {
		return run.AgentState{}, err
	}
	from, err := policy.ForkFrom(&parent, runID, st.Clock.Now())
	if err != nil {
		return run.AgentState{}, err
	}
	def, err := st.definition(ctx, f.Tenant, parent.Definition)
	if err != nil {
		return run.AgentState{}, err
	}
	digest := parent.Definition
	if f.Model != nil { // another definition with that model
		*def = def.WithModelForAll(*f.Model)
		if err := def.CheckPinned(); err != nil {
			return run.AgentState{}, &BadFork{Problem: err.Error()}
		}
		if digest, err = st.storeDefinition(ctx, f.Tenant, def); err != nil {
			return run.AgentState{}, err
		}
	}
	first := run.RunStarted{
		Tenant: f.Tenant, Run: runID, Agent: parent.Agent, Version: parent.Version, Definition: digest,
		HooksVersion: parent.HooksVersion,
		Owner:        ExecutionName(runID, 0), Subject: parent.Subject, AccessControl: parent.AccessControl,
		MaxInteractions: def.Limits.Interactions, From: &from,
		By: mergePeople([]string{f.By}, policy.StartersOf(&parent)),
	}
	first.Wait, first.Resume = def.OpenRounds()
	body, err := json.Marshal(struct { // the client's request (R2)
		Fork  string
		At    int64
		Model *agent.ModelSpec `json:",omitempty"`
	}{f.Run, f.At, f.Model})
	if err != nil {
		return run.AgentState{}, fmt.Errorf("fork run %s: %w", f.Run, err)
	}
	first.BodyDigest = store.BlobDigest(body)
	s, err := st.write(ctx, run.Seed(parent), first, def)
	if err != nil {
		return run.AgentState{}, err
	}
	return s, errors.Join(st.startExecution(ctx, &s), st.addStarters(ctx, &s, []string{f.By}))
}

// MaxStart is the longest input of an execution, in bytes, including what the state machine adds (a state has at most
// 256 KiB).
const MaxStart = 260 << 10

// StartedRun returns the run that an execution is for, from its input and its name. The input is {tenant, run} if the
// run existed first, or {agent, key, tenant} if an event started the execution; then the run's id follows from these.
// ok is false for any other input. The journal says whether the run exists.
func StartedRun(name string, input []byte) (tenant, run string, ok bool) {
	var in struct {
		Tenant string `json:"tenant"`
		Run    string `json:"run"`
		Agent  string `json:"agent"`
		Key    string `json:"key"`
	}
	if jsonx.DecodeKnown(input, jsonx.JSONLimits{Bytes: MaxStart}, &in) != nil { // decoded as the execution does
		return "", "", false
	}
	tenant = cmp.Or(in.Tenant, "default")
	switch {
	case !agent.ValidTenant(tenant):
		return "", "", false
	case in.Run != "":
		return tenant, in.Run, true
	case in.Agent != "":
		return tenant, agent.RunID(tenant, in.Agent, cmp.Or(in.Key, name)), true
	default:
		return "", "", false
	}
}
