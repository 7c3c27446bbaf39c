package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/web/api"
)

// follower follows one run and prints its progress.
type follower struct {
	s        *session
	run      string
	last     string // id of the newest printed event; "" = none
	seq      int64  // its entry; -1 = none
	progress *progress
}

// newFollower follows a run from the state in r. If r has only an id, it prints the run from its start.
func (s *session) newFollower(r api.Run) *follower {
	f := &follower{s: s, run: r.ID, seq: -1, progress: newProgress(s.p, r)}
	definitions := s.newDefinitionCache()
	f.progress.maskInput = func(name string, input json.RawMessage) string {
		return definitions.maskInput(context.Background(), r.ID, name, input) // storeTimeout bounds it
	}
	f.progress.loadCalls = func() []api.Call {
		ctx, cancel := s.p.clock.WithTimeout(context.Background(), s.p.storeTimeout)
		defer cancel()
		whole, err := s.client.Run(ctx, r.ID)
		if err != nil { // follow on without the tool's name
			return nil
		}
		return whole.Calls
	}
	if r.Status != "" {
		f.seq, f.last = r.Seq, strconv.FormatInt(r.Seq, 10)
	}
	return f
}

var errMayBeParked = errors.New("the run has come to a point where it may rest")

// waitUntilParked prints progress until the run has ended, or waits with an empty inbox.
func (f *follower) waitUntilParked(ctx context.Context) (api.Run, error) {
	for {
		r, err := callAPI(ctx, f.s, func(c *api.Client) (api.Run, error) { return c.RunWithoutMessages(ctx, f.run) })
		if err != nil || r.Resting() && f.seq >= r.Seq {
			return r, err
		}
		if err := f.followEvents(ctx); err != nil {
			return api.Run{}, err
		}
	}
}

// pollInterval is how often a silent run is read if the engine is in this process, remotePollInterval if it is in
// another.
const (
	pollInterval       = time.Second
	remotePollInterval = 2 * time.Second
)

// followEvents prints events until it is time to read the run again.
func (f *follower) followEvents(ctx context.Context) error {
	before, limit := f.last, remotePollInterval
	if f.s.engine != nil {
		limit = pollInterval
	}
	window, cancel := f.s.p.clock.WithTimeout(ctx, limit)
	defer cancel()
	err := f.s.client.Follow(window, f.run, f.last, f.handleEvent)
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

func (f *follower) handleEvent(e api.Event) error {
	f.last, f.seq = e.ID, e.Seq
	f.progress.printEvent(e)
	if e.Type == "parked" || e.Type == "finished" {
		return errMayBeParked
	}
	return nil
}

// stalledPath, like enginePath, is only between processes of countersign.
const stalledPath = "/engine/stalled"

// stalledError says why an open run does not continue.
type stalledError string

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
	if err := e.home.StalledBecause(before.Owner); err != nil {
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

func (e *engine) serveStalled(w http.ResponseWriter, r *http.Request) {
	var why stalledError
	if err := e.checkStalled(r.Context(), r.URL.Query().Get("run")); err != nil && !errors.As(err, &why) {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(why) // the client has gone
}
