package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/web/api"
)

type follower struct {
	s        *session
	run      string
	last     string // id of the newest printed event; "" = none
	seq      int64  // its entry; -1 = none
	progress *progress
}

// newFollower follows a run from the state in r. If r has only an id, it prints the run from its start.
func (s *session) newFollower(r api.Run) *follower {
	f := &follower{s: s, run: r.ID, seq: -1, progress: s.newProgress(r)}
	if r.Status != "" {
		f.seq, f.last = r.Seq, strconv.FormatInt(r.Seq, 10)
	}
	return f
}

var errMayBeParked = errors.New("the run has come to a point where it may rest")

// waitUntilParked prints progress until the run has ended, or waits with an empty inbox.
func (f *follower) waitUntilParked(ctx context.Context) (api.Run, error) {
	for {
		r, err := f.s.loadHead(ctx, f.run)
		if err != nil || r.Resting() && f.seq >= r.Seq {
			return r, err
		}
		if err := f.followEvents(ctx); err != nil {
			return api.Run{}, err
		}
	}
}

// How often a silent run is read.
const (
	pollInterval       = time.Second     // of an engine in this process
	remotePollInterval = 2 * time.Second // in another
)

// followEvents prints events until it is time to read the run again.
func (f *follower) followEvents(ctx context.Context) error {
	before, limit := f.last, remotePollInterval
	if f.s.engine != nil {
		limit = pollInterval
	}
	window, cancel := f.s.p.clock.WithTimeout(ctx, limit)
	defer cancel()
	err := f.s.client.Follow(window, f.run, f.last, func(e api.Event) error {
		f.last, f.seq = e.ID, e.Seq
		f.progress.printEvent(e)
		if e.Type == "parked" || e.Type == "finished" {
			return errMayBeParked
		}
		return nil
	})
	switch {
	case errors.Is(err, errMayBeParked):
		return nil
	case err == nil, window.Err() != nil && ctx.Err() == nil:
		if f.last == before {
			return f.s.checkStalled(ctx, f.run)
		}
		return nil
	default:
		_, err = f.s.reconnect(ctx, err)
		return err
	}
}

type stalledError string // why an open run does not continue

func (e stalledError) Error() string { return string(e) }

// checkStalled asks the process that has the store whether an open run has stopped making progress. A process that
// does not answer has ended; the follower notices that itself.
func (s *session) checkStalled(ctx context.Context, run string) error {
	if s.engine != nil {
		return s.engine.checkStalled(ctx, run)
	}
	var why stalledError
	if err := s.p.queryEngine(ctx, stalledPath+"?run="+url.QueryEscape(run), &why); err != nil || why == "" {
		return nil
	}
	return why
}

// checkStalled returns a stalledError if an open run makes no progress. Either its execution has ended because data
// could not be read or written, or this process lacks the agent that a call needs.
func (e *engine) checkStalled(ctx context.Context, runID string) error {
	before, err := e.home.Ports.Journal.Head(ctx, local.Tenant, runID)
	if err != nil || before.Status == run.RunDone {
		return err
	}
	if err := e.home.Engine.StandsStill(before.Owner); err != nil {
		return stalledError(fmt.Sprintf("run %s is not carried on by process %d: %v; %s carries it on where the agent is "+
			"registered, or is in ./%s or ./agents/*/%s, and the tool is linked",
			runID, os.Getpid(), err, e.p.commandLine("resume"), agentFile, agentFile))
	}
	status, err := e.home.Ports.Waiter.Status(ctx, before.Owner)
	if err != nil || status != runtime.ExecutionEnded {
		return err
	}
	after, err := e.home.Ports.Journal.Head(ctx, local.Tenant, runID)
	if err != nil || !after.Equal(before) { // the run has ended or continued meanwhile
		return err
	}
	return stalledError(fmt.Sprintf("run %s stands still: its execution has given up; once what troubled it is "+
		"mended, %s carries it on", runID, e.p.commandLine("resume")))
}

// runTree is the runs below a run, oldest first.
type runTree []api.RunHead

// subtree returns the part below a run, each run before those below it.
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
			below, err := s.loadHead(ctx, w.Run)
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

const (
	descendantPollInterval = 200 * time.Millisecond // between two reads of the runs below
	stalledAfterPolls      = 10                     // a run without progress for so many reads may be stalled
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

func (k *delegationWatcher) printChanges(f delegation) {
	for _, r := range slices.Concat(f.done, f.open[1:]) {
		now := strings.TrimSpace(string(r.Status) + " " + string(r.Reason))
		if k.printed[r.ID] != now {
			k.printed[r.ID] = now
			k.s.p.logEvent("below", "%s of agent %s for call %s: %s", r.ID, line(r.Agent), r.ParentCall, now)
		}
	}
}

const maxTreeRuns = 100 // that show prints below a run

func (s *session) printTree(ctx context.Context, r api.Run) error {
	root := cmp.Or(r.Root, r.ID)
	heads, err := s.listRuns(ctx, api.RunQuery{Root: root})
	if err != nil {
		return err
	}
	slices.SortStableFunc(heads, func(a, b api.RunHead) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), strings.Compare(a.ID, b.ID))
	})
	all, depth := runTree(heads).subtree(r.ID), map[string]int{}
	for _, h := range all[:min(len(all), maxTreeRuns)] {
		below, err := s.loadHead(ctx, h.ID)
		if err != nil {
			return err
		}
		depth[h.ID] = depth[h.Parent] + 1
		var b strings.Builder
		fmt.Fprintf(&b, "%s of agent %s for call %s: %s", below.ID, line(below.Agent), below.ParentCall,
			strings.TrimSpace(string(below.Status)+" "+string(below.Reason)))
		if below.Cost > 0 {
			fmt.Fprintf(&b, ", %s USD", below.Cost)
		}
		for _, w := range below.Waiting {
			fmt.Fprintf(&b, ", %s waits for %s", w.Call, strings.TrimSpace(string(w.For)+" "+w.Approval))
		}
		s.p.printLine("%-9s %s%s", "below", strings.Repeat("  ", depth[h.Parent]), b.String())
	}
	if n := len(all) - maxTreeRuns; n > 0 {
		s.p.printLine("%-9s %d more runs; %s lists them", "below", n, s.p.commandLine("runs", "--root", root))
	}
	return nil
}
