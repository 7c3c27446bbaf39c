package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/store"
)

// Permission is one tool of a request, with a verdict of its own. What it grants holds for the tool, whatever it is called with: the
// arguments that are shown are those of the calls that asked, and nothing binds them (A18). But with grants: standing under scope call it
// holds for these very arguments, and no others.
type Permission struct {
	Tool     string            `json:"tool"` // original name
	Name     string            `json:"name"` // the model's
	Effect   agent.Effect      `json:"effect"`
	Calls    []Blocked         `json:"calls"` // that ask
	Digests  []string          `json:"digests"`
	Standing []Cover           `json:"standing,omitempty"` // with grants: standing, what a grant covers in other runs
	Verdict  agent.ToolVerdict `json:"verdict,omitempty"`  // "" = none yet

	Bounds *agent.GrantBounds `json:"bounds,omitempty"` // with grants: standing, how far a grant goes at most; nil = no policy says

	spent bool // a claim has used up what was granted
}

// recorded is the verdict as the item keeps it.
func (p Permission) recorded() string {
	if p.spent {
		return used
	}
	return string(p.Verdict)
}

// Cover is what a standing grant holds for: a tool as it is defined, under a policy and its approvers.
type Cover struct {
	Digest    string     `json:"digest"`          // by agent.StandingDigest
	Approvers []string   `json:"approvers"`       // who decide about such calls, and may take the grant back
	Above     [][]string `json:"above,omitempty"` // and are among each of these as well
	Call      string     `json:"call,omitempty"`  // it holds for the very arguments of this call; "" = whatever the tool is called with
	Base      string     `json:"base,omitempty"`  // beside Call: a grant may be of a pattern, whose digest is made of this; "" = it may not
}

// boundBy are the arguments that a cover holds for; false where it does whatever the tool is called with.
func (p Permission) boundBy(c Cover) (json.RawMessage, bool) {
	i := slices.IndexFunc(p.Calls, func(b Blocked) bool { return b.Call == c.Call })
	if c.Call == "" || i < 0 {
		return nil, false
	}
	return p.Calls[i].Args, true
}

// Blocked is a call that asks for the permission of its tool.
type Blocked struct {
	Call      string          `json:"call"`
	Args      json.RawMessage `json:"args"`            // the stored bytes, complete
	Approvers []string        `json:"approvers"`       // who decides about the tool is among those of every call of it
	Above     [][]string      `json:"above,omitempty"` // and among each of these
	RuleNote  string          `json:"note,omitempty"`
}

// ForTools is the request that blocked calls make together, as the entry that blocks them writes it.
func ForTools(def *agent.Definition, s *agent.AgentState, r agent.PermissionRequest) Approval {
	a := Approval{
		Tenant: s.Tenant, ID: r.Approval, Run: s.Run, Agent: s.Agent, Kind: KindTools, Args: json.RawMessage("null"), Effect: agent.EffectRead,
		Status: Pending, Quorum: 1, RequestedAt: r.Since, ExpiresAt: r.Expires, Decisions: []Decision{}, Grants: holds(def.Granting()), RuleNote: r.Reason,
	}.below(s.Parent)
	if def.Permission.Scope == agent.ScopeTool {
		a.Scope = agent.ScopeTool
	}
	for _, asked := range r.Tools {
		t, _ := def.Tool(asked.Tool)
		p := Permission{Tool: asked.Tool, Name: asked.Name, Effect: t.Effect, Digests: asked.Digests}
		for _, id := range asked.Calls {
			c, _ := s.Call(id)
			dec := agent.DecideIn(def, s, t, c.Input)
			p.Calls = append(p.Calls, Blocked{Call: id, Args: c.Input, Approvers: dec.Approvers, Above: dec.Above, RuleNote: dec.Note})
			p.outlive(def, s, c, dec)
			a.Calls = append(a.Calls, id)
			a.Approvers = slices.Concat(a.Approvers, dec.Approvers, slices.Concat(dec.Above...))
		}
		a.Tools, a.Permissions = append(a.Tools, asked.Tool), append(a.Permissions, p)
		a.Effect = graver(a.Effect, t.Effect)
	}
	slices.Sort(a.Approvers)
	a.Approvers = slices.Compact(a.Approvers)
	return a
}

