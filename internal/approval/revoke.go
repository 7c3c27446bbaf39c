package approval

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/store"
)

// Revocation is one person's wish that a tool's standing grants for an agent hold no more. By comes from what authenticated the person.
type Revocation struct {
	Tenant, Agent string
	Tool          string // original name
	Digest        string // of the one grant that is meant; "" = all of the tool
	By            policy.Principal
}

// Revoke takes the standing grants of a tool for an agent back: no claim under one is committed from then on, in whichever run. Only who is
// an approver of each of them may, or none is; where they are revoked already that is no error, for whoever might have done it. They are
// revoked at once, but of more than store.MaxOps an error may leave some: to repeat it revokes the rest.
//
// Errors: ErrNoGrant where there is none, or it has expired; ErrForbidden; store.ErrConflict where others keep writing. An error of any
// other kind is uncertain, and it may be repeated.
func (d *Desk) Revoke(ctx context.Context, r Revocation) (err error) {
	defer func() {
		d.logRefusal(err, r.By, "tenant", r.Tenant, "agent", r.Agent, "tool", r.Tool)
		if err == nil && d.Log != nil {
			d.Log.Info("standing grants revoked", "tenant", r.Tenant, "agent", r.Agent, "tool", r.Tool, "digest", r.Digest, "by", r.By.ID)
		}
	}()
	what := fmt.Sprintf("revoke standing grant of %s for %s", r.Tool, r.Agent)
	for range maxRaces {
		ops, left, err := d.planRevocation(ctx, r)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		for chunk := range slices.Chunk(ops, store.MaxOps) {
			if err = d.Table.Write(ctx, chunk...); err != nil {
				break
			}
		}
		var raced *store.ConditionError
		switch {
		case err == nil && left != nil:
			return fmt.Errorf("%s: all but what cannot be read: %w", what, left)
		case err == nil:
			return nil
		case !errors.As(err, &raced): // somebody granted or revoked since: what is there now is looked at again
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return fmt.Errorf("%s: %w", what, store.ErrConflict)
}

// planRevocation are the writes that are left to do, none where all is revoked already; and left, what cannot be read of what is to be revoked.
func (d *Desk) planRevocation(ctx context.Context, r Revocation) (ops []store.Op, left, err error) {
	from, to := prefixRange(r.Tool)
	if r.Digest != "" {
		key := standingKey(r.Tenant, r.Agent, r.Tool, r.Digest)
		if store.CheckKey(key) != nil { // a digest of nothing
			return nil, nil, ErrNoGrant
		}
		from, to = key.SK, key.SK
	}
	all, left := readStandingRange(ctx, d.Table, r.Tenant, r.Agent, r.Tool, store.Range{From: from, To: to}, math.MaxInt)
	if left != nil && !errors.Is(left, store.ErrDamaged) {
		return nil, nil, left
	}
	now := d.Clock.Now().UTC().Truncate(time.Millisecond)
	all = slices.DeleteFunc(all, func(g StandingGrant) bool { return g.isExpired(now) })
	live := slices.DeleteFunc(slices.Clone(all), func(g StandingGrant) bool { return g.RevokedBy != "" }) // one that is used up, too: a call of it may run again
	if len(all) == 0 {
		return nil, left, cmp.Or(left, ErrNoGrant)
	}
	of := live
	if len(of) == 0 {
		of = all
	}
	for _, g := range of {
		if !policy.MayDecideEach(r.By, g.Approvers, g.Above) {
			return nil, nil, fmt.Errorf("as %s: %w", r.By.ID, ErrForbidden)
		}
	}
	for _, g := range live {
		op, err := g.markRevokedOp(r.Tenant, r.By, now)
		if err != nil {
			return nil, nil, err
		}
		trace, err := g.revocationOp(r.Tenant, now)
		if err != nil {
			return nil, nil, err
		}
		ops = append(ops, op, trace)
	}
	return ops, left, nil
}

// markRevokedOp writes the record of a live grant as revoked. It fails where that is not what is on record any more.
func (g StandingGrant) markRevokedOp(tenant string, by policy.Principal, now time.Time) (store.Op, error) {
	g.RevokedBy, g.RevokedAt = by.ID, now
	op, err := g.putOp(tenant)
	op.If = []store.Cond{
		{Attr: "approval", Op: store.Equal, Value: store.Str(g.Approval)},
		{Attr: "revoked", Op: store.Equal, Value: store.Num(0)},
	}
	return op, err
}
