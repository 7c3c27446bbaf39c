package runtime

import (
	"context"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// checkStanding reads the standing grants of the round's calls, once; in doubt, as a claim was refused, again those
// that it had found, and those that were given in this run: what is not on record any more is taken away.
func (a *permissions) checkStanding(ctx context.Context, def *agent.Definition, d *run.Draft, doubt bool) error {
	s := &d.State
	found := run.PermissionChecked{Inference: s.Round.Inference, Tools: map[string]run.PermissionStatus{}}
	var asked []run.StandingGrant
	known := s.Permissions.Checked
	first := known.Inference != s.Round.Inference
	doubt = doubt && !claimsByGrant(d)
	switch {
	case first:
		asked = policy.AskedStanding(def, s)
	case doubt:
		asked = known.Standing
	}
	var err error
	if doubt {
		if found.Revoked, err = a.revokedGrants(ctx, def, d); err != nil {
			return err
		}
	}
	if len(asked) == 0 && found.Revoked == nil {
		return nil
	}
	if found.Standing, err = a.recordedGrants(ctx, def, d, asked, doubt); err != nil {
		return err
	}
	if !first && found.Revoked == nil && policy.SameStanding(known.Standing, found.Standing) {
		return nil
	}
	return d.Add(found)
}

// claimsByGrant reports whether the draft claims under grants already. Then they were read before these claims, and the
// transaction checks them again.
func claimsByGrant(d *run.Draft) bool {
	return slices.ContainsFunc(d.Entry.Events, func(e run.Event) bool {
		claim, ok := e.(run.CallClaimed)
		return ok && claim.Under != ""
	})
}

// recordedGrants are those of the standing grants that are on record, read once for a round, and in doubt each time;
// the first time, those of patterns that cover a call of the round as well.
func (a *permissions) recordedGrants(
	ctx context.Context, def *agent.Definition, d *run.Draft, asked []run.StandingGrant, doubt bool,
) ([]run.StandingGrant, error) {
	s := &d.State
	if a.checked == nil || a.checked.Inference != s.Round.Inference || doubt {
		live, err := approval.LiveStanding(ctx, a.table, s.Tenant, s.Agent, asked, d.Entry.Time)
		if err != nil {
			return nil, err
		}
		if s.Permissions.Checked.Inference != s.Round.Inference && policy.Granting(def).Patterns() {
			patterns, err := approval.LivePatterns(ctx, a.table, s.Tenant, s.Agent, policy.ToolsOf(asked), d.Entry.Time)
			if err != nil {
				return nil, err
			}
			live = append(live, policy.CoveringPatterns(def, s, patterns)...)
		}
		if live, err = approval.TraceGrants(ctx, a.table, s.Tenant, s.Agent, live); err != nil {
			return nil, err
		}
		a.checked = &run.PermissionChecked{Inference: s.Round.Inference, Standing: live}
	}
	return a.checked.Standing, nil
}

// revokedGrants are the standing grants that were given in this run and are not on record any more, of those that the
// next claims would take.
func (a *permissions) revokedGrants(ctx context.Context, def *agent.Definition, d *run.Draft) ([]run.PermitRef, error) {
	s := &d.State
	var gone []run.PermitRef
	for _, h := range policy.HeldStanding(def, s) {
		live, err := approval.IsStandingLive(ctx, a.table, s.Tenant, s.Agent,
			run.StandingGrant{Tool: h.Tool, Digest: h.Digest}, d.Entry.Time)
		if err != nil {
			return nil, err
		}
		if !live && !slices.Contains(gone, h.PermitRef) {
			gone = append(gone, h.PermitRef)
		}
	}
	return gone, nil
}

// standingGrantOf is what must be on record for a claim that the draft has made: the very grant that it takes, or, of a
// call that runs again or under what was granted in this run, any that covers it. False where the claim takes no
// standing grant.
func standingGrantOf(
	def *agent.Definition, s *run.AgentState, c run.Call, claim run.CallClaimed,
) (run.StandingGrant, bool) {
	if g, taken := s.StandingUnder(c, claim); taken {
		return g, true
	}
	return run.StandingGrant{Tool: c.Tool, Digest: policy.RecordOf(def, s, c)}, c.Grant != nil && c.Grant.Standing
}
