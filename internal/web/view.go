package web

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/show"
)

// page answers with the request as it stands, what was just said before everything else.
func (s *server) page(w http.ResponseWriter, r *http.Request, v visit, status int, now said) {
	view, err := s.view(r.Context(), v, now)
	if err != nil {
		s.fails(w, r, err)
		return
	}
	html, err := s.pages.html("approval.html", view)
	if err != nil {
		s.fails(w, r, err)
		return
	}
	s.write(w, status, html)
}

// frame is what every page has.
type frame struct {
	Title string
	Who   show.Text // who looks; nil = nobody is known to
	Start string    // of the console: Console.Start
	Trail []crumb   // of the console: the way to the page
}

// crumb is a run on the way to a page.
type crumb struct{ Run, Label string }

// requestPage is the view of approval.html.
type requestPage struct {
	frame
	Shown show.Request
	ID    show.Text
	Kind  approval.Kind

	Open                            bool
	Status                          approval.Status
	StatusLabel, Lede               string
	Risk                            *risk
	Notice                          *notice
	Decisions                       []decision
	Quorum                          string
	AnswerHead, AnswerText, Fine    string
	Form                            string // proves what a form was made over
	May                             may
	Each                            []eachTool // a form for each; nil = one for all
	Note, Result, Remark, Arguments string     // as they are typed
	Editing, Asking                 bool       // the form that was sent
	Requester                       bool       // the run acts for who looks
}

// notice is what just happened.
type notice struct {
	said
	Text show.Text
}

// risk is a class of risk, and why it is that.
type risk struct {
	Level show.Risk
	Text  string
}

// Label names the class, on the one scale that there is. Pages are red for the highest alone.
func (r risk) Label() string {
	return map[show.Risk]string{show.Low: "Low", show.Medium: "Medium", show.High: "High"}[r.Level]
}

// decision is what somebody said.
type decision struct {
	approval.Decision
	Who, Note show.Text
}

// Class is the decision's style.
func (d decision) Class() approval.Action {
	if d.Action == approval.Edit {
		return approval.Approve
	}
	return d.Action
}

// eachTool is one of several tools that nobody has decided about.
type eachTool struct {
	Tool string
	Name show.Text
}

// may is what the page offers.
type may struct{ Approve, Deny, Edit, Result, Remark bool }

// Decide reports whether the page has the form that approves and denies.
func (m may) Decide(k approval.Kind) bool { return m.Deny && k != approval.KindInput }

// offers is what somebody can do with the request as it stands.
func (s *server) offers(v visit) (m may) {
	m.Remark = s.open(v.a) && s.Remark != nil
	if !s.open(v.a) || v.voted() {
		return m
	}
	approve, deny := s.decides(v)
	switch v.a.Kind {
	case approval.KindOutcome:
		m.Result = approve
	case approval.KindInput:
		m.Result, m.Deny = approve, deny
	default:
		m.Approve, m.Deny, m.Edit = approve, deny, approve && v.a.Kind == approval.KindCall && s.Show.Editable != nil
	}
	return m
}

// decides reports what the page offers the visitor at this time. The desk decides.
func (s *server) decides(v visit) (approve, deny bool) {
	deny = v.a.CanDecide(v.by, s.Clock.Now())
	return deny && (!v.a.FourEyes || !slices.Contains(v.a.Requesters, v.by.ID)), deny
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

func (s *server) view(ctx context.Context, v visit, now said) (requestPage, error) {
	of := s.Show.Of
	if v.uncovered {
		of = s.Show.Uncovered
	}
	shown, err := of(ctx, v.a)
	if err != nil {
		return requestPage{}, err
	}
	page := requestPage{
		frame: frame{
			Title: shown.Title.String() + " · Countersign", Who: s.Show.Text(cmp.Or(v.who.Name, v.who.ID)),
			Start: v.start, Trail: v.trail,
		},
		ID: s.Show.Text(v.a.ID), Kind: v.a.Kind, Risk: riskOf(shown.Facts, shown.Risk), Fine: v.fine,
		Note: now.typed["note"], Result: now.typed["result"], Remark: now.typed["text"], Arguments: now.typed["args"],
		Editing: now.typed["action"] == "edit", Asking: now.typed["action"] == "remark",
		Requester: slices.Contains(v.a.Requesters, v.by.ID),
	}
	shown.Facts = withoutRisk(shown.Facts)
	slices.SortStableFunc(shown.Facts, func(a, b show.Fact) int { return cmp.Compare(weight(a.Name), weight(b.Name)) })
	shown.Tools = slices.Clone(shown.Tools)
	for i := range shown.Tools {
		shown.Tools[i].Verdict = ""
		if i < len(v.a.Permissions) {
			shown.Tools[i].Verdict = string(v.a.Permissions[i].Verdict)
		}
	}
	page.Shown = shown
	if now.Head != "" {
		page.Notice = &notice{now, s.Show.Text(now.text)}
	}
	s.standing(&page, v.a)
	page.May = s.offers(v)
	s.answers(&page, v)
	if page.May.Edit && page.Arguments == "" {
		if page.Arguments, err = s.Show.Editable(ctx, v.a); err != nil {
			return requestPage{}, err
		}
	}
	page.Form, err = ticket(v.link, stateOf(v.a, v.by.ID))
	return page, err
}

// weight orders the facts below the arguments: first what the call depends on and why it is asked, then the rest.
func weight(fact string) int {
	switch fact {
	case show.FactAsks, show.FactEdited, show.FactDepends, show.FactWhy, show.FactUndoes:
		return 0
	}
	return 1
}

// riskOf is what facts say of the risk ("high: it cannot be undone"); nil = nothing.
func riskOf(all []show.Fact, level show.Risk) (r *risk) {
	for _, f := range all {
		if f.Name == show.FactRisk {
			_, why, _ := strings.Cut(f.Value.String(), ": ")
			r = &risk{level, why}
		}
	}
	return r
}

// withoutRisk leaves out of facts what a page says in the one place for the risk. The effect, from which the class of
// risk follows, is said by it as well.
func withoutRisk(all []show.Fact) []show.Fact {
	return slices.DeleteFunc(slices.Clone(all), func(f show.Fact) bool {
		return f.Name == show.FactRisk || f.Name == show.FactEffect
	})
}

// statuses are a request's statuses for people.
var statuses = map[approval.Status]string{
	approval.Pending: "Waiting for an answer", approval.Approved: "Approved", approval.Denied: "Denied", approval.Expired: "Expired",
	approval.Cancelled: "Called off", approval.Voided: "Overtaken",
}

// standing adds where the request stands: its status, when it ends, and who said what (A5).
func (s *server) standing(page *requestPage, a approval.Approval) {
	page.Open, page.Status, page.Quorum = s.open(a), a.Status, quorum(a)
	if page.Status == approval.Pending && !page.Open {
		page.Status = approval.Expired
	}
	page.StatusLabel = statuses[page.Status]
	switch {
	case page.Open:
		page.Lede = "Agent " + a.Agent + " asks. There is time for " + duration(a.ExpiresAt.Sub(s.Clock.Now())) +
			", until " + moment(a.ExpiresAt) + "."
	case page.Status == approval.Expired:
		page.Lede = "Nobody decided before " + moment(a.ExpiresAt) + ". It was not carried out."
	default:
		page.Lede = "Asked by agent " + a.Agent + " on " + moment(a.RequestedAt) + "."
	}
	for _, d := range a.Decisions {
		page.Decisions = append(page.Decisions, decision{d, s.Show.Text(d.By), s.Show.Text(d.Note)})
	}
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
