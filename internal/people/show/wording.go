package show

import (
	"cmp"
	"net/url"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/run"
)

// effects say what an effect means to an approver. An unknown effect counts as the worst.
var effects = map[run.Effect]string{
	run.EffectRead:          "read: it changes nothing",
	run.EffectIdempotent:    "idempotent: doing it twice is the same as once",
	run.EffectNonIdempotent: "non_idempotent: it changes something, and doing it twice is not the same as once",
}

func effectText(e run.Effect) string {
	if text, ok := effects[e]; ok {
		return text
	}
	return effects[run.EffectNonIdempotent]
}

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

func (s *builder) riskText(e run.Effect, t agent.ToolSpec) string {
	r := RiskOf(e, t.Undo != nil)
	switch {
	case r == Low:
		return "low: it reads"
	case e == run.EffectIdempotent:
		return "medium: it changes something, and can be repeated safely"
	case r == Medium:
		return "medium: it cannot be repeated safely; " + t.Undo.Tool + " takes it back"
	case t.Name == "":
		return "high: it cannot be repeated safely"
	}
	return "high: it cannot be undone or repeated safely"
}

// targetText is where the call goes, by the definition; empty if the tool's definition is not known.
func (s *builder) targetText(t agent.ToolSpec) Text {
	switch {
	case t.MCP != nil:
		return slices.Concat(ownText("MCP server "), bareText(t.MCP.Server, nil), ownText(", its tool "), bareText(t.MCP.Tool, nil)).merged()
	case t.HTTP != nil:
		return s.hostText(*t.HTTP)
	case t.Lambda != nil:
		return slices.Concat(ownText("function "), bareText(t.Lambda.Function, nil)).merged()
	case t.Agent != nil:
		return slices.Concat(ownText("agent "), bareText(t.Agent.Agent, nil), ownText(", in a run of its own")).merged()
	case t.Kind == agent.KindService:
		return slices.Concat(ownText("a service, by event "), bareText(cmp.Or(t.Event, t.Name), nil)).merged()
	case t.Kind == agent.KindInternal:
		return ownText("code of this deployment")
	}
	return nil
}

// hostText names the host that a request goes to, which no argument changes. It leaves out the path, which contains
// arguments.
func (s *builder) hostText(t agent.HTTPTool) Text {
	u, err := url.Parse(t.URL)
	if err != nil || u.Host == "" {
		return slices.Concat(ownText(t.Method+" of "), s.foreignText(t.URL)).merged()
	}
	return slices.Concat(ownText(t.Method+" to "), bareText(u.Scheme+"://"+u.Host, nil)).merged()
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
