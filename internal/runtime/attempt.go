package runtime

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// Stepper does one step of a run: an inference, or whatever else is owed that is not a tool call. Safe for concurrent
// use.
type Stepper struct {
	Ports
	Definitions Definitions
	// Family tells the runs around one that has failed where no function behind this one will: (Ports).TellFamily in a
	// process that has everything; nil = the repair of executions that ended badly does.
	Family func(ctx context.Context, s *run.AgentState) error
}

// attempt is one try of a step, on the run as it was read.
type attempt struct {
	*Stepper
	inv     Invocation
	before  store.Loaded
	def     *agent.Definition
	draft   *run.Draft // the entry that is planned
	drained int        // how many events the inbox and the grants gave it
	phases  phases
	paid    *turn // a reply that this try or one before it has paid for; nil = none
}

// turn is the entry that commits a reply that is paid for, or whatever else a step has planned.
type turn struct {
	draft *run.Draft
	open  *run.Draft // the same without the end, for when an input arrived meanwhile; nil where the turn ends nothing
}

// endTurn plans a turn that ends the run.
func (a *attempt) endTurn(ctx context.Context, fin run.Finished) (*turn, error) {
	return &turn{draft: a.draft}, a.phases.end(ctx, a.draft, fin)
}

// replyTurn plans the turn of a model's reply, or of its failure where the plan has one, and what follows from it: the
// run's end, or a wait.
func (a *attempt) replyTurn(ctx context.Context, failed *agent.ModelError, facts ...run.Event) (*turn, error) {
	if err := a.draft.Add(facts...); err != nil {
		return nil, err
	}
	if failed == nil {
		a.draft.Mark(run.CheckpointAssistantTurn)
	}
	if err := a.phases.afterInference(ctx, a.draft, failed); err != nil {
		return nil, err
	}
	return a.nextTurn(ctx)
}

// nextTurn plans a turn with what Next says: the run's end, or a wait.
func (a *attempt) nextTurn(ctx context.Context) (*turn, error) {
	t := &turn{draft: a.draft}
	switch next := policy.Next(a.def, &a.draft.State); next.Kind {
	case policy.ActEnd:
		t.open = a.draft.Clone()
		end := next.End
		for _, ev := range slices.Backward(a.draft.Entry.Events) { // the model refused or was filtered
			said, ok := ev.(run.Replied)
			if ok && end.Detail == "" && end.Reason == run.ReasonNaturalEnd && policy.Withheld(said.Stop) {
				end.Detail = said.Stop
			}
		}
		return t, a.phases.end(ctx, a.draft, end)
	case policy.ActWait: // the last word while calls are open ends nothing
		return t, a.phases.park(ctx, a.draft)
	default:
		return t, nil
	}
}

// commitTurn commits a turn. If it would end the run but an input arrived first, it is committed without the end and
// the run goes on (rule 4).
func (a *attempt) commitTurn(ctx context.Context, t *turn) (Route, error) {
	err := a.commit(ctx, t.draft, a.def)
	if errors.Is(err, store.ErrInboxMoved) && t.open != nil {
		t.draft, t.open = t.open, nil
		err = a.commit(ctx, t.draft, a.def)
	}
	if err != nil {
		return Route{}, err
	}
	after := t.draft.Committed()
	return a.route(ctx, a.inv, &after, routeAfter(a.inv, a.def, &after, a.Clock.Now()))
}

// endBroken ends the run because its plugins failed. A reply in the draft stays in it. If the entry loses its race, the
// model is asked again, because the plugins decide what follows from a reply.
func (a *attempt) endBroken(ctx context.Context, fin run.Finished) (Route, error) {
	if err := a.addEndAfterCleanup(ctx, a.def, a.draft, fin); err != nil {
		return Route{}, err
	}
	return a.commitTurn(ctx, &turn{draft: a.draft})
}

// route is where a run goes from its present state. Step starts, stops and wakes nothing: the batch does what an end
// means to other runs and calls, and says so with the sequence of the end, which no wait has.
func (st *Stepper) route(ctx context.Context, inv Invocation, s *run.AgentState, r Route) (Route, error) {
	ended := s.Status == run.RunDone && hasFamily(s) && inv.Woken != s.Seq()
	abandoned := s.Status == run.RunWaiting && len(policy.Abandoned(s)) > 0 && r.Next == NextWait &&
		inv.Woken != cancelledMark(s)
	if s.Owner == inv.Execution && (ended || abandoned) {
		r.Next, r.Woken = NextTools, 0
		return r, nil
	}
	return r, st.announce(ctx, inv, s)
}

// entries is what came of calling a tool as often as its retry policy allows: the last result or error.
type entries struct {
	n        int // how often it was entered
	result   agent.ToolResultData
	err      error
	timedOut bool // the last one was given up on, and may still be under way
}

// enterUntilDone calls a tool until it answers, or until its retry policy, the invocation or the run allow no other
// try. Each try has the same key, the same state and the tool's whole time.
func (r *round) enterUntilDone(ctx context.Context, t tool.Tool, c run.Call, entered tool.Call) entries {
	spec, _ := r.def.Tool(c.Tool)
	var a entries
	_ = clock.Retry(r.retrying, r.Clock, func(n int) (time.Duration, bool) { // a has what the last try gave
		once := entered // a tool has its own copies, to do with as it likes
		once.Attempt, once.Args = n, bytes.Clone(entered.Args)
		once.State, once.Resume = bytes.Clone(entered.State), bytes.Clone(entered.Resume)
		a.n = n
		limited, cancel := r.Clock.WithTimeout(ctx, r.timeout(ctx, c))
		defer cancel()
		a.result, a.err = callBeside(limited, r.Clock, func() (agent.ToolResultData, error) { return t.Call(limited, once) })
		a.timedOut = a.err != nil && limited.Err() != nil
		wait, again := spec.Retry.Again(c.Effect, n)
		if at, ok := ctx.Deadline(); ok && at.Sub(r.Clock.Now())-wait < launchMargin { // no time to start another
			again = false
		}
		var changed *tool.ChangedError // from the one that the run is pinned to: another try does not change that
		return wait, again && a.err != nil && !errors.As(a.err, &changed)
	})
	return a
}
