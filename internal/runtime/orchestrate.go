package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

// inferPlan asks a model for the next part of the run's plan, and plans the entry of its reply. A failure of the model
// is part of the plan and never ends the run.
func (a *attempt) inferPlan(ctx context.Context, next policy.Action, add hook.Additions) (*turn, error) {
	if err := a.recordAdvice(ctx); err != nil {
		return nil, err
	}
	def, d := a.def, a.draft
	s := &d.State
	if _, err := prompt.Steps(s); err != nil {
		return a.endTurn(ctx, policy.Fail(run.CodeInternal, err.Error()))
	}
	system, once, digest := "", "", "" // once: a system text that is built once, if built for this request
	if next.Lifecycle != run.LifecycleRoute {
		var err error
		if system, err = a.buildContext(ctx, next); err != nil {
			return a.endBadContext(ctx, err)
		}
		if _, _, kept := prompt.KeptSystem(def, s); !kept && def.SystemPrompt != agent.SystemEveryInference {
			once, digest = system, prompt.SystemDigest(system)
			if err := a.storeSystem(ctx, def, s, digest, once); err != nil {
				return nil, err
			}
		}
	}
	err := a.narrow(ctx, def, s, &next)
	if errors.Is(err, errIndex) {
		if err := d.Add(prompt.LeavePlan(s, prompt.LeftIndexFailed, err.Error())); err != nil {
			return nil, err
		}
		return a.nextTurn(ctx)
	}
	if err != nil {
		return nil, err
	}
	results := map[string]string{}
	for call, blob := range prompt.PlanBodies(s, next) {
		body, err := a.Blobs.Get(ctx, s.Tenant, blob)
		if err != nil {
			return nil, fmt.Errorf("read result of call %s: %w", call, err)
		}
		results[call] = string(body)
	}
	req, err := add.To(prompt.BuildPlanRequest(def, s, next, system, results))
	if err != nil {
		return nil, err
	}
	if req, err = prompt.WithStepPrompt(def, s, next, d.Entry.Time, req); err != nil {
		return a.endBadContext(ctx, &badDefinition{err})
	}
	reply, requests, err := a.ask(ctx, req)
	if failed, ok := errors.AsType[*agent.ModelError](err); ok {
		return a.replyTurn(ctx, failed, prompt.PlanFailed(def, s, next, failed, requests, results)...)
	}
	if err != nil {
		return nil, err
	}
	facts := prompt.PlanFacts(def, s, next, reply, requests, a.accepts, results)
	if p, ok := facts[0].(run.Planned); ok {
		facts[0] = prompt.KeepPlanSystem(def, p, once, digest)
	}
	return a.replyTurn(ctx, nil, facts...)
}

// accepts reports whether arguments fit a tool's schema. An invalid schema accepts nothing.
func (st *Stepper) accepts(t agent.ToolSpec, args json.RawMessage) bool {
	if t.Schema == nil {
		return true
	}
	fits, err := st.Schema(t.Schema)
	return err == nil && fits(args) == nil
}
