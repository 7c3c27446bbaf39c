package web

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/show"
)

// page answers with the request as it stands, what was just said before everything else.
func (s *server) page(w http.ResponseWriter, r *http.Request, v visit, status int, now said) {
	data, err := s.data(r.Context(), v, now)
	if err != nil {
		s.fails(w, r, err)
		return
	}
	html, err := s.request.HTML(data)
	if err != nil { // too long, with what stands around each odd character: all of it is there without
		html, err = s.request.HTML(flat(data).(map[string]any))
	}
	if err != nil {
		s.fails(w, r, err)
		return
	}
	s.write(w, status, html)
}

// may is what the page offers.
type may struct{ approve, deny, edit, result, remark bool }

// offers is what somebody can do with the request as it stands.
func (s *server) offers(ctx context.Context, v visit) (m may, err error) {
	if !s.open(v.a) || v.voted() {
		m.remark = s.open(v.a) && s.Remark != nil
		return m, nil
	}
	m.remark = s.Remark != nil
	approve, deny, err := s.decides(ctx, v)
	if err != nil {
		return may{}, err
	}
	switch v.a.Kind {
	case approval.KindOutcome:
		m.result = approve
	case approval.KindInput:
		m.result, m.deny = approve, deny
	default:
		m.approve, m.deny, m.edit = approve, deny, approve && v.a.Kind == approval.KindCall && s.Show.Editable != nil
	}
	return m, nil
}

// decides reports what the visitor may do as things stand: at this time, and on whosever behalf.
func (s *server) decides(ctx context.Context, v visit) (approve, deny bool, err error) {
	if s.May != nil {
		return s.May(ctx, v.a, v.by)
	}
	deny = v.a.MayDecide(v.by, s.Clock.Now())
	return deny && (!v.a.FourEyes || !slices.Contains(v.a.Requesters, v.by.ID)), deny, nil
}

// open reports whether the request can still be decided, as far as the page knows: the desk decides.
func (s *server) open(a approval.Approval) bool {
	return a.Status == approval.Pending && s.Clock.Now().Before(a.ExpiresAt)
}

// voted reports whether the visitor's word on the request as it is has been given: an edit by somebody else makes it another.
func (v visit) voted() bool {
	if v.a.Kind == approval.KindTools {
		return false
	}
	for _, d := range slices.Backward(v.a.Decisions) {
		switch {
		case d.By == v.by.ID:
			return true
		case d.Action == approval.Edit:
			return false
		}
	}
	return false
}

func (s *server) data(ctx context.Context, v visit, now said) (map[string]any, error) {
	of := s.Show.Of
	if v.uncovered {
		of = s.Show.Uncovered
	}
	shown, err := of(ctx, v.a)
	if err != nil {
		return nil, err
	}
	m, err := s.offers(ctx, v)
	if err != nil {
		return nil, err
	}
	form, err := ticket(v.link, stateOf(v.a, v.by.ID))
	if err != nil {
		return nil, err
	}
	name := v.who.Name
	if name == "" {
		name = v.who.ID
	}
	facts, risk := withoutRisk(shown.Facts, shown.Risk)
	slices.SortStableFunc(facts, func(a, b show.Fact) int { return cmp.Compare(weight(a.Name), weight(b.Name)) })
	data := map[string]any{
		"title": shown.Title.String() + " · Countersign", "who": Text(s.Show.Text(name)), "heading": Text(shown.Title),
		"facts": Facts(facts), "changed": Facts(shown.Changed), "arguments": Arguments(shown.Arguments), "bytes": size(shown.Bytes),
		"masked": shown.Masked, "tools": s.tools(v.a, shown), "history": s.history(shown), "question": Text(shown.Question),
		"claim": Text(shown.Claim), "says": Text(shown.Says),
		"id": Text(s.Show.Text(v.a.ID)), "form": form, "notice": s.notice(now), "risk": risk,
	}
	s.standing(data, v)
	if err := s.answers(ctx, data, v, m, now); err != nil {
		return nil, err
	}
	maps.Copy(data, v.more)
	return data, nil
}

func (s *server) notice(n said) any {
	if n.head == "" {
		return nil
	}
	kind, role := "good", "status"
	if n.bad {
		kind, role = "bad", "alert"
	}
	return map[string]any{"kind": kind, "role": role, "head": n.head, "text": Text(s.Show.Text(n.text))}
}

// weight orders the facts below the arguments: first what the call depends on and why it is asked, then the rest.
func weight(fact string) int {
	switch fact {
	case show.FactAsks, show.FactEdited, show.FactDepends, show.FactWhy, show.FactUndoes:
		return 0
	}
	return 1
}

// riskLabels name the classes of risk, on the one scale that there is. Pages are red for the highest alone.
var riskLabels = map[show.Risk]string{show.Low: "Low", show.Medium: "Medium", show.High: "High"}

