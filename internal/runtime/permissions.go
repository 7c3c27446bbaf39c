package runtime

import (
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

// permissions asks an agent's code what a run may do, and keeps the answers for one invocation. The zero value with
// hooks set is ready. Not safe for concurrent use.
type permissions struct {
	hooks    hook.Set
	table    store.Table // of standing grants; a batch has it
	policy   *run.Remembered
	checked  *run.PermissionChecked
	reasons  map[string]string    // by request
	notified map[decisionKey]bool // decisions that the backend has heard of
}

// prepare adds to a drained draft what follows for permissions before the run goes on: the policy function's list,
// where it is due; what the decisions of the draft settle besides, once the backend has heard of them.
func (a *permissions) prepare(ctx context.Context, def *agent.Definition, d *run.Draft) error {
	if d.State.Permissions.Failed != "" {
		return nil
	}
	if err := a.evaluate(ctx, def, d); err != nil {
		return err
	}
	if err := a.notifyBackend(ctx, def, d); err != nil {
		return err
	}
	return addWhileRoom(d, policy.Consequences(def, &d.State)...)
}

// evaluate asks the policy function, once after the run's beginning and once after every wake.
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

// policyTools are the original names of the tools that the policy function lists.
func (a *permissions) policyTools(ctx context.Context, def *agent.Definition, s *run.AgentState) ([]string, error) {
	policy, ok := a.hooks.Policies[def.Permission.Policy]
	if !ok {
		return nil, errNoCode
	}
	names, err := policy(ctx, hook.PolicyInput{
		Agent: s.Agent, Version: s.Version, Subject: s.Subject, AccessControl: s.AccessControl,
		Tools: slices.Clone(def.Tools),
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
		said, ok := e.(run.Decided)
		if !ok || a.notified[decisionKeyOf(said)] {
			continue
		}
		word, ok := permissionWord(def, &d.State, said)
		if !ok {
			continue
		}
		backend, err := a.backend(def)
		if err == nil {
			err = backend.Set(ctx, contextOf(&d.State), word)
		}
		if err != nil {
			return endUnauthorized(ctx, d, "tell permission backend "+def.Permission.Backend, err)
		}
		if a.notified == nil {
			a.notified = map[decisionKey]bool{}
		}
		a.notified[decisionKeyOf(said)] = true
	}
	return nil
}

// decisionKey identifies a decision by its inbox slot. A kept decision has no slot and is identified by its request.
type decisionKey struct {
	slot     int64
	approval string
}

func decisionKeyOf(said run.Decided) decisionKey { return decisionKey{said.Slot, said.Approval} }

// permissionWord is what a decision means for tools; false if it is about none. Of grants it has those that suffice.
func permissionWord(def *agent.Definition, s *run.AgentState, e run.Decided) (hook.PermissionWord, bool) {
	tools := e.Tools
	if c, ok := s.Call(e.Call); ok && e.Permit != "" {
		tools = []string{c.Tool}
	}
	w := hook.PermissionWord{By: e.By, Note: e.Note}
	switch e.Action {
	case run.ActionApprove:
		w.Granted = slices.DeleteFunc(slices.Clone(tools),
			func(tool string) bool { return !policy.Suffices(e, def, s, tool) })
	case run.ActionDeny:
		w.Denied = tools
	}
	return w, len(w.Granted)+len(w.Denied) > 0
}

// check adds what is known beyond the run of the tools of the newest round that need a permission: the backend's word,
// or the standing grants on record. In doubt, as a claim was refused, it looks at the records again.
func (a *permissions) check(ctx context.Context, def *agent.Definition, d *run.Draft, doubt bool) error {
	if policy.Granting(def).Standing() {
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
		var got map[string]run.PermissionStatus
		if err == nil {
			got, err = backend.Get(ctx, contextOf(s), toolsOf(def, s, asked))
		}
		if err != nil {
			return endUnauthorized(ctx, d, "ask permission backend "+def.Permission.Backend, err)
		}
		a.checked = &run.PermissionChecked{Inference: s.Round.Inference, Tools: map[string]run.PermissionStatus{}}
		for _, tool := range asked {
			status := got[tool]
			if status != policy.PermissionApproved && status != policy.PermissionDenied { // all else is a reason to ask
				status = policy.PermissionRequestable
			}
			a.checked.Tools[tool] = status
		}
	}
	return d.Add(*a.checked)
}

// requestReason is the backend's reason for a request that is about to be made.
func (a *permissions) requestReason(
	ctx context.Context, def *agent.Definition, s *run.AgentState, r run.PermissionRequested,
) (string, error) {
	if def.Permission.Backend == "" {
		return "", nil
	}
	if why, known := a.reasons[r.Approval]; known {
		return why, nil
	}
	backend, err := a.backend(def)
	if err != nil {
		return "", err
	}
	names := make([]string, len(r.Tools))
	for i, t := range r.Tools {
		names[i] = t.Tool
	}
	why, err := backend.Request(ctx, contextOf(s), toolsOf(def, s, names))
	if err != nil {
		return "", err
	}
	if a.reasons == nil {
		a.reasons = map[string]string{}
	}
	a.reasons[r.Approval] = why
	return why, nil
}

func (a *permissions) backend(def *agent.Definition) (hook.PermissionBackend, error) {
	b, ok := a.hooks.Backends[def.Permission.Backend]
	if !ok {
		return nil, errNoCode
	}
	return b, nil
}

// errNoCode says that the deployment has no code of the name. Nothing runs that it would have to permit.
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

// toolsOf are tools with the calls of them that have not run.
func toolsOf(def *agent.Definition, s *run.AgentState, names []string) []hook.PermissionTool {
	tools := make([]hook.PermissionTool, len(names))
	for i, name := range names {
		tools[i].Spec, _ = def.Tool(name)
		for _, c := range s.Live {
			if c.Tool == name && c.Status == run.StatusNew {
				tools[i].Calls = append(tools[i].Calls, hook.PermissionCall{ID: c.ID, Args: c.Input})
			}
		}
	}
	return tools
}

// blockCalls fails the calls of the round that lack a permission, and makes one request for their tools
// (block_and_retry).
func (r *round) blockCalls(ctx context.Context, p *batchPlan) error {
	busy := func(id string) bool { return r.inflight.has(id) || p.launches(id) }
	var err error
	gate := func(s *run.AgentState, c run.Call) policy.Gate {
		said, failed := r.askPlugins(ctx, p, c)
		err = errors.Join(err, failed)
		return policy.GateHooked(r.def, s, c, said.gate, r.Valid, p.draft.Entry.Time)
	}
	events := policy.BlockRound(r.def, &p.draft.State, gate, p.draft.Entry.Time, busy)
	if err != nil || events == nil {
		return err
	}
	request := events[0].(run.PermissionRequested)
	var blocked []run.Call
	for _, t := range request.Tools {
		for _, id := range t.Calls {
			c, _ := p.draft.State.Call(id)
			blocked = append(blocked, c)
		}
	}
	for _, c := range blocked {
		if _, err := r.beforeTool(ctx, p, c); err != nil {
			return err
		}
	}
	if request.Reason, err = r.permits.requestReason(ctx, r.def, &p.draft.State, request); err != nil {
		return endUnauthorized(ctx, p.draft, "build a request by permission backend "+r.def.Permission.Backend, err)
	}
	events[0] = request
	r.addSuspended(p)
	if r.def.Early == agent.EarlyKeep { // people may decide while other calls run
		p.raiseDue(dueFirst)
	}
	if err := p.draft.Add(events...); err != nil {
		return err
	}
	for _, c := range blocked {
		if err := r.afterTool(ctx, p, c.ID); err != nil {
			return err
		}
	}
	return nil
}

// endAfterCleanup lets the permission backend clean up before an end is committed. A run that would have ended well
// fails if the cleanup does. Without a backend there is nothing to do.
func (p Ports) endAfterCleanup(
	ctx context.Context, def *agent.Definition, s *run.AgentState, fin run.Finished,
) (run.Finished, error) {
	backend, ok := p.backend(def)
	if !ok {
		return fin, nil
	}
	err := backend.Cleanup(ctx, contextOf(s))
	switch {
	case err == nil:
		return fin, nil
	case ctx.Err() != nil:
		return fin, ctx.Err()
	}
	why := "clean up by permission backend " + def.Permission.Backend + ": " + agent.Bounded(err.Error())
	if fin.Error != nil {
		fin.Error = &run.RunError{Code: fin.Error.Code, Message: fin.Error.Message + "; " + why}
		return fin, nil
	}
	failed := policy.Fail(run.CodePermissionFailed, why)
	failed.Requests = fin.Requests
	return failed, nil
}

// toolRequestOps are the writes to requests about tools that belong into the draft's transaction.
func (p Ports) toolRequestOps(before *run.AgentState, d *run.Draft, def *agent.Definition) ([]store.Op, error) {
	var ops []store.Op
	for _, r := range d.State.Permissions.Asked {
		asked := slices.ContainsFunc(before.Permissions.Asked,
			func(b run.PermissionRequest) bool { return b.Approval == r.Approval })
		if asked {
			continue
		}
		a := approval.NewToolsRequest(def, &d.State, r)
		for _, t := range a.Permissions {
			for i, c := range t.Calls {
				t.Calls[i].Described = p.describeCall(def, t.Tool, c.Args)
			}
		}
		if d.State.Status == run.RunDone { // by the very entry: nobody is waited for
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
		for _, r := range before.Permissions.Asked {
			if r.Approval == answered.Approval {
				ops = append(ops, approval.CloseToolsOp(before.Tenant, withVerdicts(r, d.Entry.Events), approval.Expired))
			}
		}
	}
	return ops, nil
}

// withVerdicts returns a request with the verdicts that the events give its tools.
func withVerdicts(r run.PermissionRequest, events []run.Event) run.PermissionRequest {
	r.Tools = slices.Clone(r.Tools)
	for _, e := range events {
		said, ok := e.(run.Decided)
		if !ok || said.Approval != r.Approval {
			continue
		}
		for i := range r.Tools {
			if t := &r.Tools[i]; t.Verdict == "" && slices.Contains(said.Tools, t.Tool) {
				t.Verdict = said.Action.Verdict()
			}
		}
	}
	return r
}

// permitConditions are the conditions under which the draft claims calls by grants of tools.
func permitConditions(def *agent.Definition, d *run.Draft) []store.Op {
	var ops []store.Op
	tenant := d.State.Tenant
	for _, e := range d.Entry.Events {
		claim, ok := e.(run.CallClaimed)
		if !ok {
			continue
		}
		c, _ := d.State.Call(claim.Call)
		if g, standing := standingGrantOf(def, &d.State, c, claim); standing {
			ops = append(ops, useGrant(d, g))
		}
		for _, t := range d.State.Permissions.Tools {
			if t.Tool == c.Tool && t.Approval == claim.Under && !t.Denied {
				ops = append(ops, approval.PermitOp(tenant, t, claim.Once))
			}
		}
	}
	return ops
}

// mergeOps merges the operations on the same item, because a transaction takes one for each.
func mergeOps(ops []store.Op) []store.Op {
	var out []store.Op
	for _, op := range ops {
		i := slices.IndexFunc(out, func(have store.Op) bool { return have.Item.Key == op.Item.Key })
		if i < 0 || out[i].Kind == store.Put || op.Kind == store.Put {
			out = append(out, op)
			continue
		}
		out[i] = joinOps(out[i], op)
	}
	return out
}

// joinOps merges two updates or checks of one item.
func joinOps(a, b store.Op) store.Op {
	if b.Kind == store.Update {
		a.Kind = store.Update
	}
	attrs := map[string]store.Value{}
	for _, of := range []store.Op{a, b} {
		maps.Copy(attrs, of.Item.Attrs)
		if of.Item.Index != "" {
			a.Item.Index, a.Item.IndexSort = of.Item.Index, of.Item.IndexSort
		}
	}
	if len(attrs) > 0 {
		a.Item.Attrs = attrs
	}
	a.If = slices.Clone(a.If)
	for _, c := range b.If {
		if !slices.Contains(a.If, c) {
			a.If = append(a.If, c)
		}
	}
	return a
}

// useGrant is the write that counts the draft's uses of a standing grant. All claims of the draft under it count at
// once, from the number the run knows, so that uses are counted exactly when the entry is written.
func useGrant(d *run.Draft, g run.StandingGrant) store.Op {
	claims := 0
	for _, e := range d.Entry.Events {
		claim, ok := e.(run.CallClaimed)
		if c, _ := d.State.Call(claim.Call); ok && c.Tool == g.Tool && claim.Under == g.Approval && claim.Digest == g.Digest {
			claims++
		}
	}
	return approval.StandingOp(d.State.Tenant, d.State.Agent, g, claims, d.Entry.Time)
}

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
