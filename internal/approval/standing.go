package approval

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// ErrNoGrant says that the tenant has no standing grant of the tool for the agent.
var ErrNoGrant = errors.New("no such standing grant")

// StandingGrant is the record of a standing grant: people permit an agent to call a tool in every run (grants:
// standing). There is one record for each tool and list of approvers. Under scope call there is one for each argument
// value, one more if uses are counted, and one for each pattern. The key is PK T#tenant#GRANT#agent, SK tool#digest; a
// newer grant replaces the older one. A revoked or used-up record is kept, and covers nothing.
type StandingGrant struct {
	Agent  string `json:"agent"`
	Tool   string `json:"tool"`   // original name
	Digest string `json:"digest"` // by policy.StandingDigest or PatternDigest; with Uses after CountedPrefix
	// of the only arguments it covers, by policy.GrantedArgs; "" = any arguments
	ArgsHash  string     `json:"argsHash,omitempty"`
	Args      string     `json:"args,omitempty"` // these arguments for people to read: masked, cut by agent.Bounded
	Approval  string     `json:"approval"`
	Run       string     `json:"run"` // in which it was given
	By        string     `json:"by"`
	Note      string     `json:"note,omitempty"`
	At        time.Time  `json:"at"`
	Expires   time.Time  `json:"expiresAt"`
	Approvers []string   `json:"approvers"`       // of the calls it covers; each of them may revoke it
	Above     [][]string `json:"above,omitempty"` // sets that such an approver must be in as well
	RevokedBy string     `json:"revokedBy,omitempty"`
	RevokedAt time.Time  `json:"revokedAt,omitzero"`

	When []run.Condition `json:"when,omitempty"` // pattern: it covers arguments that match all of these
	With []string        `json:"with,omitempty"` // who gave it together with By
	Uses int             `json:"uses,omitempty"` // how many claims it covers in all; 0 = any number
	Used int             `json:"-"`              // claims made so far
}

func standingPartition(tenant, agentName string) string { return "T#" + tenant + "#GRANT#" + agentName }

func standingKey(tenant, agentName, tool, digest string) store.Key {
	return store.Key{PK: standingPartition(tenant, agentName), SK: tool + "#" + digest}
}

func standingIndex(tenant string) string { return "T#" + tenant + "#GRANTS" }

// prefixRange returns the bounds of the sort keys that begin with name and #. No name contains #, and $ is the next
// character after it.
func prefixRange(name string) (from, to string) { return name + "#", name + "$" }

// putOp writes the whole record. Only a grant that is not revoked is in the index.
func (g StandingGrant) putOp(tenant string) (store.Op, error) {
	body, err := jsonx.MarshalVerbatim(g)
	if err != nil {
		return store.Op{}, fmt.Errorf("marshal standing grant of %s for %s: %w", g.Tool, g.Agent, err)
	}
	it := store.Item{Key: standingKey(tenant, g.Agent, g.Tool, g.Digest), Body: body, Attrs: map[string]store.Value{
		"approval": store.Str(g.Approval), "expires": store.Num(g.Expires.UnixMilli()), "revoked": store.Num(0),
		usedAttr: store.Num(int64(g.Used)),
	}}
	if g.RevokedBy == "" {
		it.Index, it.IndexSort = standingIndex(tenant), g.Agent+"#"+g.Tool+"#"+g.Digest
	} else {
		it.Attrs["revoked"] = store.Num(1)
	}
	return store.Op{Kind: store.Put, Item: it}, nil
}

// A standing grant is recorded twice: under its agent, where it is listed and counted, and with the decision in the
// run's partition, for the gate (PK T#tenant#RUN#run, SK G#request#revision). A process that can write only the first
// record lets nothing run: a grant covers a call only if the second record agrees, and if the call's policy accepts the
// people who gave it. A revocation is recorded twice as well: see revocationKey.

