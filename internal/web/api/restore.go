package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// Releaser lets runs out of quarantine; *runtime.Releaser is one, and says what the errors are.
type Releaser interface {
	Release(ctx context.Context, tenant, run string, by agent.Principal, note string) error
}

// QuarantinedRun is a run that stands still after a restore.
type QuarantinedRun struct {
	ID         string           `json:"id"`
	Agent      string           `json:"agent"`
	Seq        int64            `json:"seq"`
	Quarantine agent.Quarantine `json:"quarantine"`
	Calls      []QuarantineCall `json:"calls"` // that run, or are looked into, once it is released: each may have run in what was lost
}

// QuarantineCall is a call that nobody is asked about once its run is released.
type QuarantineCall struct {
	ID     string           `json:"id"`
	Tool   string           `json:"tool"`
	Status agent.CallStatus `json:"status"`
}

// QuarantinePage is a page of runs in quarantine, the newest first.
type QuarantinePage struct {
	Runs   []QuarantinedRun `json:"runs"`
	Unread []Unread         `json:"unread,omitempty"`
	Cursor string           `json:"cursor,omitempty"`
}

// RepairPage is a page of repairs, the newest first.
type RepairPage struct {
	Repairs []runtime.Repaired `json:"repairs"`
	Unread  []Unread           `json:"unread,omitempty"`
	Cursor  string             `json:"cursor,omitempty"`
}

// listQuarantine lists the tenant's runs in quarantine. It looks at up to maxLooks pages of the runs that wait.
func (s *server) listQuarantine(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	q, err := query(r, "cursor", "limit")
	if err != nil {
		return 0, nil, err
	}
	n, err := limit(q)
	if err != nil {
		return 0, nil, err
	}
	p := QuarantinePage{Runs: []QuarantinedRun{}, Cursor: q.Get("cursor")}
	for looks := 0; len(p.Runs)+len(p.Unread) < n && looks < maxLooks; looks++ {
		at := p.Cursor
		heads, next, err := s.Journal.ListSince(r.Context(), c.Tenant, agent.RunWaiting, time.Time{}, n-len(p.Runs)-len(p.Unread), at)
		unread, err := s.spared(r, c, err)
		if err != nil {
			return 0, nil, badCursor(at, err)
		}
		p.Unread = append(p.Unread, unread...)
		if err := s.addQuarantined(r, c, &p, heads); err != nil {
			return 0, nil, err
		}
		if p.Cursor = next; next == "" {
			break
		}
	}
	return http.StatusOK, p, nil
}

func (s *server) addQuarantined(r *http.Request, c Caller, p *QuarantinePage, heads []store.Head) error {
	for _, h := range heads {
		if !h.Quarantined {
			continue
		}
		l, err := s.Journal.Load(r.Context(), h.Tenant, h.Run)
		if store.Unread(err) {
			p.Unread = append(p.Unread, s.unread(r, c, store.UnreadItem{Key: store.RunKey(h.Tenant, h.Run), Err: err}))
			continue
		}
		if err != nil {
			return err
		}
		if l.State.Quarantine == nil { // the list is late
			continue
		}
		run := QuarantinedRun{ID: h.Run, Agent: h.Agent, Seq: l.State.Seq(), Quarantine: *l.State.Quarantine, Calls: []QuarantineCall{}}
		for _, call := range l.State.OpenOnRelease() {
			run.Calls = append(run.Calls, QuarantineCall{call.ID, call.Tool, call.Status})
		}
		p.Runs = append(p.Runs, run)
	}
	return nil
}

// release lets a run out of quarantine.
func (s *server) release(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if _, err := query(r); err != nil {
		return 0, nil, err
	}
	var b Note
	if err := body(w, r, &b, true); err != nil {
		return 0, nil, err
	}
	l, err := s.load(r, c)
	if err != nil {
		return 0, nil, err
	}
	if err := s.Releaser.Release(r.Context(), c.Tenant, l.State.Run, c.Principal, b.Note); err != nil {
		return 0, nil, err
	}
	return http.StatusAccepted, accepted(l.State), nil
}

// listRepairs lists what was repaired of the tenant's runs.
func (s *server) listRepairs(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	q, err := query(r, "cursor", "limit")
	if err != nil {
		return 0, nil, err
	}
	n, err := limit(q)
	if err != nil {
		return 0, nil, err
	}
	at := q.Get("cursor")
	list, next, err := runtime.ListRepaired(r.Context(), s.Table, c.Tenant, n, at)
	unread, err := s.spared(r, c, err)
	if err != nil {
		return 0, nil, badCursor(at, err)
	}
	return http.StatusOK, RepairPage{append([]runtime.Repaired{}, list...), unread, next}, nil
}

// Quarantine lists a page of the runs in quarantine.
func (c *Client) Quarantine(ctx context.Context, cursor string, limit int) (QuarantinePage, error) {
	return get[QuarantinePage](ctx, c, "/v1/quarantine", values("cursor", cursor, "limit", number(limit)))
}

// Release lets a run out of quarantine.
func (c *Client) Release(ctx context.Context, run, note string) (Accepted, error) {
	return post[Accepted](ctx, c, "/v1/runs/"+url.PathEscape(run)+"/release", Note{note}, "")
}

// Repairs lists a page of what was repaired.
func (c *Client) Repairs(ctx context.Context, cursor string, limit int) (RepairPage, error) {
	return get[RepairPage](ctx, c, "/v1/repairs", values("cursor", cursor, "limit", number(limit)))
}
