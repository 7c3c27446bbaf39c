// Package web is the pages that people decide on. A page is HTML made by html/template from a view, with no script at all
// (approvals.md, B5). What it shows comes from package show, who acts from the link that it was opened by, and every decision goes through
// approval.Desk. GET, HEAD and OPTIONS change nothing about a request (A1); a decision is a POST of a form that was made over the very state that is
// decided on, for that person, and is used up by it (B6).
//
// A Console is the same for a machine of one's own: all runs and requests, to whoever it is served to, with one script that keeps its pages up to date.
package web

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people/link"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/policy"
)

// Desk records decisions; *approval.Desk does.
type Desk interface {
	Decide(ctx context.Context, r approval.DecisionInput) (approval.Approval, error)
	SettleOutcome(ctx context.Context, o approval.Outcome) (approval.Approval, error)
	RecordUnmasking(ctx context.Context, tenant, id string, by policy.Principal, via approval.Via) error
}

// Links reads links; *link.Links does. Verify judges a token by its MAC and reads nothing.
type Links interface {
	Verify(ctx context.Context, token string) (id string, err error)
	Read(ctx context.Context, id string) (link.Link, error)
}

// Showing makes of requests what people see. Without Editable and Restore no page offers to edit; Shown is package show's.
type Showing struct {
	Of func(ctx context.Context, a approval.Approval) (show.Request, error)
	// Uncovered is Of with nothing masked. Nil = nothing is ever uncovered.
	Uncovered func(ctx context.Context, a approval.Approval) (show.Request, error)
	Text      func(text string) show.Text
	Editable  func(ctx context.Context, a approval.Approval) (string, error)                         // the arguments in JSON, what is secret in them masked
	Restore   func(ctx context.Context, a approval.Approval, edited string) (json.RawMessage, error) // and back; an *approval.EditError says what is wrong with them
}

// Remark is what somebody asks about a request, or answers.
type Remark struct {
	Tenant, ID string
	Text       string
	By         policy.Principal
	Via        approval.Via
}

// Pages serves the pages of requests. Fields are required where it is not said otherwise. Safe for concurrent use.
type Pages struct {
	Links  Links
	Get    func(ctx context.Context, tenant, id string) (approval.Approval, error) // approval.ErrNotFound says that there is none
	Desk   Desk
	People person.Directory
	Show   Showing
	Clock  clock.Clock
	// Remark takes a question or an answer about a request. Nil = the page offers neither.
	Remark func(ctx context.Context, r Remark) error
	Log    *slog.Logger // of what failed, without content; nil = nowhere
}

// The bounds of use, in each process: of one link, and of wrong tokens by where they come from. A right token is never
// refused for what wrong ones did.
const (
	linkRate, linkBurst   = 1, 30
	wrongRate, wrongBurst = 0.2, 20
)

// server is Pages at work.
type server struct {
	*Pages
	cross        *http.CrossOriginProtection
	links, wrong *Limit

	policy string // of contents, instead of the page's own; "" = that
	pages  *pageSet

	entrance, missing, tooMany, foreign, failed []byte // pages that say nothing of any request
}

// Handler serves the paths below link.Path, says at / how a request is opened, and refuses everything else like a link
// that is none.
func (p *Pages) Handler() http.Handler {
	return p.server(linkPages)
}

// server is Pages at work.
func (p *Pages) server(pages *pageSet) *server {
	still := func(heading, text string) []byte { return stillPage(pages, heading, text) }
	return &server{
		Pages: p, cross: http.NewCrossOriginProtection(), links: &Limit{Rate: linkRate, Burst: linkBurst, Clock: p.Clock},
		wrong: &Limit{Rate: wrongRate, Burst: wrongBurst, Clock: p.Clock}, pages: pages,
		entrance: still("Countersign", "People decide here what agents may do. To open a request, use the link in the message that you were "+
			"sent about it, by mail or in Slack: it is yours alone. Who has no link lists and decides requests by the API."),
		missing: still("There is no such page", "The address is not one of ours, or its time is over. If you copied it, look whether all of it is there; "+
			"if it is in a message, open the request's newest one."),
		tooMany: still("Too many requests", "Wait a moment and open the page again. Nothing was changed."),
		foreign: still("This was sent by another site", "Nothing was changed. Open the page by the address you were sent, and answer there."),
		failed: still("That did not work",
			"The page could not be made, or your answer could not be recorded for certain. Open the page again: it says how the request stands."),
	}
}

