package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/run"
)

// Decisions is a desk; *approval.Desk is one, and says what the errors are.
type Decisions interface {
	Decide(ctx context.Context, r approval.Request) (approval.Approval, error)
	Settle(ctx context.Context, o approval.Outcome) (approval.Approval, error)
	Direct(ctx context.Context, s *run.AgentState, r approval.Directive) (func(ctx context.Context) error, error)
	Revoke(ctx context.Context, r approval.Revocation) error
	Ask(ctx context.Context, w approval.Word) (approval.Approval, error)
	Reply(ctx context.Context, w approval.Word) (approval.Approval, error)
}

// Desk is a desk whose decisions are audited: what was decided by Run, once the run is awake, and who was refused by a
// record of its own. What the next desk answers is what it answers: that an audit cannot be kept, or takes longer than
// Patience, is warned of and left to the sweep. All fields but Run, Warn and Patience are required. Safe for concurrent
// use.
type Desk struct {
	Next     Decisions
	Recorder Recorder
	Clock    clock.Clock
	Run      func(ctx context.Context, tenant, run string) error // audits a run in which something was decided; nil = the sweep does
	Warn     func(what string, err error)                        // nil = nobody is told
	Patience time.Duration                                       // 0 = 2 s; less where who decides has a deadline, and half a second at least
}

// Decide decides at the next desk.
func (d *Desk) Decide(ctx context.Context, r approval.Request) (approval.Approval, error) {
	a, err := d.Next.Decide(ctx, r)
	if a.Run != "" {
		d.audit(ctx, r.Tenant, a.Run)
	}
	d.refused(ctx, r.Tenant, err, Record{Approval: r.ID, Actor: r.By.ID, Channel: string(r.Via), Action: string(r.Action)})
	return a, err
}

// Settle settles at the next desk.
func (d *Desk) Settle(ctx context.Context, o approval.Outcome) (approval.Approval, error) {
	a, err := d.Next.Settle(ctx, o)
	if err == nil {
		d.audit(ctx, o.Tenant, o.Run)
	}
	d.refused(ctx, o.Tenant, err, Record{Run: o.Run, Call: o.Call, Actor: o.By.ID, Action: "rerun"})
	return a, err
}

// Direct finds what a decision is about at the next desk. Only who is refused a request that is there leaves a record:
// what else a target says is anybody's text.
func (d *Desk) Direct(ctx context.Context, s *run.AgentState, r approval.Directive) (func(ctx context.Context) error, error) {
	carry, err := d.Next.Direct(ctx, s, r)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		err := carry(ctx)
		if err == nil {
			d.audit(ctx, r.Tenant, r.Run)
		}
		d.refused(ctx, r.Tenant, err, Record{Run: r.Run, Call: r.Target, Actor: r.By.ID, Action: string(r.Action)})
		return err
	}, nil
}

// Ask asks at the next desk.
func (d *Desk) Ask(ctx context.Context, w approval.Word) (approval.Approval, error) {
	return d.said(ctx, w, "ask", d.Next.Ask)
}

// Reply replies at the next desk.
func (d *Desk) Reply(ctx context.Context, w approval.Word) (approval.Approval, error) {
	return d.said(ctx, w, "reply", d.Next.Reply)
}

func (d *Desk) said(ctx context.Context, w approval.Word, action string, say func(context.Context, approval.Word) (approval.Approval, error)) (approval.Approval, error) {
	a, err := say(ctx, w)
	if err == nil {
		d.audit(ctx, w.Tenant, a.Run)
	}
	d.refused(ctx, w.Tenant, err, Record{Approval: w.ID, Actor: w.By.ID, Channel: string(w.Via), Action: action})
	return a, err
}

// Revoke revokes at the next desk.
func (d *Desk) Revoke(ctx context.Context, r approval.Revocation) error {
	err := d.Next.Revoke(ctx, r)
	record := Record{Agent: r.Agent, Tool: r.Tool, Digest: r.Digest, Actor: r.By.ID, Kind: Revoked, At: d.Clock.Now()}
	if err == nil {
		record.ID = fmt.Sprintf("revoked/%s/%s/%s/%s/%d", r.Agent, r.Tool, r.Digest, r.By.ID, record.At.UnixMilli())
		d.keep(ctx, r.Tenant, record)
	}
	record.Action = "revoke"
	d.refused(ctx, r.Tenant, err, record)
	return err
}

// refusals say why a decision was not taken. What is not among them is nobody's decision: there is no such request, or
// it could not be read.
var refusals = []struct {
	err error
	why string
}{
	{approval.ErrForbidden, "not one of the approvers"},
	{approval.ErrExpired, "the request had expired"},
}

// refused keeps that a decision was not taken: one record a person, request, action and reason, so that who is refused
// again and again fills nothing.
func (d *Desk) refused(ctx context.Context, tenant string, err error, r Record) {
	for _, refusal := range refusals {
		if errors.Is(err, refusal.err) {
			r.Kind, r.Detail = Refused, refusal.why
		}
	}
	if r.Kind != Refused {
		return
	}
	r.ID = fmt.Sprintf("refused/%s%s%s/%s%s/%s/%s/%s", r.Approval, r.Run, r.Agent, r.Call, r.Tool, r.Actor, r.Action, r.Detail)
	d.keep(ctx, tenant, r)
}

func (d *Desk) keep(ctx context.Context, tenant string, r Record) {
	d.patiently(ctx, "audit that somebody was refused or has revoked", func(ctx context.Context) error {
		return d.Recorder.Record(ctx, tenant, r)
	})
}

func (d *Desk) audit(ctx context.Context, tenant, run string) {
	if d.Run != nil {
		d.patiently(ctx, "audit a decision", func(ctx context.Context) error { return d.Run(ctx, tenant, run) })
	}
}

const (
	defaultPatience = 2 * time.Second
	leastPatience   = 500 * time.Millisecond // whatever the deadline: a refusal is derived from nothing later
)

// patiently does what nobody waits for. That the client has gone is no reason to leave it; that whoever decides has to
// answer by a time, as Slack wants it, is one not to take longer.
func (d *Desk) patiently(ctx context.Context, what string, do func(ctx context.Context) error) {
	patience := cmp.Or(d.Patience, defaultPatience)
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, max(leastPatience, deadline.Sub(d.Clock.Now())))
	}
	ctx, cancel := d.Clock.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := do(ctx); err != nil && d.Warn != nil {
		d.Warn(what, err)
	}
}
