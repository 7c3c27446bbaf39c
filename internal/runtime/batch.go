package runtime

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// The times of a batch.
const (
	// drainEvery is how often a streaming batch reads the inbox while a tool runs.
	drainEvery = 2 * time.Second
	// groupWithin is how long a finished result waits for other results before it is committed.
	groupWithin = 500 * time.Microsecond
	// launchMargin is the time that must be left to start a tool; with less, the next invocation starts it.
	launchMargin = 10 * time.Second
	// deadlineMargin is how long before the invocation's own deadline that of a tool or model is (R7).
	deadlineMargin = 5 * time.Second
	// defaultTimeout is the timeout of a tool whose definition sets none.
	defaultTimeout = 5 * time.Minute
)

// Batch runs a round of tool calls. Safe for concurrent use.
type Batch struct {
	Ports
	Definitions Definitions
}

// Run gates, claims and runs the calls that are due. It commits results as they finish, and parks the run if only
// waiting is left. The state machine then always calls Step, which drains again (the resume gate).
func (b *Batch) Run(ctx context.Context, inv Invocation) (Route, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &round{
		Batch: b, inv: inv,
		permits: permissions{
			hooks: b.Hooks, table: b.Table, reasons: map[string]string{}, notified: map[string]bool{},
		},
		inflight: &inflight{signal: b.Clock.NewSignal(), running: map[string]*execution{}},
		hooked:   map[string]hookResult{}, preconditions: map[string]*run.Checked{},
	}
	defer r.sessions.close()
	r.retrying, r.stopRetries = context.WithCancel(ctx)
	defer r.stopRetries()
	turns := func() (route Route, err error) {
		for err == nil && route.Next == "" {
			route, err = r.turn(ctx)
		}
		if err != nil {
			r.loaded = nil
			r.recheckApprovals = r.recheckApprovals || errors.Is(err, store.ErrGuardFailed)
		}
		return route, err
	}
	route, err := withReloads(ctx, turns)
	// Running calls are not aborted, because their outcome would be unknown. Their results may still be stored.
	if err != nil && r.inflight.count() > 0 && r.inflight.waitForAll(ctx) == nil {
		route, err = withReloads(ctx, turns)
	}
	if err != nil {
		return Route{}, fmt.Errorf("run tools of run %s: %w", inv.Run, err)
	}
	return route, nil
}

// round is one invocation's state of its batch.
type round struct {
	*Batch
	inv      Invocation
	def      *agent.Definition
	loaded   *store.Loaded // the run as last read; nil = read it again
	inflight *inflight
	phases   phases
	hooked   map[string]hookResult // decisions of plugins before and after calls, by hookKey
	// set once plugins have failed or a Remote refuses the definition: nothing more is started, and this ends the run
	pluginEnd *run.Finished
	// the table refused a claim: check the approval's record before trying again
	recheckApprovals bool
	permits          permissions

	// values of preconditions to show, by call and number of requests about it
	preconditions map[string]*run.Checked
	sessions      sessions
	servers       []policy.ListedServer // result of listing the agent's servers; nil = not listed
	// why only another process can carry out a call of the run; nil = this one can
	unlinked error
	unsent   []*execution // calls that could not be sent; they are sent again once nothing else runs
	// retries of calls end with this context: when the invocation ends, or when the run belongs to another
	retrying    context.Context
	stopRetries context.CancelFunc
}

// turn is one pass: load the run, plan an entry, commit it if it cannot wait, launch calls, wait until one finishes. It
// returns a route once nothing is left to do here.
func (r *round) turn(ctx context.Context) (Route, error) {
	if err := r.load(ctx); err != nil {
		return Route{}, err
	}
	if route, away := routeAway(r.inv, &r.loaded.State, r.Clock.Now()); away {
		// the route must go to Step without claiming that this wait was woken
		if route.Next == NextWait {
			route.Woken = r.inv.Woken
		}
		return r.finishWithoutRun(r.within(ctx, &r.loaded.State), route)
	}
	if policy.Next(r.def, &r.loaded.State).Kind == policy.ActList {
		return r.list(ctx)
	}
	p, err := r.plan(ctx)
	if err != nil {
		return Route{}, err
	}
	ctx = r.within(ctx, &p.draft.State)
	if r.mustCommit(p) {
		if err := r.commitPlan(ctx, p); err != nil {
			return Route{}, err
		}
	}
	r.launch(ctx, p)
	if (len(p.early) > 0 || p.full) && r.loaded.State.Status == run.RunRunning {
		return Route{}, nil // continue with calls that kept decisions permit, or for which the entry had no room
	}
	if r.inflight.count() == 0 && len(r.inflight.results()) == 0 {
		if len(r.unsent) > 0 {
			err := r.unsent[0].err
			r.unsent = nil
			return Route{}, err
		}
		if r.unlinked != nil {
			return Route{}, r.unlinked
		}
		route := r.inv.route(NextStep)
		// nothing was written, so the route keeps the wait that woke this invocation
		if r.loaded.State.Status == run.RunWaiting {
			route.Woken = r.inv.Woken
		}
		return route, nil
	}
	return Route{}, r.waitForResults(ctx)
}

