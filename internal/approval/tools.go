package approval

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Permission is one tool of a request about tools, with a verdict of its own. A grant covers the tool with any
// arguments: those shown are of the calls that asked, and do not bind later calls (A18). With grants: standing under
// scope call, a grant covers exactly these arguments.
type Permission struct {
	Tool     string          `json:"tool"` // original name
	Name     string          `json:"name"` // the model's
	Effect   run.Effect      `json:"effect"`
	Calls    []BlockedCall   `json:"calls"` // the calls that ask
	Digests  []string        `json:"digests"`
	Standing []Cover         `json:"standing,omitempty"` // with grants: standing, what a grant covers in other runs
	Verdict  run.ToolVerdict `json:"verdict,omitempty"`  // "" = none yet
	Quorum   int             `json:"quorum,omitempty"`   // how many different people must grant it; 0 = 1

	Bounds *agent.GrantBounds `json:"bounds,omitempty"` // with grants: standing, the policy's bounds; nil = none

	usedUp bool // a claim has used up what was granted
}

// storedVerdict returns the verdict in the form of the item's attribute.
func (p Permission) storedVerdict() string {
	if p.usedUp {
		return verdictUsed
	}
	return string(p.Verdict)
}

// Cover is what a standing grant covers: a tool under its definition, its policy and its approvers.
type Cover struct {
	Digest    string     `json:"digest"`          // by policy.StandingDigest
	Approvers []string   `json:"approvers"`       // who decide such calls, and may revoke the grant
	Above     [][]string `json:"above,omitempty"` // sets that such an approver must be in as well
	Call      string     `json:"call,omitempty"`  // it covers the arguments of this call; "" = any
	Base      string     `json:"base,omitempty"`  // with Call: base of pattern digests; "" = no patterns
}

// BlockedCall is a call that was blocked and asks for the permission of its tool.
type BlockedCall struct {
	Call      string          `json:"call"`
	Args      json.RawMessage `json:"args"`                // the stored bytes, complete
	Described string          `json:"described,omitempty"` // as Approval.Described
	Approvers []string        `json:"approvers"`           // an approver of the tool is in this set of each call
	Above     [][]string      `json:"above,omitempty"`     // and in each of these sets
	RuleNote  string          `json:"note,omitempty"`

	EscalateTo []string   `json:"escalateTo,omitempty"` // approvers after the escalation
	AboveTo    [][]string `json:"aboveTo,omitempty"`    // who joins each set of Above then
	agent.Channels
}

func newBlockedCall(c run.Call, dec policy.Decision) BlockedCall {
	b := BlockedCall{
		Call: c.ID, Args: c.Input, Approvers: dec.Approvers, Above: dec.Above, RuleNote: dec.Note, Channels: dec.Channels,
	}
	if dec.Escalate != nil {
		b.EscalateTo, b.AboveTo = dec.Escalate.To, dec.AboveTo
	}
	return b
}

// effects, the least harmful first.
var effects = []run.Effect{run.EffectRead, run.EffectIdempotent, run.EffectNonIdempotent}

// NewToolsRequest builds the request that several blocked calls share. It is written with the entry that blocks them.
func NewToolsRequest(def *agent.Definition, s *run.AgentState, r run.PermissionRequest) Approval {
	a := Approval{
		Tenant: s.Tenant, ID: r.Approval, Run: s.Run, Agent: s.Agent, Kind: KindTools, Args: json.RawMessage("null"),
		Effect: run.EffectRead, Status: Pending, RequestedAt: r.Since, ExpiresAt: r.Expires, Decisions: []Decision{},
		Grants: grantDuration(policy.GrantPolicy(def)), RuleNote: r.Reason,
	}
	if def.Permission.Scope == agent.ScopeTool {
		a.Scope = agent.ScopeTool
	}
	var asks policy.Decision // the strictest of what the tools' rules ask
	for _, asked := range r.Tools {
		t, _ := def.Tool(asked.Tool)
		p := Permission{Tool: asked.Tool, Name: asked.Name, Effect: t.Effect, Digests: asked.Digests}
		for _, id := range asked.Calls {
			c, _ := s.Call(id)
			dec := policy.DecideIn(def, s, t, c.Input)
			p.Calls = append(p.Calls, newBlockedCall(c, dec))
			p.Quorum, asks = max(p.Quorum, dec.Quorum), asks.Together(dec)
			p.addStandingCover(def, s, c, dec)
			a.Calls = append(a.Calls, id)
			a.Approvers = slices.Concat(a.Approvers, dec.Approvers, slices.Concat(dec.Above...))
			if dec.Escalate != nil {
				a.EscalateTo = slices.Concat(a.EscalateTo, dec.Escalate.To, slices.Concat(dec.AboveTo...))
			}
		}
		a.Tools, a.Permissions = append(a.Tools, asked.Tool), append(a.Permissions, p)
		a.Effect = effects[max(0, slices.Index(effects, a.Effect), slices.Index(effects, t.Effect))]
	}
	a.Approvers, a.EscalateTo = sortedSet(a.Approvers), sortedSet(a.EscalateTo)
	return a.withPolicy(def, s, asks)
}

