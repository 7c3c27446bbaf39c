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

// findPermit returns the oldest grant of the tool that is not used up, holds under the approver policy that digest
// stands for, and is of those whom a call's policy wants.
func findPermit(s *run.AgentState, tool, digest string, dec Decision) (run.ToolPermit, bool) {
	return run.First(s.Permissions.Tools, func(t run.ToolPermit) bool {
		return t.Tool == tool && !t.Denied && !t.Used && slices.Contains(t.Digests, digest) && toolPermitCounts(t, s, dec)
	})
}

// DecideIn is Decide within a run: a tool that the run's policy function lists asks where rules would allow it, and no
// verdict is weaker than that of an agent which delegated the run. Deny wins. Loop-breaking tools, which do nothing but
// end the run, are nobody's to decide about. Where nobody is known to have started it, four eyes are two who approve.
func DecideIn(d *agent.Definition, s *run.AgentState, t agent.ToolSpec, args json.RawMessage) Decision {
	if d.BreaksLoop(t.Name) {
		return Decision{Verdict: agent.VerdictAllow}
	}
	dec := Decide(d.Permission, t, args)
	if run.IsBudgetTool(t.Name) && (dec.Rule < 0 || dec.Verdict == agent.VerdictAllow) { // only a rule denies it
		dec.Verdict = agent.VerdictAsk
	}
	if dec.Verdict == agent.VerdictAllow && isListed(s, t.Name) {
		dec.Verdict = agent.VerdictAsk
	}
	dec = withCeilings(d, dec, t, args)
	if dec.Verdict == agent.VerdictAsk && dec.FourEyes && !StarterKnown(s) {
		dec.Quorum = max(dec.Quorum, fourEyesPeople)
	}
	return dec
}

// ToolDigest is the digest of a permission to call a tool in a run: who, under which policy and which approvers. The
// call is no part of it (A18), and its arguments are only where grants are of them (Permission.OfArguments).
func ToolDigest(d *agent.Definition, s *run.AgentState, t agent.ToolSpec, args json.RawMessage, dec Decision) string {
	return agent.HashCanonical(bindArguments(Granting(d), args, map[string]any{
		"tenant": s.Tenant, "run": s.Run, "agent": s.Agent, "version": s.Version, "tool": t.Name,
		"toolHash":      agent.ToolHash(t),
		"policyVersion": VersionOfPolicy(d), "approverPolicy": dec.ApproverPolicy(),
	}))
}

// PermitDigest is one digest of a list of them, in order.
func PermitDigest(digests []string) string {
	return agent.HashCanonical(map[string]any{"digests": stringList(digests)})
}

// unpermitted are the round's new calls that need a permission by policy.
func unpermitted(d *agent.Definition, s *run.AgentState) []run.Call {
	return slices.DeleteFunc(slices.Clone(s.Live), func(c run.Call) bool {
		t, known := d.Tool(c.Tool)
		return c.Status != run.StatusNew || !known || DecideIn(d, s, t, c.Input).Verdict != agent.VerdictAsk
	})
}

// AskedTools are the tools of a round's new calls that need a permission by policy, in call order, each once.
func AskedTools(d *agent.Definition, s *run.AgentState) []string {
	return toolsOf(unpermitted(d, s), func(c run.Call) string { return c.Tool })
}

func toolsOf[T any](list []T, tool func(T) string) (each []string) {
	for _, of := range list {
		if !slices.Contains(each, tool(of)) {
			each = append(each, tool(of))
		}
	}
	return each
}

