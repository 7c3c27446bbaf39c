package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// checkPrecondition reads what a call depends on before people are asked about it, and again before an approved call
// runs. What is shown is read once in an invocation; what lets a call run is read for each entry that would claim it.
func (r *round) checkPrecondition(ctx context.Context, p *batchPlan, c run.Call, g policy.Gate) (policy.Gate, error) {
	reading, owed, err := policy.MustRead(r.def, &p.draft.State, c, g)
	if !owed {
		return g, nil
	}
	once := fmt.Sprintf("%s %d", c.ID, c.Asks)
	k := r.preconditions[once]
	if k == nil || g.Run {
		if err == nil {
			k, err = r.readPrecondition(ctx, p, c, reading)
		}
		if ended := ctx.Err(); ended != nil { // the invocation's time is up: the next one reads
			return g, ended
		}
		if err != nil {
			return policy.Gate{Refuse: policy.Unread(r.def, c, err), Rule: g.Rule}, nil
		}
	}
	g = policy.GateChecked(r.def, &p.draft.State, c, g, k, p.draft.Entry.Time)
	if g.Suspend != nil {
		r.preconditions[once] = k
	}
	return g, nil
}

// readPrecondition calls the tool of a precondition, with the retries of its own policy. It is not a call of the model:
// the journal has only what people are shown.
func (r *round) readPrecondition(
	ctx context.Context, p *batchPlan, c run.Call, reading policy.Reading,
) (*run.Checked, error) {
	of := run.Call{ID: c.ID, Tool: reading.Tool.Name, Name: reading.Tool.ModelName(), Input: reading.Args,
		Effect: reading.Tool.Effect}
	t, known := r.tool(of, &p.draft.State)
	if !known {
		return nil, fmt.Errorf("the tool %s is not part of this deployment", of.Tool)
	}
	entered := r.toolCall(of, &p.draft.State)
	nth := fmt.Sprintf("precondition-%d", c.Asks) // the next one of the call is read when people have been asked once more
	entered.ID, entered.Key = c.ID+"-"+nth, entered.Key+"/"+nth
	a := r.enterUntilDone(ctx, t, of, entered)
	var changed *tool.ChangedError
	switch {
	case a.timedOut:
		return nil, errors.New("it did not answer in time")
	case errors.As(a.err, &changed):
		return nil, errors.New("its server has changed the tool")
	case a.err != nil:
		return nil, a.err
	case a.result.Suspend != nil:
		return nil, errors.New("it asks for input itself")
	}
	return reading.Checked(a.result, p.draft.Entry.Time)
}