func sortedSet(of []string) []string { return slices.Compact(slices.Sorted(slices.Values(of))) }

// addStandingCover adds what a standing grant would cover of a call, the policy's bounds on it, and the base of pattern
// digests if the policy allows patterns.
func (p *Permission) addStandingCover(def *agent.Definition, s *run.AgentState, c run.Call, dec policy.Decision) {
	granting := policy.GrantPolicy(def)
	if !granting.Standing() {
		return
	}
	covers := Cover{Digest: policy.StandingOf(def, s, c), Approvers: dec.Approvers, Above: dec.Above}
	if dec.Escalate != nil { // those who join later may give the grant, and so revoke it
		covers.Approvers = slices.Concat(dec.Approvers, dec.Escalate.To)
		covers.Above = policy.WidenSets(dec.Above, dec.AboveTo)
	}
	if granting.GrantsExactArguments() {
		covers.Call = c.ID
	}
	if covers.Call != "" && granting.Patterns() {
		t, _ := def.Tool(c.Tool)
		covers.Base = policy.StandingBase(def, s, t, dec)
	}
	if b := granting.Bounds.Grant(); !b.Zero() {
		p.Bounds = &b
	}
	if !slices.ContainsFunc(p.Standing, func(have Cover) bool { return have.Digest == covers.Digest }) {
		p.Standing = append(p.Standing, covers)
	}
}

// grantDuration returns how long a grant of a tool lasts. Under scope call it lasts for the one repeated call, unless
// it is a standing grant of that call.
func grantDuration(p agent.Permission) agent.Grants {
	if p.Scope != agent.ScopeTool && !p.Standing() {
		return agent.GrantsOnce
	}
	return p.Grants
}

// verdictAttr and digestAttr name the item's attributes that conditions compare for the tool at a place.
func verdictAttr(place int) string { return "v" + strconv.Itoa(place) }
func digestAttr(place int) string  { return "d" + strconv.Itoa(place) }

// verdictUsed is the stored verdict of a grant that a claim has used up.
const verdictUsed = "used"

// verdictCond returns the condition that the tool at a place has that stored verdict.
func verdictCond(place int, recorded string) store.Cond {
	return equals(verdictAttr(place), store.Str(recorded))
}

// CloseToolsOp ends a pending request about tools in the transaction of the entry that ends it. It fails if somebody
// has decided a tool that the run has no verdict for.
func CloseToolsOp(tenant string, r run.PermissionRequest, as Status) store.Op {
	op := CloseOp(tenant, run.Wait{Approval: r.Approval, Since: r.Since}, as)
	for i, t := range r.Tools {
		if t.Verdict == "" { // the others are decided, and may be used up
			op.If = append(op.If, verdictCond(i, ""))
		}
	}
	return op
}

// PermitOp makes a claim depend on the grant of its tool, in the claim's transaction (A18). It fails unless that
// permission was granted and is not used up. Once uses it up.
func PermitOp(tenant string, p run.ToolPermit, once bool) store.Op {
	op := store.Op{Kind: store.Check, Item: store.Item{Key: itemKey(tenant, p.Approval)}, If: []store.Cond{
		verdictCond(p.Place, string(run.ToolGranted)),
		equals(digestAttr(p.Place), store.Str(policy.PermitDigest(p.Digests))),
	}}
	if once {
		op.Kind, op.Item.Attrs = store.Update, map[string]store.Value{verdictAttr(p.Place): store.Str(verdictUsed)}
	}
	return op
}

// IsPermitLive reports whether the grant still holds, by a consistent read of the conditions of PermitOp.
func IsPermitLive(ctx context.Context, t store.Table, tenant string, p run.ToolPermit) (bool, error) {
	return conditionsHold(ctx, t, PermitOp(tenant, p, false), "approval "+p.Approval)
}

// named returns the tools that a decision names by either name. For "" it returns all tools, of a pending request only
// the undecided ones. There are none of a request about a call.
func (a Approval) named(tool string) []Permission {
	if a.Kind != KindTools {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(a.Permissions), func(p Permission) bool {
		if tool == "" {
			return p.Verdict != "" && a.Status == Pending
		}
		return tool != p.Tool && tool != p.Name
	})
}

