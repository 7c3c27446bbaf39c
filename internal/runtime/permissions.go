package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// permissions asks an agent's code what a run may do, and keeps the answers for one invocation. Not safe for concurrent
// use.
type permissions struct {
	hooks    hook.Set
	table    store.Table // of standing grants; set in a batch
	policy   *run.Remembered
	checked  *run.PermissionChecked
	reasons  map[string]string // the backend's reasons, by request
	notified map[string]bool   // decisions that the backend was notified of
}

// prepare adds to a drained draft the facts about permissions that come before anything else: the policy function's
// list, if due, and what the draft's decisions imply once the backend knows them.
func (a *permissions) prepare(ctx context.Context, def *agent.Definition, d *run.Draft) error {
	if d.State.Permissions.Failed != "" {
		return nil
	}
	err := a.evaluate(ctx, def, d)
	if err == nil {
		err = a.notifyBackend(ctx, def, d)
	}
	if err != nil {
		return err
	}
	return addWhileRoom(d, policy.Consequences(def, &d.State)...)
}

// evaluate calls the policy function once after the run's beginning and once after every resume.
func (a *permissions) evaluate(ctx context.Context, def *agent.Definition, d *run.Draft) error {
	name := def.Permission.Policy
	if name == "" || d.State.Memory[policy.ListedMemory].Fresh {
		return nil
	}
	if a.policy == nil {
		listed, err := a.policyTools(ctx, def, &d.State)
		if err != nil {
			return endUnauthorized(ctx, d, fmt.Sprintf("evaluate policy %s", name), err)
		}
		list := run.Remember(policy.ListedMemory, listed)
		a.policy = &list
	}
	return d.Add(*a.policy)
}

