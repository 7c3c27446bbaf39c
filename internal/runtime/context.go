package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

// badDefinition says that a definition cannot be carried out anywhere: its context cannot be built, or it names a
// missing plugin. It ends the run and is safe to show.
type badDefinition struct{ cause error }

func (e *badDefinition) Error() string { return e.cause.Error() }
func (e *badDefinition) Unwrap() error { return e.cause }

// buildContext returns the system text for the inference next. If the run begins with a context builder, its messages
// are added to the draft. A text that the run has kept is not built again. Errors are *badDefinition or the store's.
func (a *attempt) buildContext(ctx context.Context, next policy.Action) (string, error) {
	def, d := a.def, a.draft
	first := def.Builder != "" && !d.State.Built && d.State.Inferences == 0 // the builder gives the first messages
	if kept, inBlob, ok := prompt.KeptSystem(def, &d.State); ok && !first {
		if !inBlob {
			return kept, nil
		}
		body, err := a.Blobs.Get(ctx, d.State.Tenant, d.State.System)
		if err != nil {
			return "", fmt.Errorf("read system text of run %s: %w", d.State.Run, err)
		}
		return string(body), nil
	}
	text, err := agent.RenderSystem(*def, prompt.SystemFor(def, &d.State, next, d.Entry.Time))
	if err != nil {
		return "", &badDefinition{err}
	}
	if s := &d.State; def.Builder != "" {
		in := hook.BuildInput{
			Lifecycle: next.Lifecycle, Tenant: s.Tenant, Run: s.Run, Agent: s.Agent,
			Caller: policy.Caller(s), Subject: s.Subject, AccessControl: s.AccessControl,
			Date: s.StartedAt.UTC().Format("2006-01-02"), Now: d.Entry.Time, Input: s.Input, System: text,
			Interactions: s.Interactions, Exhausted: next.Exhausted, MessagesWanted: first,
		}
		for _, t := range def.Tools {
			in.Tools = append(in.Tools, t.ModelFacing())
		}
		built, err := a.Hooks.Build(ctx, def.Builder, in)
		if errors.Is(err, hook.ErrBuilder) {
			return "", &badDefinition{err}
		}
		if err == nil && first {
			err = a.addBuilt(ctx, built)
		}
		if err != nil {
			return "", err
		}
		text = strings.ToValidUTF8(built.System, "\uFFFD")
	}
	// add the sections that do not depend on a request
	text, err = prompt.BuildSystem(def, text, prompt.SystemFor(def, &d.State, next, d.Entry.Time))
	if err != nil {
		return "", &badDefinition{err}
	}
	return text, nil
}

// addBuilt adds the builder's messages to the draft, or the default message.
func (a *attempt) addBuilt(ctx context.Context, built hook.Built) error {
	def, d := a.def, a.draft
	given := make([]run.BuiltMessage, len(built.Messages))
	blocks := make([]run.UserBlock, len(built.Messages))
	for i, m := range built.Messages {
		blocks[i] = run.UserBlock{Block: m.Block}
		given[i] = run.BuiltMessage{Role: m.Role, Content: blocks[i], Seen: m.Seen}
	}
	fact, bad := prompt.Built(&d.State, given)
	if bad == nil {
		err := a.checkMedia(ctx, d.State.Tenant, d.State.Run, blocks)
		if err != nil && !errors.Is(err, ErrUnknownBlob) {
			return err
		}
		bad = err
	}
	if bad != nil {
		return &badDefinition{fmt.Errorf("%w %s: %w", hook.ErrBuilder, def.Builder, bad)}
	}
	if len(fact.Messages) > 0 {
		d.Mark(run.CheckpointUserMessage)
	}
	return d.Add(fact)
}

// storeSystem stores a system text that the reply's fact only refers to. It does so before the fact, and before the
// reply is paid for.
func (p Ports) storeSystem(ctx context.Context, def *agent.Definition, s *run.AgentState, digest, text string) error {
	if !prompt.KeepSystem(def, run.Replied{System: digest}, text).SystemBlob {
		return nil
	}
	if err := p.putBlob(ctx, s.Tenant, s.Run, digest, []byte(text)); err != nil {
		return fmt.Errorf("store system text of run %s: %w", s.Run, err)
	}
	return nil
}