// BlockRound is what block_and_retry makes of a round before any of its calls runs: the calls that lack a permission
// fail at once, and together they make one request. Gate is the verdict on one of them. Calls that free names are under
// way already. Nil = nothing is blocked.
func BlockRound(
	d *agent.Definition, s *run.AgentState, gate func(*run.AgentState, run.Call) Gate, now time.Time,
	free func(id string) bool,
) []run.Event {
	if d.Permission.Mode != agent.ModeBlockAndRetry {
		return nil
	}
	sim := *s // in which each call has taken what it would take of the permissions before the next one looks
	var r run.PermissionRequested
	var refused []run.Event
	for _, c := range s.Live {
		if c.Status != run.StatusNew && c.Status != run.StatusResuming || free(c.ID) {
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
		refused = append(refused, *g.Block)
		t, _ := d.Tool(c.Tool)
		expires := now.UTC().Add(g.Rule.Expires).Truncate(time.Millisecond)
		if r.Approval == "" {
			r.Approval, r.Expires = run.ApprovalID(s.Run, c.ID, c.Asks+1), expires
		}
		if expires.Before(r.Expires) {
			r.Expires = expires
		}
		digest := ToolDigest(d, s, t, c.Input, g.Rule)
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
	if refused == nil {
		return nil
	}
	return append([]run.Event{r}, refused...)
}

// Consequences are the facts that follow from a run's own state: requests about tools that are answered, and calls that
// wait for an approval while their tool was granted or denied on another request.
// They are added to the entry that makes them due.
func Consequences(d *agent.Definition, s *run.AgentState) []run.Event {
	var due []run.Event
	for _, r := range s.Permissions.Asked {
		if r.Complete() {
			due = append(due, AnswerRequest(r, false))
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
		if hasCaseKeys(c.Input) { // a grant of its tool does not cover it
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

// Overdue are the requests about tools whose time is up. A timeout never grants (A14).
func Overdue(s *run.AgentState, now time.Time) (due []run.Event) {
	for _, r := range s.Permissions.Asked {
		if !r.Complete() && !now.Before(r.Expires) {
			due = append(due, AnswerRequest(r, true))
		}
	}
	return due
}

// AnswerRequest is the fact that closes a request and gives the model its outcome, as the one user text of seed 000:
// {"granted", "denied", "comments"}. Of tools that are in neither list the comments say why.
func AnswerRequest(r run.PermissionRequest, expired bool) run.PermissionAnswered {
	names := map[run.ToolVerdict][]string{run.ToolGranted: {}, run.ToolDenied: {}}
	var comments []string
	for _, t := range r.Tools {
		names[t.Verdict] = append(names[t.Verdict], t.Name)
		if t.Note != "" {
			comments = append(comments, t.Name+":"+agent.QuotedNote("their note", t.Note))
		}
	}
	if undecided := names[""]; expired && len(undecided) > 0 {
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
	return run.PermissionAnswered{Approval: r.Approval, Expired: expired, Text: string(out)}
}

func textToolDenied(d *agent.Definition, tool string, p run.ToolPermit) string {
	return d.Word(agent.WordToolDenied, map[string]any{"Tool": tool, "By": p.By}) + agent.QuotedNote("Their note", p.Note)
}

// Flaggable are the tools of an advisory policy that want an approval, by the names the model uses, in order of
// definition. Nothing is known of the arguments then, so a rule that asks of some calls flags its tool.
func Flaggable(d *agent.Definition) []string {
	if !d.Advises() {
		return nil
	}
	var names []string
	for _, t := range d.Tools {
		if t.Name != d.Permission.ApprovalTool && Decide(d.Permission, t, json.RawMessage(`{}`)).Verdict == agent.VerdictAsk {
			names = append(names, t.ModelName())
		}
	}
	return names
}

// flaggedTools returns the definition's tools as the model is offered them: what wants an approval and has none says so
// in its description.
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

// ReadApprovals reads the answer of an approval tool: {"approvals": [{"tool", "value", "comments"?}]}. Of a tool that
// is named twice the last entry counts. ok is false for anything else: it is an answer like any other.
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

// ToolApproval says whether a tool is approved, or an approval is to be asked for first.
type ToolApproval struct {
	Tool     string `json:"tool"` // the name the model uses
	Value    bool   `json:"value"`
	Comments string `json:"comments,omitempty"`
}

// approvals are what the run knows of its tools. Where that cannot be read, no tool has an approval.
func approvals(s *run.AgentState) []ToolApproval { return recall[[]ToolApproval](s, ApprovalsMemory) }

// RememberApprovals is the fact of approvals of tools, of which the newer count. An empty list is an answer as well.
func RememberApprovals(s *run.AgentState, said []ToolApproval) run.Remembered {
	return run.Remember(ApprovalsMemory, newest(slices.Concat(approvals(s), said)))
}

// newest are the last approvals of each tool, sorted by tool.
func newest(said []ToolApproval) []ToolApproval {
	by := map[string]ToolApproval{}
	for _, t := range said {
		by[t.Tool] = t
	}
	byName := func(a, b ToolApproval) int { return strings.Compare(a.Tool, b.Tool) }
	return slices.SortedFunc(maps.Values(by), byName)
}

// RequestOf is the request that the call was blocked for, in this run; "" = none. A run that began from another does
// not decide about that one's requests.
func RequestOf(s *run.AgentState, c run.Call) string {
	own := int64(0) // how many calls the plan has made in this run, without those of a run it continues
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