// policyTools returns the original names of the tools that the policy function lists.
func (a *permissions) policyTools(ctx context.Context, def *agent.Definition, s *run.AgentState) ([]string, error) {
	policy, ok := a.hooks.Policies[def.Permission.Policy]
	if !ok {
		return nil, errNoCode
	}
	var names []string
	err := hook.CallSafely(func() (err error) {
		names, err = policy(ctx, hook.PolicyInput{
			Agent: s.Agent, Version: s.Version, Subject: s.Subject, AccessControl: s.AccessControl,
			Tools: slices.Clone(def.Tools),
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	var tools []string
	for _, name := range names {
		t, ok := def.Tool(name)
		if !ok {
			t, ok = def.ToolByModelName(name)
		}
		if !ok {
			return nil, fmt.Errorf("it lists %q, which is no tool of the agent", name)
		}
		if !slices.Contains(tools, t.Name) {
			tools = append(tools, t.Name)
		}
	}
	return tools, nil
}

// notifyBackend tells the permission backend which tools people decided about in this draft.
func (a *permissions) notifyBackend(ctx context.Context, def *agent.Definition, d *run.Draft) error {
	if def.Permission.Backend == "" {
		return nil
	}
	for _, e := range slices.Clone(d.Entry.Events) {
		decided, ok := e.(run.Decided)
		// a kept decision has no slot, but is the only one on its request
		key := fmt.Sprintf("%d/%s", decided.Slot, decided.Approval)
		if !ok || a.notified[key] {
			continue
		}
		tools := decided.Tools
		if c, ok := d.State.Call(decided.Call); ok && decided.Permit != "" {
			tools = []string{c.Tool}
		}
		word := hook.PermissionWord{By: decided.By, Note: decided.Note}
		switch decided.Action {
		case run.ActionApprove: // the backend only gets grants that suffice
			word.Granted = slices.DeleteFunc(slices.Clone(tools),
				func(tool string) bool { return !policy.Suffices(decided, def, &d.State, tool) })
		case run.ActionDeny:
			word.Denied = tools
		}
		if len(word.Granted)+len(word.Denied) == 0 { // the decision is not about tools
			continue
		}
		backend, err := a.backend(def)
		if err == nil {
			err = hook.CallSafely(func() error { return backend.Set(ctx, contextOf(&d.State), word) })
		}
		if err != nil {
			return endUnauthorized(ctx, d, "tell permission backend "+def.Permission.Backend, err)
		}
		a.notified[key] = true
	}
	return nil
}

// check adds what is recorded outside the run about tools of the newest round that need a permission: the backend's
// answer, or standing grants. If doubt is set, because a claim was refused, it reads the grants again.
func (a *permissions) check(ctx context.Context, def *agent.Definition, d *run.Draft, doubt bool) error {
	if policy.GrantPolicy(def).Standing() {
		return a.checkStanding(ctx, def, d, doubt)
	}
	s := &d.State
	if def.Permission.Backend == "" || def.Permission.Mode == agent.ModeAdvisory ||
		s.Permissions.Checked.Inference == s.Round.Inference {
		return nil
	}
	if a.checked == nil || a.checked.Inference != s.Round.Inference {
		asked := policy.AskedTools(def, s)
		if len(asked) == 0 {
			return nil
		}
		backend, err := a.backend(def)
		var got map[string]agent.Verdict
		if err == nil {
			err = hook.CallSafely(func() (err error) {
				got, err = backend.Get(ctx, contextOf(s), toolsOf(def, s, asked))
				return err
			})
		}
		if err != nil {
			return endUnauthorized(ctx, d, "ask permission backend "+def.Permission.Backend, err)
		}
		a.checked = &run.PermissionChecked{Inference: s.Round.Inference, Tools: map[string]run.PermissionStatus{}}
		for _, tool := range asked {
			switch got[tool] {
			case agent.VerdictAllow:
				a.checked.Tools[tool] = policy.PermissionApproved
			case agent.VerdictDeny:
				a.checked.Tools[tool] = policy.PermissionDenied
			default: // anything else means that people are asked
				a.checked.Tools[tool] = policy.PermissionRequestable
			}
		}
	}
	return d.Add(*a.checked)
}

func (a *permissions) backend(def *agent.Definition) (hook.PermissionBackend, error) {
	b, ok := a.hooks.Backends[def.Permission.Backend]
	if !ok {
		return nil, errNoCode
	}
	return b, nil
}

// errNoCode says that the deployment has no code of that name. Calls that need its permission do not run.
var errNoCode = errors.New("this deployment has no such code")

// endUnauthorized ends the run because its permissions cannot be determined. An error of the invocation itself is
// returned instead.
func endUnauthorized(ctx context.Context, d *run.Draft, what string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return d.Add(run.PermissionFailed{Message: what + ": " + agent.Bounded(err.Error())})
}

func contextOf(s *run.AgentState) hook.PermissionContext {
	return hook.PermissionContext{
		Tenant: s.Tenant, Run: s.Run, Agent: s.Agent, Version: s.Version, Subject: s.Subject, AccessControl: s.AccessControl,
	}
}

// toolsOf returns the named tools with their calls that have not run.
func toolsOf(def *agent.Definition, s *run.AgentState, names []string) []hook.PermissionTool {
	tools := make([]hook.PermissionTool, len(names))
	for i, name := range names {
		tools[i].Spec, _ = def.Tool(name)
		for _, c := range s.Live {
			if c.Tool == name && c.Status == run.StatusNew {
				tools[i].Calls = append(tools[i].Calls, hook.PermissionCall{ID: c.ID, Args: bytes.Clone(c.Input)})
			}
		}
	}
	return tools
}

// blockCalls fails the calls of the round that lack a permission, and makes one request for those of their tools that
// nobody has been asked about (block_and_retry).
func (r *round) blockCalls(ctx context.Context, p *batchPlan) error {
	busy := func(id string) bool { return r.inflight.has(id) || p.launches(id) }
	var err error
	gate := func(s *run.AgentState, c run.Call) policy.Gate {
		plugins, failed := r.askPlugins(ctx, p, c)
		err = errors.Join(err, failed)
		return policy.GateHooked(r.def, s, c, plugins.gate, r.Valid, p.draft.Entry.Time)
	}
	events := policy.BlockRound(r.def, &p.draft.State, gate, p.draft.Entry.Time, busy)
	if err != nil || events == nil {
		return err
	}
	request, asks := events[0].(run.PermissionRequested)
	var names, blocked []string // names of tools that people are asked about, and ids of calls
	for _, t := range request.Tools {
		names = append(names, t.Tool)
	}
	for _, e := range events {
		if refused, ok := e.(run.CallFinished); ok && refused.Reason == run.WhyAwaiting {
			blocked = append(blocked, refused.Call)
		}
	}
	for _, id := range blocked {
		c, _ := p.draft.State.Call(id)
		if _, err := r.beforeTool(ctx, p, c); err != nil {
			return err
		}
	}
	why, known := r.permits.reasons[request.Approval]
	if asks && r.def.Permission.Backend != "" && !known {
		backend, err := r.permits.backend(r.def)
		if err == nil {
			s := &p.draft.State
			err = hook.CallSafely(func() (err error) {
				why, err = backend.Request(ctx, contextOf(s), toolsOf(r.def, s, names))
				return err
			})
		}
		if err != nil {
			return endUnauthorized(ctx, p.draft, "build a request by permission backend "+r.def.Permission.Backend, err)
		}
		r.permits.reasons[request.Approval] = why
	}
	if asks {
		request.Reason = why
		events[0] = request
	}
	// people may decide while other calls run
	if r.def.Early == agent.EarlyKeep || r.def.Executor == agent.ExecutorParallelStreaming {
		p.raiseDue(dueFirst)
	}
	if err := p.settle(events...); err != nil {
		return err
	}
	for _, id := range blocked {
		if err := r.afterTool(ctx, p, id); err != nil {
			return err
		}
	}
	return nil
}

func askedTools(d *run.Draft) []run.PermissionRequest {
	return slices.DeleteFunc(slices.Clone(d.State.Permissions.Asked), func(r run.PermissionRequest) bool {
		return slices.ContainsFunc(d.Before.Permissions.Asked,
			func(b run.PermissionRequest) bool { return b.Approval == r.Approval })
	})
}

// toolRequestOps returns the writes to requests about tools that belong to the draft's transaction.
func (p Ports) toolRequestOps(d *run.Draft, def *agent.Definition) ([]store.Op, error) {
	var ops []store.Op
	for _, r := range askedTools(d) {
		a := approval.NewToolsRequest(def, &d.State, r)
		for _, t := range a.Permissions {
			for i, c := range t.Calls {
				t.Calls[i].Described = p.describeCall(def, t.Tool, c.Args)
			}
		}
		if d.State.Status == run.RunDone { // the same entry ends the run
			a.Status = approval.Cancelled
		}
		op, err := approval.CreateOp(a)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	for _, e := range d.Entry.Events {
		answered, ok := e.(run.PermissionAnswered)
		if !ok || !answered.Expired {
			continue
		}
		for _, r := range d.Before.Permissions.Asked {
			if r.Approval == answered.Approval {
				ops = append(ops, approval.CloseToolsOp(d.Before.Tenant, withVerdicts(r, d.Entry.Events), approval.Expired))
			}
		}
	}
	return ops, nil
}

func withVerdicts(r run.PermissionRequest, events []run.Event) run.PermissionRequest {
	r.Tools = slices.Clone(r.Tools)
	for _, e := range events {
		decided, ok := e.(run.Decided)
		if !ok || decided.Approval != r.Approval {
			continue
		}
		for i := range r.Tools {
			if t := &r.Tools[i]; t.Verdict == "" && slices.Contains(decided.Tools, t.Tool) {
				t.Verdict = decided.Action.Verdict()
			}
		}
	}
	return r
}

// claimOps returns the operations on which the draft's claims depend: each approval is used up once, and each grant of
// a tool must hold.
func claimOps(def *agent.Definition, d *run.Draft) []store.Op {
	var ops []store.Op
	for _, e := range d.Entry.Events {
		claim, ok := e.(run.CallClaimed)
		if !ok {
			continue
		}
		was, _ := d.Before.Call(claim.Call)
		c, _ := d.State.Call(claim.Call)
		if c.Grant != nil && !c.Grant.Tool && (was.Grant == nil || !was.Grant.Consumed) {
			ops = append(ops, approval.ConsumeOp(d.State.Tenant, *c.Grant, d.Entry.Time))
		}
		if g, standing := standingGrantOf(def, &d.State, c, claim); standing {
			// All claims of the draft under the grant are counted together, starting at the number that the run knows. So uses
			// are counted exactly when the entry is written.
			claims := 0
			for _, e := range d.Entry.Events {
				other, ok := e.(run.CallClaimed)
				otherCall, _ := d.State.Call(other.Call)
				if ok && otherCall.Tool == g.Tool && other.Under == g.Approval && other.Digest == g.Digest {
					claims++
				}
			}
			ops = append(ops, approval.StandingOp(d.State.Tenant, d.State.Agent, g, claims, d.Entry.Time))
		}
		for _, t := range d.State.Permissions.Tools {
			if t.Tool == c.Tool && t.Approval == claim.Under && !t.Denied {
				ops = append(ops, approval.PermitOp(d.State.Tenant, t, claim.Once))
			}
		}
	}
	return ops
}

// mergeOps merges the updates and checks of the same item, because a transaction accepts only one for each.
func mergeOps(ops []store.Op) []store.Op {
	var out []store.Op
	for _, op := range ops {
		i := slices.IndexFunc(out, func(have store.Op) bool { return have.Item.Key == op.Item.Key })
		if i < 0 || out[i].Kind == store.Put || op.Kind == store.Put {
			out = append(out, op)
			continue
		}
		have := &out[i]
		if op.Kind == store.Update {
			have.Kind = store.Update
		}
		if len(have.Item.Attrs)+len(op.Item.Attrs) > 0 {
			attrs := map[string]store.Value{}
			maps.Copy(attrs, have.Item.Attrs)
			maps.Copy(attrs, op.Item.Attrs)
			have.Item.Attrs = attrs
		}
		if op.Item.Index != "" {
			have.Item.Index, have.Item.IndexSort = op.Item.Index, op.Item.IndexSort
		}
		have.If = slices.Clone(have.If)
		for _, c := range op.If {
			if !slices.Contains(have.If, c) {
				have.If = append(have.If, c)
			}
		}
	}
	return out
}

// checkStanding reads the standing grants for the round's calls once. If doubt is set, because a claim was refused, it
// reads the found grants again, and those that were given in this run. Grants that are no longer recorded are removed.
func (a *permissions) checkStanding(ctx context.Context, def *agent.Definition, d *run.Draft, doubt bool) error {
	s := &d.State
	known := s.Permissions.Checked
	first := known.Inference != s.Round.Inference
	// grants that the draft already claims under were read before these claims, and the transaction checks them again
	doubt = doubt && !slices.ContainsFunc(d.Entry.Events, func(e run.Event) bool {
		claim, ok := e.(run.CallClaimed)
		return ok && claim.Under != ""
	})
	var asked []run.StandingGrant
	switch {
	case first:
		asked = policy.NeededStandingGrants(def, s)
	case doubt:
		asked = known.Standing
	}
	found := run.PermissionChecked{Inference: s.Round.Inference, Tools: map[string]run.PermissionStatus{}}
	if doubt {
		for _, h := range policy.UsableStandingGrants(def, s) { // grants of this run that the next claims would use
			live, err := approval.IsStandingLive(ctx, a.table, s.Tenant, s.Agent,
				run.StandingGrant{Tool: h.Tool, Digest: h.Digest}, d.Entry.Time)
			if err != nil {
				return err
			}
			if !live && !slices.Contains(found.Revoked, h.PermitRef) {
				found.Revoked = append(found.Revoked, h.PermitRef)
			}
		}
	}
	if len(asked) == 0 && found.Revoked == nil {
		return nil
	}
	if a.checked == nil || a.checked.Inference != s.Round.Inference || doubt {
		live, err := approval.LiveStanding(ctx, a.table, s.Tenant, s.Agent, asked, d.Entry.Time)
		if err == nil && first && policy.GrantPolicy(def).Patterns() { // and patterns that cover a call of the round
			tools := policy.ToolsOf(asked)
			patterns, failed := approval.LivePatterns(ctx, a.table, s.Tenant, s.Agent, tools, d.Entry.Time)
			live, err = append(live, policy.CoveringPatterns(def, s, patterns)...), failed
		}
		if err == nil {
			live, err = approval.TraceGrants(ctx, a.table, s.Tenant, s.Agent, live)
		}
		if err != nil {
			return err
		}
		a.checked = &run.PermissionChecked{Inference: s.Round.Inference, Standing: live}
	}
	found.Standing = a.checked.Standing
	same := func(g, h run.StandingGrant) bool { return g.Same(h) && g.Used == h.Used }
	if !first && found.Revoked == nil && slices.EqualFunc(known.Standing, found.Standing, same) {
		return nil
	}
	return d.Add(found)
}

// standingGrantOf returns the record that must exist for a claim of the draft: the grant that the claim uses, or, for a
// call that runs again or under a grant of this run, any grant that covers it. It returns false if the claim uses no
// standing grant.
func standingGrantOf(
	def *agent.Definition, s *run.AgentState, c run.Call, claim run.CallClaimed,
) (run.StandingGrant, bool) {
	if g, taken := s.StandingUnder(c, claim); taken {
		return g, true
	}
	return run.StandingGrant{Tool: c.Tool, Digest: policy.StandingRecord(def, s, c)}, c.Grant != nil && c.Grant.Standing
}
