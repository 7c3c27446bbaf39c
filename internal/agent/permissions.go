package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Permissions is what a run knows of its tools' permissions beyond its definition (semantics 1.6 and 6.1). It is part of the state, so of
// the journal, and of nothing else. The zero value knows nothing. Slices are never written in place.
type Permissions struct {
	Asked     []PermissionRequest `json:"asked,omitempty"`   // open requests about tools, oldest first
	Tools     []ToolPermit        `json:"tools,omitempty"`   // what people said of tools for the rest of the run, oldest first
	Policy    []string            `json:"policy,omitempty"`  // original names of the tools that the policy function lists
	Evaluated bool                `json:"policed,omitempty"` // the policy function has spoken since the run began or was last woken
	Checked   PermissionChecked   `json:"checked,omitzero"`  // what the permission backend says of a round's tools; zero = it was not asked
	Failed    string              `json:"failed,omitempty"`  // why the run cannot go on (permission_failed); "" = it can
}

// PermissionRequest is one request to people about the tools whose calls a batch has blocked. It belongs to no call.
type PermissionRequest struct {
	Approval string      `json:"approval"`
	Since    time.Time   `json:"since"`
	Expires  time.Time   `json:"expires"`
	Tools    []AskedTool `json:"tools"`            // in call order, each once
	Reason   string      `json:"reason,omitempty"` // why, for the people who are asked
	Heard    int         `json:"heard,omitempty"`  // as of Wait
}

// AskedTool is one tool of a request and what people have said of it.
type AskedTool struct {
	RequestedTool
	Verdict ToolVerdict `json:"verdict,omitempty"`
	By      string      `json:"by,omitempty"`
	Note    string      `json:"note,omitempty"`
}

// ToolVerdict is what became of one tool of a request. "" = nobody has said anything yet.
type ToolVerdict string

// The verdicts. One that was called off is neither granted nor denied.
const (
	ToolGranted   ToolVerdict = "granted"
	ToolDenied    ToolVerdict = "denied"
	ToolCancelled ToolVerdict = "cancelled"
)

// Verdict is what the action makes of a tool.
func (a DecisionAction) Verdict() ToolVerdict {
	switch a {
	case ActionApprove:
		return ToolGranted
	case ActionDeny:
		return ToolDenied
	default:
		return ToolCancelled
	}
}

// ToolPermit is a person's word on a tool for the rest of the run. A denial beats every grant.
type ToolPermit struct {
	Tool     string   `json:"tool"`
	Denied   bool     `json:"denied,omitempty"`
	Approval string   `json:"approval"`          // the request it was said on
	Place    int      `json:"place,omitempty"`   // of the tool in that request
	Digests  []string `json:"digests,omitempty"` // what was granted, by ToolDigest: one for each policy of approvers that agreed, and for the arguments where it is of them
	By       string   `json:"by"`
	Note     string   `json:"note,omitempty"`
	Used     bool     `json:"used,omitempty"`     // a claim has used it up
	Standing bool     `json:"standing,omitempty"` // it is on record beyond the run as well, and is worth nothing once that is taken back

	Voices []Voice   `json:"voices,omitempty"` // whose approvals it rests on; none = it was not recorded
	Asked  time.Time `json:"asked,omitzero"`   // with Voices: when people were asked
	Heard  int       `json:"heard,omitempty"`  // with Voices: as of Wait
	Edited bool      `json:"edited,omitempty"` // it is of arguments that a person changed
}

// PermissionStatus is what a permission backend says of a tool (seed 000, PermissionManager.get).
type PermissionStatus string

// The statuses. A tool that a backend says nothing of is requestable.
const (
	PermissionApproved    PermissionStatus = "APPROVED"
	PermissionDenied      PermissionStatus = "DENIED"
	PermissionRequestable PermissionStatus = "REQUESTABLE"
)

// zero reports whether nothing is known.
func (p *Permissions) zero() bool {
	return len(p.Asked) == 0 && len(p.Tools) == 0 && len(p.Policy) == 0 && !p.Evaluated && p.Checked.Inference == 0 && p.Failed == ""
}

// First is the first call that the request blocked.
func (r PermissionRequest) First() string { return r.Tools[0].Calls[0] }

// Complete reports whether every tool has its verdict.
func (r PermissionRequest) Complete() bool {
	return !slices.ContainsFunc(r.Tools, func(t AskedTool) bool { return t.Verdict == "" })
}

// named lists the model-facing names of the tools with a verdict; it is never nil.
func (r PermissionRequest) named(v ToolVerdict) []string {
	names := []string{}
	for _, t := range r.Tools {
		if t.Verdict == v {
			names = append(names, t.Name)
		}
	}
	return names
}