// decisionGrants are the standing grants of one decision, as recorded with the run.
type decisionGrants struct {
	ApprovedBy []run.Approver `json:"approvedBy"` // the newest last; never empty
	Note       string         `json:"note,omitempty"`
	Asked      time.Time      `json:"asked"`
	Requesters []string       `json:"requesters,omitempty"` // people who may not approve under four eyes
	Edited     bool           `json:"edited,omitempty"`     // a person has changed the arguments since
	Grants     []tracedGrant  `json:"grants"`
}

type tracedGrant struct {
	Tool    string    `json:"tool"` // original name
	Digest  string    `json:"digest"`
	Expires time.Time `json:"expires"`
	Uses    int       `json:"uses,omitempty"`
}

// grantOps returns the writes of the standing grants that the decision gives, and of their record with the run. They
// join the decision's transaction. There are none if the policy's grants end with the run. It fails if the agent has
// too many patterns for a tool.
func (t *attempt) grantOps(ctx context.Context) (ops []store.Op, err error) {
	record := t.grants
	record.ApprovedBy, record.Note = t.fact.ApprovedBy, t.Note
	for _, g := range t.standingGrants() {
		if len(g.When) > 0 {
			have, err := readPatterns(ctx, t.Table, t.Tenant, g.Agent, g.Tool)
			if err != nil {
				return nil, err
			}
			have = slices.DeleteFunc(have, func(old StandingGrant) bool { return !old.isLive(t.now) || old.Digest == g.Digest })
			if len(have) >= MaxPatterns {
				return nil, &GrantError{Problem: fmt.Sprintf(
					"grant.when: %s has %d grants of patterns for %s, want some to be revoked first", g.Agent, len(have), g.Tool)}
			}
		}
		op, err := g.putOp(t.Tenant)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
		record.Grants = append(record.Grants, tracedGrant{Tool: g.Tool, Digest: g.Digest, Expires: g.Expires, Uses: g.Uses})
	}
	if len(ops) == 0 {
		return nil, nil
	}
	body, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("marshal the grants of approval %s: %w", t.ID, err)
	}
	key := store.Key{PK: runPartition(t.Tenant, t.decided.Run), SK: fmt.Sprintf("G#%s#%d", t.ID, t.decided.rev)}
	return append(ops, store.Op{Kind: store.Put, Item: store.Item{Key: key, Body: body}}), nil
}

// standingGrants returns the standing grants that the decision gives.
func (t *attempt) standingGrants() (all []StandingGrant) {
	a := t.decided
	for _, p := range t.permitted() {
		if p.Verdict != run.ToolGranted {
			continue
		}
		others := slices.DeleteFunc(a.ApprovalsOf(p), func(d Decision) bool { return d.By == t.By.ID })
		b := a.grantBounds(p)
		for _, c := range p.Standing {
			if !p.argsMatch(boundsOrNone(p.Bounds).When, c.Call) {
				continue
			}
			g := StandingGrant{
				Agent: a.Agent, Tool: p.Tool, Digest: c.Digest, Approval: a.ID, Run: a.Run, By: t.By.ID, With: peopleOf(others),
				Note: t.Note, At: t.now, Approvers: c.Approvers, Above: c.Above, Uses: b.Uses, Expires: b.Expires(t.now),
				When: b.When,
			}
			at := slices.IndexFunc(p.Calls, func(b BlockedCall) bool { return b.Call == c.Call })
			switch {
			case len(b.When) > 0:
				g.Digest = policy.PatternDigest(c.patternBase(), b.When)
			case b.Uses > 0:
				g.Digest = policy.CountedPrefix + c.Digest
			}
			if len(b.When) == 0 && c.Call != "" && at >= 0 { // it covers the arguments of this call alone
				args := p.Calls[at].Args
				g.ArgsHash, g.Args = policy.GrantedArgs(args), agent.Bounded(t.mask(p.Tool, args))
			}
			same := func(have StandingGrant) bool { return have.Tool == g.Tool && have.Digest == g.Digest }
			if !slices.ContainsFunc(all, same) { // several calls may have one pattern
				all = append(all, g)
			}
		}
	}
	return all
}

// mask returns arguments of a tool with secrets masked, by the definition of the request's run.
func (t *attempt) mask(tool string, args json.RawMessage) string {
	spec, _ := t.def.Tool(tool)
	return mask.JSON(args, spec.Schema)
}

