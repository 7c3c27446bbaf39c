package show

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// Risk is the class of what is asked. It is derived from what the definition says of the tool, never from what the model says:
//
//	low     effect read
//	medium  effect idempotent; or non_idempotent with a tool that takes it back (undo)
//	high    everything else: it cannot be repeated safely, and nothing takes it back
//
// A call of another agent is of the effect that its definition declares. Of several tools it is the highest.
type Risk string

// The classes.
const (
	Low    Risk = "low"
	Medium Risk = "medium"
	High   Risk = "high"
)

// RiskOf is the class of a call of that effect; undo says that a tool can reverse it.
func RiskOf(e run.Effect, undo bool) Risk {
	switch {
	case e == run.EffectRead:
		return Low
	case e == run.EffectIdempotent || e == run.EffectNonIdempotent && undo:
		return Medium
	}
	return High
}

// higherRisk is the higher of two classes; "" is below all of them.
func higherRisk(a, b Risk) Risk {
	scale := []Risk{"", Low, Medium, High}
	return scale[max(slices.Index(scale, a), slices.Index(scale, b))]
}

// riskText is the reason of a class of risk.
func riskText(e run.Effect, t agent.ToolSpec) Text {
	switch r := RiskOf(e, t.Undo != nil); {
	case r == Low:
		return ownText("it changes nothing")
	case e == run.EffectIdempotent:
		return ownText("it changes something, and can be repeated safely")
	case r == Medium:
		undo := bareText(t.Undo.Tool, nil)
		return slices.Concat(ownText("it cannot be repeated safely; "), undo, ownText(" takes it back")).merged()
	case t.Name == "":
		return ownText("it cannot be repeated safely")
	}
	return ownText("it cannot be undone or repeated safely")
}

// targetText is where the call goes, by the definition; empty if the tool's definition is not known.
func (s *builder) targetText(t agent.ToolSpec) Text {
	switch {
	case t.MCP != nil:
		return slices.Concat(ownText("MCP server "), bareText(t.MCP.Server, nil), ownText(", its tool "), bareText(t.MCP.Tool, nil)).merged()
	case t.HTTP != nil:
		u, err := url.Parse(t.HTTP.URL)
		if err != nil || u.Host == "" {
			return slices.Concat(ownText(t.HTTP.Method+" of "), s.foreignText(t.HTTP.URL)).merged()
		}
		// The host, which no argument changes; the path contains arguments.
		return slices.Concat(ownText(t.HTTP.Method+" to "), bareText(u.Scheme+"://"+u.Host, nil)).merged()
	case t.Lambda != nil:
		return slices.Concat(ownText("function "), bareText(t.Lambda.Function, nil)).merged()
	case t.Agent != nil:
		return slices.Concat(ownText("agent "), bareText(t.Agent.Agent, nil), ownText(", in a run of its own")).merged()
	case t.Kind == agent.KindService:
		return slices.Concat(ownText("a service, by event "), bareText(cmp.Or(t.Event, t.Name), nil)).merged()
	case t.Kind == agent.KindInternal:
		return ownText("this program")
	}
	return nil
}

// decisionSubject says what a decision is about, if that is not whether the call may run.
func decisionSubject(a approval.Approval) string {
	switch a.Kind {
	case approval.KindTools:
		return "whether these tools may be called; their calls were blocked and are not carried out"
	case approval.KindOutcome:
		return "what became of this call: it was interrupted, and nobody knows whether it took effect"
	case approval.KindInput:
		mode := run.TicketMode("")
		if a.Ticket != nil {
			mode = a.Ticket.Mode
		}
		return "for input: its tool has done nothing yet, and " + answerEffects[mode]
	}
	return ""
}

// answerEffects say what an answer does. A ticket without a mode replays.
var answerEffects = map[run.TicketMode]string{
	"":               "runs again with the answer",
	run.TicketReplay: "runs again with the answer",
	run.TicketResult: "does not run again: the answer is its result",
	run.TicketPass:   "runs with the answer for its arguments, unless that is true or false",
}

