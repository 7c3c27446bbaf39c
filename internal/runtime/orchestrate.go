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
	"github.com/countersign/countersign/internal/store"
)

// forPlan asks a model for what the run's plan is owed and plans the entry of its reply. That the model failed is part of the plan's
// story, never the run's end.
func (st *Stepper) forPlan(ctx context.Context, ph phases, l store.Loaded, d *run.Draft, a run.Action, add hook.Additions) (*turn, error) {
	def := ph.def
	if err := st.judgeTools(ctx, def, d); err != nil {
		return nil, err
	}
	r, err := st.planRequest(ctx, def, d, &a, add)
	var bad *badContext
	var index *errIndex
	switch {
	case errors.As(err, &bad):
		return &turn{before: l.State, draft: d}, ph.end(ctx, d, policy.Fail(run.CodeDefinition, bad.Error()))
	case errors.As(err, &index):
		return st.turn(ctx, ph, l, d, plan.LeavePlan(&d.State, run.LeftIndexFailed, index.Error()))
	case err != nil:
		return nil, err
	}
	facts, failed, err := st.planFacts(ctx, def, d, a, r)
	if err != nil {
		return nil, err
	}
	if err := d.Add(facts...); err != nil {
		return nil, err
	}
	if failed == nil {
		d.Mark(run.CheckpointAssistantTurn)
	}
	if err := ph.afterInference(ctx, d, failed); err != nil {
		return nil, err
	}
	return st.turn(ctx, ph, l, d)
}

// planAsk is a request for the plan with what its facts need to be planned.
type planAsk struct {
	request        agent.Request
	results        map[string]string
	system, digest string // of a text that is built once and was built for this request; "" = it is kept, or not to be
}

// planRequest is what a model is asked for the plan, bodies included, with what plugins add to this request alone. It narrows the action
// to the tools that fit the step. Errors are *badContext, *errIndex, the plugins' or the store's.
func (st *Stepper) planRequest(ctx context.Context, def *agent.Definition, d *run.Draft, a *run.Action, add hook.Additions) (ask planAsk, err error) {
	system := ""
	if a.Lifecycle != run.LifecycleRoute {
		if system, err = st.buildContext(ctx, def, d, *a); err != nil {
			return ask, err
		}
		if ask.system, ask.digest, err = st.keepSystem(ctx, def, &d.State, system); err != nil {
			return ask, err
		}
	}
	if err := st.narrow(ctx, def, &d.State, a); err != nil {
		return ask, err
	}
	ask.results = map[string]string{}
	for call, blob := range plan.PlanBodies(&d.State, *a) {
		body, err := st.Blobs.Get(ctx, d.State.Tenant, blob)
		if err != nil {
			return ask, fmt.Errorf("read result of call %s: %w", call, err)
		}
		ask.results[call] = string(body)
	}
	if ask.request, err = add.To(plan.BuildPlanRequest(def, &d.State, *a, system, ask.results)); err != nil {
		return ask, err
	}
	if ask.request, err = prompt.WithStepPrompt(def, &d.State, *a, d.Entry.Time, ask.request); err != nil {
		return ask, &badContext{err}
	}
	return ask, nil
}

// keepSystem stores a system text that is built once and is not kept yet, and says what the plan's fact is to keep of it.
func (st *Stepper) keepSystem(ctx context.Context, def *agent.Definition, s *run.AgentState, system string) (text, digest string, err error) {
	if _, _, kept := prompt.KeptSystem(def, s); kept || def.SystemPrompt == agent.SystemEveryInference {
		return "", "", nil
	}
	digest = prompt.SystemDigest(system)
	return system, digest, st.storeSystem(ctx, def, s, digest, system)
}

// planFacts asks the model and turns its reply, or its failure, into facts.
func (st *Stepper) planFacts(ctx context.Context, def *agent.Definition, d *run.Draft, a run.Action, ask planAsk) ([]run.Event, *agent.ModelError, error) {
	reply, requests, err := st.Model.Ask(ctx, ask.request)
	var failed *agent.ModelError
	if errors.As(err, &failed) {
		return plan.PlanFailed(def, &d.State, a, failed, requests, ask.results), failed, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("ask the model: %w", err)
	}
	reply.At = st.Clock.Now()
	facts := plan.PlanFacts(def, &d.State, a, reply, requests, st.accepts, ask.results)
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
