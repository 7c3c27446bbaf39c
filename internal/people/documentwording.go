package people

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Risk is the class of what is asked, by what the definition says of the tool and never by what the model says: see
// RiskOf. A call of another agent is of the effect that its definition declares. Of several tools it is the highest.
type Risk string

// The classes.
const (
	RiskNone   Risk = "none"
	RiskLow    Risk = "low"
	RiskMedium Risk = "medium"
	RiskHigh   Risk = "high"
)

// RiskOf is the class of a call of that effect; undo says that a tool can reverse it.
func RiskOf(e run.Effect, undo bool) Risk {
	switch {
	case e == run.EffectRead:
		return RiskNone
	case e == run.EffectIdempotent:
		return RiskLow
	case e == run.EffectNonIdempotent && undo:
		return RiskMedium
	}
	return RiskHigh
}

// Words are the class as people read it.
func (r Risk) Words() string {
	if r == RiskNone {
		return "no risk"
	}
	return string(r) + " risk"
}

// risks are the classes, the lowest first.
var risks = []Risk{RiskNone, RiskLow, RiskMedium, RiskHigh}

// riskText is the reason of a class of risk.
func riskText(e run.Effect, t agent.ToolSpec) Text {
	switch r := RiskOf(e, t.Undo != nil); {
	case r == RiskNone:
		return ownText("it changes nothing")
	case r == RiskLow:
		return ownText("it changes something, and can be repeated safely")
	case r == RiskMedium:
		return textf("it cannot be repeated safely; %1 takes it back", BareText(t.Undo.Tool))
	case t.Name == "":
		return ownText("it cannot be repeated safely")
	}
	return ownText("it cannot be undone or repeated safely")
}

// targetText is where the call goes, by the definition; empty if the tool's definition is not known.
func (s *documentBuilder) targetText(t agent.ToolSpec) Text {
	switch {
	case t.MCP != nil:
		return textf("MCP server %1, its tool %2", BareText(t.MCP.Server), BareText(t.MCP.Tool))
	case t.HTTP != nil:
		u, err := url.Parse(t.HTTP.URL)
		if err != nil || u.Host == "" {
			return textf("%1 of %2", ownText(t.HTTP.Method), s.foreignText(t.HTTP.URL))
		}
		// The host, which no argument changes; the path contains arguments.
		return textf("%1 to %2", ownText(t.HTTP.Method), BareText(u.Scheme+"://"+u.Host))
	case t.Lambda != nil:
		return textf("function %1", BareText(t.Lambda.Function))
	case t.Agent != nil:
		return textf("agent %1, in a run of its own", BareText(t.Agent.Agent))
	case t.Kind == agent.KindService:
		return textf("a service, by event %1", BareText(cmp.Or(t.Event, t.Name)))
	case t.Kind == agent.KindInternal:
		return ownText("this program")
	}
	return nil
}

// wordings are what people read of each kind of request: its title, with the agent for %1 and the tools for %2; what a
// decision is about, if that is not whether the call may run, with what the answer to a tool's question does for %1;
// what an approval grants besides the call, if it holds once; what a denial does; and what somebody has done who
// approves.
var wordings = map[approval.Kind]struct{ title, subject, grants, denied, approved string }{
	approval.KindCall: {
		title: "May %1 carry out %2?", denied: "the call is not carried out, and the model is told so", approved: "approved",
	},
	approval.KindTools: {
		title: "May %1 call %2?", grants: "the tool may be called once, whatever it is called with",
		subject: "whether these tools may be called; their calls were blocked and are not carried out",
		denied:  "the model is told so; its next call asks again", approved: "approved",
	},
	approval.KindOutcome: {
		title: "What became of %2 of %1?", denied: "nothing: say what became of it", approved: "answered",
		subject: "what became of this call: it was interrupted, and nobody knows whether it took effect",
	},
	approval.KindInput: {
		title: "%1 waits for an answer to %2", approved: "answered",
		subject: "for input: its tool has done nothing yet, and %1",
		denied:  "the call is not carried out, and the model is told so",
	},
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
	const of = "the tool may be called for the rest of the run"
	ofTool := a.Scope == agent.ScopeTool
	switch {
	case a.Kind == approval.KindOutcome || a.Kind == approval.KindInput:
		return nil
	case a.Grants == agent.GrantsRun && (ofTool || a.Kind == approval.KindTools):
		return ownText(of + ", whatever it is called with")
	case a.Grants == agent.GrantsStanding && ofTool:
		return textf(of+", and in every run of %1 for %2 or until it is revoked, whatever it is called with",
			BareText(a.Agent), ownText(exactDuration(standingLife(a))))
	case a.Grants == agent.GrantsStanding:
		return textf("the tool may be called with these very arguments for the rest of the run, and in every run of %1 "+
			"for %2 or until it is revoked", BareText(a.Agent), ownText(exactDuration(standingLife(a))))
	}
	return ownText(wordings[a.Kind].grants)
}

