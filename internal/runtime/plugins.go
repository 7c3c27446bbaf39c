package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// phases runs the plugins of a run's agent and adds their decisions to the planned draft. Decisions are committed with
// the entry they belong to. If that entry is lost, the plugins run again.
type phases struct {
	ports Ports
	def   *agent.Definition
	chain *hook.Chain
}

func (p Ports) phases(def *agent.Definition) (phases, error) {
	chain, err := p.Hooks.Chain(def.Plugins)
	if err != nil {
		return phases{}, &badDefinition{err}
	}
	return phases{p, def, chain}, nil
}

// pluginEndOf returns the end of a run whose plugins have failed or are missing in this deployment. It returns false
// for any other error.
func pluginEndOf(err error) (run.Finished, bool) {
	var failed *hook.Error
	var missing *badDefinition
	switch {
	case errors.As(err, &missing):
		return policy.Fail(run.CodeDefinition, missing.Error()), true
	case errors.As(err, &failed):
		return policy.Fail(run.CodeInternal, failed.Error()), true
	default:
		return run.Finished{}, false
	}
}

// addHooked numbers the plugins' decisions and adds them to the draft. It passes their error on. run_start is recorded
// even without decisions, as is before_inference if tools were hidden from a request that was not made.
func addHooked(d *run.Draft, h run.Hooked, err error) error {
	stale := h.Phase == run.PhaseBeforeInference && d.State.Hidden != nil
	if err != nil || h.Empty() && h.Phase != run.PhaseRunStart && !stale {
		return err
	}
	h.N = d.State.Hooks + 1
	return d.Add(h)
}

func (ph phases) runStatePhase(ctx context.Context, d *run.Draft, phase run.Phase) error {
	h, err := ph.chain.State(ctx, phase, ph.def, &d.State)
	return addHooked(d, h, err)
}

// prepare runs the plugins that come before a model call or any other action. Then policy.Next may return another one.
func (ph phases) prepare(ctx context.Context, d *run.Draft) (hook.Additions, error) {
	switch policy.Next(ph.def, &d.State).Kind { // an attempt that only parks again has neither run_start nor run_end
	case policy.ActInfer, policy.ActTools, policy.ActEnd:
		if d.State.Begun || !ph.chain.BeginsRuns() {
			break
		}
		if err := ph.runStatePhase(ctx, d, run.PhaseRunStart); err != nil {
			return hook.Additions{}, err
		}
	}
	if policy.Next(ph.def, &d.State).Kind != policy.ActInfer {
		return hook.Additions{}, nil
	}
	if err := ph.runStatePhase(ctx, d, run.PhaseStepStart); err != nil {
		return hook.Additions{}, err
	}
	h, more, err := ph.chain.BeforeInference(ctx, ph.def, &d.State) // it may end the run instead
	return more, addHooked(d, h, err)
}

// afterInference runs after_inference and step_end. failure is the model's error or nil; with an error, a plugin's end
// is ignored.
func (ph phases) afterInference(ctx context.Context, d *run.Draft, failure *agent.ModelError) error {
	h, err := ph.chain.AfterInference(ctx, ph.def, &d.State, failure)
	if failure != nil {
		h.End = ""
	}
	if err := addHooked(d, h, err); err != nil {
		return err
	}
	return ph.runStatePhase(ctx, d, run.PhaseStepEnd)
}

// end runs run_end, cleans up and ends the run.
func (ph phases) end(ctx context.Context, d *run.Draft, fin run.Finished) error {
	if err := ph.runStatePhase(ctx, d, run.PhaseRunEnd); err != nil {
		return err
	}
	return ph.ports.addEndAfterCleanup(ctx, ph.def, d, fin)
}

func (ph phases) park(ctx context.Context, d *run.Draft) error {
	if err := ph.runStatePhase(ctx, d, run.PhaseRunEnd); err != nil {
		return err
	}
	return addPark(d)
}

// hookKey identifies one arrival of a call at its gate.
func hookKey(c run.Call) string {
	return fmt.Sprintf("%s/%s/%d/%d", c.ID, c.Status, c.Asks, c.Executions)
}

// hookResult is the plugins' decision about a call and, before the call runs, what its gate has to know. It is kept
// while the same entry is planned again.
type hookResult struct {
	hooked run.Hooked
	gate   agent.PluginGate
}

// stillFits reports whether a decision that was made for a lost entry still fits the shared state.
func stillFits(d *run.Draft, h run.Hooked) bool {
	_, err := run.ApplyPatches(d.State.Shared, h.Patches)
	return err == nil
}

// beforeTool asks the plugins about a call at its gate. Their patches are committed before the tool is entered.
func (r *round) beforeTool(ctx context.Context, p *batchPlan, c run.Call) (agent.PluginGate, error) {
	result, err := r.askPlugins(ctx, p, c)
	if err != nil || result.hooked.Empty() {
		return result.gate, err
	}
	p.raiseDue(dueFirst)
	return result.gate, addHooked(p.draft, result.hooked, nil)
}

// askPlugins asks the plugins about a call, and keeps the answer as long as it fits. It adds nothing to the draft.
func (r *round) askPlugins(ctx context.Context, p *batchPlan, c run.Call) (hookResult, error) {
	if c.Gated || c.Budget {
		return hookResult{}, nil
	}
	key := hookKey(c)
	result, known := r.hooked[key]
	if known && stillFits(p.draft, result.hooked) {
		return result, nil
	}
	var err error
	result.hooked, result.gate, err = r.phases.chain.BeforeTool(ctx, r.def, &p.draft.State, c, r.checkAnswerSchema)
	if err != nil {
		return hookResult{}, err
	}
	r.hooked[key] = result
	return result, nil
}

// afterTool tells the plugins the result of a call. If they fail, the result is committed and the run ends.
func (r *round) afterTool(ctx context.Context, p *batchPlan, id string) error {
	c, ok := p.draft.State.Call(id)
	if !ok || c.Budget {
		return nil
	}
	key := "after/" + hookKey(c)
	result, known := r.hooked[key]
	h := result.hooked
	if !known || !stillFits(p.draft, h) {
		var err error
		if c.Result != nil && c.Result.Blob != "" && r.phases.chain != nil {
			body, err := r.Blobs.Get(ctx, r.inv.Tenant, c.Result.Blob)
			if err != nil {
				return fmt.Errorf("read result of call %s: %w", id, err)
			}
			whole := *c.Result
			whole.Content, whole.Blob = string(body), ""
			c.Result = &whole
		}
		h, err = r.phases.chain.AfterTool(ctx, r.def, &p.draft.State, c)
		if fin, broken := pluginEndOf(err); broken { // the result is committed, so the plugins are not asked again
			r.pluginEnd, err = &fin, nil
			h = run.Hooked{Phase: run.PhaseAfterTool, Call: id, Failed: fin.Error}
		}
		if err != nil {
			return err
		}
		r.hooked[key] = hookResult{hooked: h}
	}
	return addHooked(p.draft, h, nil)
}