// withoutRisk takes what facts say of the risk out of them ("high: it cannot be undone"), for the one place where a page
// says it. The effect, from which the class of risk follows, is said by it as well.
func withoutRisk(all []show.Fact, level show.Risk) (facts []show.Fact, risk any) {
	for _, f := range all {
		switch f.Name {
		case show.FactRisk:
			_, why, _ := strings.Cut(f.Value.String(), ": ")
			risk = map[string]any{"level": string(level), "label": riskLabels[level], "text": why}
		case show.FactEffect:
		default:
			facts = append(facts, f)
		}
	}
	return facts, risk
}

// statuses are a request's statuses for people.
var statuses = map[approval.Status]string{
	approval.Pending: "Waiting for an answer", approval.Approved: "Approved", approval.Denied: "Denied", approval.Expired: "Expired",
	approval.Cancelled: "Called off", approval.Voided: "Overtaken",
}

// standing adds where the request stands: its status, when it ends, and who said what (A5).
func (s *server) standing(data map[string]any, v visit) {
	a, now, status := v.a, s.Clock.Now(), v.a.Status
	if status == approval.Pending && !s.open(a) {
		status = approval.Expired
	}
	data["open"], data["status"], data["statusLabel"] = s.open(a), string(status), statuses[status]
	data["lede"] = "Asked by agent " + a.Agent + " on " + moment(a.RequestedAt) + "."
	switch {
	case s.open(a):
		data["lede"] = "Agent " + a.Agent + " asks. There is time for " + span(a.ExpiresAt.Sub(now)) + ", until " + moment(a.ExpiresAt) + "."
	case status == approval.Expired:
		data["lede"] = "Nobody decided before " + moment(a.ExpiresAt) + ". It was not carried out."
	}
	var words []any
	for _, d := range a.Decisions {
		words = append(words, map[string]any{
			"what": verb(d.Action, a.Kind), "kind": kindOf(d.Action), "who": Text(s.Show.Text(d.By)), "at": machine(d.At), "when": moment(d.At), "note": Text(s.Show.Text(d.Note)),
		})
	}
	data["outcome"], data["outcomeHead"], data["quorum"] = words, "What was decided", quorum(a)
	if s.open(a) {
		data["outcomeHead"] = "What was said so far"
	}
}

func kindOf(a approval.Action) string {
	if a == approval.Edit {
		return string(approval.Approve)
	}
	return string(a)
}

func verb(a approval.Action, k approval.Kind) string {
	switch {
	case a == approval.Approve && (k == approval.KindInput || k == approval.KindOutcome):
		return "Answered"
	case a == approval.Approve:
		return "Approved"
	case a == approval.Edit:
		return "Approved with other arguments"
	case a == approval.Deny:
		return "Denied"
	default:
		return "Called off"
	}
}

// quorum says how many approvals there are of those that it takes: those since the arguments were last changed, by different people.
func quorum(a approval.Approval) string {
	if a.Quorum < 2 {
		return ""
	}
	people := map[string]bool{}
	for _, d := range a.Decisions {
		if d.Action == approval.Edit {
			clear(people)
		}
		if d.Action == approval.Edit || d.Action == approval.Approve {
			people[d.By] = true
		}
	}
	return strconv.Itoa(len(people)) + " of the " + strconv.Itoa(a.Quorum) + " people that it takes."
}

// history is the thread and what happened, newest last.
func (s *server) history(shown show.Request) []any {
	var out []any
	for _, e := range shown.History {
		out = append(out, map[string]any{"what": happening(e.What), "to": e.What == "escalated", "who": Text(e.Who), "at": machine(e.At), "when": moment(e.At), "note": Text(e.Note), "grant": Text(e.Grant)})
	}
	return out
}

// happenings are the words for what happened, as show.Event has it.
var happenings = map[string]string{
	"asked": "Asked", "reminded": "Reminded", "escalated": "Asked as well:", "question": "Question", "answer": "Answer", "approve": "Approved",
	"deny": "Denied", "edit": "Approved with other arguments", "cancel": "Called off", "expired": "Expired",
}

func happening(what string) string {
	if words, ok := happenings[what]; ok {
		return words
	}
	return what
}

func (s *server) tools(a approval.Approval, shown show.Request) []any {
	var out []any
	for i, t := range shown.Tools {
		verdict := ""
		if i < len(a.Permissions) && a.Permissions[i].Verdict != "" {
			verdict = string(a.Permissions[i].Verdict)
		}
		var calls []any
		for j, c := range t.Calls {
			calls = append(calls, map[string]any{"head": "Call " + strconv.Itoa(j+1), "arguments": argumentsOrNone(c)})
		}
		facts, risk := withoutRisk(t.Facts, t.Risk)
		out = append(out, map[string]any{
			"id": "tool-" + strconv.Itoa(i), "name": Text(t.Name), "facts": Facts(facts), "risk": risk, "calls": calls, "verdict": verdict,
		})
	}
	return out
}

func argumentsOrNone(a []show.Argument) any {
	if args := Arguments(a); args != nil {
		return args
	}
	return map[string]any{"plain": "no arguments", "lines": nil}
}
