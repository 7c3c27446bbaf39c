package agent

import (
	"fmt"
	"slices"
	"time"
)

// MaxQuorum is the most people whom a rule may want.
const MaxQuorum = 20

// People are how many different people approve what waits: one or more.
func (d Decision) People() int { return max(1, d.Quorum) }

// beside is what a policy that asks comes to where another one asks besides: who decides is among the approvers of both, so many approve as
// either wants, the requesters approve where neither minds, and others become approvers when both let them. The note and the verdict are d's.
func (d Decision) beside(o Decision) Decision {
	d.Expires = min(d.Expires, o.Expires)
	d.Above = append(slices.Clip(d.Above), append([]string{}, o.Approvers...))
	d.Quorum, d.FourEyes = max(d.Quorum, o.Quorum), d.FourEyes || o.FourEyes
	if d.Remind == 0 || o.Remind != 0 && o.Remind < d.Remind {
		d.Remind = o.Remind
	}
	if o.Escalate == nil {
		return d
	}
	later := Escalation{After: o.Escalate.After}
	if d.Escalate != nil {
		later = Escalation{After: max(later.After, d.Escalate.After), To: d.Escalate.To}
	}
	d.Escalate = &later
	d.AboveTo = append(slices.Clip(d.AboveTo), make([][]string, len(d.Above)-1-len(d.AboveTo))...)
	d.AboveTo = append(d.AboveTo, o.Escalate.To)
	return d
}

// Together is what several calls ask of people at once: as many as the strictest of them, reminded as the most impatient has it, and others are
// let in once the last of those that escalate does. Who they are is each call's own.
func (d Decision) Together(o Decision) Decision {
	sum := Decision{Quorum: max(d.Quorum, o.Quorum), FourEyes: d.FourEyes || o.FourEyes, Remind: d.Remind, Escalate: d.Escalate}
	if d.Remind == 0 || o.Remind != 0 && o.Remind < d.Remind {
		sum.Remind = o.Remind
	}
	if o.Escalate != nil {
		sum.Escalate = &Escalation{After: o.Escalate.After}
		if d.Escalate != nil {
			sum.Escalate.After = max(d.Escalate.After, o.Escalate.After)
		}
	}
	return sum
}

// Due reports whether the others of Escalate may decide once the request has waited so long.
func (d Decision) Due(waited time.Duration) bool {
	return d.Escalate != nil && waited >= d.Escalate.After
}

// MayAfter is May once the request has waited so long.
func (d Decision) MayAfter(p Principal, waited time.Duration) bool {
	if !d.Due(waited) {
		return d.May(p)
	}
	return MayDecideEach(p, slices.Concat(d.Approvers, d.Escalate.To), Widened(d.Above, d.AboveTo))
}

// Widened are sets of approvers, each with those who are among it as well.
func Widened(sets, by [][]string) [][]string {
	wide := slices.Clone(sets)
	for i := range min(len(sets), len(by)) {
		wide[i] = slices.Concat(sets[i], by[i])
	}
	return wide
}

// asking finds what is wrong with how a rule asks. Of a rule's approvers, how many people they are is not known here.
func (c *checker) asking(at string, r Rule, expires time.Duration) {
	c.that(r.Quorum >= 0 && r.Quorum <= MaxQuorum, at+".quorum", fmt.Sprintf("got %d, want 1 to %d people", r.Quorum, MaxQuorum))
	c.that(r.Remind >= 0, at+".remind", "got less than zero, want a duration")
	c.that(r.Remind == 0 || r.Remind < expires, at+".remind", "got as long as the request lives, or longer; want less than "+expires.String())
	if r.Verdict == VerdictAllow || r.Verdict == VerdictDeny {
		c.unasked(at, r)
		return
	}
	if r.Escalate == nil {
		return
	}
	c.that(r.Escalate.After > 0, at+".escalate.after", "got nothing, want a duration of more than zero")
	c.that(r.Escalate.After < expires, at+".escalate.after", "got as long as the request lives, or longer; want less than "+expires.String())
	c.that(len(r.Escalate.To) > 0, at+".escalate.to", "got nobody, want at least one principal")
	c.principals(at+".escalate.to", r.Escalate.To)
}

// unasked finds what a rule says of people whom it does not ask.
func (c *checker) unasked(at string, r Rule) {
	for _, said := range []struct {
		key string
		is  bool
	}{{"quorum", r.Quorum != 0}, {"fourEyes", r.FourEyes}, {"remind", r.Remind != 0}, {"escalate", r.Escalate != nil}} {
		c.that(!said.is, at+"."+said.key, "got a value, want none: the rule asks nobody (verdict: "+string(r.Verdict)+")")
	}
}
