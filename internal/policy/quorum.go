package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// People returns how many different people must approve: one or more.
func (d Decision) People() int { return max(1, d.Quorum) }

// combineWith combines two policies that both ask. Approvers must be approvers of both, by a channel of both, and as
// many as the stricter wants. Four eyes hold if either wants them, and others become approvers only when both let them.
// The note and the verdict are d's.
func (d Decision) combineWith(o Decision) Decision {
	d.Expires = min(d.Expires, o.Expires)
	d.Above = append(slices.Clip(d.Above), append([]string{}, o.Approvers...))
	d.Quorum, d.FourEyes, d.Channels = max(d.Quorum, o.Quorum), d.FourEyes || o.FourEyes, d.Channels.Narrow(o.Channels)
	d.Remind = lowerLimit(d.Remind, o.Remind)
	if o.Escalate == nil {
		return d
	}
	later := agent.Escalation{After: o.Escalate.After}
	if d.Escalate != nil {
		later = agent.Escalation{After: max(later.After, d.Escalate.After), To: d.Escalate.To}
	}
	d.Escalate = &later
	d.AboveTo = append(slices.Clip(d.AboveTo), make([][]string, len(d.Above)-1-len(d.AboveTo))...)
	d.AboveTo = append(d.AboveTo, o.Escalate.To)
	return d
}

// Together combines the requirements of several calls of one request: the highest quorum, the shortest interval of
// reminders, and the latest escalation. Each call keeps its own approvers.
func (d Decision) Together(o Decision) Decision {
	both := d.combineWith(o)
	return Decision{Quorum: both.Quorum, FourEyes: both.FourEyes, Remind: both.Remind, Escalate: both.Escalate}
}

// Due reports whether the approvers of Escalate may decide after this wait.
func (d Decision) Due(waited time.Duration) bool {
	return d.Escalate != nil && waited >= d.Escalate.After
}

// MayAfter reports whether p may decide about the call after its request has waited this long: p is one of its
// approvers, and one of those of each policy above that asks.
func (d Decision) MayAfter(p Principal, waited time.Duration) bool {
	if !d.Due(waited) {
		return MayDecideEach(p, d.Approvers, d.Above)
	}
	return MayDecideEach(p, slices.Concat(d.Approvers, d.Escalate.To), WidenSets(d.Above, d.AboveTo))
}

// WidenSets returns the sets of approvers, each extended by the set of by at the same index.
func WidenSets(sets, by [][]string) [][]string {
	wide := slices.Clone(sets)
	for i := range min(len(sets), len(by)) {
		wide[i] = slices.Concat(sets[i], by[i])
	}
	return wide
}

// isApprovedBy reports whether the approvals satisfy the decision: at least want different people who were approvers at
// that time, by an allowed channel, and under four eyes none of the requesters. It does not trust what the request item
// says about its approvers: a process that can write that item could otherwise let anything run.
func (d Decision) isApprovedBy(approvals []run.Approver, want int, asked time.Time, requesters []string) bool {
	var counted []string
	for _, v := range approvals {
		known := func(id string) bool {
			return slices.Contains(counted, id) || d.FourEyes && slices.Contains(requesters, id)
		}
		if !d.MayAfter(Principal{ID: v.By, Groups: v.Groups}, v.At.Sub(asked)) || known(v.By) ||
			!d.Channels.Count(v.Via, v.Confirmed) {
			continue
		}
		counted = append(counted, v.By)
	}
	return len(counted) >= want
}

// ApproversNeeded returns how many different people must approve a call. Edited arguments need a second person
// under four eyes, also when people are asked about them again.
func (d Decision) ApproversNeeded(edited bool) int {
	if edited {
		return FourEyesEdit(d.People(), d.FourEyes)
	}
	return d.People()
}