// DeleteStanding deletes the standing grants that a run has given: without the run's record of them, which the deletion
// removes behind it, they cover nothing. So a record that cannot be read keeps no run from being deleted. A grant that
// has replaced one of them stays.
func DeleteStanding(ctx context.Context, t store.Table, tenant, agentName, run string) error {
	from, to := prefixRange("G")
	for r := (store.Range{PK: runPartition(tenant, run), From: from, To: to}); ; {
		page, err := t.Query(ctx, r)
		if err != nil {
			return err
		}
		for _, it := range page.Items {
			var by decisionGrants
			if jsonx.ReadStored("grants of a decision", it.Body, &by) != nil {
				continue
			}
			for _, g := range by.Grants {
				err := t.Write(ctx, store.Op{
					Kind: store.Delete, Item: store.Item{Key: standingKey(tenant, agentName, g.Tool, g.Digest)},
					If: []store.Cond{equals("approval", store.Str(strings.Split(it.SK, "#")[1]))},
				})
				if err != nil && !store.FailedOp(err, 0) {
					return err
				}
			}
		}
		if r.Cursor = page.Cursor; r.Cursor == "" {
			return nil
		}
	}
}

// StandingOp makes claims depend on their standing grant, in the claims' transaction. It fails unless a grant of the
// tool and digest is on record, neither revoked nor expired; if g names an approval, it must be that very grant. If the
// grant counts its uses, StandingOp fails unless g.Used is the stored count plus these claims, and stores g.Used.
func StandingOp(tenant, agentName string, g run.StandingGrant, claims int, now time.Time) store.Op {
	op := store.Op{
		Kind: store.Check, Item: store.Item{Key: standingKey(tenant, agentName, g.Tool, g.Digest)},
		If: []store.Cond{equals("revoked", store.Num(0)), expiresAfter(now)},
	}
	if g.Approval != "" {
		op.If = append(op.If, equals("approval", store.Str(g.Approval)))
	}
	if g.Uses > 0 && claims > 0 {
		op.Kind, op.Item.Attrs = store.Update, map[string]store.Value{usedAttr: store.Num(int64(g.Used))}
		op.If = append(op.If, equals(usedAttr, store.Num(int64(g.Used-claims))))
	}
	return op
}

// IsStandingLive reports whether the grant is on record and holds, used up or not: a consistent read of the conditions
// of StandingOp without claims.
func IsStandingLive(
	ctx context.Context, t store.Table, tenant, agentName string, g run.StandingGrant, now time.Time,
) (bool, error) {
	op := StandingOp(tenant, agentName, g, 0, now)
	return conditionsHold(ctx, t, op, fmt.Sprintf("standing grant of %s for %s", g.Tool, agentName))
}

// LiveStanding reads consistently the live standing grants of these tools and digests, in order: not revoked, not
// expired, not used up.
func LiveStanding(
	ctx context.Context, t store.Table, tenant, agentName string, of []run.StandingGrant, now time.Time,
) ([]run.StandingGrant, error) {
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
	return g.RevokedBy == "" && !g.isExpired(now) && (g.Uses == 0 || g.Used < g.Uses)
}

// readStandingRange reads at most so many pages of records of a tool, live or not. If some records are damaged, it
// returns the others with an error, so that a revocation can revoke them.
func readStandingRange(
	ctx context.Context, t store.Table, tenant, agentName, tool string, r store.Range, pages int,
) ([]StandingGrant, error) {
	var all []StandingGrant
	var unread error
	r.PK = standingPartition(tenant, agentName)
	for ; ; pages-- {
		page, next, err := readStandingPage(ctx, t, tenant, r)
		if err != nil && !errors.Is(err, store.ErrDamaged) {
			return nil, fmt.Errorf("read standing grants of %s for %s: %w", tool, agentName, err)
		}
		all, unread = append(all, page...), errors.Join(unread, err)
		if r.Cursor = next; r.Cursor == "" || pages <= 1 {
			return all, unread
		}
	}
}

