package policy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// The statuses that a permission backend gives a tool (seed 000, PermissionManager.get).
const (
	PermissionApproved    run.PermissionStatus = "APPROVED"
	PermissionDenied      run.PermissionStatus = "DENIED"
	PermissionRequestable run.PermissionStatus = "REQUESTABLE"
)

// findPermit returns the oldest unused grant of the tool that has this digest and whose approvers satisfy the decision.
func findPermit(s *run.AgentState, tool, digest string, dec Decision) (run.ToolPermit, bool) {
	return run.First(s.Permissions.Tools, func(t run.ToolPermit) bool {
		return t.Tool == tool && !t.Denied && !t.Used && slices.Contains(t.Digests, digest) && toolPermitCounts(t, s, dec)
	})
}

// needsOwnDecision reports whether no decision about other calls covers the call: it asks for budget, undoes a call, or
// has arguments that a person changed or that are ambiguous (A21).
func needsOwnDecision(c run.Call) bool {
	return c.IsDecidedAlone() || c.Editor() != "" || hasCaseKeys(c.Input)
}

// DecideIn is Decide within a run. It asks about a tool that the run's policy function lists even if rules allow it,
// and is never weaker than an agent that delegated the run. Deny wins. Loop-breaking tools are always allowed: they
// only end the run. If it is not known which person started the run, four eyes take two approvers.
func DecideIn(d *agent.Definition, s *run.AgentState, t agent.ToolSpec, args json.RawMessage) Decision {
	if d.BreaksLoop(t.Name) {
		return Decision{Verdict: agent.VerdictAllow}
	}
	dec := Decide(d.Permission, t, args)
	if dec.Verdict == agent.VerdictAllow &&
		(run.IsBudgetTool(t.Name) || d.Permission.MayList() && isListed(s, t.Name)) {
		dec.Verdict = agent.VerdictAsk
	}
	dec = withCeilings(d, dec, t, args)
	if dec.Verdict == agent.VerdictAsk && dec.FourEyes && !StarterKnown(s) {
		dec.Quorum = max(dec.Quorum, fourEyesPeople)
	}
	return dec
}

// ToolDigest returns the digest of a permission to call a tool in a run: run, agent, tool, policy and approvers. The
// call is not part of it (A18). Arguments are part of it if grants are for arguments (Permission.GrantsExactArguments).
func ToolDigest(d *agent.Definition, s *run.AgentState, t agent.ToolSpec, args json.RawMessage, dec Decision) string {
	return agent.HashCanonical(bindArguments(GrantPolicy(d), args, map[string]any{
		"tenant": s.Tenant, "run": s.Run, "agent": s.Agent, "version": s.Version, "tool": t.Name,
		"toolHash":      agent.ToolHash(t),
		"policyVersion": VersionOfPolicy(d), "approverPolicy": dec.ApproverPolicy(),
	}))
}

// PermitDigest returns one digest of a list of digests, in order.
func PermitDigest(digests []string) string {
	return agent.HashCanonical(map[string]any{"digests": stringList(digests)})
}

// unpermitted returns the round's new calls that need a permission by policy. A request for budget calls no tool of the
// agent.
func unpermitted(d *agent.Definition, s *run.AgentState) []run.Call {
	return slices.DeleteFunc(slices.Clone(s.Live), func(c run.Call) bool {
		t, known := d.Tool(c.Tool)
		return c.Status != run.StatusNew || c.Budget || !known || DecideIn(d, s, t, c.Input).Verdict != agent.VerdictAsk
	})
}

// AskedTools returns the tools of the round's new calls that need a permission by policy, in call order, each once.
func AskedTools(d *agent.Definition, s *run.AgentState) []string {
	return uniqueTools(unpermitted(d, s), func(c run.Call) string { return c.Tool })
}

func uniqueTools[T any](list []T, tool func(T) string) (each []string) {
	for _, of := range list {
		if !slices.Contains(each, tool(of)) {
			each = append(each, tool(of))
		}
	}
	return each
}

// maxBlocked is about how many bytes a request about tools has at most, if it is about several calls.
const maxBlocked = 256 << 10