// plainPage is the view of plain.html.
type plainPage struct {
	frame
	Heading, Text string
}

// stillPage is a page that says nothing of any request.
func stillPage(pages *pageSet, heading, text string) []byte {
	title := heading
	if heading != "Countersign" {
		title += " · Countersign"
	}
	page, err := pages.html("plain.html", plainPage{frame{Title: title}, heading, text})
	if err != nil {
		panic("web: " + err.Error())
	}
	return page
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
	default: // OPTIONS, too: of every address alike
		w.Header().Set("Allow", "GET, HEAD, POST")
		s.write(w, http.StatusMethodNotAllowed, s.missing)
		return
	}
	if s.cross.Check(r) != nil {
		s.write(w, http.StatusForbidden, s.foreign)
		return
	}
	if r.URL.Path == "/" && r.Method != http.MethodPost {
		s.write(w, http.StatusOK, s.entrance)
		return
	}
	token, _ := strings.CutPrefix(r.URL.Path, link.Path)
	id, err := s.Links.Verify(r.Context(), token)
	switch {
	case errors.Is(err, link.ErrInvalid):
		s.none(w, r)
		return
	case r.URL.RawQuery != "" && err == nil: // no address of ours has one
		s.write(w, http.StatusNotFound, s.missing)
		return
	case err != nil:
		s.fails(w, r, err)
		return
	case !s.links.Take(id):
		s.refuseMany(w)
		return
	}
	v, err := s.visit(r.Context(), id)
	switch {
	case errors.Is(err, link.ErrInvalid): // a link of ours that is over
		s.write(w, http.StatusNotFound, s.missing)
	case err != nil:
		s.fails(w, r, err)
	case r.Method == http.MethodPost:
		s.post(w, r, v)
	default:
		s.page(w, r, v, http.StatusOK, said{})
	}
}

// none answers a wrong token, and counts it.
func (s *server) none(w http.ResponseWriter, r *http.Request) {
	if !s.wrong.Take(sourceOf(r)) {
		s.refuseMany(w)
		return
	}
	s.write(w, http.StatusNotFound, s.missing)
}

func (s *server) refuseMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "5")
	s.write(w, http.StatusTooManyRequests, s.tooMany)
}

// fails says that something of ours went wrong.
func (s *server) fails(w http.ResponseWriter, r *http.Request, err error) {
	if s.Log != nil {
		s.Log.ErrorContext(r.Context(), "a page failed", "method", r.Method, "error", err)
	}
	s.write(w, http.StatusServiceUnavailable, s.failed)
}

// visit is somebody at a request's page.
type visit struct {
	link link.Link
	a    approval.Approval
	who  person.Person
	by   policy.Principal
	via  approval.Via

	// Of the console's page:
	start string
	trail []crumb
	fine  string // below the answer, instead of what a link's page says there

	uncovered bool // nothing is masked on the page
	// proof judges what a form shows beside what the page put into it; "" = it is enough. Nil = nothing is asked for.
	proof func(form map[string]string) (problem string)
}

// visit finds out who is at which request, by the id of a link whose token was right. Whoever the directory no longer
// knows, and a request that is not there, are link.ErrInvalid.
func (s *server) visit(ctx context.Context, id string) (visit, error) {
	l, err := s.Links.Read(ctx, id)
	if err != nil {
		return visit{}, err
	}
	who, known, err := s.People.Person(ctx, l.Tenant, l.To)
	switch {
	case err != nil:
		return visit{}, err
	case !known:
		return visit{}, link.ErrInvalid
	}
	a, err := s.Get(ctx, l.Tenant, l.Approval)
	switch {
	case errors.Is(err, approval.ErrNotFound):
		return visit{}, link.ErrInvalid
	case err != nil:
		return visit{}, err
	}
	return visit{link: l, a: a, who: who, by: policy.Principal{ID: who.ID, Groups: who.Groups}, via: approval.ViaPage}, nil
}
