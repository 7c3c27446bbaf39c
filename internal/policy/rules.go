package policy

import (
	"encoding/json"
	"time"

	"github.com/countersign/countersign/internal/agent"
)

// Decision is what policy says of one call.
type Decision struct {
	Verdict   agent.Verdict
	Rule      int               // index of the rule that matched; -1 = the default
	Approvers []string          // who may decide if the call has to wait; empty = nobody
	Expires   time.Duration     // how long the request lives if the call has to wait
	Note      string            // the rule's, for the person who is asked
	Quorum    int               // so many different people approve if the call has to wait; 0 and 1 = one
	FourEyes  bool              // the people for whom the run acts may not approve
	Remind    time.Duration     // how often people are reminded; 0 = never
	Escalate  *agent.Escalation // who may decide as well, and when; nil = nobody

	agent.Channels // by which people approve; what every policy that asks allows

	Ceiling bool // a delegating agent's policy denies the call, or asks, be it beside the run's own
	// the approvers of each such policy that asks, the root's first: who decides is among each, besides Approvers
	Above   [][]string
	AboveTo [][]string // who is among each of Above as well once Escalate is due; shorter where no more are
}

// Decide applies a permission to a call of t with args, which CompactJSON has accepted. Deny rules are checked before
// all others; then the first rule that matches wins; then the default. What cannot be compared never widens a
// permission: a value that is missing or of another type than the rule compares it with makes deny and ask rules match
// and allow rules not, and so do conditions that CheckPermission would refuse.
//
// A call with an object of which two keys are equal but for case is never allowed.
func Decide(p agent.Permission, t agent.ToolSpec, args json.RawMessage) Decision {
	return decideByRules(p, t, args).askAboutCaseKeys(args)
}

// decideByRules is Decide without the check for keys that are equal but for case.
func decideByRules(p agent.Permission, t agent.ToolSpec, args json.RawMessage) Decision {
	for i, r := range p.Rules {
		if r.Denies() && r.Matches(t.Name, args) {
			return decision(p, agent.VerdictDeny, i)
		}
	}
	for i, r := range p.Rules {
		if !r.Denies() && r.Matches(t.Name, args) {
			return decision(p, r.Verdict, i)
		}
	}
	return decision(p, p.DefaultVerdict(t.Effect), -1)
}

func decision(p agent.Permission, v agent.Verdict, rule int) Decision {
	d := Decision{Verdict: v, Rule: rule, Approvers: p.Approvers, Expires: p.Expires}
	if rule < 0 {
		return d
	}
	r := p.Rules[rule]
	d.Note = r.Note
	if len(r.Approvers) > 0 {
		d.Approvers = r.Approvers
	}
	if r.Expires > 0 {
		d.Expires = r.Expires
	}
	d.Channels = r.Channels()
	d.Quorum, d.FourEyes, d.Remind, d.Escalate = r.Quorum, r.FourEyes, r.Remind, r.Escalate
	return d
}