// BlockRound applies block_and_retry to a round before any of its calls runs: calls that lack a permission fail at
// once, and one request, which comes first, asks for all of them that it has room for and no open request asks for.
// gate returns the verdict on a call. underWay reports calls that are under way. nil means that nothing is blocked.
func BlockRound(
	d *agent.Definition, s *run.AgentState, gate func(*run.AgentState, run.Call) Gate, now time.Time,
	underWay func(id string) bool,
) []run.Event {
	if d.Permission.Mode != agent.ModeBlockAndRetry {
		return nil
	}
	sim := *s // the state after each call has used its permission, as the next call sees it
	var r run.PermissionRequested
	var refused []run.Event
	size := 0
	for _, c := range s.Live {
		if c.Status != run.StatusNew && c.Status != run.StatusResuming || underWay(c.ID) {
			continue
		}
		g := gate(&sim, c)
		if g.Claim != nil && g.Claim.Once {
			sim.Permissions.Use(g.Claim.Under, c.Tool)
		}
		if g.Claim != nil {
			sim.Permissions.Count(c.Tool, g.Claim.Digest)
		}
		if g.Block == nil {
			continue
		}
		t, _ := d.Tool(c.Tool)
		digest := ToolDigest(d, s, t, c.Input, g.Rule)
		if isAsked(s, c.Tool, digest) {
			refused = append(refused, *g.Block)
			continue
		}
		people, _ := json.Marshal([]any{g.Rule.Approvers, g.Rule.Above, g.Rule.Escalate, g.Rule.AboveTo, g.Rule.Note})
		if size += len(c.Input) + 2*len(people); size > maxBlocked && r.Approval != "" { // a standing grant lists them, too
			refused = append(refused, *refuseCall(c, run.WhyTooManyOpen, agent.TextRequestFull(c.Name), g.Rule).Refuse)
			continue
		}
		refused = append(refused, *g.Block)
		expires := now.UTC().Add(g.Rule.Expires).Truncate(time.Millisecond)
		if r.Approval == "" {
			r.Approval, r.Expires = run.ApprovalID(s.Run, c.ID, c.Asks+1), expires
		}
		if expires.Before(r.Expires) {
			r.Expires = expires
		}
		i := slices.IndexFunc(r.Tools, func(have run.RequestedTool) bool { return have.Tool == c.Tool })
		if i < 0 {
			i = len(r.Tools)
			r.Tools = append(r.Tools, run.RequestedTool{Tool: c.Tool, Name: c.Name})
		}
		at := &r.Tools[i]
		at.Calls = append(at.Calls, c.ID)
		if !slices.Contains(at.Digests, digest) {
			at.Digests = append(at.Digests, digest)
		}
	}
	if r.Approval == "" {
		return refused
	}
	return append([]run.Event{r}, refused...)
}

// isAsked reports whether people have still to decide, in an open request, about what the digest stands for.
func isAsked(s *run.AgentState, tool, digest string) bool {
	return slices.ContainsFunc(s.Permissions.Asked, func(r run.PermissionRequest) bool {
		return slices.ContainsFunc(r.Tools, func(t run.AskedTool) bool {
			return t.Tool == tool && t.Verdict == "" && slices.Contains(t.Digests, digest)
		})
	})
}

// Consequences returns the events that follow from a run's own state: answers to complete requests about tools, and
// ends or permissions of calls that wait for an approval while another request has decided about their tool. They are
// part of the entry that causes them.
func Consequences(d *agent.Definition, s *run.AgentState) []run.Event {
	var due []run.Event
	for _, r := range s.Permissions.Asked {
		if r.Complete() {
			due = append(due, answerRequest(r))
		}
	}
	for _, c := range s.Live {
		if c.Status != run.StatusSuspended || c.Wait.For != run.ForApproval {
			continue
		}
		if no, denied := s.Permissions.Denied(c.Tool); denied {
			due = append(due, run.CallCancelled{Call: c.ID, Reason: run.WhyDenied, Content: textToolDenied(d, c.Name, no)})
			continue
		}
		if needsOwnDecision(c) {
			continue
		}
		t, _ := d.Tool(c.Tool)
		dec := DecideIn(d, s, t, c.Input)
		if ok, covered := findPermit(s, c.Tool, ToolDigest(d, s, t, c.Input, dec), dec); covered {
			due = append(due, run.CallPermitted{Call: c.ID, Approval: ok.Approval})
		}
	}
	return due
}

// ExpireRequests returns the answers to requests about tools that have expired. An expiry never grants (A14).
func ExpireRequests(s *run.AgentState, now time.Time) (due []run.Event) {
	for _, r := range s.Permissions.Asked {
		if !r.Complete() && !now.Before(r.Expires) {
			due = append(due, answerRequest(r))
		}
	}
	return due
}

// answerRequest returns the event that closes a complete or expired request and tells the model its outcome, as the one
// user text of seed 000: {"granted", "denied", "comments"}. comments say why tools are in neither list.
func answerRequest(r run.PermissionRequest) run.PermissionAnswered {
	names := map[run.ToolVerdict][]string{run.ToolGranted: {}, run.ToolDenied: {}}
	var comments []string
	for _, t := range r.Tools {
		names[t.Verdict] = append(names[t.Verdict], t.Name)
		if t.Note != "" {
			comments = append(comments, t.Name+":"+agent.QuotedNote("their note", t.Note))
		}
	}
	if undecided := names[""]; len(undecided) > 0 {
		comments = append(comments, "Expired: nobody decided about "+strings.Join(undecided, ", ")+
			" in time. That is neither a grant nor a denial, and not a permission.")
	}
	if off := names[run.ToolCancelled]; len(off) > 0 {
		comments = append(comments, "Called off without a judgement, and not permitted: "+strings.Join(off, ", ")+".")
	}
	out, _ := jsonx.MarshalVerbatim(struct { // strings always marshal
		Granted  []string `json:"granted"`
		Denied   []string `json:"denied"`
		Comments string   `json:"comments"`
	}{names[run.ToolGranted], names[run.ToolDenied], strings.Join(comments, "\n")})
	return run.PermissionAnswered{Approval: r.Approval, Expired: !r.Complete(), Text: string(out)}
}