// standingLife is how long a standing grant holds that people do not bound: the policy's maximum.
func standingLife(a approval.Approval) time.Duration {
	for _, p := range a.Permissions {
		if p.Bounds != nil && p.Bounds.Seconds > 0 {
			return time.Duration(p.Bounds.Seconds) * time.Second
		}
	}
	return agent.StandingLife
}

// decisionVerb says what a person did.
func decisionVerb(action approval.Action, kind approval.Kind) string {
	switch action {
	case approval.Approve:
		return wordings[kind].approved
	case approval.Edit:
		return "approved with other arguments"
	case approval.Deny:
		return "denied"
	case approval.Cancel:
		return "cancelled"
	case approval.ReportResult:
		return "found to have happened"
	case approval.ReportError:
		return "found to have failed"
	case approval.Rerun:
		return "sent to run again"
	}
	return string(action)
}

// QuorumText says how many different people approve, and who has; of a request about tools, of each that is not
// decided. It is empty if one person is enough.
func QuorumText(a approval.Approval) Text {
	if a.Quorum < 2 {
		return nil
	}
	count := func(counted []approval.Decision, of int) Text {
		var who []string
		for _, d := range counted {
			who = append(who, d.By)
		}
		t := ownText(fmt.Sprintf("%d of %d so far", len(who), of))
		if len(who) > 0 {
			t = textf("%1: %2", t, namesText(who))
		}
		return t
	}
	all := []Text{ownText(fmt.Sprintf("%d different people approve, and one who denies is enough", a.Quorum))}
	for _, p := range a.Permissions {
		if a.Kind == approval.KindTools && p.Verdict == "" && p.Quorum > 1 {
			all = append(all, textf("%1: %2", BareText(p.Tool), count(a.ApprovalsOf(p), p.Quorum)))
		}
	}
	if a.Kind != approval.KindTools {
		all = append(all, count(a.CountedApprovals(), a.Quorum))
	}
	return fitTexts(all, "; ", math.MaxInt)
}

// StatusText is the status of a request of a kind for people.
func StatusText(kind approval.Kind, s approval.Status) string {
	if s == approval.Approved && (kind == approval.KindOutcome || kind == approval.KindInput) {
		return "Answered"
	}
	return map[approval.Status]string{
		approval.Pending: "Waiting for a decision", approval.Approved: "Approved", approval.Denied: "Denied",
		approval.Expired: "Expired", approval.Cancelled: "Cancelled", approval.Voided: "No longer needed",
	}[s]
}

// voidedText says why a request is void, as far as the request tells.
func voidedText(a approval.Approval) string {
	switch {
	case a.Kind == approval.KindOutcome:
		return "void: what became of the call is known without an answer"
	case run.IsSharedBudgetTool(firstOf(a.Tools)):
		return "void: there is budget again"
	case a.Kind == approval.KindCall && len(a.CountedApprovals()) >= max(1, a.Quorum):
		return "void: before the approved call ran, what it depends on or the policy changed; it is asked about again"
	}
	return "void: the policy changed, and it is asked about again, or the call was settled without this request"
}

