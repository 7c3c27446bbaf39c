package web

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people"
)

// writeRequestPage shows a request as it is now, with the result of the last form on top.
func (s *pageServer) writeRequestPage(w http.ResponseWriter, r *http.Request, v visit, status int, now formResult) {
	view, err := s.newRequestPage(r.Context(), v, now)
	s.renderPage(w, r, status, "approval.html", view, err)
}

// frame is what every page has.
type frame struct {
	Title string
	Who   string // the visitor; "" = unknown

	// Of the console:
	Start string   // Console.Start
	Proof string   // of a signed-in session, for its forms; "" = whoever decides shows another
	Nav   string   // the place of the navigation
	Trail []string // the runs on the way to the page
	Once  string   // makes the idempotency key of a form that starts a run

	Models []string // suggestions for the model of a run; nil = no other model is offered
}

// requestPage is the view of approval.html.
type requestPage struct {
	frame
	Shown people.Document
	ID    string
	Kind  approval.Kind

	Open                         bool
	Status                       approval.Status
	StatusLabel                  string
	Lede                         people.Text
	Notice                       *formResult // of the last form
	AnswerHead, AnswerText, Fine string
	Form                         string // signed state of the form
	May                          allowedActions
	CodeBy                       string            // the channel by which the visitor is sent a code; "" = none is
	Code                         string            // CodeBy, if an approval of all takes a code
	SignIn                       string            // where the visitor signs in before an approval; "" = no need
	Typed                        map[string]string // the form that was sent; nil = none was
	Arguments                    string            // as JSON, as typed
	Fields                       []field           // of the arguments; nil = they are edited as JSON alone
	Answer                       []field           // to what a tool asks; nil = it is words, or JSON
	AsJSON                       bool              // the arguments were sent as JSON
	Changes                      []change          // what the edit would change; nil = none is looked at
	Requester                    bool              // the run acts for the visitor

	// Of a card of the console: what begins the ids of its fields, where its forms go, and where they lead back to.
	Prefix, Action, Back string
}

// eachTool is an undecided tool of a request for several tools.
type eachTool struct {
	Tool          string
	Approve, Code bool // Code: with a code
}

// allowedActions are the actions that the page offers.
type allowedActions struct {
	Approve, Deny, Edit, Result, Remark, Uncover bool

	Each []eachTool // a form for each tool; nil = one for all
}

// Decide reports whether the page has the form to approve and deny.
func (m allowedActions) Decide(k approval.Kind) bool { return m.Deny && k != approval.KindInput }

// findAllowedActions returns what the page offers the visitor. The desk authorizes the decision itself.
func (s *pageServer) findAllowedActions(v visit) (m allowedActions) {
	now := s.Clock.Now()
	if !v.a.IsOpen(now) || v.isSomebodyElse() {
		return m
	}
	m.Remark, m.Uncover = s.Remark != nil, v.a.CanUnmask(v.by, now)
	approve, deny := v.mayApprove(now), v.a.CanDecide(v.by, now)
	if v.a.Kind != approval.KindOutcome {
		approve = approve && s.offersApproval(v, "")
	}
	switch v.a.Kind {
	case approval.KindOutcome:
		m.Result = approve
	case approval.KindInput:
		m.Result, m.Deny = approve, deny
	default:
		if v.a.Kind == approval.KindTools { // all that are open at once
			own, others := s.findOpenTools(v)
			if deny = deny && others == 0; len(own)+others > 1 {
				m.Each = own
			}
		}
		m.Approve, m.Deny, m.Edit = approve && deny, deny, approve && v.a.Kind == approval.KindCall
	}
	return m
}

// mayApprove reports whether the visitor may approve the request. A call is approved once, and questions are answered
// until those who decide say the same.
func (v visit) mayApprove(now time.Time) bool {
	return v.a.CanApprove(v.by, now) && (v.a.Kind != approval.KindCall || !v.a.HasDecided(v.by.ID))
}

// findOpenTools returns the undecided tools that the visitor may decide, and how many are for others alone.
func (s *pageServer) findOpenTools(v visit) (own []eachTool, others int) {
	now := s.Clock.Now()
	for _, p := range v.a.Permissions {
		switch {
		case p.Verdict != "":
		case v.a.CanDecide(v.by, now) && v.a.CanDecideTool(v.by, p, now):
			own = append(own, eachTool{p.Tool, v.a.CanApprove(v.by, now) && s.offersApproval(v, p.Tool), v.takesCode(p.Tool)})
		default:
			others++
		}
	}
	return own, others
}

// offersApproval reports whether the visitor can approve here what the request asks, or one of its tools, as far as the
// channel matters.
func (s *pageServer) offersApproval(v visit, tool string) bool {
	c := v.a.ChannelsOf(tool)
	switch c.ConfirmationBy(v.via) {
	case agent.ConfirmCode:
		return c.Allow(v.via) && s.codeChannel(v) != ""
	case agent.ConfirmOIDC:
		return c.Allow(v.via) && v.isSignedIn()
	}
	return c.Allow(v.via)
}