func readStandingPage(
	ctx context.Context, t store.Table, tenant string, r store.Range,
) (page []StandingGrant, next string, err error) {
	return store.ReadPage(ctx, t, r, func(it store.Item) (StandingGrant, error) { return readStanding(tenant, it) })
}

// readStanding decodes a record of a tenant. The record must match its key and the attributes that claims compare.
func readStanding(tenant string, it store.Item) (g StandingGrant, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read standing grant %s %s: %w", it.PK, it.SK, err)
		}
	}()
	if err := jsonx.ReadStored("standing grant", it.Body, &g); err != nil {
		return g, store.Damaged(it.Key, "%w", err)
	}
	approval, err1 := it.Text("approval")
	expires, err2 := it.Number("expires")
	revoked, err3 := it.Number("revoked")
	used, err4 := it.Number(usedAttr)
	if err := cmp.Or(err1, err2, err3, err4); err != nil {
		return g, err
	}
	g.Used = int(used)
	switch {
	case it.Key != standingKey(tenant, g.Agent, g.Tool, g.Digest):
		return g, store.Damaged(it.Key, "agent, tool and digest: want those of the key")
	case g.Approval != approval:
		return g, store.Damaged(it.Key, "approval: it is not the one that claims check")
	case g.Expires.UnixMilli() != expires:
		return g, store.Damaged(it.Key, "expiresAt: it is not the one that claims check")
	case (g.RevokedBy != "") != (revoked == 1) || revoked != 0 && revoked != 1:
		return g, store.Damaged(it.Key, "revokedBy: it is not what claims check")
	case g.Used < 0 || g.Uses < 0:
		return g, store.Damaged(it.Key, "uses: want 0 or more")
	}
	return g, nil
}

// StandingQuery narrows a list of standing grants. The zero value lists the first page of all.
type StandingQuery struct {
	Agent  string // "" = of every agent
	Limit  int    // 0 = 50
	Cursor string // where the last page ended
}

// ListStanding pages through a tenant's live standing grants, by agent and tool. A page may hold fewer grants than the
// limit, even none, and not be the last: grants that have ended are left out. The list may lag behind; no gate reads
// it.
func ListStanding(
	ctx context.Context, t store.Table, tenant string, q StandingQuery, now time.Time,
) (list []StandingGrant, next string, err error) {
	if q.Limit == 0 {
		q.Limit = 50
	}
	r := store.Range{PK: standingIndex(tenant), Index: true, Limit: q.Limit, Cursor: q.Cursor}
	if q.Agent != "" {
		r.From, r.To = prefixRange(q.Agent)
	}
	if list, next, err = readStandingPage(ctx, t, tenant, r); err != nil {
		err = fmt.Errorf("list standing grants: %w", err)
	}
	return slices.DeleteFunc(list, func(g StandingGrant) bool { return !g.isLive(now) }), next, err
}

// Revocation is one person's order to revoke a tool's standing grants for an agent. By comes from what authenticated
// the person.
type Revocation struct {
	Tenant, Agent string
	Tool          string // original name
	Digest        string // of the one grant to revoke; "" = all grants of the tool
	By            policy.Principal
}

