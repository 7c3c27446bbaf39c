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
func (a *attempt) inferPlan(ctx context.Context, next policy.Action, add hook.Additions) (*turn, error) {
	if err := a.recordAdvice(ctx); err != nil {
		return nil, err
	}
	if _, err := plan.Steps(&a.draft.State); err != nil {
		return a.endTurn(ctx, policy.Fail(run.CodeInternal, err.Error()))
	}
	ask, err := a.buildPlanRequest(ctx, &next, add)
	if errors.Is(err, errIndex) {
		if err := a.draft.Add(plan.LeavePlan(&a.draft.State, plan.LeftIndexFailed, err.Error())); err != nil {
			return nil, err
		}
		return a.nextTurn(ctx)
	}
	if err != nil {
		return a.endBadContext(ctx, err, 0)
	}
	def, s := a.def, &a.draft.State
	reply, requests, err := a.Model.Ask(ctx, ask.request)
	var failed *agent.ModelError
	if errors.As(err, &failed) {
		return a.replyTurn(ctx, failed, plan.PlanFailed(def, s, next, failed, requests, ask.results)...)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the model: %w", err)
	}
	reply.At = a.Clock.Now()
	facts := plan.PlanFacts(def, s, next, reply, requests, a.accepts, ask.results)
	if p, ok := facts[0].(run.Planned); ok {
		facts[0] = prompt.KeepPlanSystem(def, p, ask.system, ask.digest)
	}
	return a.replyTurn(ctx, nil, facts...)
}

// planRequest is a request for a part of the plan, with what its events need.
type planRequest struct {
	request        agent.Request
	results        map[string]string
	system, digest string // of a text that is built once and was built for this request; "" = it is kept, or not to be
}

// buildPlanRequest builds the request for a part of the plan, with bodies of results and what plugins add. It narrows
// the action to the tools that fit the step. Errors are *badContext, errIndex, the plugins' or the store's.
func (a *attempt) buildPlanRequest(
	ctx context.Context, next *policy.Action, add hook.Additions,
) (ask planRequest, err error) {
	def, d := a.def, a.draft
	system := ""
	if next.Lifecycle != run.LifecycleRoute {
		if system, err = a.buildContext(ctx, *next); err != nil {
			return ask, err
		}
		if _, _, kept := prompt.KeptSystem(def, &d.State); !kept && def.SystemPrompt != agent.SystemEveryInference {
			ask.system, ask.digest = system, prompt.SystemDigest(system)
			if err := a.storeSystem(ctx, def, &d.State, ask.digest, system); err != nil {
				return ask, err
			}
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

// accepts reports whether arguments fit a tool's schema. One that cannot be used accepts nothing.
func (st *Stepper) accepts(t agent.ToolSpec, args json.RawMessage) bool {
	if t.Schema == nil {
		return true
	}
	fits, err := st.Schema(t.Schema)
	return err == nil && fits(args) == nil
}
