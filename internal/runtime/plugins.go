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

// phases runs the plugins of a run's agent and puts what they decide into the draft that is being planned. It is
// committed with what it belongs to, or not at all; then they are entered again.
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

// pluginEndOf is the end of a run whose plugins have failed, or are not in this deployment any more; false for every
// other error.
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

// addHooked adds what plugins decided to the draft, with its number, and passes their error on. That a run has begun is
// on record even where they decided nothing then.
func addHooked(d *run.Draft, h run.Hooked, err error) error {
	if err != nil || h.Empty() && h.Phase != run.PhaseRunStart {
		return err
	}
	h.N = d.State.Hooks + 1
	return d.Add(h)
}

func (ph phases) runStatePhase(ctx context.Context, d *run.Draft, phase run.Phase) error {
	h, err := ph.chain.State(ctx, phase, ph.def, &d.State)
	return addHooked(d, h, err)
}

// prepare runs what comes before the model is asked, or before whatever else is owed. Behind it, Next may say something
// else.
func (ph phases) prepare(ctx context.Context, d *run.Draft) (hook.Additions, error) {
	switch policy.Next(ph.def, &d.State).Kind { // one that only looks and parks has neither run_start nor run_end
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

// afterInference runs after_inference and step_end; failure is why there was no answer, or nil. Then nothing is left to
// end.
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

// end runs run_end and ends the run, after those have cleaned up who know of it.
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

// hookResult is what plugins decided about a call; before it runs, also what the gate is to know of that. It is kept
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

// beforeTool asks the plugins about a call at its gate. What they patch is committed before the tool is entered.
func (r *round) beforeTool(ctx context.Context, p *batchPlan, c run.Call) (agent.PluginGate, error) {
	said, err := r.askPlugins(ctx, p, c)
	if err != nil || said.hooked.Empty() {
		return said.gate, err
	}
	p.raiseDue(dueFirst)
	return said.gate, addHooked(p.draft, said.hooked, nil)
}

// askPlugins asks the plugins about a call once for as long as the answer fits, and puts nothing into the draft.
func (r *round) askPlugins(ctx context.Context, p *batchPlan, c run.Call) (hookResult, error) {
	if c.Gated || c.Budget {
		return hookResult{}, nil
	}
	key := hookKey(c)
	said, known := r.hooked[key]
	if known && stillFits(p.draft, said.hooked) {
		return said, nil
	}
	var err error
	said.hooked, said.gate, err = r.phases.chain.BeforeTool(ctx, r.def, &p.draft.State, c, r.checkAnswerSchema)
	if err != nil {
		return hookResult{}, err
	}
	r.hooked[key] = said
	return said, nil
}

// afterTool tells the plugins what a call came to. That they fail does not take the result away: it is committed, and
// the run ends.
func (r *round) afterTool(ctx context.Context, p *batchPlan, id string) error {
	c, ok := p.draft.State.Call(id)
	if !ok || c.Budget {
		return nil
	}
	key := "after/" + hookKey(c)
	said, known := r.hooked[key]
	h := said.hooked
	if !known || !stillFits(p.draft, h) {
		var err error
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