// Answer is the fact that the model is told of the request's outcome, as the one user text of seed 000.
func (r PermissionRequest) Answer(expired bool) PermissionAnswered {
	return PermissionAnswered{Approval: r.Approval, Expired: expired, Text: textPermission(r, expired)}
}

// textPermission is {"granted", "denied", "comments"}. Of tools that are in neither list the comments say why.
func textPermission(r PermissionRequest, expired bool) string {
	var comments []string
	for _, t := range r.Tools {
		if t.Note != "" {
			comments = append(comments, t.Name+":"+quotedNote("their note", t.Note))
		}
	}
	if undecided := r.named(""); expired && len(undecided) > 0 {
		comments = append(comments, "Expired: nobody decided about "+strings.Join(undecided, ", ")+" in time. That is neither a grant nor a denial, and not a permission.")
	}
	if off := r.named(ToolCancelled); len(off) > 0 {
		comments = append(comments, "Called off without a judgement, and not permitted: "+strings.Join(off, ", ")+".")
	}
	out, err := MarshalVerbatim(struct {
		Granted  []string `json:"granted"`
		Denied   []string `json:"denied"`
		Comments string   `json:"comments"`
	}{r.named(ToolGranted), r.named(ToolDenied), strings.Join(comments, "\n")})
	if err != nil { // strings always marshal
		return err.Error()
	}
	return string(out)
}

// denied is the denial of a tool, where there is one.
func (p *Permissions) denied(tool string) (ToolPermit, bool) {
	i := slices.IndexFunc(p.Tools, func(t ToolPermit) bool { return t.Tool == tool && t.Denied })
	if i < 0 {
		return ToolPermit{}, false
	}
	return p.Tools[i], true
}

// covering is the oldest grant of the tool that is not used up, holds under the approver policy that digest stands for,
// and is of those whom a call's policy wants.
func (s *AgentState) covering(tool, digest string, dec Decision) (ToolPermit, bool) {
	i := slices.IndexFunc(s.Permissions.Tools, func(t ToolPermit) bool {
		return t.Tool == tool && !t.Denied && !t.Used && slices.Contains(t.Digests, digest) && t.counts(s, dec)
	})
	if i < 0 {
		return ToolPermit{}, false
	}
	return s.Permissions.Tools[i], true
}

// status is the backend's word on a tool in the round of that inference.
func (p *Permissions) status(tool string, inference int64) PermissionStatus {
	if p.Checked.Inference != inference {
		return ""
	}
	return p.Checked.Tools[tool]
}

// request finds an open request.
func (p *Permissions) request(approval string) int {
	return slices.IndexFunc(p.Asked, func(r PermissionRequest) bool { return r.Approval == approval })
}

// OpenRequests are the requests about tools that the run waits for; none once it is done.
func (s *AgentState) OpenRequests() []PermissionRequest {
	if s.Status == RunDone {
		return nil
	}
	return s.Permissions.Asked
}

// RequestOf is the request that the call was blocked for, in this run; "" = none. A run that began from another does not decide about
// that one's requests.
func (s *AgentState) RequestOf(c Call) string {
	if c.Inference <= s.Prior-s.Plan.Rounds {
		return ""
	}
	return c.Request
}

// DecideIn is Decide within a run: a tool that the run's policy function lists asks where rules would allow it, and no verdict is
// weaker than that of an agent which delegated the run. Deny wins. Loop-breaking tools, which do nothing but end the run, are nobody's to decide about.
// Where nobody is known to have started the run, four eyes are two people who approve.
func DecideIn(d *Definition, s *AgentState, t ToolSpec, args json.RawMessage) Decision {
	if d.breaksLoop(t.Name) {
		return Decision{Verdict: VerdictAllow}
	}
	dec := Decide(d.Permission, t, args)
	if dec.Verdict == VerdictAllow && slices.Contains(s.Permissions.Policy, t.Name) {
		dec.Verdict = VerdictAsk
	}
	return s.asFourEyes(d.within(dec, t, args))
}

// ToolDigest is the digest of a permission to call a tool in a run: who, under which policy and which approvers. The call is no part of it
// (A18), and its arguments are one only where the policy's grants are of them (Permission.OfArguments).
func ToolDigest(d *Definition, s *AgentState, t ToolSpec, args json.RawMessage, dec Decision) string {
	return hashCanonical(d.Granting().bound(args, map[string]any{
		"tenant": s.Tenant, "run": s.Run, "agent": s.Agent, "version": s.Version, "tool": t.Name, "toolHash": ToolHash(t),
		"policyVersion": d.policyVersion(), "approverPolicy": dec.ApproverPolicy(),
	}))
}

