package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// ErrNoGrant says that the tenant has no standing grant of the tool for the agent. It is the answer for another tenant's, too.
var ErrNoGrant = errors.New("no such standing grant")

// StandingGrant is one standing grant on record: people's permission for an agent to call a tool in every run (grants: standing). There is one
// record for a tool under one list of approvers, and under scope call for the arguments, and one more that is counted, and one for each
// pattern, under PK T#tenant#GRANT#agent, SK tool#digest; the newest grant replaces the one before. A revoked one is kept, and holds for
// nothing; so is one that is used up.
type StandingGrant struct {
	Agent     string     `json:"agent"`
	Tool      string     `json:"tool"`               // original name
	Digest    string     `json:"digest"`             // of what it covers, by agent.StandingDigest
	ArgsHash  string     `json:"argsHash,omitempty"` // of the arguments it is of, by agent.GrantedArgs; "" = whatever the tool is called with
	Args      string     `json:"args,omitempty"`     // them, to be read: the text of their JSON with secrets masked (package mask), cut by agent.Bounded
	Approval  string     `json:"approval"`
	Run       string     `json:"run"` // in which it was given
	By        string     `json:"by"`
	Note      string     `json:"note,omitempty"`
	At        time.Time  `json:"at"`
	Expires   time.Time  `json:"expiresAt"`
	Approvers []string   `json:"approvers"`       // of the calls it covers: one of them takes it back
	Above     [][]string `json:"above,omitempty"` // who is among each of these as well
	RevokedBy string     `json:"revokedBy,omitempty"`
	RevokedAt time.Time  `json:"revokedAt,omitzero"`

	When []run.Condition `json:"when,omitempty"` // it is of a pattern: of arguments that fit all of these
	With []string        `json:"with,omitempty"` // who gave it beside By
	Uses int             `json:"uses,omitempty"` // claims that it covers in all; 0 = they are not counted
	Used int             `json:"-"`              // of them, those that are made
}

func standingPartition(tenant, agentName string) string { return "T#" + tenant + "#GRANT#" + agentName }

func standingKey(tenant, agentName, tool, digest string) store.Key {
	return store.Key{PK: standingPartition(tenant, agentName), SK: tool + "#" + digest}
}

func standingIndex(tenant string) string { return "T#" + tenant + "#GRANTS" }

// prefixRange are the bounds of the sort keys that begin with name and #. No name has a #, and $ is the character behind it.
func prefixRange(name string) (from, to string) { return name + "#", name + "$" }

// putOp writes the whole record. A live one is listed.
func (g StandingGrant) putOp(tenant string) (store.Op, error) {
	body, err := run.MarshalVerbatim(g)
	if err != nil {
		return store.Op{}, fmt.Errorf("marshal standing grant of %s for %s: %w", g.Tool, g.Agent, err)
	}
	it := store.Item{Key: standingKey(tenant, g.Agent, g.Tool, g.Digest), Body: body, Attrs: map[string]store.Value{
		"approval": store.Str(g.Approval), "expires": store.Num(g.Expires.UnixMilli()), "revoked": store.Num(0), usedAttr: store.Num(int64(g.Used)),
	}}
	if g.RevokedBy == "" {
		it.Index, it.IndexSort = standingIndex(tenant), g.Agent+"#"+g.Tool+"#"+g.Digest
	} else {
		it.Attrs["revoked"] = store.Num(1)
	}
	return store.Op{Kind: store.Put, Item: it}, nil
}

// standingGrantOps are the records of the standing grants that the newest decision of a request gives; they ride in its transaction. None where
// grants do not outlive the run.
func (d *Desk) standingGrantOps(ctx context.Context, decided Approval) ([]store.Op, error) {
	if decided.Grants != agent.GrantsStanding || len(decided.Decisions) == 0 {
		return nil, nil
	}
	said := decided.Decisions[len(decided.Decisions)-1]
	var ops []store.Op
	text := d.argsMasker(ctx, decided)
	for _, p := range decided.Permissions {
		if p.Verdict != run.ToolGranted || decided.Kind == KindTools && !slices.Contains(said.Tools, p.Tool) {
			continue
		}
		for _, c := range p.Standing {
			g := StandingGrant{
				Agent: decided.Agent, Tool: p.Tool, Digest: c.Digest, Approval: decided.ID, Run: decided.Run, By: said.By, Note: said.Note,
				At: said.At, Approvers: c.Approvers, Above: c.Above,
				With: decided.otherGrantors(p, said.By),
			}
			stands, err := g.applyBounds(decided, p, c, text)
			if err != nil {
				return nil, err
			}
			if !stands {
				continue
			}
			op, err := g.putOp(decided.Tenant)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(ops, func(have store.Op) bool { return have.Item.Key == op.Item.Key }) { // calls of one pattern
				ops = append(ops, op)
			}
		}
	}
	return ops, nil
}

