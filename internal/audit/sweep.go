package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Heads lists runs; *store.Journal does.
type Heads interface {
	ListSince(ctx context.Context, tenant string, status run.RunStatus, since time.Time, limit int, cursor string) (heads []store.Head, next string, err error)
}

// Sweep audits what nobody has: all runs whose cursors are open, the runs of all requests that are pending or were made
// since the last sweep, and of agents with standing grants all runs that are open or have started since. So a fact
// whose auditor died is found by the next sweep, and one of a request that was made and settled in between, too. All
// fields are required.
//
// Where it has come, it keeps for each tenant: PK T#tenant#AUDIT, SK SWEEP. Indexes may be late, and clocks differ, by
// ten minutes.
type Sweep struct {
	Auditor *Auditor
	Heads   Heads
	Clock   clock.Clock
}

// Swept is what a sweep has done.
type Swept struct {
	Audited int64    // runs
	Failed  []Failed // runs that could not be audited
}

// Failed is a run that could not be audited.
type Failed struct {
	Tenant, Run string
	Err         error
}

const (
	sweepPage = 100
	// overlap is how much of what a sweep has seen the next one looks at again.
	overlap = 10 * time.Minute
	// reachBack is how long before the last sweep a run may have started that has ended since and whose agent had no
	// standing grant until then.
	reachBack = 7 * 24 * time.Hour
)

// Run sweeps the tenants' runs. What went wrong with one run is in the report and stops nothing; an error says that the
// lists could not be read, or that the time is up: then the next sweep begins where this one did.
func (s *Sweep) Run(ctx context.Context, tenants []string) (Swept, error) {
	p := &pass{Sweep: s, done: map[store.Key]bool{}, again: map[string]bool{}}
	if err := p.cursors(ctx); err != nil {
		return p.swept, err
	}
	for _, tenant := range tenants {
		if err := p.tenant(ctx, tenant); err != nil {
			return p.swept, err
		}
	}
	return p.swept, nil
}

// pass is a sweep under way.
type pass struct {
	*Sweep
	done  map[store.Key]bool // runs, by the keys of their cursors
	again map[string]bool    // tenants of which a run is to be looked at again
	swept Swept
}

// audit audits a run, once.
func (p *pass) audit(ctx context.Context, tenant, run string) error {
	key := cursorKey(tenant, run)
	if p.done[key] {
		return nil
	}
	p.done[key] = true
	err := p.Auditor.Run(ctx, tenant, run)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case Moved(err): // whoever moves it may die before it is done
		p.again[tenant] = true
	case err != nil:
		p.again[tenant] = p.again[tenant] || !errors.Is(err, store.ErrNoRun)
		p.swept.Failed = append(p.swept.Failed, Failed{tenant, run, err})
	default:
		p.swept.Audited++
	}
	return nil
}

// fail notes what could not be audited; the next sweep looks at all of the tenant again.
func (p *pass) fail(tenant, run string, err error) {
	p.done[cursorKey(tenant, run)] = true
	p.again[tenant] = true
	p.swept.Failed = append(p.swept.Failed, Failed{tenant, run, err})
}

// spare notes items of a list that cannot be read, and lets the sweep go on with the others. It returns any other
// error.
func (p *pass) spare(tenant string, err error) error {
	if errors.Is(err, store.ErrDamaged) {
		p.fail(tenant, "", err)
		return nil
	}
	return err
}

// cursors audits the runs that are known to be open.
func (p *pass) cursors(ctx context.Context) error {
	var open []cursor
	r := store.Range{PK: openIndex, Index: true, Limit: sweepPage}
	for {
		page, next, err := store.ReadPage(ctx, p.Auditor.Table, r, readCursor)
		if err = p.spare("", err); err != nil {
			return fmt.Errorf("list audit cursors: %w", err)
		}
		open = append(open, page...)
		if r.Cursor = next; r.Cursor == "" {
			break
		}
	}
	for _, c := range open { // listed first: auditing takes them off the list
		if err := p.audit(ctx, c.Tenant, c.Run); err != nil {
			return err
		}
	}
	return nil
}

// place is how far the sweeps of a tenant have come.
type place struct {
	Since  time.Time `json:"since"`            // when the last one that came to its end began
	Agents []string  `json:"agents,omitempty"` // that have, or had, standing grants; sorted
}

func placeKey(tenant string) store.Key { return store.Key{PK: partition(tenant), SK: "SWEEP"} }