// grantCounts reports whether those who have approved a call, or ordered it to run again, satisfy its policy. A grant
// that a claim has used was checked then.
func grantCounts(c run.Call, s *run.AgentState, dec Decision) bool {
	g := c.Grant
	if !g.Again && (g.Consumed || len(g.ApprovedBy) == 0) {
		return true
	}
	return dec.isApprovedBy(g.ApprovedBy, dec.ApproversNeeded(c.Editor() != ""), g.Asked, s.RequestersAt(g.Contributors))
}

// toolPermitCounts reports whether those who have granted a call's tool satisfy the call's policy. Under four eyes,
// they may not have told the model anything since.
func toolPermitCounts(p run.ToolPermit, s *run.AgentState, dec Decision) bool {
	if len(p.ApprovedBy) == 0 {
		return true
	}
	approvals := slices.DeleteFunc(slices.Clone(p.ApprovedBy), func(v run.Approver) bool {
		return len(v.Tools) > 0 && !slices.Contains(v.Tools, p.Tool)
	})
	return dec.isApprovedBy(approvals, dec.ApproversNeeded(p.Edited), p.Asked, s.Requesters())
}

// Suffices reports whether those who have granted a tool by e satisfy the policy of each call that asked.
func Suffices(e run.Decided, d *agent.Definition, s *run.AgentState, tool string) bool {
	calls := []string{e.Call}
	if at := s.Permissions.Request(e.Approval); at >= 0 {
		for _, t := range s.Permissions.Asked[at].Tools {
			if t.Tool == tool {
				calls = t.Calls
			}
		}
	}
	t, _ := d.Tool(tool)
	for _, id := range calls {
		c, _ := s.Call(id)
		dec := DecideIn(d, s, t, c.Input)
		if c.Grant != nil && c.Grant.Approval == e.Approval && !grantCounts(c, s, dec) {
			return false
		}
		for _, p := range s.Permissions.Tools {
			if p.Tool == tool && p.Approval == e.Approval && !p.Denied && !toolPermitCounts(p, s, dec) {
				return false
			}
		}
	}
	return true
}

// fourEyesPeople is how many people four eyes are.
const fourEyesPeople = 2

// FourEyesEdit returns how many people must approve a call whose arguments were edited: under four eyes at least two.
func FourEyesEdit(quorum int, fourEyes bool) int {
	if fourEyes {
		return max(quorum, fourEyesPeople)
	}
	return quorum
}

// Principal is one person and the groups that they are in. The zero Principal may decide nothing.
type Principal struct {
	ID     string   // user:ana; canonical ids are compared, never spellings of an e-mail address
	Groups []string // group:finance
	// Unpinned says that one person may have several ids, for example because an IAM role's user chooses the session name.
	// Such a principal does not approve where people are counted or told apart.
	Unpinned bool
}

// MayDecide reports whether p is among the approvers, by id or by group. It fails closed (A9): no approvers means
// nobody, and a principal without a well-formed user id is nobody.
func MayDecide(approvers []string, p Principal) bool {
	if !run.IsPrincipal("user:", p.ID) {
		return false
	}
	return slices.Contains(approvers, p.ID) || slices.ContainsFunc(p.Groups, func(g string) bool {
		return run.IsPrincipal("group:", g) && slices.Contains(approvers, g)
	})
}

// ParsePrincipal reads a principal as the command line takes it: one user:NAME and any number of group:NAME, in any
// order, separated by commas.
func ParsePrincipal(s string) (Principal, error) {
	var p Principal
	for part := range strings.SplitSeq(s, ",") {
		switch {
		case run.IsPrincipal("group:", part):
			p.Groups = append(p.Groups, part)
		case run.IsPrincipal("user:", part) && p.ID == "":
			p.ID = part
		default:
			return Principal{}, fmt.Errorf("parse principal %q: want one user:NAME and group:NAME, separated by commas", s)
		}
	}
	if p.ID == "" {
		return Principal{}, fmt.Errorf("parse principal %q: want a user:NAME", s)
	}
	return p, nil
}

// String returns the form that ParsePrincipal reads.
func (p Principal) String() string { return strings.Join(append([]string{p.ID}, p.Groups...), ",") }

