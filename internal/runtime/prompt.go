package runtime

import (
	"context"
	"errors"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

// withPrompt is a request with the sections that are made for it alone. Errors are *badContext or the context's.
func (a *attempt) withPrompt(ctx context.Context, next run.Action, req agent.Request) (agent.Request, error) {
	def, d := a.def, a.draft
	var given prompt.PromptContext
	for _, want := range []struct {
		name string
		to   *string
	}{{def.Prompt.Planning, &given.Planning}, {def.Prompt.RAG, &given.RAG}} {
		if want.name == "" {
			continue
		}
		text, err := a.Hooks.Context(ctx, want.name, contextInput(d, next, req))
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

func contextInput(d *run.Draft, a run.Action, req agent.Request) hook.ContextInput {
	s := &d.State
	return hook.ContextInput{
		Lifecycle: a.Lifecycle, Tenant: s.Tenant, Run: s.Run, Agent: s.Agent, Subject: s.Subject, AccessControl: s.AccessControl,
		Now: d.Entry.Time, Input: s.Input, Messages: req.Messages, Tools: req.Tools, Interactions: s.Interactions, Exhausted: a.Exhausted,
	}
}

// withSections is a system text with the sections around it that do not depend on a request. Errors are *badContext.
func withSections(def *agent.Definition, d *run.Draft, a run.Action, instructions string) (string, error) {
	text, err := prompt.BuildSystem(def, instructions, prompt.SystemFor(def, &d.State, a, d.Entry.Time))
	if err != nil {
		return "", &badContext{err}
	}
	return text, nil
}