// Revoke revokes the standing grants of a tool for an agent: from then on no claim under one commits, in any run. The
// person must be an approver of every one of them. Grants that are revoked already are no error. If there are more than
// store.MaxOps of them, an error may leave some; a repeated call revokes the rest.
//
// Errors: ErrNoGrant if there is none, or it has expired; ErrForbidden; store.ErrConflict if others keep writing. After
// any other error the outcome is unknown, and the caller may repeat the call.
func (d *Desk) Revoke(ctx context.Context, r Revocation) (err error) {
	defer func() {
		d.logRefusal(err, r.By, "tenant", r.Tenant, "agent", r.Agent, "tool", r.Tool)
		if err == nil && d.Log != nil {
			d.Log.Info("standing grants revoked",
				"tenant", r.Tenant, "agent", r.Agent, "tool", r.Tool, "digest", r.Digest, "by", r.By.ID)
		}
	}()
	what := fmt.Sprintf("revoke standing grant of %s for %s", r.Tool, r.Agent)
	for range maxRaces {
		ops, unread, err := d.planRevocation(ctx, r)
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
		case err == nil && unread != nil:
			return fmt.Errorf("%s: all but what cannot be read: %w", what, unread)
		case err == nil:
			return nil
		case !errors.As(err, &raced): // else somebody granted or revoked meanwhile: read the records again
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return fmt.Errorf("%s: %w", what, store.ErrConflict)
}

// planRevocation returns the writes that are left to do, none if all grants are revoked already. Unread reports grants
// to be revoked that cannot be read.
func (d *Desk) planRevocation(ctx context.Context, r Revocation) (ops []store.Op, unread, err error) {
	from, to := prefixRange(r.Tool)
	if r.Digest != "" {
		key := standingKey(r.Tenant, r.Agent, r.Tool, r.Digest)
		if store.CheckKey(key) != nil { // no grant has such a digest
			return nil, nil, ErrNoGrant
		}
		from, to = key.SK, key.SK
	}
	all, unread := readStandingRange(
		ctx, d.Table, r.Tenant, r.Agent, r.Tool, store.Range{From: from, To: to}, math.MaxInt,
	)
	if unread != nil && !errors.Is(unread, store.ErrDamaged) {
		return nil, nil, unread
	}
	now := d.Clock.Now().UTC().Truncate(time.Millisecond)
	all = slices.DeleteFunc(all, func(g StandingGrant) bool { return g.isExpired(now) })
	// A used-up grant is revoked as well, because a call under it may run again.
	live := slices.DeleteFunc(slices.Clone(all), func(g StandingGrant) bool { return g.RevokedBy != "" })
	if len(all) == 0 {
		return nil, unread, cmp.Or(unread, ErrNoGrant)
	}
	toAuthorize := live
	if len(live) == 0 {
		toAuthorize = all
	}
	for _, g := range toAuthorize {
		if !policy.MayDecideEach(r.By, g.Approvers, g.Above) {
			return nil, nil, fmt.Errorf("as %s: %w", r.By.ID, ErrForbidden)
		}
	}
	for _, g := range live {
		g.RevokedBy, g.RevokedAt = r.By.ID, now
		op, err := g.putOp(r.Tenant)
		if err != nil {
			return nil, nil, err
		}
		// no other grant has replaced it
		op.If = []store.Cond{equals("approval", store.Str(g.Approval)), equals("revoked", store.Num(0))}
		body, err := json.Marshal(revocationRecord{g.Approval, now})
		if err != nil {
			return nil, nil, fmt.Errorf("marshal the revocation of %s for %s: %w", g.Tool, g.Agent, err)
		}
		apart := store.Item{Key: revocationKey(r.Tenant, g.Agent, g.Tool, g.Digest), Body: body}
		ops = append(ops, op, store.Op{Kind: store.Put, Item: apart})
	}
	return ops, unread, nil
}

// revocationKey returns the key of the newest revocation of grants of a tool and digest, in a partition of its own. No
// earlier grant holds, whatever its record says.
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
		if err := jsonx.ReadStored("grants of a decision", it.Body, &by); err != nil {
			return g, false, store.Damaged(it.Key, "%w", err)
		}
		for _, is := range by.Grants {
			if is.Tool != g.Tool || is.Digest != g.Digest || len(by.ApprovedBy) == 0 {
				continue
			}
			g.By, g.Note, g.Expires, g.Uses = by.ApprovedBy[len(by.ApprovedBy)-1].By, by.Note, is.Expires, is.Uses
			g.ApprovedBy, g.Asked, g.Requesters, g.Edited = by.ApprovedBy, by.Asked, by.Requesters, by.Edited
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
	if err := jsonx.ReadStored("revocation", it.Body, &last); err != nil {
		return false, store.Damaged(key, "%w", err)
	}
	givenAt := g.ApprovedBy[len(g.ApprovedBy)-1].At
	return last.Approval != g.Approval && !givenAt.Before(last.At), nil
}