func (p *pass) tenant(ctx context.Context, tenant string) error {
	now := p.Clock.Now().UTC()
	at, err := p.place(ctx, tenant)
	if err != nil {
		return err
	}
	next := place{Since: now, Agents: slices.Clone(at.Agents)}
	since := time.Time{}
	if !at.Since.IsZero() {
		since = at.Since.Add(-overlap)
	}
	for _, status := range []approval.Status{approval.Pending, approval.Approved, approval.Denied, approval.Expired, approval.Cancelled, approval.Voided} {
		from := since
		if status == approval.Pending {
			from = time.Time{}
		}
		if err := p.requests(ctx, tenant, status, from, &next); err != nil {
			return err
		}
	}
	if err := p.granted(ctx, tenant, now, &next); err != nil {
		return err
	}
	if err := p.underGrants(ctx, tenant, since, at.Agents, next.Agents); err != nil {
		return err
	}
	return p.keep(ctx, tenant, next)
}

// requests audits the runs of a tenant's requests of one status that were made since then.
func (p *pass) requests(ctx context.Context, tenant string, status approval.Status, since time.Time, next *place) error {
	q := approval.Query{Status: status, Since: since, Limit: sweepPage}
	for {
		list, cursor, err := approval.Find(ctx, p.Auditor.Table, tenant, q)
		if err = p.spare(tenant, err); err != nil {
			return fmt.Errorf("audit requests of %s: %w", tenant, err)
		}
		for _, a := range list {
			if a.Grants == agent.GrantsStanding {
				next.granting(a.Agent)
			}
			if err := p.audit(ctx, tenant, a.Run); err != nil {
				return err
			}
		}
		if q.Cursor = cursor; cursor == "" {
			return nil
		}
	}
}

func (p *place) granting(name string) {
	if at, known := slices.BinarySearch(p.Agents, name); !known {
		p.Agents = slices.Insert(p.Agents, at, name)
	}
}

// granted learns of agents that have standing grants.
func (p *pass) granted(ctx context.Context, tenant string, now time.Time, next *place) error {
	q := approval.Grants{Limit: sweepPage}
	for {
		list, cursor, err := approval.ListStanding(ctx, p.Auditor.Table, tenant, q, now)
		if err = p.spare(tenant, err); err != nil {
			return fmt.Errorf("audit standing grants of %s: %w", tenant, err)
		}
		for _, g := range list {
			next.granting(g.Agent)
		}
		if q.Cursor = cursor; cursor == "" {
			return nil
		}
	}
}

// underGrants audits the runs in which calls may have been claimed under standing grants, and of which no request
// tells: all that are open, and those that have started since then. Of agents that are new among these, it looks
// further back.
func (p *pass) underGrants(ctx context.Context, tenant string, since time.Time, known, agents []string) error {
	if len(agents) == 0 {
		return nil
	}
	if len(known) < len(agents) && !since.IsZero() {
		since = since.Add(-reachBack)
	}
	for _, status := range []run.RunStatus{run.RunRunning, run.RunWaiting, run.RunDone} {
		from := time.Time{}
		if status == run.RunDone {
			from = since
		}
		cursor := ""
		for {
			heads, next, err := p.Heads.ListSince(ctx, tenant, status, from, sweepPage, cursor)
			if err = p.spare(tenant, err); err != nil {
				return fmt.Errorf("audit runs of %s: %w", tenant, err)
			}
			for _, h := range heads {
				if !slices.Contains(agents, h.Agent) {
					continue
				}
				if err := p.audit(ctx, tenant, h.Run); err != nil {
					return err
				}
			}
			if cursor = next; cursor == "" {
				break
			}
		}
	}
	return nil
}

// place reads the place that a sweep of the tenant kept, if any. Where it cannot be read, everything is looked at
// again.
func (p *pass) place(ctx context.Context, tenant string) (place, error) {
	var at place
	it, found, err := p.Auditor.Table.Get(ctx, placeKey(tenant))
	if err != nil && !errors.Is(err, store.ErrDamaged) {
		return at, fmt.Errorf("read the place of the audit of %s: %w", tenant, err)
	}
	if found && json.Unmarshal(it.Body, &at) != nil {
		return place{}, nil
	}
	return at, nil
}

// keep keeps the place, unless a run could not be audited: then the next sweep looks at all of it again.
func (p *pass) keep(ctx context.Context, tenant string, next place) error {
	if p.again[tenant] {
		return nil
	}
	body, err := run.MarshalVerbatim(next)
	if err != nil {
		return fmt.Errorf("keep the place of the audit of %s: %w", tenant, err)
	}
	if err := p.Auditor.Table.Write(ctx, store.Op{Kind: store.Put, Item: store.Item{Key: placeKey(tenant), Body: body}}); err != nil {
		return fmt.Errorf("keep the place of the audit of %s: %w", tenant, err)
	}
	return nil
}