// outlive adds what a standing grant would cover of a call.
func (p *Permission) outlive(def *agent.Definition, s *agent.AgentState, c agent.Call, dec agent.Decision) {
	granting := def.Granting()
	if !granting.Standing() {
		return
	}
	covers := Cover{Digest: agent.StandingOf(def, s, c), Approvers: dec.Approvers, Above: dec.Above}
	if granting.OfArguments() {
		covers.Call = c.ID
	}
	p.bound(def, s, c, dec, &covers)
	if !slices.ContainsFunc(p.Standing, func(have Cover) bool { return have.Digest == covers.Digest }) {
		p.Standing = append(p.Standing, covers)
	}
}

// holds says how long a grant of a tool does. Where decisions are of calls, it is for the one call that the model makes again, unless it
// stands for that very call for good.
func holds(p agent.Permission) agent.Grants {
	if p.Scope != agent.ScopeTool && !p.Standing() {
		return agent.GrantsOnce
	}
	return p.Grants
}

// graver is the effect that takes more care.
func graver(a, b agent.Effect) agent.Effect {
	for _, e := range []agent.Effect{agent.EffectNonIdempotent, agent.EffectIdempotent} {
		if a == e || b == e {
			return e
		}
	}
	return agent.EffectRead
}

// verdictAttr and digestAttr are where an item keeps what conditions compare of the tool at a place.
func verdictAttr(place int) string { return "v" + strconv.Itoa(place) }
func digestAttr(place int) string  { return "d" + strconv.Itoa(place) }

// used is the stored verdict of a grant that a claim has used up.
const used = "used"

// toolAttrs are the attributes of a request's tools.
func toolAttrs(a Approval) map[string]store.Value {
	attrs := map[string]store.Value{}
	for i, p := range a.Permissions {
		attrs[verdictAttr(i)], attrs[digestAttr(i)] = store.Str(p.recorded()), store.Str(agent.PermitDigest(p.Digests))
	}
	return attrs
}

// isVerdict is the condition that the tool at a place has that verdict on record.
func isVerdict(place int, recorded string) store.Cond {
	return store.Cond{Attr: verdictAttr(place), Op: store.Equal, Value: store.Str(recorded)}
}

// CloseToolsOp ends a pending request about tools of which no more was decided than the run knows; it rides in the transaction of the
// entry that ends it. It fails where somebody decided since.
func CloseToolsOp(tenant string, r agent.PermissionRequest, as Status) store.Op {
	op := CloseOp(tenant, agent.Wait{Approval: r.Approval, Since: r.Since}, as)
	for i, t := range r.Tools {
		if t.Verdict == "" { // the others are decided for good, and may be used up
			op.If = append(op.If, isVerdict(i, ""))
		}
	}
	return op
}

// PermitOp holds a claim to the grant of its tool; it rides in the transaction of the claim (A18). It fails unless that very permission was
// granted and is not used up; once uses it up.
func PermitOp(tenant string, p agent.ToolPermit, once bool) store.Op {
	op := store.Op{Kind: store.Check, Item: store.Item{Key: key(tenant, p.Approval)}, If: []store.Cond{
		{Attr: verdictAttr(p.Place), Op: store.Equal, Value: store.Str(string(agent.ToolGranted))},
		{Attr: digestAttr(p.Place), Op: store.Equal, Value: store.Str(agent.PermitDigest(p.Digests))},
	}}
	if once {
		op.Kind, op.Item.Attrs = store.Update, map[string]store.Value{verdictAttr(p.Place): store.Str(used)}
	}
	return op
}

