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

// writeRequestPage shows a request as it is now, with the result of the last form on top.
func (s *server) writeRequestPage(w http.ResponseWriter, r *http.Request, v visit, status int, now formResult) {
	view, err := s.newRequestPage(r.Context(), v, now)
	if err != nil {
		s.writeFailure(w, r, err)
		return
	}
	html, err := s.pages.render("approval.html", view)
	if err != nil {
		s.writeFailure(w, r, err)
		return
	}
	s.writePage(w, status, html)
}

// frame is what every page has.
type frame struct {
	Title string
	Who   show.Text // the visitor; nil = unknown
	Start string    // of the console: Console.Start
	Trail []crumb   // of the console: the way to the page
}

// crumb is a run in the breadcrumbs.
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
	Form                            string // signed state of the form
	May                             allowedActions
	CodeBy                          string     // the channel by which the visitor is sent a code; "" = none is
	Each                            []eachTool // a form for each; nil = one for all
	Note, Result, Remark, Arguments string     // as typed
	Editing, Asking                 bool       // the form that was sent
	Requester                       bool       // the run acts for the visitor
}

// notice is the result of the last form.
type notice struct {
	formResult
	Text show.Text
}

// risk is a class of risk and its reason.
type risk struct {
	Level show.Risk
	Text  string
}

// Label names the class. Pages are red for the highest class only.
func (r risk) Label() string {
	return map[show.Risk]string{show.Low: "Low", show.Medium: "Medium", show.High: "High"}[r.Level]
}

// decision is one person's decision.
type decision struct {
	approval.Decision
	Who, Note show.Text
}

// Class is the style class of the decision.
func (d decision) Class() approval.Action {
	if d.Action == approval.Edit {
		return approval.Approve
	}
	return d.Action
}

// eachTool is an undecided tool of a request for several tools.
type eachTool struct {
	Tool    string
	Name    show.Text
	Approve bool
}

// allowedActions are the actions that the page offers.
type allowedActions struct{ Approve, Deny, Edit, Result, Remark bool }

// Decide reports whether the page has the form to approve and deny.
func (m allowedActions) Decide(k approval.Kind) bool { return m.Deny && k != approval.KindInput }

// findAllowedActions returns what the visitor can do with the request now.
func (s *server) findAllowedActions(v visit) (m allowedActions) {
	m.Remark = s.isOpen(v.a) && s.Remark != nil
	if !s.isOpen(v.a) || v.hasDecided() {
		return m
	}
	approve, deny := s.canDecide(v)
	if v.a.Kind != approval.KindOutcome {
		approve = approve && s.offersApproval(v, "")
	}
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

// canDecide reports what the page offers the visitor. The desk authorizes the decision itself.
func (s *server) canDecide(v visit) (approve, deny bool) {
	deny = v.a.CanDecide(v.by, s.Clock.Now())
	return deny && (!v.a.FourEyes || !slices.Contains(v.a.Requesters, v.by.ID)), deny
}

// offersApproval reports whether the visitor can approve here what the request asks, or one of its tools, as far as the
// channel matters.
func (s *server) offersApproval(v visit, tool string) bool {
	c := v.a.ChannelsOf(approval.DecisionInput{Tool: tool})
	return c.Allow(v.via) && (!c.TakeCode(v.via) || s.codeChannel(v) != "")
}

// isOpen reports whether a request can still be decided, as far as the page knows. The desk checks again.
func (s *server) isOpen(a approval.Approval) bool {
	return a.Status == approval.Pending && s.Clock.Now().Before(a.ExpiresAt)
}

// hasDecided reports whether the visitor has decided about the current arguments. An edit by somebody else resets
// that.
func (v visit) hasDecided() bool {
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

func (s *server) newRequestPage(ctx context.Context, v visit, now formResult) (requestPage, error) {
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
			Start: v.start, Trail: v.runTrail,
		},
		ID: s.Show.Text(v.a.ID), Kind: v.a.Kind, Risk: findRisk(shown.Facts, shown.Risk), Fine: v.fine,
		Note: now.typed["note"], Result: now.typed["result"], Remark: now.typed["text"], Arguments: now.typed["args"],
		Editing: now.typed["action"] == "edit", Asking: now.typed["action"] == "remark",
		Requester: slices.Contains(v.a.Requesters, v.by.ID),
	}
	shown.Facts = removeRisk(shown.Facts)
	slices.SortStableFunc(shown.Facts, func(a, b show.Fact) int { return cmp.Compare(factOrder(a.Name), factOrder(b.Name)) })
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
	s.setStatus(&page, v.a)
	page.May = s.findAllowedActions(v)
	if approve, _ := s.canDecide(v); approve && (page.May.Deny || page.May.Result) {
		page.CodeBy = s.codeChannel(v)
	}
	s.setAnswerSection(&page, v)
	if page.May.Edit && page.Arguments == "" {
		if page.Arguments, err = s.Show.Editable(ctx, v.a); err != nil {
			return requestPage{}, err
		}
	}
	page.Form, err = signForm(v.link, newFormState(v.a, v.by.ID))
	return page, err
}

