package approval

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

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

// toolPlaces returns the indexes in Permissions of the tool that a decision names by either name. For "" it returns all
// tools, of a pending request only the undecided ones.
func (a Approval) toolPlaces(tool string) (places []int) {
	for i, p := range a.Permissions {
		isMeant := tool == p.Tool || tool == p.Name
		if tool == "" {
			isMeant = p.Verdict == "" || a.Status != Pending
		}
		if a.Kind == KindTools && isMeant {
			places = append(places, i)
		}
	}
	return places
}

func (a Approval) undecidedPlaces(places []int) []int {
	return slices.DeleteFunc(slices.Clone(places), func(i int) bool { return a.Permissions[i].Verdict != "" })
}

// hasSameVerdicts reports whether the tools at these places have the verdict that r gives. If r names no tool, an equal
// earlier decision of the same person counts as well.
func (a Approval) hasSameVerdicts(r DecisionInput, places []int) bool {
	same := slices.DeleteFunc(slices.Clone(a.Decisions), func(d Decision) bool { return !d.matches(a.Kind, r) })
	if r.Action == Fail || r.Tool == "" && hasDecisionBy(same, r.By.ID) {
		return hasDecisionBy(same, r.By.ID)
	}
	return len(places) > 0 && !slices.ContainsFunc(places, func(i int) bool {
		p := a.Permissions[i]
		about := func(d Decision) bool { return slices.Contains(d.Tools, p.Tool) }
		return p.Verdict != run.DecisionAction(r.Action).Verdict() || !slices.ContainsFunc(same, about)
	})
}

// withCurrentToolGrants recomputes what standing grants of the tools would cover from the run and its definition. The
// stored item is not trusted for that.
func (d *Desk) withCurrentToolGrants(ctx context.Context, a Approval) (Approval, error) {
	def, s, _, err := d.loadCall(ctx, a)
	if err != nil {
		return a, err
	}
	var current Approval
	for _, open := range s.OpenRequests() {
		if open.Approval == a.ID {
			current = NewToolsRequest(def, s, open)
			a.origin = requestOrigin{at: open.Since, requesters: s.RequestersAt(open.Contributors)}
		}
	}
	a.Permissions = slices.Clone(a.Permissions)
	for i := range a.Permissions {
		p := &a.Permissions[i]
		p.Standing = nil
		for _, real := range current.Permissions {
			if real.Tool == p.Tool {
				p.Calls, p.Standing, p.Bounds = real.Calls, real.Standing, real.Bounds
			}
		}
	}
	return a, nil
}

// tallyTools is tallyDecision for a request about tools. The event is nil if every tool needs more approvals.
func (d *Desk) tallyTools(
	ctx context.Context, a Approval, r DecisionInput, now time.Time,
) (_ *run.Decided, _ Approval, err error) {
	if r.Action == Approve && a.Grants == agent.GrantsStanding {
		if a, err = d.withCurrentToolGrants(ctx, a); err != nil {
			return nil, a, err
		}
	}
	open := a.undecidedPlaces(a.toolPlaces(r.Tool))
	fact := run.Decided{Approval: a.ID, Action: run.DecisionAction(r.Action), By: r.By.ID, Note: r.Note}
	decision := r.decision(now)
	for _, i := range open {
		decision.Tools = append(decision.Tools, a.Permissions[i].Tool)
	}
	a.Decisions = append(slices.Clip(a.Decisions), decision)
	a.Permissions = slices.Clone(a.Permissions)
	for _, i := range open {
		p := &a.Permissions[i]
		granting := a.ApprovalsOf(*p)
		if r.Action == Approve && len(granting) < p.Quorum {
			continue
		}
		p.Verdict = fact.Action.Verdict()
		fact.Tools = append(fact.Tools, p.Tool)
		for _, v := range granting {
			if r.Action == Approve && v.By != r.By.ID && !slices.Contains(fact.With, v.By) {
				fact.With = append(fact.With, v.By)
			}
		}
	}
	if len(fact.Tools) == 0 && r.Action != Fail {
		return nil, a, a.checkToolGrantBounds(nil, r, open, now)
	}
	switch r.Action {
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
	case r.Action == Fail:
		a.Status = Cancelled
	case has(""):
		a.Status = Pending
	case has(run.ToolGranted):
		a.Status = Approved
	case has(run.ToolDenied):
		a.Status = Denied
	default:
		a.Status = Cancelled
	}
	return &fact, a, a.checkToolGrantBounds(&fact, r, open, now)
}
