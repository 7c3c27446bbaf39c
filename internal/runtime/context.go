package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

// badContext says that a run's context cannot be built, whoever tries. It ends the run and is fit to be shown.
type badContext struct{ cause error }

func (e *badContext) Error() string { return e.cause.Error() }
func (e *badContext) Unwrap() error { return e.cause }

// buildContext is the system text of the inference that next asks for. Where the run begins with a context builder,
// what that gave is added to the draft. Nothing is built anew that the run has kept. Errors are *badContext or the
// store's.
func (a *attempt) buildContext(ctx context.Context, next policy.Action) (string, error) {
	def, d := a.def, a.draft
	first := prompt.NeedsBuilder(def, &d.State)
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
		return "", &badContext{err}
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
			return "", &badContext{err}
		}
		if err == nil && first {
			err = a.addBuilt(ctx, built)
		}
		if err != nil {
			return "", err
		}
		text = strings.ToValidUTF8(built.System, "\uFFFD")
	}
	// with the sections around it that do not depend on a request
	text, err = prompt.BuildSystem(def, text, prompt.SystemFor(def, &d.State, next, d.Entry.Time))
	if err != nil {
		return "", &badContext{err}
	}
	return text, nil
}

// addBuilt adds the builder's messages to the draft, or the default message.
func (a *attempt) addBuilt(ctx context.Context, built hook.Built) error {
	def, d := a.def, a.draft
	given := make([]run.BuiltMessage, len(built.Messages))
	said := make([]run.UserBlock, len(built.Messages))
	for i, m := range built.Messages {
		said[i] = run.UserBlock{Block: m.Block}
		given[i] = run.BuiltMessage{Role: m.Role, Content: said[i], Seen: m.Seen}
	}
	fact, bad := prompt.Built(&d.State, given)
	if bad == nil {
		err := a.checkMedia(ctx, d.State.Tenant, d.State.Run, said)
		if err != nil && !errors.Is(err, ErrUnknownBlob) {
			return err
		}
		bad = err
	}
	if bad != nil {
		return &badContext{fmt.Errorf("%w %s: %w", hook.ErrBuilder, def.Builder, bad)}
	}
	if len(fact.Messages) > 0 {
		d.Mark(run.CheckpointUserMessage)
	}
	return d.Add(fact)
}

// storeSystem stores a system text that the reply's fact will only point at: before the fact, and before the reply is
// paid for.
func (p Ports) storeSystem(ctx context.Context, def *agent.Definition, s *run.AgentState, digest, text string) error {
	if !prompt.KeepSystem(def, run.Replied{System: digest}, text).SystemBlob {
		return nil
	}
	if err := p.putBlob(ctx, s.Tenant, s.Run, digest, []byte(text)); err != nil {
		return fmt.Errorf("store system text of run %s: %w", s.Run, err)
	}
	return nil
}

// withPrompt is a request with the sections that are made for it alone. Errors are *badContext or the context's.
func (a *attempt) withPrompt(ctx context.Context, next policy.Action, req agent.Request) (agent.Request, error) {
	def, d := a.def, a.draft
	s := &d.State
	in := hook.ContextInput{
		Lifecycle: next.Lifecycle, Tenant: s.Tenant, Run: s.Run, Agent: s.Agent,
		Subject: s.Subject, AccessControl: s.AccessControl,
		Now: d.Entry.Time, Input: s.Input, Messages: req.Messages, Tools: req.Tools,
		Interactions: s.Interactions, Exhausted: next.Exhausted,
	}
	var given prompt.PromptContext
	for _, want := range []struct {
		name string
		to   *string
	}{{def.Prompt.Planning, &given.Planning}, {def.Prompt.RAG, &given.RAG}} {
		if want.name == "" {
			continue
		}
		text, err := a.Hooks.Context(ctx, want.name, in)
		if errors.Is(err, hook.ErrContext) {
			return req, &badContext{err}
		}
		if err != nil {
			return req, err
		}
		*want.to = text
	}
	out, err := prompt.WithPrompt(def, &d.State, next, d.Entry.Time, req, given)
	if err != nil {
		return req, &badContext{err}
	}
	return out, nil
}