func (s *pageServer) newRequestPage(ctx context.Context, v visit, now formResult) (requestPage, error) {
	known, err := s.View(ctx, v.a)
	if err != nil {
		return requestPage{}, err
	}
	known.Unmasked = v.uncovered
	shown := people.BuildDocument(v.a, known)
	if s.changeShown != nil {
		s.changeShown(v.a, &shown)
	}
	page := requestPage{
		frame: v.frame, ID: v.a.ID, Kind: v.a.Kind, Shown: shown, Fine: v.fine,
		Typed: now.typed, Arguments: now.typed["args"], AsJSON: now.typed["args"] != "", Changes: now.changes,
		Back:      now.typed["back"], // of a card whose form led here
		Requester: slices.Contains(v.a.Requesters, v.by.ID),
	}
	page.Title, page.Who = shown.Title.String()+" · Countersign", cmp.Or(v.who.Name, v.who.ID)
	if now.Head != "" {
		page.Notice = &now
	}
	page.Open, page.Status = v.a.IsOpen(s.Clock.Now()), v.a.Status
	if page.Status == approval.Pending && !page.Open {
		page.Status = approval.Expired
	}
	page.StatusLabel = people.StatusText(page.Kind, page.Status)
	page.Lede = people.MarkTimes(people.StandingText(v.a, s.Clock.Now()))
	page.May = s.findAllowedActions(v)
	if v.mayApprove(s.Clock.Now()) && (page.May.Deny || page.May.Result || page.May.Each != nil) {
		if page.CodeBy = agent.ViaText(s.codeChannel(v)); v.takesCode("") {
			page.Code = page.CodeBy
		}
		if s.SignIn != nil && v.confirmation("") == agent.ConfirmOIDC && v.session == nil {
			page.SignIn = signInAddress(v.path, false)
		}
	}
	s.setAnswerSection(&page, v)
	page.Answer = newAnswerFields(v.a, now.typed)
	if page.May.Edit {
		var stored string
		if stored, page.Fields, err = newEditFields(v.a, known, now.typed); err != nil {
			return requestPage{}, err
		}
		page.AsJSON = page.AsJSON && page.Changes == nil || page.Fields == nil
		page.Arguments = cmp.Or(page.Arguments, stored)
	}
	page.Form = signForm(v.link, newFormState(v.a, v.by.ID))
	return page, nil
}

// answerRecorded is the notice of an answer that is not the last.
var answerRecorded = &formResult{Head: "Your answer is recorded", Text: "Others have still to answer."}

// setAnswerSection sets what the visitor may answer, or why there is nothing to answer.
func (s *pageServer) setAnswerSection(page *requestPage, v visit) {
	page.AnswerHead = "Your answer"
	page.Fine = cmp.Or(page.Fine, "This address is yours alone: whoever has it answers as you. Do not pass it on.")
	switch m := page.May; {
	case page.Open && v.isSomebodyElse():
		page.AnswerHead, page.SignIn = "Not your link", signInAddress(v.path, true)
		page.AnswerText = "You have signed in as " + v.session.Principal.ID + ", and this link was sent to " + v.who.ID +
			". Nothing can be decided here until that person has signed in."
		page.Who, page.Fine = v.session.Principal.ID, "This address is not yours. Do not pass it on."
	case !page.Open:
		page.AnswerHead = "Nothing left to answer"
		page.AnswerText = "This page says what became of the request. Nothing on it can be changed."
	case v.a.HasDecided(v.by.ID):
		page.AnswerHead = "You have answered"
		if page.Notice == nil { // on top: the answer's own place is below all that is shown
			page.Notice = answerRecorded
		}
		if page.AnswerText = "You may answer anew: your newest answer counts."; v.a.Kind == approval.KindCall {
			page.AnswerText = "You may still deny it."
		}
	case m.Deny && !m.Approve && !m.Result && v.a.CanApprove(v.by, s.Clock.Now()) && !s.offersApproval(v, ""):
		switch c := v.a.ChannelsOf(""); {
		case !c.Allow(v.via):
			page.AnswerText = "It is approved by " + c.Words() + ", and not here. You may deny it here."
		case v.takesCode(""):
			page.AnswerText = "To approve it here takes a code, which is sent to you by another channel than your link, " +
				"and none is known that reaches you. You may deny it here."
		case s.SignIn == nil:
			page.AnswerText = "To approve it here takes a sign-in by OIDC, which is not configured on this server. You may " +
				"deny it here."
		default:
			page.AnswerText = "To approve it here, sign in first, as the person whom your link was sent to. To deny it takes " +
				"no sign-in."
		}
	case m.Deny && !m.Approve && !m.Result && v.a.FourEyes:
		page.AnswerText = "It is done for you, so that somebody else has to approve it. You may deny it."
	case m.Each != nil && !m.Deny:
		page.AnswerText = "The other tools are for other people to decide."
	case !m.Approve && !m.Deny && !m.Result:
		page.AnswerHead, page.AnswerText = "For you to know", "You are not among those who decide this."
	}
}

// jsonNode is a value of JSON with its members.
type jsonNode struct {
	people.Row
	Members []jsonNode
}

// newJSONTree returns lines of JSON as trees.
func newJSONTree(rows []people.Row) (all []jsonNode) {
	for i := 0; i < len(rows); {
		end := i + 1
		for end < len(rows) && rows[end].Depth > rows[i].Depth {
			end++
		}
		all = append(all, jsonNode{rows[i], newJSONTree(rows[i+1 : end])})
		i = end
	}
	return all
}

// fitTree returns lines of JSON as a tree, or as one text if the page has too many spans.
func (s *pageBuilder) fitTree(lines []people.Row) []jsonNode {
	if n := countSpans(lines) + len(lines); n <= s.spans {
		s.spans -= n
		return newJSONTree(lines)
	}
	return []jsonNode{{Row: people.Row{Value: people.Text{{Text: joinArguments(lines)}}}}}
}