// otherGrantors are those who grant a permission beside one of them, each once: who approved.
func (a Approval) otherGrantors(p Permission, beside string) []string {
	said := a.CountedApprovals()
	if a.Kind == KindTools {
		said = a.approvalsOfTool(p.Tool)
	}
	var all []string
	for _, d := range said {
		if d.By != beside && !slices.Contains(all, d.By) {
			all = append(all, d.By)
		}
	}
	return all
}

// argsMasker reads arguments of a request's run with secrets masked, as its definition says what is one. That is read once, and only where it is wanted.
func (d *Desk) argsMasker(ctx context.Context, a Approval) func(tool string, args json.RawMessage) (string, error) {
	var def *agent.Definition
	return func(tool string, args json.RawMessage) (string, error) {
		if def == nil {
			l, err := d.Journal.Load(ctx, a.Tenant, a.Run)
			if err != nil {
				return "", err
			}
			if def, err = d.Definitions(ctx, a.Tenant, l.State.Definition); err != nil {
				return "", fmt.Errorf("decide approval %s: %w", a.ID, err)
			}
		}
		t, _ := def.Tool(tool)
		return mask.JSON(args, t.Schema), nil
	}
}

// StandingOp holds claims to the standing grant they are made under; it rides in the transaction of the claims. It fails unless one of the
// tool and digest is on record, not revoked and not expired; and that very one, where the approval is named. Of one that is counted, it fails
// unless it is used as g says it is with these claims, but for them; and uses it so.
func StandingOp(tenant, agentName string, g run.StandingGrant, claims int, now time.Time) store.Op {
	op := store.Op{Kind: store.Check, Item: store.Item{Key: standingKey(tenant, agentName, g.Tool, g.Digest)}, If: []store.Cond{
		{Attr: "revoked", Op: store.Equal, Value: store.Num(0)},
		{Attr: "expires", Op: store.Above, Value: store.Num(now.UnixMilli())},
	}}
	if g.Approval != "" {
		op.If = append(op.If, store.Cond{Attr: "approval", Op: store.Equal, Value: store.Str(g.Approval)})
	}
	if g.Uses > 0 && claims > 0 {
		op.Kind, op.Item.Attrs = store.Update, map[string]store.Value{usedAttr: store.Num(int64(g.Used))}
		op.If = append(op.If, store.Cond{Attr: usedAttr, Op: store.Equal, Value: store.Num(int64(g.Used - claims))})
	}
	return op
}

// IsStandingLive reports whether such a grant is on record and holds, used up or not: the conditions of StandingOp without claims, read
// consistently.
func IsStandingLive(ctx context.Context, t store.Table, tenant, agentName string, g run.StandingGrant, now time.Time) (bool, error) {
	it, found, err := t.Get(ctx, standingKey(tenant, agentName, g.Tool, g.Digest))
	if err != nil {
		return false, fmt.Errorf("read standing grant of %s for %s: %w", g.Tool, agentName, err)
	}
	return store.Holds(StandingOp(tenant, agentName, g, 0, now).If, it, found), nil
}

// LiveStanding reads the standing grants of these tools and digests consistently: those that are neither revoked nor expired nor
// used up, in order.
func LiveStanding(ctx context.Context, t store.Table, tenant, agentName string, of []run.StandingGrant, now time.Time) ([]run.StandingGrant, error) {
	var live []run.StandingGrant
	for _, want := range of {
		it, found, err := t.Get(ctx, standingKey(tenant, agentName, want.Tool, want.Digest))
		var g StandingGrant
		if err == nil && found {
			g, err = readStanding(tenant, it)
		}
		if err != nil {
			return nil, err
		}
		if found && g.isLive(now) {
			live = append(live, g.toRunGrant())
		}
	}
	return live, nil
}