// load reads the run if it has to be read, and the definition once.
func (r *round) load(ctx context.Context) error {
	if r.loaded == nil {
		l, err := r.Journal.LoadAt(ctx, r.inv.Tenant, r.inv.Run, r.inv.At)
		if err != nil {
			return err
		}
		r.loaded = &l
	}
	if r.def != nil {
		return nil
	}
	def, err := r.Definitions(ctx, r.inv.Tenant, r.loaded.State.Definition)
	if err != nil {
		return err
	}
	r.def = def
	for _, remote := range r.Remotes {
		if refuser, ok := remote.(Refuser); ok {
			if why := refuser.Refuses(def); why != "" {
				fin := policy.Fail(run.CodeDefinition, why)
				r.pluginEnd = &fin
				return nil
			}
		}
	}
	r.phases, err = r.Ports.phases(def)
	if fin, broken := pluginEndOf(err); broken {
		r.pluginEnd = &fin
		return nil
	}
	return err
}

// commitPlan commits the plan's entry. If only waiting is left, that entry also parks the run (rule 5).
func (r *round) commitPlan(ctx context.Context, p *batchPlan) error {
	d := p.draft
	idle := len(p.launch) == 0 && r.inflight.count() == 0
	next := policy.Next(r.def, &d.State).Kind
	if next != policy.ActTools && p.settles { // the round is complete for now
		d.Mark(run.CheckpointToolResults)
	}
	// otherwise the next entry adds them
	if idle && next == policy.ActWait && policy.Consequences(r.def, &d.State) == nil {
		err := r.phases.park(ctx, d)
		if fin, broken := pluginEndOf(err); broken { // run_end failed, so the run ends
			err = r.addEndAfterCleanup(ctx, r.def, d, fin)
		}
		if err != nil {
			return err
		}
	}
	if err := r.commit(ctx, d, r.def); err != nil {
		return err
	}
	r.inflight.remove(p.taken)
	r.loaded = &store.Loaded{State: d.Committed()}
	r.inv.Woken = 0
	return nil
}

// waitForResults returns when a call has finished, after a moment for other calls to finish too, or when it is time to
// drain.
func (r *round) waitForResults(ctx context.Context) error {
	limit := time.Duration(0)
	if r.def.Executor == agent.ExecutorParallelStreaming {
		limit = drainEvery
	}
	err := r.inflight.wait(ctx, limit)
	if errors.Is(err, clock.ErrTimeout) {
		r.loaded = nil
		return nil
	}
	if err != nil {
		return err
	}
	until := r.Clock.Now().Add(groupWithin)
	for r.inflight.count() > 0 {
		left := until.Sub(r.Clock.Now())
		if left <= 0 || r.inflight.signal.Wait(ctx, left) != nil {
			break
		}
	}
	if r.inflight.count() > 0 && r.def.Executor == agent.ExecutorParallelStreaming {
		r.loaded = nil // apply decisions early: drain whenever a tool finishes while others run
	}
	return nil
}

// finishWithoutRun ends an invocation that may not write to the run any more. It sends the results of claimed calls
// through the inbox, including later ones. All other results are dropped (rule 10).
func (r *round) finishWithoutRun(ctx context.Context, route Route) (Route, error) {
	r.stopRetries()
	s := &r.loaded.State
	if s.Status == run.RunDone {
		route.Woken = s.Seq() // marks the end as announced
		err := r.announce(ctx, r.inv, s)
		if s.Owner == r.inv.Execution {
			err = errors.Join(r.NotifyFamily(ctx, s), err)
		}
		return route, err
	}
	if s.Owner == r.inv.Execution {
		if _, err := r.cancelAbandoned(ctx, s); err != nil {
			return Route{}, err
		}
		if route.Next == NextWait && len(policy.AbandonedChildren(s)) > 0 {
			route.Woken = cancelledMark(s)
		}
	}
	for {
		for _, f := range r.inflight.results() {
			if err := r.deliverLate(ctx, f); err != nil {
				return Route{}, err
			}
			r.inflight.remove([]*execution{f})
		}
		if r.inflight.count() == 0 {
			return route, nil
		}
		if err := r.inflight.wait(ctx, 0); err != nil {
			return Route{}, err
		}
	}
}

