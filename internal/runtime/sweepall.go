package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/store"
)

// Tenants lists every tenant that may have runs, sorted. Blob stores do: a run's definition is stored under its tenant before the
// run's first entry, so nobody has to write down who the tenants are.
type Tenants interface {
	Tenants(ctx context.Context) ([]string, error)
}

// Executions looks at executions of the state machine from outside.
type Executions interface {
	// Running pages through those that run. It may be late.
	Running(ctx context.Context, cursor string) (page []Execution, next string, err error)
	// Input is what an execution was started with; found is false for one that does not exist.
	Input(ctx context.Context, name string) (input []byte, found bool, err error)
}

// Execution is one that runs.
type Execution struct {
	Name    string
	Started time.Time
}

// Sweep repairs all runs of all tenants that disagree with their executions, and counts what waits. One that is done is never read: it
// goes through the lists of running and waiting runs, compares their views with the executions that run, and reads the journal only
// of a run that looks wrong. Runs that moved within the last minute are left alone.
//
// One invocation does as much as its context's deadline allows and keeps its place in the table (PK "SWEEP", SK "CURSOR"); the next one
// goes on there. Two at once do some work twice, which changes nothing. A table whose indexes or executions whose lists are late
// delay a repair and cause none.
type Sweep struct {
	Sweeper    *Sweeper
	Tenants    Tenants
	Executions Executions
	Notices    Notices // nil = nobody is told of requests
}

// Report is what a sweep found and did.
type Report struct {
	Checked  int64            // open runs whose views were compared
	Repaired map[Repair]int64 // by kind
	Failed   []FailedRepair   // runs that could not be checked or repaired
	Left     int64            // runs that were to be looked at again and had no time left: for a later sweep
	Told     map[string]int64 // what was done about requests to people, by what it was; see Notices
	Untold   []error          // what could not be done about them, and will be later
	Complete bool             // the round through all lists has ended with this sweep
	Waiting  Waiting          // of the whole round; zero unless Complete
}

// FailedRepair is a run, or an execution that may be one's leftover, whose check failed.
type FailedRepair struct {
	Tenant, Run string
	Execution   string // of a leftover
	Err         error
}

// Waiting is what waits for people and services.
type Waiting struct {
	Runs            int64     `json:"runs"`
	Since           time.Time `json:"since,omitzero"`  // when the oldest of them was parked; zero = nothing waits
	OutcomesUnknown int64     `json:"outcomesUnknown"` // calls of which nobody knows whether they happened
}

const (
	// sweepPage is how many runs are listed at once.
	sweepPage = 100
	// sweepReserve is what is left of the deadline for the end: to look at suspects again and to keep the place.
	sweepReserve = settling + 10*time.Second
	// sweepEnd is what is left of that to keep the place and to answer: a function whose time is up has done neither.
	sweepEnd = 5 * time.Second
	// sweepLeast is how much there has to be beside it.
	sweepLeast = 10 * time.Second
	// maxFailures in a row end a sweep: it is not the runs that are broken.
	maxFailures = 20
)

// ErrSweepTooShort says that the deadline leaves no time for a sweep: the function's timeout is too short.
var ErrSweepTooShort = errors.New("a sweep wants at least 80 s to its deadline; give it 2 minutes or more")

// ErrSweepStopped says that so many runs in a row could not be checked that the sweep gave up.
var ErrSweepStopped = errors.New("too many runs in a row could not be checked")

// Run sweeps. The report is valid with an error, too, which says that the sweep as a whole went wrong; what went wrong with one run is in
// the report and stops nothing.
func (s *Sweep) Run(ctx context.Context) (Report, error) {
	p := &pass{Sweep: s, running: map[string]*runner{}, report: Report{Repaired: map[Repair]int64{}, Failed: []FailedRepair{}, Told: map[string]int64{}}}
	walking, cancel, err := s.bounded(ctx)
	if err != nil {
		return p.report, err
	}
	defer cancel()
	if err := p.begin(walking); err != nil {
		return p.report, err
	}
	p.due(walking)
	err = p.walk(walking)
	if err == nil && p.whole {
		err = p.stopLeftovers(walking)
	}
	if walking.Err() != nil && ctx.Err() == nil && !errors.Is(err, ErrSweepStopped) {
		err = nil // its time is up: the next sweep goes on
	}
	err = errors.Join(err, p.lookAgain(ctx), p.end(ctx))
	return p.report, err
}