func (g StandingGrant) isExpired(now time.Time) bool { return !now.Before(g.Expires) }

func (g StandingGrant) isLive(now time.Time) bool {
	return g.RevokedBy == "" && !g.isExpired(now) && !g.isExhausted()
}

// readStandingRange are the records of a tool in a range, live or not, of so many pages. Beside those that cannot be
// read, an error, it gives the others: whoever revokes grants revokes what can be.
func readStandingRange(ctx context.Context, t store.Table, tenant, agentName, tool string, r store.Range, pages int) ([]StandingGrant, error) {
	var all []StandingGrant
	var unread error
	r.PK = standingPartition(tenant, agentName)
	for ; ; pages-- {
		page, next, err := store.ReadPage(ctx, t, r, func(it store.Item) (StandingGrant, error) { return readStanding(tenant, it) })
		if err != nil && !errors.Is(err, store.ErrDamaged) {
			return nil, fmt.Errorf("read standing grants of %s for %s: %w", tool, agentName, err)
		}
		all, unread = append(all, page...), errors.Join(unread, err)
		if r.Cursor = next; r.Cursor == "" || pages <= 1 {
			return all, unread
		}
	}
}

// readStanding reads a record of a tenant, which must be the one that its key says, and what its attributes say, which claims are held to.
func readStanding(tenant string, it store.Item) (StandingGrant, error) {
	g, err := decodeStanding(tenant, it)
	if err != nil {
		return StandingGrant{}, fmt.Errorf("read standing grant %s %s: %w", it.PK, it.SK, err)
	}
	return g, nil
}

func decodeStanding(tenant string, it store.Item) (StandingGrant, error) {
	var g StandingGrant
	if err := run.ReadStored("standing grant", it.Body, &g); err != nil {
		return g, store.Damaged(it.Key, "%w", err)
	}
	approval, err := it.Text("approval")
	if err != nil {
		return g, err
	}
	expires, err := it.Number("expires")
	if err != nil {
		return g, err
	}
	revoked, err := it.Number("revoked")
	if err != nil {
		return g, err
	}
	used, err := it.Number(usedAttr)
	if err != nil {
		return g, err
	}
	g.Used = int(used)
	switch {
	case it.Key != standingKey(tenant, g.Agent, g.Tool, g.Digest):
		return g, store.Damaged(it.Key, "agent, tool and digest: want those of the key")
	case g.Approval != approval:
		return g, store.Damaged(it.Key, "approval: it is not the one that claims are held to")
	case g.Expires.UnixMilli() != expires:
		return g, store.Damaged(it.Key, "expiresAt: it is not the one that claims are held to")
	case (g.RevokedBy != "") != (revoked == 1) || revoked != 0 && revoked != 1:
		return g, store.Damaged(it.Key, "revokedBy: it is not what claims are held to")
	case g.Used < 0 || g.Uses < 0:
		return g, store.Damaged(it.Key, "uses: want 0 or more")
	}
	return g, nil
}

// StandingQuery narrows a list of standing grants. The zero value lists a page of all.
type StandingQuery struct {
	Agent  string // "" = of every agent
	Limit  int    // 0 = 50
	Cursor string // where a former page ended
}

// ListStanding pages through a tenant's standing grants that are neither revoked nor expired nor used up, by agent and tool. A page may hold fewer than
// the limit, and none, as it leaves out what has ended. It may be late; no gate reads it.
func ListStanding(ctx context.Context, t store.Table, tenant string, q StandingQuery, now time.Time) (list []StandingGrant, next string, err error) {
	if q.Limit == 0 {
		q.Limit = 50
	}
	r := store.Range{PK: standingIndex(tenant), Index: true, Limit: q.Limit, Cursor: q.Cursor}
	if q.Agent != "" {
		r.From, r.To = prefixRange(q.Agent)
	}
	list, next, err = store.ReadPage(ctx, t, r, func(it store.Item) (StandingGrant, error) { return readStanding(tenant, it) })
	if err != nil {
		err = fmt.Errorf("list standing grants: %w", err)
	}
	return slices.DeleteFunc(list, func(g StandingGrant) bool { return !g.isLive(now) }), next, err
}