// PermitLive reports whether the grant still holds: the conditions of PermitOp, read consistently.
func PermitLive(ctx context.Context, t store.Table, tenant string, p agent.ToolPermit) (bool, error) {
	it, found, err := t.Get(ctx, key(tenant, p.Approval))
	if err != nil {
		return false, fmt.Errorf("read approval %s: %w", p.Approval, err)
	}
	return store.Holds(PermitOp(tenant, p, false).If, it, found), nil
}

// maxRaces is how often a decision about tools is tried again because somebody decided about others of the request meanwhile.
const maxRaces = 10

// decideTools records a verdict on one tool of a request, or on all that have none, once for each, and wakes the run.
func (d *Desk) decideTools(ctx context.Context, a Approval, r Request) (Approval, error) {
	for races := 0; ; races++ {
		places, err := a.named(r)
		if err != nil {
			return Approval{}, err
		}
		open := slices.DeleteFunc(slices.Clone(places), func(i int) bool { return a.Permissions[i].Verdict != "" })
		if a.Status != Pending || len(open) == 0 {
			if !sameVerdicts(a, r, places) || !a.sameGrants(r, places) {
				return Approval{}, &DecidedError{Approval: a}
			}
			return a, d.wake(ctx, a)
		}
		decided, err := d.recordTools(ctx, a, r, open)
		if err == nil {
			if d.Decided != nil {
				d.Decided(ctx, decided)
			}
			return decided, d.wake(ctx, decided)
		}
		if errors.Is(err, ErrFinished) || errors.Is(err, ErrExpired) {
			return Approval{}, err
		}
		now, readErr := Get(ctx, d.Table, a.Tenant, a.ID)
		switch {
		case readErr != nil:
			return Approval{}, errors.Join(err, readErr)
		case !errors.Is(err, store.ErrGuardFailed):
			return d.uncertainTools(ctx, now, r, err)
		case now.Status == Pending && !d.Clock.Now().Before(now.ExpiresAt) || now.Status == Expired:
			return Approval{}, fmt.Errorf("decide approval %s: %w", a.ID, ErrExpired)
		case races == maxRaces:
			return Approval{}, fmt.Errorf("decide approval %s: %w", a.ID, err)
		}
		a = now
	}
}

// uncertainTools looks whether a write of which nobody knows was done.
func (d *Desk) uncertainTools(ctx context.Context, a Approval, r Request, cause error) (Approval, error) {
	said := slices.ContainsFunc(a.Decisions, func(have Decision) bool { return have.By == r.By.ID && have.Action == r.Action })
	places, err := a.named(r)
	if err == nil && said && sameVerdicts(a, r, places) {
		return a, d.wake(ctx, a)
	}
	return Approval{}, fmt.Errorf("decide approval %s: %w", a.ID, cause)
}

func (d *Desk) wake(ctx context.Context, a Approval) error {
	if err := d.Wake(ctx, a.Tenant, a.Run); err != nil {
		return fmt.Errorf("wake run %s: %w", a.Run, err)
	}
	return nil
}

// named are the places of the tools that a decision is about, all of which it may be made on: the tool it names, or all.
func (a Approval) named(r Request) ([]int, error) {
	if r.Action == Edit {
		return nil, fmt.Errorf("decide approval %s: it is about tools, so no arguments can be edited: %w", a.ID, ErrKind)
	}
	var places []int
	for i, p := range a.Permissions {
		if r.Tool != "" && r.Tool != p.Tool && r.Tool != p.Name || r.Tool == "" && p.Verdict != "" && a.Status == Pending {
			continue
		}
		for _, c := range p.Calls {
			if !agent.MayDecideEach(r.By, c.Approvers, c.Above) {
				return nil, fmt.Errorf("decide approval %s of %s as %s: %w", a.ID, p.Tool, r.By.ID, ErrForbidden)
			}
		}
		places = append(places, i)
	}
	if len(places) == 0 && r.Tool != "" {
		return nil, fmt.Errorf("decide approval %s: it does not ask about tool %q: %w", a.ID, r.Tool, ErrKind)
	}
	return places, nil
}