// undecided returns the undecided ones of the tools that a decision names.
func (a Approval) undecided(tool string) []Permission {
	return slices.DeleteFunc(a.named(tool), func(p Permission) bool { return p.Verdict != "" })
}

// hasSameVerdicts reports whether the named tools have the verdict that n gives. If n names no tool, an equal earlier
// decision of the same person counts as well.
func (a Approval) hasSameVerdicts(n Decision, tool string) bool {
	same := slices.DeleteFunc(slices.Clone(a.Decisions), func(d Decision) bool { return !d.equals(n) })
	if n.Action == Fail || tool == "" && hasDecisionBy(same, n.By) {
		return hasDecisionBy(same, n.By)
	}
	named := a.named(tool)
	return len(named) > 0 && !slices.ContainsFunc(named, func(p Permission) bool {
		about := func(d Decision) bool { return slices.Contains(d.Tools, p.Tool) }
		return p.Verdict != run.DecisionAction(n.Action).Verdict() || !slices.ContainsFunc(same, about)
	})
}

// readGrants recomputes from the run what standing grants would cover, and what the approval of a call grants besides
// the call. The stored item is not trusted for that.
func (t *attempt) readGrants() {
	a, c := &t.decided, t.call
	if a.Kind == KindCall {
		if a.Permissions = nil; t.isWaiting() {
			c.Input = a.Args
			current := NewCallRequest(t.def, &t.loaded.State, c)
			a.Scope, a.Grants, a.Permissions = current.Scope, current.Grants, current.Permissions
			t.grants.Asked, t.grants.Requesters = c.Wait.Since, t.loaded.State.RequestersAt(c.Wait.Contributors)
			t.grants.Edited = a.OriginalArgs != nil || t.call.Editor() != ""
		}
		return
	}
	var current Approval
	for _, open := range t.loaded.State.OpenRequests() {
		if open.Approval == a.ID {
			current = NewToolsRequest(t.def, &t.loaded.State, open)
			t.grants.Asked, t.grants.Requesters = open.Since, t.loaded.State.RequestersAt(open.Contributors)
		}
	}
	for i := range a.Permissions {
		p := &a.Permissions[i]
		p.Standing = nil
		for _, real := range current.Permissions {
			if real.Tool == p.Tool {
				p.Calls, p.Standing, p.Bounds = real.Calls, real.Standing, real.Bounds
			}
		}
	}
}

// tallyTools counts a decision about tools: each of them that has its quorum gets its verdict.
func (t *attempt) tallyTools(ctx context.Context) error {
	a, fact := &t.decided, t.fact
	a.Permissions = slices.Clone(a.Permissions)
	if t.Action == Approve && a.Grants == agent.GrantsStanding {
		if err := t.loadCall(ctx); err != nil {
			return err
		}
		t.readGrants()
	}
	for _, p := range a.undecided(t.Tool) {
		t.record.Tools = append(t.record.Tools, p.Tool)
	}
	a.Decisions = append(slices.Clip(a.Decisions), t.record)
	fact.Call, fact.Action = "", run.DecisionAction(t.Action)
	for i := range a.Permissions {
		p := &a.Permissions[i]
		approvals := a.ApprovalsOf(*p)
		if !slices.Contains(t.record.Tools, p.Tool) || t.Action == Approve && len(approvals) < p.Quorum {
			continue
		}
		p.Verdict = fact.Action.Verdict()
		fact.Tools = append(fact.Tools, p.Tool)
		for _, v := range approvals {
			if t.Action == Approve && v.By != t.By.ID && !slices.Contains(fact.With, v.By) {
				fact.With = append(fact.With, v.By)
			}
		}
	}
	switch t.Action {
	case Approve:
		fact.Once, fact.Standing = a.Grants == agent.GrantsOnce, a.Grants == agent.GrantsStanding
		if a.FourEyes { // the model reads a note, which makes its author a requester, who may not approve
			fact.Note = ""
		}
	case Deny:
		fact.Once = a.Scope != agent.ScopeTool
	}
	has := func(v run.ToolVerdict) bool {
		return slices.ContainsFunc(a.Permissions, func(p Permission) bool { return p.Verdict == v })
	}
	switch {
	case len(fact.Tools) == 0 && t.Action != Fail:
		t.fact = nil
	case t.Action == Fail:
		a.Status = Cancelled
	case has(""):
	case has(run.ToolGranted):
		a.Status = Approved
	case has(run.ToolDenied):
		a.Status = Denied
	default:
		a.Status = Cancelled
	}
	return nil
}