// grantText says what an approval grants besides the call; empty if nothing.
func grantText(a approval.Approval) Text {
	of := "the tool may be called for the rest of the run"
	switch {
	case a.Kind == approval.KindOutcome || a.Kind == approval.KindInput:
		return nil
	case a.Grants == agent.GrantsRun && (a.Scope == agent.ScopeTool || a.Kind == approval.KindTools):
		return ownText(of + ", whatever it is called with")
	case a.Grants == agent.GrantsStanding && a.Scope == agent.ScopeTool:
		return slices.Concat(ownText(of+", and in every run of "), bareText(a.Agent, nil), ownText(" for 30 days or until it is revoked, whatever it is called with")).merged()
	case a.Grants == agent.GrantsStanding:
		return slices.Concat(ownText("the tool may be called with these very arguments for the rest of the run, and in every run of "), bareText(a.Agent, nil),
			ownText(" for 30 days or until it is revoked")).merged()
	case a.Kind == approval.KindTools:
		return ownText("the tool may be called once, whatever it is called with")
	}
	return nil
}

// denialText says what a denial does.
func denialText(a approval.Approval) string {
	switch {
	case a.Kind == approval.KindOutcome:
		return "nothing: say what became of it"
	case a.Scope == agent.ScopeTool:
		return "the tool is not called any more in this run, and the model is told so"
	case a.Kind == approval.KindTools:
		return "the model is told so; its next call asks again"
	}
	return "the call is not carried out, and the model is told so"
}

// decisionVerb says what a person did.
func decisionVerb(action approval.Action, kind approval.Kind) string {
	switch {
	case action == approval.Approve && (kind == approval.KindInput || kind == approval.KindOutcome):
		return "answered"
	case action == approval.Approve:
		return "approved"
	case action == approval.Edit:
		return "approved with other arguments"
	case action == approval.Deny:
		return "denied"
	case action == approval.Cancel:
		return "cancelled"
	}
	return string(action)
}

// StatusText is a request's status for people.
func StatusText(s approval.Status) string {
	return map[approval.Status]string{
		approval.Pending: "Waiting for a decision", approval.Approved: "Approved", approval.Denied: "Denied",
		approval.Expired: "Expired", approval.Cancelled: "Cancelled", approval.Voided: "No longer needed",
	}[s]
}

// StandingText says how a request stands: who asks and how much time is left, or what became of it.
func StandingText(a approval.Approval, now time.Time) string {
	switch {
	case a.Status == approval.Pending && now.Before(a.ExpiresAt):
		return "Agent " + a.Agent + " asks. There is time for " + FormatDuration(a.ExpiresAt.Sub(now)) +
			", until " + FormatTime(a.ExpiresAt) + "."
	case a.Status == approval.Pending:
		a.Status = approval.Expired
	}
	return OutcomeText(a)
}

// OutcomeText says what became of a request, by whom and when, in words of ours and ids of people.
func OutcomeText(a approval.Approval) string {
	by := ""
	if n := len(a.Decisions); n > 0 {
		d := a.Decisions[n-1]
		who := "somebody"
		if p, err := policy.ParsePrincipal(d.By); err == nil && p.ID == d.By {
			who = d.By
		}
		by = " by " + who + " at " + FormatTime(d.At)
		if d.Action == approval.Edit && a.Status == approval.Approved {
			return "Approved with other arguments" + by + "."
		}
	}
	switch a.Status {
	case approval.Pending:
		return "It still waits for a decision."
	case approval.Approved, approval.Denied:
		return StatusText(a.Status) + by + "."
	case approval.Expired:
		return "Expired at " + FormatTime(a.ExpiresAt) + ": nobody decided in time. It was not carried out."
	case approval.Cancelled:
		return "Cancelled" + by + ". It was not carried out."
	}
	return "No longer needed: it was overtaken by what happened since. Nobody has to decide."
}

// FormatDuration formats a duration for people, in its largest unit.
func FormatDuration(d time.Duration) string {
	for _, u := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		switch n := int(d / u.of); {
		case n == 1:
			return "1 " + u.name
		case n > 1:
			return fmt.Sprintf("%d %ss", n, u.name)
		}
	}
	return "less than a minute"
}