// timesInText are the times in a text of ours, as FormatTime writes them.
var timesInText = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`)

// MarkTimes returns a text of ours, such as StandingText's, with its times as such.
func MarkTimes(s string) (t Text) {
	from := 0
	for _, at := range timesInText.FindAllStringIndex(s, -1) {
		t = append(t, Span{Text: s[from:at[0]]}, Span{Text: s[at[0]:at[1]], Kind: SpanTime})
		from = at[1]
	}
	return append(t, Span{Text: s[from:]})
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
	by, late, effect := "", "nobody decided in time", " It was not carried out."
	granted := func(p approval.Permission) bool { return p.Verdict == run.ToolGranted }
	switch {
	case a.Kind == approval.KindOutcome:
		effect = " Nobody knows whether it was carried out."
	case a.Kind == approval.KindTools && slices.ContainsFunc(a.Permissions, granted):
		effect = "" // of the tools that were granted
	}
	if n := len(a.Decisions); n > 0 {
		d := a.Decisions[n-1]
		late = "it was not fully decided in time"
		who := "somebody"
		if p, err := policy.ParsePrincipal(d.By); err == nil && p.ID == d.By {
			who = d.By
		}
		by = " by " + who + " at " + FormatTime(d.At)
		mixed := func(p approval.Permission) bool { return p.Verdict != a.Permissions[0].Verdict }
		decided := a.Status == approval.Approved || a.Status == approval.Denied
		switch {
		case decided && a.Kind == approval.KindTools && slices.ContainsFunc(a.Permissions, mixed):
			return "Each tool was decided by itself, the last one" + by + "."
		case d.Action == approval.Edit && a.Status == approval.Approved:
			return "Approved with other arguments" + by + "."
		case a.Kind == approval.KindOutcome && a.Status == approval.Approved:
			by = ": " + decisionVerb(d.Action, a.Kind) + by
		case a.Status == approval.Cancelled && d.Action != approval.Cancel && d.Action != approval.Fail:
			by = "" // it was cancelled with its run, and d is one approval of several
		}
	}
	switch a.Status {
	case approval.Pending:
		return "It still waits for a decision."
	case approval.Approved, approval.Denied:
		return StatusText(a.Kind, a.Status) + by + "."
	case approval.Expired:
		return "Expired at " + FormatTime(a.ExpiresAt) + ": " + late + "." + effect
	case approval.Cancelled:
		return "Cancelled" + by + "." + effect
	}
	return "No longer needed: it was overtaken by what happened since. Nobody has to decide."
}

// FormatDuration formats a duration for people, in its largest unit.
func FormatDuration(d time.Duration) string {
	for _, u := range timeUnits {
		if d >= u.of {
			return countUnits(d, u)
		}
	}
	return "less than a minute"
}

// exactDuration is a duration in the largest unit that has it whole.
func exactDuration(d time.Duration) string {
	for _, u := range timeUnits {
		if d >= u.of && d%u.of == 0 {
			return countUnits(d, u)
		}
	}
	return d.String()
}

type timeUnit struct {
	of   time.Duration
	name string
}

// timeUnits are in descending order.
var timeUnits = []timeUnit{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}}

func countUnits(d time.Duration, u timeUnit) string {
	if n := int(d / u.of); n != 1 {
		return fmt.Sprintf("%d %ss", n, u.name)
	}
	return "1 " + u.name
}

// boundsText is the bounds of a grant in words: which arguments, how often, how long. Most follows the time.
func (s *documentBuilder) boundsText(b agent.GrantBounds, most string) Text {
	var parts []Text
	for i, c := range b.When { // like agent.Condition.Words, with values written like those of arguments
		op, values := c.Operator()
		all := make([]Text, len(values))
		for i, v := range values {
			if read, err := mask.Read(v, nil); err == nil {
				all[i] = s.valueText(read)
			} else {
				all[i] = s.foreignText(string(v))
			}
		}
		value := joinTexts(all)
		if op == "in" {
			value = textf("[%1]", value)
		}
		before := "and "
		if i == 0 {
			before = "where "
		}
		parts = append(parts, textf(before+"%1 "+op+" %2", s.foreignText(c.Path), value))
	}
	switch {
	case b.Uses == 1:
		parts = append(parts, ownText("for one further call"))
	case b.Uses > 1:
		parts = append(parts, ownText(fmt.Sprintf("for %d further calls", b.Uses)))
	}
	if b.Seconds > 0 {
		parts = append(parts, ownText("for "+exactDuration(time.Duration(b.Seconds)*time.Second)+most))
	}
	if !b.Until.IsZero() {
		parts = append(parts, ownText("until "+FormatTime(b.Until)))
	}
	return joinTexts(parts)
}

// joinTexts joins texts with commas.
func joinTexts(of []Text) Text { return fitTexts(of, ", ", math.MaxInt) }

// refusals are what people read of the desk's errors. The first that fits counts.
var refusals = []struct {
	err  error
	text string
}{
	{approval.ErrRequester, "The run acts for you. Another person has to approve this; you may deny it."},
	{approval.ErrUnpinned, "You have chosen your own name, and different people have to approve this."},
	{approval.ErrForbidden, "You are not among those who may decide this, as things stand now."},
	{approval.ErrExpired, "The request has expired: nobody decided in time."},
	{approval.ErrFinished, "The run has ended: there is nothing left to decide."},
	{store.ErrTooLarge, "That is too long to be recorded with the request: shorten the note, or what you changed."},
	{approval.ErrStale, "Somebody changed the arguments meanwhile. Read them again and answer anew."},
	{approval.ErrPolicyChanged, "The policy that applies has changed since you were asked. Whoever may decide now is " +
		"asked again, unless it denies the call."},
	{approval.ErrNothing, "The call no longer waits for an answer."},
	{approval.ErrIgnored, "The call no longer waits for an answer."},
	{approval.ErrNoCall, "The call no longer waits for an answer."},
	{approval.ErrKind, "The request cannot be answered like that. See its page."},
	{approval.ErrNotLinked, "The program that you decide with lacks the tool, or other code of the agent. Nothing is " +
		"decided: use the program that has it, or try again after the next deployment."},
	{approval.ErrNotFound, "There is no such request."},
	{approval.ErrRemark, fmt.Sprintf("A remark has 1 to %d characters.", approval.MaxRemarkChars)},
	{approval.ErrThreadFull, "The request takes no more remarks."},
}

// RefusalText says to the person who has made a decision why it was refused, in the same words on every channel. It
// returns "" for any other error: then nobody can say whether the decision was recorded.
func RefusalText(err error) string {
	if e, ok := errors.AsType[*approval.DecidedError](err); ok {
		return "The request is decided already. " + OutcomeText(e.Approval)
	}
	if e, ok := errors.AsType[*approval.ChannelError](err); ok {
		return "The policy lets people approve this by " + e.Allowed.Words() + "."
	}
	if e, ok := errors.AsType[*policy.EditError](err); ok {
		return "The arguments: " + e.Problem
	}
	if e, ok := errors.AsType[*policy.AnswerError](err); ok {
		return "The answer: " + e.Problem
	}
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return r.text
		}
	}
	return ""
}
