package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Answer is what a service gives to a call: a result, or an error that the model is to hear of.
type Answer struct {
	Tenant, Run, Call string
	Content           string
	IsError           bool
	By                string
}

// ErrUnasked says that an answer counts for nothing, and changes nothing: the call has its answer, or its time is up,
// or no event of it is out, or the run has ended.
var ErrUnasked = errors.New("the call waits for no answer")

// Answer takes a service's answer into the run's inbox and wakes the run. Of several answers to a call the first one
// counts: the same again wakes again, and another one is ErrUnasked, as is one to a call that waits for none.
// store.ErrNoRun where there is no such run.
func (in *Inputs) Answer(ctx context.Context, a Answer) error {
	l, err := in.Journal.Load(ctx, a.Tenant, a.Run)
	if err != nil {
		return err
	}
	if l.State.Status == run.RunDone {
		return fmt.Errorf("answer call %s of run %s: %w", a.Call, a.Run, ErrUnasked)
	}
	c, ok := l.State.Call(a.Call)
	if !ok || !c.AwaitsAnswer() || c.Child != "" { // what a run answers, it says by itself
		return fmt.Errorf("answer call %s of run %s: %w", a.Call, a.Run, ErrUnasked)
	}
	def, err := in.Definitions(ctx, a.Tenant, l.State.Definition)
	if err != nil {
		return err
	}
	fact, err := in.answered(ctx, def, a, c)
	if err != nil {
		return err
	}
	got, err := in.Journal.Accept(ctx, a.Tenant, a.Run, "answer/"+a.Call, fact)
	switch {
	case errors.Is(err, store.ErrOtherInput):
		return fmt.Errorf("answer call %s of run %s: %w", a.Call, a.Run, ErrUnasked)
	case err != nil:
		return err
	case got.Closed:
		return fmt.Errorf("answer call %s of run %s: %w", a.Call, a.Run, ErrUnasked)
	}
	return in.Waits.Wake(ctx, a.Tenant, a.Run)
}

// answered is the answer as it is stored: as much as the agent's context takes, and what is long, in a blob. Approvals
// are read by a machine and stay whole.
func (in *Inputs) answered(ctx context.Context, def *agent.Definition, a Answer, c run.Call) (run.Answered, error) {
	fact := run.Answered{Call: a.Call, Content: strings.ToValidUTF8(a.Content, "\uFFFD"), IsError: a.IsError, By: a.By}
	lost := ""
	if c.Tool != def.Permission.ApprovalTool {
		shown, whole, err := in.showResult(ctx, a.Tenant, def, c, fact.Content)
		if err != nil {
			return run.Answered{}, err
		}
		fact.Content, fact.Whole = shown.Text, whole
		if shown.Lost != "" {
			lost = "\n" + shown.Lost
		}
	}
	var err error
	fact.Content, fact.Blob, err = in.storeText(ctx, a.Tenant, a.Call, withEditNote(c, fact.Content)+lost)
	return fact, err
}