// sameVerdicts reports whether the request says of the tools what r says. One that named none says it of those that nobody had decided.
func sameVerdicts(a Approval, r Request, places []int) bool {
	if r.Action == Fail || r.Tool == "" {
		if slices.ContainsFunc(a.Decisions, func(d Decision) bool { return d.Action == r.Action && d.By == r.By.ID }) {
			return true
		}
		if r.Action == Fail {
			return false
		}
	}
	return len(places) > 0 && !slices.ContainsFunc(places, func(i int) bool { return a.Permissions[i].Verdict != verdictOf(r.Action) })
}

func verdictOf(a Action) agent.ToolVerdict {
	switch a {
	case Approve:
		return agent.ToolGranted
	case Deny:
		return agent.ToolDenied
	default:
		return agent.ToolCancelled
	}
}

// recordTools writes the verdicts into the request and the run's inbox at once (rules 3 and 8).
func (d *Desk) recordTools(ctx context.Context, a Approval, r Request, open []int) (Approval, error) {
	now := d.Clock.Now().Truncate(time.Millisecond)
	if !now.Before(a.ExpiresAt) {
		return Approval{}, fmt.Errorf("decide approval %s: %w", a.ID, ErrExpired)
	}
	fact, decided := a.verdict(r, open, now)
	if err := decided.boundTools(&fact, r, open, now); err != nil {
		return Approval{}, err
	}
	op, err := put(decided)
	if err != nil {
		return Approval{}, err
	}
	grants, err := d.grants(ctx, decided)
	if err != nil {
		return Approval{}, err
	}
	op.If = []store.Cond{
		{Attr: "status", Op: store.Equal, Value: store.Str(string(Pending))},
		{Attr: "expires", Op: store.Above, Value: store.Num(now.UnixMilli())},
	}
	for i, p := range a.Permissions {
		op.If = append(op.If, isVerdict(i, p.recorded()))
	}
	got, err := d.Journal.Accept(ctx, a.Tenant, a.Run, r.Key, fact, append([]store.Op{op}, grants...)...)
	if err != nil {
		return Approval{}, err
	}
	if got.Closed {
		return Approval{}, fmt.Errorf("decide approval %s: %w", a.ID, ErrFinished)
	}
	return decided, nil
}

// verdict is the fact for the run and the request as it will stand.
func (a Approval) verdict(r Request, open []int, now time.Time) (agent.Decided, Approval) {
	fact := agent.Decided{Approval: a.ID, Action: agent.ActionFail, By: r.By.ID, Note: r.Note}
	said := Decision{By: r.By.ID, Action: r.Action, At: now, Note: r.Note}
	a.Permissions = slices.Clone(a.Permissions)
	for _, i := range open {
		p := &a.Permissions[i]
		p.Verdict = verdictOf(r.Action)
		fact.Tools = append(fact.Tools, p.Tool)
	}
	said.Tools = fact.Tools
	switch r.Action {
	case Approve:
		fact.Action, fact.Once, fact.Standing = agent.ActionApprove, a.Grants == agent.GrantsOnce, a.Grants == agent.GrantsStanding
	case Deny:
		fact.Action, fact.Once = agent.ActionDeny, a.Scope != agent.ScopeTool
	case Cancel:
		fact.Action = agent.ActionCancel
	}
	a.Status = a.outcome(r.Action)
	a.Decisions = append(slices.Clip(a.Decisions), said)
	return fact, a
}

// outcome is where a request about tools stands once the verdicts are what they are.
func (a Approval) outcome(by Action) Status {
	has := func(v agent.ToolVerdict) bool {
		return slices.ContainsFunc(a.Permissions, func(p Permission) bool { return p.Verdict == v })
	}
	switch {
	case by == Fail:
		return Cancelled
	case has(""):
		return Pending
	case has(agent.ToolGranted):
		return Approved
	case has(agent.ToolDenied):
		return Denied
	default:
		return Cancelled
	}
}