// factOrder sorts facts: the preconditions and reasons of a call first.
func factOrder(fact string) int {
	switch fact {
	case show.FactAsks, show.FactEdited, show.FactDepends, show.FactWhy, show.FactUndoes:
		return 0
	}
	return 1
}

// findRisk returns the risk among the facts ("high: it cannot be undone"); nil = none.
func findRisk(all []show.Fact, level show.Risk) (r *risk) {
	for _, f := range all {
		if f.Name == show.FactRisk {
			_, why, _ := strings.Cut(f.Value.String(), ": ")
			r = &risk{level, why}
		}
	}
	return r
}

// removeRisk removes the facts that the page shows as the risk: the class and the effect it follows from.
func removeRisk(all []show.Fact) []show.Fact {
	return slices.DeleteFunc(slices.Clone(all), func(f show.Fact) bool {
		return f.Name == show.FactRisk || f.Name == show.FactEffect
	})
}

// statusLabels are a request's statuses for people.
var statusLabels = map[approval.Status]string{
	approval.Pending: "Waiting for an answer", approval.Approved: "Approved", approval.Denied: "Denied", approval.Expired: "Expired",
	approval.Cancelled: "Called off", approval.Voided: "Overtaken",
}

// setStatus sets the status of a request, its deadline and its decisions (A5).
func (s *server) setStatus(page *requestPage, a approval.Approval) {
	page.Open, page.Status, page.Quorum = s.isOpen(a), a.Status, formatQuorum(a)
	if page.Status == approval.Pending && !page.Open {
		page.Status = approval.Expired
	}
	page.StatusLabel = statusLabels[page.Status]
	switch {
	case page.Open:
		page.Lede = "Agent " + a.Agent + " asks. There is time for " + formatDuration(a.ExpiresAt.Sub(s.Clock.Now())) +
			", until " + formatMinute(a.ExpiresAt) + "."
	case page.Status == approval.Expired:
		page.Lede = "Nobody decided before " + formatMinute(a.ExpiresAt) + ". It was not carried out."
	default:
		page.Lede = "Asked by agent " + a.Agent + " on " + formatMinute(a.RequestedAt) + "."
	}
	for _, d := range a.Decisions {
		page.Decisions = append(page.Decisions, decision{d, s.Show.Text(d.By), s.Show.Text(d.Note)})
	}
}

func decisionLabel(a approval.Action, k approval.Kind) string {
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

// formatQuorum returns how many different people have approved since the last edit, of the number needed.
func formatQuorum(a approval.Approval) string {
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

// eventLabels are the labels of events in show.Event.
var eventLabels = map[string]string{
	"asked": "Asked", "reminded": "Reminded", "escalated": "Asked as well:", "question": "Question", "answer": "Answer", "approve": "Approved",
	"deny": "Denied", "edit": "Approved with other arguments", "cancel": "Called off", "expired": "Expired",
}

func eventLabel(what string) string {
	if words, ok := eventLabels[what]; ok {
		return words
	}
	return what
}

// setAnswerSection sets what the visitor may answer, or why there is nothing to answer.
func (s *server) setAnswerSection(page *requestPage, v visit) {
	page.AnswerHead = "Your answer"
	if page.Fine == "" {
		page.Fine = "This address is yours alone: whoever has it answers as you. Do not pass it on."
	}
	switch m := page.May; {
	case !page.Open:
		page.AnswerHead = "Nothing left to answer"
		page.AnswerText = "This page says what became of the request. Nothing on it can be changed."
	case v.hasDecided():
		page.AnswerHead, page.AnswerText = "You have answered", "Others have still to."
	case m.Deny && !m.Approve && !m.Result && !s.offersApproval(v, ""):
		c := v.a.ChannelsOf(approval.DecisionInput{})
		page.AnswerText = "It is approved by " + c.Words() + ", and not here. You may deny it here."
		if c.Allow(v.via) {
			page.AnswerText = "To approve it here takes a code, which is sent to you by another channel than your link, " +
				"and none is known that reaches you. You may deny it here."
		}
	case m.Deny && !m.Approve && !m.Result && v.a.FourEyes:
		page.AnswerText = "It is done for you, so that somebody else has to approve it. You may deny it."
	case !m.Approve && !m.Deny && !m.Result:
		page.AnswerHead, page.AnswerText = "For you to know", "You are not among those who decide this."
	}
	if page.Kind != approval.KindTools || !page.May.Deny {
		return
	}
	for _, p := range v.a.Permissions {
		if p.Verdict == "" {
			page.Each = append(page.Each, eachTool{p.Tool, s.Show.Text(p.Tool), s.offersApproval(v, p.Tool)})
		}
	}
	if len(page.Each) == 1 {
		page.Each = nil
	}
}
