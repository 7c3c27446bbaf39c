package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// runTree is the runs below a run, oldest first.
type runTree []api.RunHead

// subtree returns the part below a run.
func (t runTree) subtree(run string) runTree {
	var part runTree
	for _, h := range t.children(run) {
		part = append(append(part, h), t.subtree(h.ID)...)
	}
	return part
}

// children returns the runs that execute a run's own calls.
func (t runTree) children(run string) runTree {
	var own runTree
	for _, h := range t {
		if h.Parent == run {
			own = append(own, h)
		}
	}
	return own
}

// delegation is a snapshot of a run and the runs that execute the calls it waits for.
type delegation struct {
	open []api.Run // the run itself, then the runs below
	done []api.Run // runs below that are done; their results have not arrived yet
}

// waitsForRun reports whether a call waits for the answer of another agent's run.
func waitsForRun(w api.Waiting) bool { return w.For == run.ForAnswer && w.Run != "" }

// loadDelegation reads the runs below a parked run, each by its id. A list may miss a run whose status is changing.
func (s *session) loadDelegation(ctx context.Context, r api.Run) (delegation, error) {
	f := delegation{open: []api.Run{r}}
	for i := 0; i < len(f.open); i++ {
		for _, w := range f.open[i].Waiting {
			if !waitsForRun(w) {
				continue
			}
			below, err := callAPI(ctx, s, func(c *api.Client) (api.Run, error) { return c.RunWithoutMessages(ctx, w.Run) })
			switch {
			case err != nil:
				return f, err
			case below.Status == run.RunDone:
				f.done = append(f.done, below)
			default:
				f.open = append(f.open, below)
			}
		}
	}
	return f, nil
}

// descendantPollInterval is the time between two reads of the runs below. A run without progress for
// stalledAfterPolls reads may be stalled.
const (
	descendantPollInterval = 200 * time.Millisecond
	stalledAfterPolls      = 10
)

// delegationWatcher follows the runs below a followed run.
type delegationWatcher struct {
	s              *session
	printed        map[string]string // status by run, as it was printed
	seqs           map[string]int64  // sequence by run, at the last read
	polls          map[string]int    // reads by run since its sequence changed
	answerDeadline time.Time         // of waiting for a finished run's answer; zero = none
}

// waitForProgress gives the runs below time to continue. It returns false if all of them wait for somebody.
func (k *delegationWatcher) waitForProgress(ctx context.Context, f delegation) (bool, error) {
	moving := slices.DeleteFunc(slices.Clone(f.open[1:]), api.Run.Resting)
	for _, r := range moving {
		if k.seqs[r.ID] != r.Seq {
			k.seqs[r.ID], k.polls[r.ID] = r.Seq, 0
		}
		if k.polls[r.ID]++; k.polls[r.ID]%stalledAfterPolls != 0 {
			continue
		}
		if err := k.s.checkStalled(ctx, r.ID); err != nil {
			return false, err
		}
	}
	if len(moving) == 0 && len(f.done) == 0 {
		k.answerDeadline = time.Time{}
		return false, nil
	}
	if len(moving) == 0 { // the answer of a finished run below may still arrive
		now := k.s.p.clock.Now()
		if k.answerDeadline.IsZero() {
			k.answerDeadline = now.Add(k.s.p.storeTimeout)
		}
		if !now.Before(k.answerDeadline) {
			return false, nil
		}
	}
	return true, k.s.p.clock.Sleep(ctx, descendantPollInterval)
}

// printChanges prints the runs below whose status changed.
func (k *delegationWatcher) printChanges(f delegation) {
	for _, r := range slices.Concat(f.done, f.open[1:]) {
		now := strings.TrimSpace(string(r.Status) + " " + string(r.Reason))
		if k.printed[r.ID] != now {
			k.printed[r.ID] = now
			k.s.p.logEvent("below", "%s of agent %s for call %s: %s", r.ID, line(r.Agent), r.ParentCall, now)
		}
	}
}

// maxTreeRuns is how many runs below a run show prints.
const maxTreeRuns = 100

// printTree prints the runs below a run, each under its parent.
func (s *session) printTree(ctx context.Context, r api.Run) error {
	heads, err := s.listRuns(ctx, api.RunQuery{Root: cmp.Or(r.Root, r.ID)})
	if err != nil {
		return err
	}
	slices.SortStableFunc(heads, func(a, b api.RunHead) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), strings.Compare(a.ID, b.ID))
	})
	t := runTree(heads)
	if r.Root != "" {
		t = t.subtree(r.ID)
	}
	left := maxTreeRuns
	if err := s.printSubtree(ctx, t, r.ID, "", &left); err != nil {
		return err
	}
	if n := len(t) - maxTreeRuns; n > 0 {
		s.p.printLine("%-9s %d more runs; %s lists them", "below", n, s.p.commandLine("runs", "--root", cmp.Or(r.Root,
			r.ID)))
	}
	return nil
}

func (s *session) printSubtree(ctx context.Context, t runTree, run, indent string, left *int) error {
	for _, h := range t.children(run) {
		if *left--; *left < 0 {
			return nil
		}
		r, err := callAPI(ctx, s, func(c *api.Client) (api.Run, error) { return c.RunWithoutMessages(ctx, h.ID) })
		if err != nil {
			return err
		}
		// One run of a tree.
		var b strings.Builder
		fmt.Fprintf(&b, "%s of agent %s for call %s: %s", r.ID, line(r.Agent), r.ParentCall,
			strings.TrimSpace(string(r.Status)+" "+string(r.Reason)))
		if r.Cost > 0 {
			fmt.Fprintf(&b, ", %s USD", r.Cost)
		}
		for _, w := range r.Waiting {
			fmt.Fprintf(&b, ", %s waits for %s", w.Call, strings.TrimSpace(string(w.For)+" "+w.Approval))
		}
		s.p.printLine("%-9s %s%s", "below", indent, b.String())
		if err := s.printSubtree(ctx, t, h.ID, indent+"  ", left); err != nil {
			return err
		}
	}
	return nil
}