// withPrompt returns the request with the sections that are rendered for it alone. Errors are *badDefinition or the
// context's.
func (a *attempt) withPrompt(ctx context.Context, next policy.Action, req agent.Request) (agent.Request, error) {
	def, d := a.def, a.draft
	s := &d.State
	in := hook.ContextInput{
		Lifecycle: next.Lifecycle, Tenant: s.Tenant, Run: s.Run, Agent: s.Agent,
		Subject: s.Subject, AccessControl: s.AccessControl,
		Now: d.Entry.Time, Input: s.Input, Messages: req.Messages, Tools: req.Tools,
		Interactions: s.Interactions, Exhausted: next.Exhausted,
	}
	texts := make([]string, 2)
	for i, name := range []string{def.Prompt.Planning, def.Prompt.RAG} {
		if name == "" {
			continue
		}
		var err error
		if texts[i], err = a.Hooks.Context(ctx, name, in); errors.Is(err, hook.ErrContext) {
			return req, &badDefinition{err}
		}
		if err != nil {
			return req, err
		}
	}
	given := prompt.PromptContext{Planning: texts[0], RAG: texts[1]}
	out, err := prompt.WithPrompt(def, &d.State, next, d.Entry.Time, req, given)
	if err != nil {
		return req, &badDefinition{err}
	}
	return out, nil
}

// bodies holds the texts of live results that are in blobs, by digest.
type bodies map[string][]byte

// requestPlan holds the parts of a request that do not come from the run.
type requestPlan struct {
	action policy.Action
	system string // the system text, without the summary
	add    hook.Additions
	known  bodies
	left   prompt.Budget
}

// fitRequest makes room for the request by adding facts to the draft, which are committed with the reply. It sets
// q.action to the action that follows and q.left to the rest of the window.
func (a *attempt) fitRequest(ctx context.Context, q *requestPlan) error {
	def, d := a.def, a.draft
	if def.Context.Window <= 0 && def.Context.Prune <= 0 { // the window is not counted
		return nil
	}
	var err error
	if q.known, err = a.bodies(ctx, &d.State, d.State.Messages.All(), nil); err != nil {
		return err
	}
	m := prompt.Measured{System: q.system, Bodies: q.known}
	if a.Count != nil && prompt.NeedsCount(def, &d.State, q.action, m) {
		req, _, err := a.buildRequest(ctx, q)
		if err != nil {
			return err
		}
		limited, cancel := a.Clock.WithTimeout(ctx, embedTimeout)
		m.Count, err = a.Count.CountTokens(limited, req)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // use the estimate
			a.warn("count the tokens of run "+a.inv.Run, err)
			m.Count = 0
		}
	}
	facts, left := prompt.MakeRoom(def, &d.State, q.action, m)
	if q.left = left; len(facts) == 0 {
		return nil
	}
	// If the definition says so, the model writes the summary of evicted messages. If that fails, the mechanical summary
	// is used; the request counts in either case.
	for i, fact := range facts {
		e, ok := fact.(run.Evicted)
		if !ok {
			continue
		}
		req, byModel := prompt.SummaryRequest(def, &d.State, e, q.known)
		if !byModel {
			continue
		}
		if req, err = q.add.Transform(req); err != nil {
			return err
		}
		reply, requests, err := a.ask(ctx, req)
		if err != nil && !errors.As(err, new(*agent.ModelError)) {
			return fmt.Errorf("write a summary: %w", err)
		}
		facts[i] = prompt.Summarised(def, e, reply, requests)
	}
	if err := d.Add(facts...); err != nil {
		return err
	}
	offered := q.action.Offered
	q.action = policy.Next(def, &d.State)
	q.action.Offered = offered
	return nil
}

// buildRequest returns the request with bodies from blobs and then the additions of plugins, whose transforms see the
// whole request. It also returns the digest of the system text if that is new.
func (a *attempt) buildRequest(ctx context.Context, q *requestPlan) (agent.Request, string, error) {
	s := &a.draft.State
	req, digest := prompt.BuildRequest(a.def, s, q.action, q.system)
	known, err := a.bodies(ctx, s, req.Messages, q.known)
	if err != nil {
		return req, "", err
	}
	if len(known) > 0 {
		req.Messages = slices.Clone(req.Messages)
	}
	for i, m := range req.Messages {
		if r, ok := m.Block.(run.ToolResult); ok && r.Blob != "" {
			r.Content, r.Blob = string(known[r.Blob]), ""
			req.Messages[i].Block = r
		}
	}
	req, err = q.add.To(req)
	return req, digest, err
}

// bodies adds to known the texts of the messages' results that are in blobs.
func (p Ports) bodies(ctx context.Context, s *run.AgentState, messages []run.Message, known bodies) (bodies, error) {
	if s.BlobMessages == 0 {
		return known, nil
	}
	for _, m := range messages {
		r, ok := m.Block.(run.ToolResult)
		if !ok || r.Blob == "" {
			continue
		}
		if _, have := known[r.Blob]; have {
			continue
		}
		body, err := p.Blobs.Get(ctx, s.Tenant, r.Blob)
		if err != nil {
			return nil, fmt.Errorf("read result of call %s: %w", r.ID, err)
		}
		if known == nil {
			known = bodies{}
		}
		known[r.Blob] = body
	}
	return known, nil
}
