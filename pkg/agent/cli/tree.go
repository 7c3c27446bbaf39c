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

// tree is the runs that are carried out for calls of a run, however far below, as they were listed: the oldest first.
type tree []api.RunHead

// below lists the runs below a run. Of one that waits for no answer nothing below is open.
func (s *session) below(ctx context.Context, r api.Run) (tree, error) {
	heads, err := s.runs(ctx, api.RunQuery{Root: cmp.Or(r.Root, r.ID)})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(heads, func(a, b api.RunHead) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), strings.Compare(a.ID, b.ID))
	})
	if r.Root == "" {
		return heads, nil
	}
	return tree(heads).of(r.ID), nil
}

// of is the part below a run.
func (t tree) of(run string) tree {
	var part tree
	for _, h := range t.children(run) {
		part = append(append(part, h), t.of(h.ID)...)
	}
	return part
}

// children are the runs that carry out a run's own calls.
func (t tree) children(run string) tree {
	var own tree
	for _, h := range t {
		if h.Parent == run {
			own = append(own, h)
		}
	}
	return own
}

// family is a run and those that carry out the calls it waits for, however far below, at one look.
type family struct {
	open []api.Run // the run itself, then those below
	done []api.Run // below; the run that waits for one has not heard of it yet
}

// byAgent reports whether a call waits for the answer of another agent's run.
func byAgent(w api.Waiting) bool { return w.For == run.ForAnswer && w.Run != "" }

// family looks at what is below a run that rests. Each run is read by its id: a list may miss one that goes from one status to another.
func (s *session) family(ctx context.Context, r api.Run) (family, error) {
	f := family{open: []api.Run{r}}
	for i := 0; i < len(f.open); i++ {
		for _, w := range f.open[i].Waiting {
			if !byAgent(w) {
				continue
			}
			below, err := call(ctx, s, func(c *api.Client) (api.Run, error) { return c.RunWithoutMessages(ctx, w.Run) })
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

// moving are the runs below that go on by themselves.
func (f family) moving() []api.Run {
	return slices.DeleteFunc(slices.Clone(f.open[1:]), api.Run.Resting)
}

// pause is how long runs below are left alone between two looks. A run that does not move for so many of them has perhaps been given up.
const (
	pause = 200 * time.Millisecond
	still = 10
)

// kin follows the runs below one that is followed.
type kin struct {
	s     *session
	told  map[string]string // what was told of each
	seqs  map[string]int64  // where each was at the last look
	looks map[string]int    // for how many looks it has been there
	due   time.Time         // until when an answer that is owed is waited for; zero = none is
}

func newKin(s *session) *kin {
	return &kin{s: s, told: map[string]string{}, seqs: map[string]int64{}, looks: map[string]int{}}
}

// move lets runs below go on for a moment. False where nothing does: all wait for somebody.
func (k *kin) move(ctx context.Context, f family) (bool, error) {
	moving := f.moving()
	for _, r := range moving {
		if k.seqs[r.ID] != r.Seq {
			k.seqs[r.ID], k.looks[r.ID] = r.Seq, 0
		}
		if k.looks[r.ID]++; k.looks[r.ID]%still != 0 {
			continue
		}
		if err := k.s.stalled(ctx, r.ID); err != nil {
			return false, err
		}
	}
	if len(moving) == 0 && !k.hopes(len(f.done) > 0) {
		return false, nil
	}
	return true, k.s.p.clock.Sleep(ctx, pause)
}

// hopes reports whether an answer that is owed may still come by itself.
func (k *kin) hopes(owed bool) bool {
	now := k.s.p.clock.Now()
	switch {
	case !owed:
		k.due = time.Time{}
	case k.due.IsZero():
		k.due = now.Add(k.s.p.patience)
	}
	return owed && now.Before(k.due)
}

// tell says what has become of the runs below since it was last said.
func (k *kin) tell(f family) {
	for _, r := range slices.Concat(f.done, f.open[1:]) {
		now := strings.TrimSpace(string(r.Status) + " " + string(r.Reason))
		if k.told[r.ID] != now {
			k.told[r.ID] = now
			k.s.p.note("%-8s %s of agent %s for call %s: %s", "below", r.ID, line(r.Agent), r.ParentCall, now)
		}
	}
}

// maxShown is how many runs below show looks at.
const maxShown = 100

// showTree shows the runs below a run, each under the one whose call it carries out.
func (s *session) showTree(ctx context.Context, r api.Run) error {
	t, err := s.below(ctx, r)
	if err != nil {
		return err
	}
	left := maxShown
	if err := s.showBelow(ctx, t, r.ID, "", &left); err != nil {
		return err
	}
	if n := len(t) - maxShown; n > 0 {
		s.p.say("%-9s %d more runs; %s lists them", "below", n, s.p.hint("runs", "--root", cmp.Or(r.Root, r.ID)))
	}
	return nil
}

func (s *session) showBelow(ctx context.Context, t tree, run, indent string, left *int) error {
	for _, h := range t.children(run) {
		if *left--; *left < 0 {
			return nil
		}
		r, err := call(ctx, s, func(c *api.Client) (api.Run, error) { return c.RunWithoutMessages(ctx, h.ID) })
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
		s.p.say("%-9s %s%s", "below", indent, b.String())
		if err := s.showBelow(ctx, t, h.ID, indent+"  ", left); err != nil {
			return err
		}
	}
	return nil
}