// bounded leaves the reserve of the deadline, if there is one.
func (s *Sweep) bounded(ctx context.Context) (context.Context, context.CancelFunc, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		bounded, cancel := context.WithCancel(ctx)
		return bounded, cancel, nil
	}
	left := deadline.Sub(s.Sweeper.Clock.Now()) - sweepReserve
	if left < sweepLeast {
		return nil, nil, fmt.Errorf("sweep with %s left: %w", left+sweepReserve, ErrSweepTooShort)
	}
	bounded, cancel := s.Sweeper.Clock.WithTimeout(ctx, left)
	return bounded, cancel, nil
}

// before ends a while before ctx's deadline, if it has one.
func (sw *Sweeper) before(ctx context.Context, while time.Duration) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return sw.Clock.WithTimeout(ctx, deadline.Sub(sw.Clock.Now())-while)
}

// pass is a sweep under way.
type pass struct {
	*Sweep
	running  map[string]*runner
	from, at place
	whole    bool // this sweep has begun the round
	suspects []suspect
	failures int // in a row
	report   Report
}

// runner is an execution that ran when the sweep began.
type runner struct {
	started time.Time
	owner   bool // of an open run
}

// begin reads where to go on, and all executions that run.
func (p *pass) begin(ctx context.Context) error {
	var err error
	if p.from, err = readPlace(ctx, p.Sweeper.Table); err != nil {
		return err
	}
	p.at, p.whole = p.from, p.from.Tenant == ""
	cursor := ""
	for {
		page, next, err := p.Executions.Running(ctx, cursor)
		if err != nil {
			return fmt.Errorf("sweep: %w", err)
		}
		for _, e := range page {
			p.running[e.Name] = &runner{started: e.Started}
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

// lists are what a round goes through for each tenant. Each takes a page and gives the cursor of the next one.
var lists = []func(*pass, context.Context) (next string, err error){(*pass).runningRuns, (*pass).waitingRuns, (*pass).outcomes, (*pass).ends}

// walk goes through the lists of all tenants, from where the last sweep ended.
func (p *pass) walk(ctx context.Context) error {
	tenants, err := p.Tenants.Tenants(ctx)
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	for _, tenant := range tenants {
		if tenant > p.at.Tenant { // those before are done, and its own lists are ended first
			p.at.Tenant, p.at.List, p.at.Cursor = tenant, 0, ""
		}
		for p.at.List < len(lists) {
			next, err := lists[p.at.List](p, ctx)
			if errors.Is(err, store.ErrInvalid) && p.at.Cursor != "" { // kept by another version
				p.at.Cursor = ""
				continue
			}
			if err != nil {
				return fmt.Errorf("sweep: %w", err)
			}
			if p.at.Cursor = next; next == "" {
				p.at.List++
			}
		}
	}
	p.report.Complete, p.report.Waiting = true, p.at.Waiting
	return nil
}

func (p *pass) runningRuns(ctx context.Context) (next string, err error) {
	heads, next, err := p.Sweeper.Journal.List(ctx, p.at.Tenant, agent.RunRunning, sweepPage, p.at.Cursor)
	if err := p.spare(err); err != nil {
		return "", err
	}
	return next, p.checkAll(ctx, heads)
}

func (p *pass) waitingRuns(ctx context.Context) (next string, err error) {
	heads, next, err := p.Sweeper.Journal.List(ctx, p.at.Tenant, agent.RunWaiting, sweepPage, p.at.Cursor)
	if err := p.spare(err); err != nil {
		return "", err
	}
	if err := p.checkAll(ctx, heads); err != nil {
		return "", err
	}
	for _, h := range heads {
		p.at.Waiting.join(Waiting{Runs: 1, Since: h.UpdatedAt})
	}
	return next, nil
}

// spare reports items of a list that cannot be read, and lets the sweep go on with the others. It returns any other error.
func (p *pass) spare(err error) error {
	if errors.Is(err, store.ErrDamaged) {
		return p.note(FailedRepair{Tenant: p.at.Tenant, Err: err}, RepairNone)
	}
	return err
}

// checkAll checks a page of runs. A page that time ran out on is checked again by the next sweep.
func (p *pass) checkAll(ctx context.Context, heads []store.Head) error {
	for _, h := range heads {
		r, err := p.check(ctx, h)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := p.note(FailedRepair{Tenant: h.Tenant, Run: h.Run, Err: err}, r); err != nil {
			return err
		}
	}
	return nil
}

func (w *Waiting) join(o Waiting) {
	w.Runs += o.Runs
	w.OutcomesUnknown += o.OutcomesUnknown
	if !o.Since.IsZero() && (w.Since.IsZero() || o.Since.Before(w.Since)) {
		w.Since = o.Since
	}
}

// check compares a run's view with the executions, and repairs the run if they disagree.
func (p *pass) check(ctx context.Context, h store.Head) (Repair, error) {
	e, runs := p.running[h.Owner]
	if runs {
		e.owner = true
	}
	if p.Sweeper.Clock.Now().Sub(h.UpdatedAt) < settling {
		return RepairNone, nil
	}
	p.report.Checked++
	if runs {
		if owed, err := p.wakeOwed(ctx, h); err != nil || !owed {
			return RepairNone, err
		}
	}
	r, sus, err := p.Sweeper.look(ctx, h.Tenant, h.Run)
	if sus != nil {
		p.suspects = append(p.suspects, *sus)
	}
	return r, err
}

// wakeOwed reports whether a run that has stored its token waits though there is something to wake it for. While a run waits, what it
// has drained is in its view, exactly (rule 1).
func (p *pass) wakeOwed(ctx context.Context, h store.Head) (bool, error) {
	if h.Status != agent.RunWaiting || h.Token == "" {
		return false, nil
	}
	if overdue(h.Expires, p.Sweeper.Clock.Now()) {
		return true, nil
	}
	return p.Sweeper.Journal.SlotTaken(ctx, h.Tenant, h.Run, h.Drained+1)
}

// note keeps what became of a check. It fails when nothing works any more; a record that is broken is no sign of that.
func (p *pass) note(f FailedRepair, r Repair) error {
	if f.Err == nil {
		p.failures = 0
		if r != RepairNone {
			p.report.Repaired[r]++
		}
		return nil
	}
	p.report.Failed = append(p.report.Failed, f)
	if final(f.Err) {
		return nil
	}
	if p.failures++; p.failures >= maxFailures {
		return fmt.Errorf("%w: %w", ErrSweepStopped, f.Err)
	}
	return nil
}

// outcomes counts the calls on a page of requests to people whose outcome is unknown, and has people told of those of which nobody began to tell.
func (p *pass) outcomes(ctx context.Context) (next string, err error) {
	asked, next, err := approval.List(ctx, p.Sweeper.Table, p.at.Tenant, approval.Pending, sweepPage, p.at.Cursor)
	if err := p.spare(err); err != nil {
		return "", err
	}
	for _, a := range asked {
		if a.Kind == approval.KindOutcome {
			p.at.Waiting.OutcomesUnknown++
		}
		if err := p.ensure(ctx, a); err != nil {
			return "", err
		}
	}
	return next, nil
}

// stopLeftovers looks at the executions that own no open run: they end by themselves, or are stopped. Which run one is for, its
// input says.
func (p *pass) stopLeftovers(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(p.running)) {
		if e := p.running[name]; e.owner || p.Sweeper.Clock.Now().Sub(e.started) < settling {
			continue
		}
		f := FailedRepair{Execution: name}
		var r Repair
		f.Tenant, f.Run, r, f.Err = p.stopLeftover(ctx, name)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := p.note(f, r); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) stopLeftover(ctx context.Context, name string) (tenant, run string, r Repair, err error) {
	input, found, err := p.Executions.Input(ctx, name)
	if err != nil || !found {
		return "", "", RepairNone, err
	}
	tenant, run, ok := StartedRun(name, input)
	if !ok {
		return "", "", RepairNone, nil
	}
	r, err = p.Sweeper.StopLeftover(ctx, tenant, run, name)
	return tenant, run, r, err
}

// lookAgain gives the executions of all suspects the same minute, and then takes over the runs that are still what they were, as many as
// there is time for. The others stay as they are until a sweep finds them again.
func (p *pass) lookAgain(ctx context.Context) error {
	if len(p.suspects) == 0 {
		return nil
	}
	looking, cancel := p.Sweeper.before(ctx, sweepEnd)
	defer cancel()
	if err := p.Sweeper.Clock.Sleep(looking, settling); err != nil && ctx.Err() != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	for i, sus := range p.suspects {
		if looking.Err() != nil {
			p.report.Left = int64(len(p.suspects) - i)
			return nil
		}
		r, err := p.Sweeper.lookAgain(looking, sus)
		if err != nil && looking.Err() != nil {
			continue // what was begun is found again
		}
		if err := p.note(FailedRepair{Tenant: sus.tenant, Run: sus.run, Err: err}, r); err != nil {
			return err
		}
	}
	return nil
}

// end keeps the place, or forgets it when the round has ended.
func (p *pass) end(ctx context.Context) error {
	if p.report.Complete {
		p.at = place{}
	}
	if p.at == p.from {
		return nil
	}
	return writePlace(ctx, p.Sweeper.Table, p.at)
}
