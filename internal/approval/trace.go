package approval

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// A standing grant is recorded twice: under its agent, where it is found, listed and counted; and with the decision
// that gives it, beside the run, under PK T#tenant#RUN#run, SK G#request#revision, for the gate. Whoever can write the
// first record alone lets nothing run: a grant covers a call only where the second record says so, too, and where those
// who gave the grant are those whom the call's policy wants. A revocation is recorded twice as well: see revokedKey.

// decisionGrants is what one decision grants for good, as it stands beside its run.
type decisionGrants struct {
	Voices     []run.Voice   `json:"voices"` // the newest last; never empty
	Note       string        `json:"note,omitempty"`
	Asked      time.Time     `json:"asked"`
	Requesters []string      `json:"requesters,omitempty"`
	Edited     bool          `json:"edited,omitempty"`
	Grants     []tracedGrant `json:"grants"`
}

// tracedGrant is one of the grants.
type tracedGrant struct {
	Tool    string    `json:"tool"` // original name
	Digest  string    `json:"digest"`
	Expires time.Time `json:"expires"`
	Uses    int       `json:"uses,omitempty"`
}

// traceOp records beside the run the grants whose records the newest decision of a request writes.
func traceOp(decided Approval, voices []run.Voice, records []store.Op) (store.Op, error) {
	asked := decided.origin
	g := decisionGrants{Voices: voices, Asked: asked.at, Requesters: asked.requesters, Edited: asked.edited}
	g.Note = decided.Decisions[len(decided.Decisions)-1].Note
	for _, op := range records {
		s, err := readStanding(decided.Tenant, op.Item)
		if err != nil {
			return store.Op{}, err
		}
		g.Grants = append(g.Grants, tracedGrant{Tool: s.Tool, Digest: s.Digest, Expires: s.Expires, Uses: s.Uses})
	}
	body, err := json.Marshal(g)
	if err != nil {
		return store.Op{}, fmt.Errorf("marshal the grants of approval %s: %w", decided.ID, err)
	}
	key := store.Key{PK: runPartition(decided.Tenant, decided.Run), SK: fmt.Sprintf("G#%s#%d", decided.ID, decided.rev)}
	return store.Op{Kind: store.Put, Item: store.Item{Key: key, Body: body}}, nil
}

// revocationKey is where the newest revocation of grants of a tool and digest stands, in a partition of its own: no
// earlier one holds, whatever its own records say.
func revocationKey(tenant, agentName, tool, digest string) store.Key {
	return store.Key{PK: "T#" + tenant + "#REVOKED#" + agentName, SK: tool + "#" + digest}
}

// revocationRecord is what stands there.
type revocationRecord struct {
	Approval string    `json:"approval"` // the request that the revoked grant was given on
	At       time.Time `json:"at"`
}

// revocationOp records that the grant is revoked, apart from its record.
func (g StandingGrant) revocationOp(tenant string, now time.Time) (store.Op, error) {
	body, err := json.Marshal(revocationRecord{g.Approval, now})
	if err != nil {
		return store.Op{}, fmt.Errorf("marshal the revocation of %s for %s: %w", g.Tool, g.Agent, err)
	}
	return store.Op{Kind: store.Put, Item: store.Item{Key: revocationKey(tenant, g.Agent, g.Tool, g.Digest), Body: body}}, nil
}

// TraceGrants are those of an agent's standing grants, as their records say, that can be traced to a decision beside the run
// they name and were not revoked since, with who decided. What the decision says of one is what holds. It takes two
// reads a grant.
func TraceGrants(
	ctx context.Context, t store.Table, tenant, agentName string, found []run.StandingGrant,
) ([]run.StandingGrant, error) {
	var traced []run.StandingGrant
	for _, g := range found {
		g, ok, err := traceDecision(ctx, t, tenant, g)
		if err == nil && ok {
			ok, err = isUnrevoked(ctx, t, tenant, agentName, g)
		}
		if err != nil {
			return nil, fmt.Errorf("trace standing grant of %s for %s: %w", g.Tool, agentName, err)
		}
		if ok {
			traced = append(traced, g)
		}
	}
	return traced, nil
}

// traceDecision is a grant as the decision has it that gave it; false where there is none.
func traceDecision(
	ctx context.Context, t store.Table, tenant string, g run.StandingGrant,
) (run.StandingGrant, bool, error) {
	from, to := prefixRange("G#" + g.Approval)
	p, err := t.Query(ctx, store.Range{PK: runPartition(tenant, g.Run), From: from, To: to})
	if err != nil {
		return g, false, err
	}
	for _, it := range p.Items {
		var by decisionGrants
		if err := run.ReadStored("grants of a decision", it.Body, &by); err != nil {
			return g, false, store.Damaged(it.Key, "%w", err)
		}
		for _, is := range by.Grants {
			if is.Tool != g.Tool || is.Digest != g.Digest || len(by.Voices) == 0 {
				continue
			}
			g.By, g.Note, g.Expires, g.Uses = by.Voices[len(by.Voices)-1].By, by.Note, is.Expires, is.Uses
			g.Voices, g.Asked, g.Requesters, g.Edited = by.Voices, by.Asked, by.Requesters, by.Edited
			return g, true, nil
		}
	}
	return g, false, nil
}

// isUnrevoked reports whether no grant of the tool and digest was revoked since that one was given.
func isUnrevoked(ctx context.Context, t store.Table, tenant, agentName string, g run.StandingGrant) (bool, error) {
	key := revocationKey(tenant, agentName, g.Tool, g.Digest)
	it, found, err := t.Get(ctx, key)
	if err != nil || !found {
		return err == nil, err
	}
	var last revocationRecord
	if err := run.ReadStored("revocation", it.Body, &last); err != nil {
		return false, store.Damaged(key, "%w", err)
	}
	givenAt := g.Voices[len(g.Voices)-1].At
	return last.Approval != g.Approval && !givenAt.Before(last.At), nil
}