// IsPermissionText reports whether a user's text is the answer to a request about tools.
func IsPermissionText(text string) bool { return strings.HasPrefix(text, `{"granted":[`) }

func textToolDenied(d *agent.Definition, tool string, p run.ToolPermit) string {
	return d.Word(agent.WordToolDenied, map[string]any{"Tool": tool, "By": p.By}) + agent.QuotedNote("Their note", p.Note)
}

// Flaggable returns the tools of an advisory policy that need an approval, by the names that the model uses, in order
// of definition. A rule that asks about some calls of a tool flags the tool, because the arguments are not known yet.
func Flaggable(d *agent.Definition) []string {
	if !d.FlagsTools() {
		return nil
	}
	asking := d.Permission
	asking.Mode = agent.ModeSuspendAndReplay
	var names []string
	for _, t := range d.Tools {
		if t.Name != asking.ApprovalTool && Decide(asking, t, json.RawMessage(`{}`)).Verdict == agent.VerdictAsk {
			names = append(names, t.ModelName())
		}
	}
	return names
}

// flaggedTools returns the definition's tools as the model is offered them. The description of a tool that needs an
// approval and has none says so.
func flaggedTools(d *agent.Definition, s *run.AgentState) []agent.ToolSpec {
	names := Flaggable(d)
	if len(names) == 0 {
		return d.Tools
	}
	tools, known := slices.Clone(d.Tools), map[string]ToolApproval{}
	for _, said := range approvals(s) {
		known[said.Tool] = said
	}
	for i, t := range tools {
		said := known[t.ModelName()]
		if slices.Contains(names, t.ModelName()) && !said.Value {
			tools[i].Description = strings.TrimSpace(t.Description + " " +
				agent.TextAskApproval(agent.ModelName(d.Permission.ApprovalTool), said.Comments))
		}
	}
	return tools
}

// ReadApprovals reads the answer of an approval tool: {"approvals": [{"tool", "value", "comments"?}]}. If a tool is
// named twice, the last entry counts. ok is false for any other answer.
func ReadApprovals(answer []byte) (tools []ToolApproval, ok bool) {
	var form struct {
		Approvals []struct {
			Tool     string `json:"tool"`
			Value    *bool  `json:"value"`
			Comments string `json:"comments"`
		} `json:"approvals"`
	}
	if json.Unmarshal(answer, &form) != nil || len(form.Approvals) == 0 {
		return nil, false
	}
	for _, said := range form.Approvals {
		if !agent.ValidWord(said.Tool) || said.Value == nil {
			return nil, false
		}
		tools = append(tools, ToolApproval{Tool: said.Tool, Value: *said.Value, Comments: agent.ValidText(said.Comments)})
	}
	return newest(tools), true
}

// What the permission policies remember of a run (run.Memory).
const (
	ListedMemory    = "listed"    // original names of the tools that the policy function lists
	ApprovalsMemory = "approvals" // []ToolApproval, each tool once, under an advisory policy
)

// isListed reports whether the policy function lists a tool. A list that cannot be read holds every tool.
func isListed(s *run.AgentState, tool string) bool {
	slot, ok := s.Memory[ListedMemory]
	var tools []string
	return ok && (json.Unmarshal(slot.Value, &tools) != nil || slices.Contains(tools, tool))
}

// ToolApproval says whether a tool is approved, or an approval must be asked for first.
type ToolApproval struct {
	Tool     string `json:"tool"` // the name the model uses
	Value    bool   `json:"value"`
	Comments string `json:"comments,omitempty"`
}

// approvals returns the approvals that the run remembers. If they cannot be read, no tool has one.
func approvals(s *run.AgentState) []ToolApproval { return recall[[]ToolApproval](s, ApprovalsMemory) }

// RememberApprovals returns the event that stores approvals of tools; newer ones replace older ones. An empty list is
// stored, too.
func RememberApprovals(s *run.AgentState, said []ToolApproval) run.Remembered {
	return run.Remember(ApprovalsMemory, newest(slices.Concat(approvals(s), said)))
}

// newest returns the last approval of each tool, sorted by tool.
func newest(said []ToolApproval) []ToolApproval {
	by := map[string]ToolApproval{}
	for _, t := range said {
		by[t.Tool] = t
	}
	byName := func(a, b ToolApproval) int { return strings.Compare(a.Tool, b.Tool) }
	return slices.SortedFunc(maps.Values(by), byName)
}

// RequestOf returns the request that the call was blocked for in this run. "" means none. A run does not decide about
// requests of the run that it began from.
func RequestOf(s *run.AgentState, c run.Call) string {
	own := int64(0) // calls that the plan has made in this run itself
	for _, u := range s.Plan.Uses {
		if u.From.Run == "" {
			own++
		}
	}
	if c.Inference <= s.Prior-own {
		return ""
	}
	return c.Request
}
