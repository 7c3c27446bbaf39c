package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/store"
)

// ErrNoGrant says that the tenant has no live standing grant of the tool for the agent. It is the answer for another tenant's, too.
var ErrNoGrant = errors.New("no such standing grant")

// Standing is one standing grant on record: people's permission for an agent to call a tool in every run (grants: standing). There is one
// record for a tool of an agent, under PK T#tenant#GRANT#agent, SK the tool; the newest grant replaces the one before. A revoked one is
// kept, and holds for nothing.
type Standing struct {
	Agent     string    `json:"agent"`
	Tool      string    `json:"tool"` // original name
	Approval  string    `json:"approval"`
	Run       string    `json:"run"` // in which it was given
	By        string    `json:"by"`
	Note      string    `json:"note,omitempty"`
	At        time.Time `json:"at"`
	Expires   time.Time `json:"expiresAt"`
	Digests   []string  `json:"digests"`   // by agent.StandingDigest
	Approvers []string  `json:"approvers"` // of the calls that asked; one of them may revoke it
	RevokedBy string    `json:"revokedBy,omitempty"`
	RevokedAt time.Time `json:"revokedAt,omitzero"`
}

func standingKey(tenant, agentName, tool string) store.Key {
	return store.Key{PK: "T#" + tenant + "#GRANT#" + agentName, SK: tool}
}

func standingIndex(tenant string) string { return "T#" + tenant + "#GRANTS" }

// op writes the whole record. A live one is listed.
func (g Standing) op(tenant string) (store.Op, error) {
	body, err := agent.MarshalVerbatim(g)
	if err != nil {
		return store.Op{}, fmt.Errorf("marshal standing grant of %s for %s: %w", g.Tool, g.Agent, err)
	}
	it := store.Item{Key: standingKey(tenant, g.Agent, g.Tool), Body: body, Attrs: map[string]store.Value{
		"approval": store.Str(g.Approval), "digests": store.Str(agent.PermitDigest(g.Digests)),
		"expires": store.Num(g.Expires.UnixMilli()), "revoked": store.Num(0),
	}}
	if g.RevokedBy == "" {
		it.Index, it.IndexSort = standingIndex(tenant), g.Agent+"#"+g.Tool
	} else {
		it.Attrs["revoked"] = store.Num(1)
	}
	return store.Op{Kind: store.Put, Item: it}, nil
}

