package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Waits stores the task tokens of parked runs, which (Ports).Wake completes. Safe for concurrent use.
type Waits struct{ Ports }

// Park stores the token and then checks whether anything has arrived meanwhile. If so, or if the wait is over, it
// completes its own token. Otherwise it notifies people (rule 6).
func (w *Waits) Park(ctx context.Context, t store.TokenClaim) error {
	err := w.Journal.StoreToken(ctx, t)
	if errors.Is(err, store.ErrWaitOver) {
		return w.completeToken(ctx, t.Run, t.Token)
	}
	arrived := false
	if err == nil {
		arrived, err = w.hasArrived(ctx, t)
	}
	if err != nil {
		return fmt.Errorf("park run %s: %w", t.Run, err)
	}
	if arrived {
		return w.completeToken(ctx, t.Run, t.Token)
	}
	if w.Notify != nil {
		if err := w.Notify.NotifyRun(ctx, t.Tenant, t.Run); err != nil { // the sweep notifies again, since the run waits
			w.warn("tell people of run "+t.Run, err)
		}
	}
	return nil
}

// hasArrived reports whether the wait is over or something is in the inbox. While a run waits, HEAD holds exactly what
// the run has drained, because the drain writes HEAD, too (rule 1).
func (w *Waits) hasArrived(ctx context.Context, t store.TokenClaim) (bool, error) {
	h, err := w.Journal.Head(ctx, t.Tenant, t.Run)
	if err == nil { // starts the invocation's span within the run
		w.within(ctx, &run.AgentState{Tenant: t.Tenant, Run: t.Run, Agent: h.Agent, Trace: h.Trace})
	}
	if err != nil || h.Status != run.RunWaiting || h.WaitSeq != t.WaitSeq {
		return true, err
	}
	return w.Journal.SlotTaken(ctx, t.Tenant, t.Run, h.Drained+1)
}

// Wake completes the token of a parked run (rule 8). A run that is not parked, or whose waiter has not stored its token
// yet, needs no waking, because the waiter checks after it has.
func (p Ports) Wake(ctx context.Context, tenant, runID string) error {
	h, err := p.Journal.Head(ctx, tenant, runID)
	if err != nil {
		return fmt.Errorf("wake run %s: %w", runID, err)
	}
	if h.Status != run.RunWaiting || h.Token == "" {
		return nil
	}
	return p.completeToken(ctx, runID, h.Token)
}

func (p Ports) completeToken(ctx context.Context, run, token string) error {
	if err := p.Waiter.Success(ctx, token); err != nil && !errors.Is(err, ErrTokenUsed) {
		return fmt.Errorf("wake run %s: %w", run, err)
	}
	return nil
}

// Inputs accepts messages and answers for runs. Safe for concurrent use.
type Inputs struct {
	Ports
	Definitions Definitions // used by Answer; may be nil if only messages are accepted
}

// ErrRunFinished says that a run no longer accepts messages.
var ErrRunFinished = errors.New("the run has finished")

// Check returns the error with which Send would refuse a message to an existing run: ErrUnknownBlob. It records the run
// as a user of the message's blobs.
func (in *Inputs) Check(ctx context.Context, tenant, runID string, blocks []run.UserBlock) error {
	return in.checkMedia(ctx, tenant, runID, blocks)
}

// Send puts messages into the run's inbox, once for their id ("" = a new id), and wakes the run.
func (in *Inputs) Send(ctx context.Context, tenant, runID, id, by string, blocks []run.UserBlock) error {
	if id == "" {
		id = in.IDs.Key()
	}
	if _, err := in.Journal.Head(ctx, tenant, runID); err != nil {
		return err
	}
	if err := in.Check(ctx, tenant, runID, blocks); err != nil {
		return fmt.Errorf("send to run %s: %w", runID, err)
	}
	got, err := in.Journal.Accept(ctx, tenant, runID, "input/"+id, run.InputReceived{ID: id, Blocks: blocks, By: by})
	if err != nil {
		return err
	}
	if got.Closed {
		return fmt.Errorf("send to run %s: %w", runID, ErrRunFinished)
	}
	return in.Wake(ctx, tenant, runID)
}

// Canceller cancels runs. Safe for concurrent use.
type Canceller struct {
	Ports
	Definitions Definitions
	// CleansUp says that this process contains the code that agents name, so it cleans up after a run itself. Otherwise,
	// or if that fails, an execution does.
	CleansUp bool
}

