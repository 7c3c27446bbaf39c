package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/plan"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

// inferPlan asks a model for the next part of the run's plan and plans the entry of its reply. A failure of the model
// is part of the plan and never ends the run.
func (a *attempt) inferPlan(ctx context.Context, next run.Action, add hook.Additions) (*turn, error) {
	if err := a.recordAdvice(ctx); err != nil {
		return nil, err
	}
	if _, err := plan.Steps(&a.draft.State); err != nil {
		return a.endTurn(ctx, policy.Fail(run.CodeInternal, err.Error()))
	}
	r, err := a.buildPlanRequest(ctx, &next, add)
	var bad *badContext
	var index *errIndex
	switch {
	case errors.As(err, &bad):
		return a.endTurn(ctx, policy.Fail(run.CodeDefinition, bad.Error()))
	case errors.As(err, &index):
		if err := a.draft.Add(plan.LeavePlan(&a.draft.State, plan.LeftIndexFailed, index.Error())); err != nil {
			return nil, err
		}
		return a.nextTurn(ctx)
	case err != nil:
		return nil, err
	}
	facts, failed, err := a.planFacts(ctx, next, r)
	if err != nil {
		return nil, err
	}
	return a.replyTurn(ctx, failed, facts...)
}

// planRequest is a request for a part of the plan, with what its events need.
type planRequest struct {
	request        agent.Request
	results        map[string]string
	system, digest string // of a text that is built once and was built for this request; "" = it is kept, or not to be
}

// buildPlanRequest builds the request for a part of the plan, with bodies of results and what plugins add. It narrows
// the action to the tools that fit the step. Errors are *badContext, *errIndex, the plugins' or the store's.
func (a *attempt) buildPlanRequest(ctx context.Context, next *run.Action, add hook.Additions) (ask planRequest, err error) {
	def, d := a.def, a.draft
	system := ""
	if next.Lifecycle != run.LifecycleRoute {
		if system, err = a.buildContext(ctx, *next); err != nil {
			return ask, err
		}
		if ask.system, ask.digest, err = a.keepSystem(ctx, system); err != nil {
			return ask, err
		}
	}
	if err := a.narrow(ctx, def, &d.State, next); err != nil {
		return ask, err
	}
	ask.results = map[string]string{}
	for call, blob := range plan.PlanBodies(&d.State, *next) {
		body, err := a.Blobs.Get(ctx, d.State.Tenant, blob)
		if err != nil {
			return ask, fmt.Errorf("read result of call %s: %w", call, err)
		}
		ask.results[call] = string(body)
	}
	if ask.request, err = add.To(plan.BuildPlanRequest(def, &d.State, *next, system, ask.results)); err != nil {
		return ask, err
	}
	if ask.request, err = prompt.WithStepPrompt(def, &d.State, *next, d.Entry.Time, ask.request); err != nil {
		return ask, &badContext{err}
	}
	return ask, nil
}

// keepSystem stores a system text that is built once and is not kept yet, and says what the plan's fact is to keep of
// it.
func (a *attempt) keepSystem(ctx context.Context, system string) (text, digest string, err error) {
	def, s := a.def, &a.draft.State
	if _, _, kept := prompt.KeptSystem(def, s); kept || def.SystemPrompt == agent.SystemEveryInference {
		return "", "", nil
	}
	digest = prompt.SystemDigest(system)
	return system, digest, a.storeSystem(ctx, def, s, digest, system)
}

// planFacts asks the model and turns its reply, or its failure, into facts.
func (a *attempt) planFacts(ctx context.Context, next run.Action, ask planRequest) ([]run.Event, *agent.ModelError, error) {
	def, s := a.def, &a.draft.State
	reply, requests, err := a.Model.Ask(ctx, ask.request)
	var failed *agent.ModelError
	if errors.As(err, &failed) {
		return plan.PlanFailed(def, s, next, failed, requests, ask.results), failed, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("ask the model: %w", err)
	}
	reply.At = a.Clock.Now()
	facts := plan.PlanFacts(def, s, next, reply, requests, a.accepts, ask.results)
	if p, ok := facts[0].(run.Planned); ok {
		facts[0] = prompt.KeepPlanSystem(def, p, ask.system, ask.digest)
	}
	return facts, nil, nil
}

// accepts reports whether arguments fit a tool's schema. One that cannot be used accepts nothing.
func (st *Stepper) accepts(t agent.ToolSpec, args json.RawMessage) bool {
	if t.Schema == nil {
		return true
	}
	fits, err := st.Schema(t.Schema)
	return err == nil && fits(args) == nil
}