// GrantOps are the records of the standing grants that the newest decision of a request gives; they ride in its transaction. None where
// grants do not outlive the run.
func GrantOps(decided Approval) ([]store.Op, error) {
	if decided.Grants != agent.GrantsStanding || len(decided.Decisions) == 0 {
		return nil, nil
	}
	said := decided.Decisions[len(decided.Decisions)-1]
	if said.Action != Approve {
		return nil, nil
	}
	var ops []store.Op
	for _, p := range decided.Permissions {
		if p.Verdict != agent.ToolGranted || decided.Kind == KindTools && !slices.Contains(said.Tools, p.Tool) || len(p.Standing) == 0 {
			continue
		}
		g := Standing{
			Agent: decided.Agent, Tool: p.Tool, Approval: decided.ID, Run: decided.Run, By: said.By, Note: said.Note,
			At: said.At, Expires: said.At.UTC().Add(agent.StandingLife), Digests: p.Standing, Approvers: p.approvers(),
		}
		op, err := g.op(decided.Tenant)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// approvers are those of any of the calls.
func (p Permission) approvers() []string {
	var all []string
	for _, c := range p.Calls {
		all = append(all, c.Approvers...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// StandingOp holds a claim to the standing grant of its tool; it rides in the transaction of the claim. It fails unless that very grant is
// on record, not revoked and not expired.
func StandingOp(tenant, agentName string, g agent.StandingGrant, now time.Time) store.Op {
	return store.Op{Kind: store.Check, Item: store.Item{Key: standingKey(tenant, agentName, g.Tool)}, If: []store.Cond{
		{Attr: "approval", Op: store.Equal, Value: store.Str(g.Approval)},
		{Attr: "digests", Op: store.Equal, Value: store.Str(agent.PermitDigest(g.Digests))},
		{Attr: "revoked", Op: store.Equal, Value: store.Num(0)},
		{Attr: "expires", Op: store.Above, Value: store.Num(now.UnixMilli())},
	}}
}

// StandingOf reads the standing grants of the tools consistently: those that are neither revoked nor expired, in the order of the tools.
func StandingOf(ctx context.Context, t store.Table, tenant, agentName string, tools []string, now time.Time) ([]agent.StandingGrant, error) {
	var live []agent.StandingGrant
	for _, tool := range tools {
		it, found, err := t.Get(ctx, standingKey(tenant, agentName, tool))
		if err != nil {
			return nil, fmt.Errorf("read standing grant of %s for %s: %w", tool, agentName, err)
		}
		if !found {
			continue
		}
		rec, err := readStanding(it)
		if err != nil {
			return nil, err
		}
		g := agent.StandingGrant{Tool: rec.Tool, Approval: rec.Approval, Digests: rec.Digests, By: rec.By, Note: rec.Note, Expires: rec.Expires}
		if store.Holds(StandingOp(tenant, agentName, g, now).If, it, found) {
			live = append(live, g)
		}
	}
	return live, nil
}

func readStanding(it store.Item) (Standing, error) {
	var g Standing
	if err := json.Unmarshal(it.Body, &g); err != nil {
		return Standing{}, fmt.Errorf("read standing grant %s %s: %w", it.PK, it.SK, err)
	}
	return g, nil
}

// ListStanding pages through a tenant's standing grants that are neither revoked nor expired, by agent and tool. Limit 0 is 50; a page may
// hold fewer, as it leaves out what has expired. It may be late; no gate reads it.
func ListStanding(ctx context.Context, t store.Table, tenant string, now time.Time, limit int, cursor string) (list []Standing, next string, err error) {
	if limit == 0 {
		limit = 50
	}
	p, err := t.Query(ctx, store.Range{PK: standingIndex(tenant), Index: true, Limit: limit, Cursor: cursor})
	if err != nil {
		return nil, "", fmt.Errorf("list standing grants: %w", err)
	}
	for _, it := range p.Items {
		g, err := readStanding(it)
		if err != nil {
			return nil, "", err
		}
		if g.RevokedBy == "" && now.Before(g.Expires) {
			list = append(list, g)
		}
	}
	return list, p.Cursor, nil
}

// RevokeStanding takes a standing grant back, for every claim from now on in the runs that found it; the run in which it was given keeps
// its own. Who gave it and who may decide about the tool may. ErrNoGrant where none is live; ErrForbidden; store.ErrGuardFailed where
// another grant or revocation came between. An error of any other kind is uncertain, and it may be repeated.
func RevokeStanding(ctx context.Context, t store.Table, tenant, agentName, tool string, by agent.Principal, now time.Time) (Standing, error) {
	what := fmt.Sprintf("revoke standing grant of %s for %s", tool, agentName)
	it, found, err := t.Get(ctx, standingKey(tenant, agentName, tool))
	if err != nil {
		return Standing{}, fmt.Errorf("%s: %w", what, err)
	}
	if !found {
		return Standing{}, fmt.Errorf("%s: %w", what, ErrNoGrant)
	}
	g, err := readStanding(it)
	if err != nil {
		return Standing{}, err
	}
	if !agent.MayDecide(append([]string{g.By}, g.Approvers...), by) {
		return Standing{}, fmt.Errorf("%s as %s: %w", what, by.ID, ErrForbidden)
	}
	if g.RevokedBy != "" || !now.Before(g.Expires) {
		return Standing{}, fmt.Errorf("%s: %w", what, ErrNoGrant)
	}
	g.RevokedBy, g.RevokedAt = by.ID, now.UTC().Truncate(time.Millisecond)
	op, err := g.op(tenant)
	if err != nil {
		return Standing{}, err
	}
	op.If = []store.Cond{
		{Attr: "approval", Op: store.Equal, Value: store.Str(g.Approval)},
		{Attr: "revoked", Op: store.Equal, Value: store.Num(0)},
	}
	err = t.Write(ctx, op)
	if store.FailedOp(err, 0) {
		err = store.ErrGuardFailed
	}
	if err != nil {
		return Standing{}, fmt.Errorf("%s: %w", what, err)
	}
	return g, nil
}