// deliverLate puts a claimant's result, or its tool's question, into the inbox. It counts if the call is still claimed
// or its outcome unknown.
func (r *round) deliverLate(ctx context.Context, f *execution) error {
	if f.late == nil {
		switch e := f.event.(type) {
		case run.CallFinished:
			f.late = run.LateResult{Writer: r.inv.Writer, CallFinished: e}
		case run.CallSuspended:
			if e.Ticket == nil { // a service's event was sent; it is sent again under the same id
				break
			}
			ask := policy.AskInput(r.def, &r.loaded.State, f.call, *e.Ticket, false, r.Clock.Now())
			f.late = run.LateSuspended{Writer: r.inv.Writer, CallSuspended: run.CallSuspended{Call: e.Call, Ticket: e.Ticket,
				Digest: ask.Digest, Expires: ask.Expires, Entered: e.Entered}}
		}
	}
	if f.call.Claim == "" || f.late == nil {
		return nil
	}
	id := fmt.Sprintf("late/%s/%s", f.call.ID, r.inv.Writer)
	got, err := r.Journal.Accept(ctx, r.inv.Tenant, r.inv.Run, id, f.late)
	if err != nil || got.Closed {
		return err
	}
	return r.Wake(ctx, r.inv.Tenant, r.inv.Run)
}

// Missing returns the original name of the tool whose code a call needs and this process lacks: the tool itself or the
// one of its precondition. "" = nothing is missing.
func (p Ports) Missing(def *agent.Definition, name string) string {
	for range 2 { // a precondition of the precondition's tool is never read
		t, found := run.First(def.Tools, func(t agent.ToolSpec) bool { return t.Name == name })
		if !found { // a server's tool, or a built-in one
			return ""
		}
		if _, linked := p.Tools.Lookup(name); t.Kind == agent.KindInternal && !linked {
			return name
		}
		if t.Precondition == nil {
			return ""
		}
		name = t.Precondition.Tool
	}
	return ""
}

// isUnlinked reports whether the call needs code, or delegates to an agent, that only other processes have. Such a call
// is left alone: it is not claimed, nobody is asked, and its outcome is not looked into. The invocation ends with
// ErrOtherProcess once nothing else is left to do.
func (r *round) isUnlinked(c run.Call) bool {
	lacks := ""
	if t, _ := r.def.Tool(c.Tool); t.Agent != nil && c.Child == "" && r.Agents.Find(t.Agent.Agent) == nil {
		lacks = "agent " + t.Agent.Agent + " is not known here"
	} else if missing := r.Missing(r.def, c.Tool); missing != "" {
		lacks = "tool " + missing + " is not part of this program"
	}
	if lacks == "" || !r.SharesRuns {
		return false
	}
	r.unlinked = fmt.Errorf("call %s: %s: %w", c.ID, lacks, ErrOtherProcess)
	return true
}

// Limits for the media of one tool result.
const (
	maxMedia     = 128 << 10     // bytes of base64 in the journal; other media become blobs
	maxToolMedia = store.MaxBlob // total bytes before base64
	maxMediaName = 240           // bytes as stored; a late result has room for 100 such names
)

// storedMedia holds a result's media in stored form, and notices to the model about media that were left out.
type storedMedia struct {
	media   []run.Media
	notices []string
}

// storeMedia stores media that do not fit into the entry as blobs, before the entry that refers to them. Media that
// cannot be stored are left out with a notice, because the call has happened. Errors are the store's.
func (r *round) storeMedia(ctx context.Context, media []run.Media) (stored storedMedia, err error) {
	inline, total := 0, 0 // bytes of base64 in the entry, and total bytes before base64
	for i, m := range media {
		if i == agent.MaxMessageMedia {
			stored.notices = append(stored.notices,
				fmt.Sprintf("[%d more media are left out: one result has at most %d]", len(media)-i, i))
			break
		}
		name := strings.ToValidUTF8(m.Name, "\uFFFD")
		m.Name = strings.ToValidUTF8(name[:min(len(name), maxMediaName)], "")
		for jsonx.StoredLen(m.Name) > maxMediaName {
			_, n := utf8.DecodeLastRuneInString(m.Name)
			m.Name = m.Name[:len(m.Name)-n]
		}
		why, raw := "", []byte(nil)
		if err := agent.CheckMedia(m); err != nil {
			why = err.Error()
		} else if m.Blob != "" {
			err := r.checkMedia(ctx, r.inv.Tenant, r.inv.Run, []run.UserBlock{{Block: m}})
			if err != nil && !errors.Is(err, ErrUnknownBlob) {
				return storedMedia{}, err
			}
			if err != nil {
				why = "there is no such blob"
			}
		} else if raw, err = base64.StdEncoding.DecodeString(m.Data); err != nil || len(raw) == 0 {
			why = "its data is not base64"
		} else if total+len(raw) > maxToolMedia {
			why = fmt.Sprintf("one result gives at most %d bytes of media", maxToolMedia)
		}
		if why != "" {
			stored.notices = append(stored.notices, agent.TextMediaLeftOut(m, why))
			continue
		}
		total += len(raw)
		if inline+len(m.Data) <= maxMedia {
			inline += len(m.Data)
		} else {
			m.Data, m.Blob = "", store.BlobDigest(raw)
			if err := r.putBlob(ctx, r.inv.Tenant, r.inv.Run, m.Blob, raw); err != nil {
				return storedMedia{}, err
			}
		}
		stored.media = append(stored.media, m)
	}
	return stored, nil
}
