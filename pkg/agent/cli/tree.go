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

// runTree is the runs that are carried out for calls of a run, however far below, as they were listed: the oldest first.
type runTree []api.RunHead

// listDescendants lists the runs below a run. Of one that waits for no answer nothing below is open.
func (s *session) listDescendants(ctx context.Context, r api.Run) (runTree, error) {
	heads, err := s.listRuns(ctx, api.RunQuery{Root: cmp.Or(r.Root, r.ID)})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(heads, func(a, b api.RunHead) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), strings.Compare(a.ID, b.ID))
	})
	if r.Root == "" {
		return heads, nil
	}
	return runTree(heads).subtree(r.ID), nil
}

// subtree is the part below a run.
func (t runTree) subtree(run string) runTree {
	var part runTree
	for _, h := range t.children(run) {
		part = append(append(part, h), t.subtree(h.ID)...)
	}
	return part
}

// children are the runs that carry out a run's own calls.
func (t runTree) children(run string) runTree {
	var own runTree
	for _, h := range t {
		if h.Parent == run {
			own = append(own, h)
		}
	}
	return own
}

// delegation is a run and those that carry out the calls it waits for, however far below, at one look.
type delegation struct {
	open []api.Run // the run itself, then those below
	done []api.Run // below; the run that waits for one has not heard of it yet
}

// waitsForRun reports whether a call waits for the answer of another agent's run.
func waitsForRun(w api.Waiting) bool { return w.For == run.ForAnswer && w.Run != "" }

// loadDelegation looks at what is below a run that rests. Each run is read by its id: a list may miss one that goes from one status to another.
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

// runningBelow are the runs below that go on by themselves.
func (f delegation) runningBelow() []api.Run {
	return slices.DeleteFunc(slices.Clone(f.open[1:]), api.Run.Resting)
}

// pause is how long runs below are left alone between two looks. A run that does not move for so many of them has perhaps been given up.
const (
	descendantPollInterval = 200 * time.Millisecond
	stalledAfterPolls      = 10
)

// delegationWatcher follows the runs below one that is followed.
type delegationWatcher struct {
	s              *session
	printed        map[string]string // what was told of each
	seqs           map[string]int64  // where each was at the last look
	polls          map[string]int    // for how many looks it has been there
	answerDeadline time.Time         // until when an answer that is owed is waited for; zero = none is
}

func newDelegationWatcher(s *session) *delegationWatcher {
	return &delegationWatcher{s: s, printed: map[string]string{}, seqs: map[string]int64{}, polls: map[string]int{}}
}

// waitForProgress lets runs below go on for a moment. False where nothing does: all wait for somebody.
func (k *delegationWatcher) waitForProgress(ctx context.Context, f delegation) (bool, error) {
	moving := f.runningBelow()
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
	if len(moving) == 0 && !k.mayStillAnswer(len(f.done) > 0) {
		return false, nil
	}
	return true, k.s.p.clock.Sleep(ctx, descendantPollInterval)
}

// mayStillAnswer reports whether an answer that is owed may still come by itself.
func (k *delegationWatcher) mayStillAnswer(owed bool) bool {
	now := k.s.p.clock.Now()
	switch {
	case !owed:
		k.answerDeadline = time.Time{}
	case k.answerDeadline.IsZero():
		k.answerDeadline = now.Add(k.s.p.storeTimeout)
	}
	return owed && now.Before(k.answerDeadline)
}

// printChanges says what has become of the runs below since it was last said.
func (k *delegationWatcher) printChanges(f delegation) {
	for _, r := range slices.Concat(f.done, f.open[1:]) {
		now := strings.TrimSpace(string(r.Status) + " " + string(r.Reason))
		if k.printed[r.ID] != now {
			k.printed[r.ID] = now
			k.s.p.logLine("%-8s %s of agent %s for call %s: %s", "below", r.ID, line(r.Agent), r.ParentCall, now)
		}
	}
}

// maxTreeRuns is how many runs below show looks at.
const maxTreeRuns = 100

// printTree shows the runs below a run, each under the one whose call it carries out.
func (s *session) printTree(ctx context.Context, r api.Run) error {
	t, err := s.listDescendants(ctx, r)
	if err != nil {
		return err
	}
	left := maxTreeRuns
	if err := s.printSubtree(ctx, t, r.ID, "", &left); err != nil {
		return err
	}
	if n := len(t) - maxTreeRuns; n > 0 {
		s.p.printLine("%-9s %d more runs; %s lists them", "below", n, s.p.commandLine("runs", "--root", cmp.Or(r.Root, r.ID)))
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
		fmt.Fprintf(&b, "%s of agent %s for call %s: %s", r.ID, line(r.Agent), r.ParentCall, strings.TrimSpace(string(r.Status)+" "+string(r.Reason)))
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