// Cancel ends the run by an entry, which is the fence: no call is claimed after it. Then it stops the execution (rule
// 11). A run that is already done is not changed, and its state is returned.
func (c *Canceller) Cancel(ctx context.Context, tenant, runID, by, note string) (run.AgentState, error) {
	s, err := withReloads(ctx, func() (run.AgentState, error) {
		l, err := c.Journal.Load(ctx, tenant, runID)
		if err != nil {
			return run.AgentState{}, err
		}
		if l.State.Status == run.RunDone { // repeat what follows a cancel whose response was lost
			s := &l.State
			if err := c.closeRequests(ctx, s); err != nil {
				return l.State, err
			}
			if s.Reason != run.ReasonCancelled {
				return l.State, c.notifyEnd(ctx, s)
			}
			record, err := c.loadEndRecord(ctx, s.Tenant, s.Run)
			if err != nil {
				return l.State, errors.Join(err, c.stop(ctx, s))
			}
			return l.State, c.finish(ctx, s, record.cleaning)
		}
		def, err := c.Definitions(ctx, tenant, l.State.Definition)
		if err != nil {
			return run.AgentState{}, err
		}
		after, err := c.endOutside(ctx, l, def, func(s *run.AgentState) run.Finished {
			return policy.InterruptRun(s, by, note)
		})
		if err != nil {
			return run.AgentState{}, err
		}
		return after, c.finish(ctx, &after, hasCleanup(def))
	})
	if err != nil {
		return run.AgentState{}, fmt.Errorf("cancel run %s: %w", runID, err)
	}
	return s, nil
}

// finish stops the execution of a cancelled run, starts its cleanup and announces the end.
func (c *Canceller) finish(ctx context.Context, s *run.AgentState, cleaning bool) error {
	stopped := c.stop(ctx, s)
	var here Definitions
	if c.CleansUp {
		here = c.Definitions
	}
	return errors.Join(stopped, c.finishOutsideEnd(ctx, s, cleaning, here))
}

func (c *Canceller) stop(ctx context.Context, s *run.AgentState) error {
	if err := c.Waiter.Stop(ctx, s.Owner, "cancelled"); err != nil {
		return fmt.Errorf("stop execution %s: %w", s.Owner, err)
	}
	return nil
}

// Answer is a service's answer to a call: a result, or an error that the model is told.
type Answer struct {
	Tenant, Run, Call string
	Content           string
	IsError           bool
	By                string
}

// ErrNotAwaited says that an answer changes nothing: the call has been answered or has expired, no event of it was
// sent, or the run has ended.
var ErrNotAwaited = errors.New("the call waits for no answer")

// Answer puts a service's answer into the run's inbox and wakes the run. Only the first answer to a call counts.
// Repeating the same answer wakes the run again. Another answer, or one to a call that awaits none, is ErrNotAwaited.
// An unknown run is store.ErrNoRun.
func (in *Inputs) Answer(ctx context.Context, a Answer) error {
	l, err := in.Journal.Load(ctx, a.Tenant, a.Run)
	if err != nil {
		return err
	}
	notAwaited := fmt.Errorf("answer call %s of run %s: %w", a.Call, a.Run, ErrNotAwaited)
	c, ok := l.State.Call(a.Call)
	// a delegated run answers by itself
	if l.State.Status == run.RunDone || !ok || !c.AwaitsAnswer() || c.Child != "" {
		return notAwaited
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
	case errors.Is(err, store.ErrOtherInput), err == nil && got.Closed:
		return notAwaited
	case err != nil:
		return err
	}
	return in.Wake(ctx, a.Tenant, a.Run)
}

// answered returns the answer in stored form: cut to the agent's context limit, long text in a blob. Approvals are not
// cut, because a machine reads them.
func (in *Inputs) answered(ctx context.Context, def *agent.Definition, a Answer, c run.Call) (run.Answered, error) {
	fact := run.Answered{Call: a.Call, Content: strings.ToValidUTF8(a.Content, "\uFFFD"), IsError: a.IsError, By: a.By}
	lost := ""
	if c.Tool != def.Permission.ApprovalTool {
		shown, whole, err := in.showResult(ctx, a.Tenant, a.Run, def, c, fact.Content)
		if err != nil {
			return run.Answered{}, err
		}
		fact.Content, fact.Whole = shown.Text, whole
		if shown.Lost != "" {
			lost = "\n" + shown.Lost
		}
	}
	var err error
	fact.Content, fact.Blob, err = in.storeText(ctx, a.Tenant, a.Run, a.Call, withEditNote(c, fact.Content)+lost)
	return fact, err
}