// StarterKnown reports whether it is known which person started the run, and the runs that it began from. A subject
// that a caller claims does not count: an event can claim anything.
func StarterKnown(s *run.AgentState) bool {
	user := func(id string) bool { return run.IsPrincipal("user:", id) }
	return slices.ContainsFunc(s.By, user) && !slices.Contains(s.By, unknownStarter)
}

// unknownStarter stands in AgentState.By for an unknown person who started the run from which a run began.
const unknownStarter = "unknown"

// StartersOf returns the people that a run which begins from s has in By.
func StartersOf(s *run.AgentState) []string {
	if StarterKnown(s) {
		return s.By
	}
	return append(slices.Clip(s.By), unknownStarter)
}

// Decision is what policy decides about one call.
type Decision struct {
	Verdict   agent.Verdict
	Rule      int               // index of the rule that matched; -1 = the default
	Approvers []string          // who may decide if the call has to wait; empty = nobody
	Expires   time.Duration     // how long the request lives if the call has to wait
	Note      string            // the rule's note for approvers
	Quorum    int               // how many different people must approve; 0 and 1 = one
	FourEyes  bool              // the people for whom the run acts may not approve
	Remind    time.Duration     // how often people are reminded; 0 = never
	Escalate  *agent.Escalation // who may decide as well, and when; nil = nobody

	agent.Channels // by which people may approve: those that every policy that asks allows

	Ceiling bool // a delegating agent's policy denies the call, or asks, perhaps together with the run's own
	// the approvers of each such policy that asks, the root's first; who decides must be in each and in Approvers
	Above   [][]string
	AboveTo [][]string // who joins each set of Above once Escalate is due; may be shorter than Above
}

// Decide applies a permission to a call of t with args, which CompactJSON has accepted. Deny rules are checked first,
// then the first rule that matches wins, then the default. A value that cannot be compared never widens a permission:
// if it is missing or of another type, deny and ask rules match and allow rules do not. The same holds for conditions
// that Check would refuse. People are asked if an object in its arguments has two keys that differ only by case. An
// advisory policy asks nobody. Only a rule denies a request for budget.
func Decide(p agent.Permission, t agent.ToolSpec, args json.RawMessage) Decision {
	d := Decision{Verdict: p.DefaultVerdict(t.Effect), Approvers: p.Approvers, Expires: p.Expires}
	d.Rule = slices.IndexFunc(p.Rules, func(r agent.Rule) bool { return r.Denies() && r.Matches(t.Name, args) })
	if d.Rule < 0 {
		d.Rule = slices.IndexFunc(p.Rules, func(r agent.Rule) bool { return !r.Denies() && r.Matches(t.Name, args) })
	}
	if d.Rule >= 0 {
		r := p.Rules[d.Rule]
		if d.Verdict = r.Verdict; r.Denies() {
			d.Verdict = agent.VerdictDeny
		}
		if len(r.Approvers) > 0 {
			d.Approvers = r.Approvers
		}
		if r.Expires > 0 {
			d.Expires = r.Expires
		}
		d.Note, d.Channels = r.Note, r.Channels()
		d.Quorum, d.FourEyes, d.Remind, d.Escalate = r.Quorum, r.FourEyes, r.Remind, r.Escalate
	}
	if d.Rule < 0 && d.Verdict == agent.VerdictDeny && run.IsBudgetTool(t.Name) { // which no model calls
		d.Verdict = agent.VerdictAsk
	}
	if d.Verdict != agent.VerdictDeny && hasCaseKeys(args) {
		d.Verdict = agent.VerdictAsk
		d.Note = strings.TrimSpace(d.Note + "\nWarning: two keys of one object are the same but for upper and lower case. " +
			"The tool may take the value of either.")
	}
	if d.Verdict == agent.VerdictAsk && p.Mode == agent.ModeAdvisory {
		d.Verdict = agent.VerdictAllow
	}
	return d
}
