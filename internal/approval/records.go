package approval

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// A standing grant is recorded twice: under its agent, where it is listed and counted, and with the decision in the run's
// partition, for the gate (PK T#tenant#RUN#run, SK G#request#revision). A process that can write only the first record
// lets nothing run: a grant covers a call only if the second record agrees, and if the call's policy accepts the people
// who gave it. A revocation is recorded twice as well: see revocationKey.

// decisionGrants are the standing grants of one decision, as recorded with the run.
type decisionGrants struct {
	Voices     []run.Voice   `json:"voices"` // the newest last; never empty
	Note       string        `json:"note,omitempty"`
	Asked      time.Time     `json:"asked"`
	Requesters []string      `json:"requesters,omitempty"`
	Edited     bool          `json:"edited,omitempty"`
	Grants     []tracedGrant `json:"grants"`
}

type tracedGrant struct {
	Tool    string    `json:"tool"` // original name
	Digest  string    `json:"digest"`
	Expires time.Time `json:"expires"`
	Uses    int       `json:"uses,omitempty"`
}

// traceOp records with the run the grants that the newest decision of a request gives.
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

// revocationKey is the key of the newest revocation of grants of a tool and digest, in a partition of its own. No
// earlier grant holds, whatever its records say.
func revocationKey(tenant, agentName, tool, digest string) store.Key {
	return store.Key{PK: "T#" + tenant + "#REVOKED#" + agentName, SK: tool + "#" + digest}
}

type revocationRecord struct {
	Approval string    `json:"approval"` // the request that the revoked grant was given on
	At       time.Time `json:"at"`
}

// TraceGrants keeps the standing grants that can be traced to a decision recorded with their run and were not revoked
// since. It takes the grants' terms and their approvers from that decision. It takes two reads for each grant.
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

// traceDecision completes a grant from the decision that gave it; false = there is none.
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

// isUnrevoked reports whether no grant of the tool and digest was revoked since this one was given.
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

// The approvals of a request are recorded twice: in its item, for people, and in the run's partition, for the claim (PK
// T#tenant#RUN#run, SK V#request#person#revision). A process that can write only the item changes what people see, and
// lets nothing run: the fact that lets a call run names the people whose approvals are in the run's partition. The claim
// counts them against the policy (agent.Grant, ToolPermit, StandingGrant).

// approvalRecord is an approval as recorded with its run.
type approvalRecord struct {
	run.Voice
	About string `json:"about"` // by subjectDigest
}

func runPartition(tenant, run string) string { return "T#" + tenant + "#RUN#" + run }

// subjectDigest is the digest of what an approval is about: the action or the answer, the tools, and the bounds of the
// grant.
func subjectDigest(a Approval, decision Decision) (string, error) {
	digest := a.Digest
	if a.Kind == KindInput { // the answer replaces it
		digest = ""
	}
	of, err := run.MarshalVerbatim([]any{digest, decision.Action, decision.Args, decision.Tools, decision.Grant})
	if err != nil {
		return "", fmt.Errorf("record the approval of %s: %w", decision.By, err)
	}
	return store.BlobDigest(of), nil
}

// newestVoice is the person's part in the newest decision of a request.
func newestVoice(decided Approval, by policy.Principal) run.Voice {
	decision := decided.Decisions[len(decided.Decisions)-1]
	return run.Voice{
		By: by.ID, Groups: by.Groups, At: decision.At, Tools: decision.Tools,
		Via: decision.Via, Confirmed: decision.Confirmed,
	}
}

// approvalRecordOp records the newest approval of a request that stays pending.
func approvalRecordOp(decided Approval, by policy.Principal) (store.Op, error) {
	of, err := subjectDigest(decided, decided.Decisions[len(decided.Decisions)-1])
	if err != nil {
		return store.Op{}, err
	}
	body, err := json.Marshal(approvalRecord{newestVoice(decided, by), of})
	if err != nil {
		return store.Op{}, fmt.Errorf("record the approval of %s: %w", by.ID, err)
	}
	key := store.Key{
		PK: runPartition(decided.Tenant, decided.Run), SK: fmt.Sprintf("V#%s#%s#%d", decided.ID, by.ID, decided.rev),
	}
	return store.Op{Kind: store.Put, Item: store.Item{Key: key, Body: body}}, nil
}

// loadVoices returns the people who have decided a request: the newest one, and those with whom it is decided, as
// recorded with the run.
func (d *Desk) loadVoices(ctx context.Context, decided Approval, by policy.Principal, with []string) ([]run.Voice, error) {
	last := newestVoice(decided, by)
	if len(with) == 0 {
		return []run.Voice{last}, nil
	}
	from, to := prefixRange("V#" + decided.ID)
	p, err := d.Table.Query(ctx, store.Range{PK: runPartition(decided.Tenant, decided.Run), From: from, To: to})
	if err != nil {
		return nil, fmt.Errorf("read the approvals of %s: %w", decided.ID, err)
	}
	counted := map[string]bool{} // by person and subject
	for _, of := range decided.Decisions[:len(decided.Decisions)-1] {
		what, err := subjectDigest(decided, of)
		if err != nil {
			return nil, err
		}
		counted[of.By+" "+what] = slices.Contains(with, of.By)
	}
	var all []run.Voice
	for _, it := range p.Items {
		var r approvalRecord
		if err := json.Unmarshal(it.Body, &r); err != nil {
			return nil, fmt.Errorf("read the approvals of %s: %w", decided.ID, store.Damaged(it.Key, "%w", err))
		}
		if counted[r.By+" "+r.About] {
			all = append(all, r.Voice)
		}
	}
	slices.SortStableFunc(all, func(a, b run.Voice) int { return a.At.Compare(b.At) })
	return append(all, last), nil
}