// PermitDigest is one digest of a list of them, in order.
func PermitDigest(digests []string) string {
	return hashCanonical(map[string]any{"digests": stringList(digests)})
}

// Asked are the tools of a round's new calls that need a permission by policy, in call order, each once.
func Asked(d *Definition, s *AgentState) []string {
	var tools []string
	for _, c := range s.Live {
		t, known := d.Tool(c.Tool)
		if c.Status != StatusNew || !known || slices.Contains(tools, c.Tool) {
			continue
		}
		if DecideIn(d, s, t, c.Input).Verdict == VerdictAsk {
			tools = append(tools, c.Tool)
		}
	}
	return tools
}

// BlockRound is what block_and_retry makes of a round before any of its calls runs: the calls that lack a permission fail at once, and
// together they make one request. Gate is the verdict on one of them. Calls that free names are under way already. Nil = nothing is blocked.
func BlockRound(d *Definition, s *AgentState, gate func(*AgentState, Call) Gate, now time.Time, free func(id string) bool) []Event {
	if d.Permission.Mode != ModeBlockAndRetry {
		return nil
	}
	sim := *s // in which each call has taken what it would take of the permissions before the next one looks
	var r PermissionRequested
	var refused []Event
	for _, c := range s.Live {
		if c.Status != StatusNew && c.Status != StatusResuming || free(c.ID) {
			continue
		}
		g := gate(&sim, c)
		if g.Claim != nil && g.Claim.Once {
			sim.Permissions.use(g.Claim.Under, c.Tool)
		}
		if g.Claim != nil {
			sim.Permissions.count(c.Tool, g.Claim.Digest)
		}
		if g.Block != nil {
			r.add(d, s, c, g, now)
			refused = append(refused, *g.Block)
		}
	}
	if refused == nil {
		return nil
	}
	return append([]Event{r}, refused...)
}

// add puts a blocked call into the request.
func (r *PermissionRequested) add(d *Definition, s *AgentState, c Call, g Gate, now time.Time) {
	t, _ := d.Tool(c.Tool)
	expires := now.UTC().Add(g.Rule.Expires).Truncate(time.Millisecond)
	if r.Approval == "" {
		r.Approval, r.Expires = ApprovalID(s.Run, c.ID, c.Asks+1), expires
	}
	if expires.Before(r.Expires) {
		r.Expires = expires
	}
	digest := ToolDigest(d, s, t, c.Input, g.Rule)
	i := slices.IndexFunc(r.Tools, func(have RequestedTool) bool { return have.Tool == c.Tool })
	if i < 0 {
		r.Tools = append(r.Tools, RequestedTool{Tool: c.Tool, Name: c.Name, Calls: []string{c.ID}, Digests: []string{digest}})
		return
	}
	at := &r.Tools[i]
	at.Calls = append(at.Calls, c.ID)
	if !slices.Contains(at.Digests, digest) {
		at.Digests = append(at.Digests, digest)
	}
}

// Consequences is what a run's own state owes it before anybody else does: requests about tools that are answered, or that nobody has
// answered in time; and calls that wait for a person's word on their tool, which has fallen elsewhere. They are added to the entry that
// makes them due.
func Consequences(d *Definition, s *AgentState) []Event {
	var due []Event
	for _, r := range s.Permissions.Asked {
		if r.Complete() {
			due = append(due, r.Answer(false))
		}
	}
	for _, c := range s.Live {
		if c.Status != StatusSuspended || c.Wait.For != ForApproval {
			continue
		}
		if no, denied := s.Permissions.denied(c.Tool); denied {
			due = append(due, CallCancelled{Call: c.ID, Reason: WhyDenied, Content: textToolDenied(d, c.Name, no)})
			continue
		}
		if hasCaseKeys(c.Input) { // a word on its tool is none on it
			continue
		}
		t, _ := d.Tool(c.Tool)
		dec := DecideIn(d, s, t, c.Input)
		if ok, covered := s.covering(c.Tool, ToolDigest(d, s, t, c.Input, dec), dec); covered {
			due = append(due, CallPermitted{Call: c.ID, Approval: ok.Approval})
		}
	}
	return due
}

// Overdue are the requests about tools whose time is up. A timeout never grants (A14).
func (s *AgentState) Overdue(now time.Time) []Event {
	var due []Event
	for _, r := range s.Permissions.Asked {
		if !r.Complete() && !now.Before(r.Expires) {
			due = append(due, r.Answer(true))
		}
	}
	return due
}

// textToolDenied is for a tool that a person denied for the run.
func textToolDenied(d *Definition, tool string, p ToolPermit) string {
	return d.word(wordToolDenied, map[string]any{"Tool": tool, "By": p.By}) + quotedNote("Their note", p.Note)
}
