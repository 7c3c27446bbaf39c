// Package web is the HTTP API (APIHandler and its Client) and the pages on which people decide. Pages are HTML by
// html/template, without scripts (approvals.md, B5). Package people renders what they show. The visitor is known by the
// link that opened the page. Every decision goes through approval.Desk. GET, HEAD and OPTIONS change nothing (A1). A
// decision is a POST of a form that was made for that person and the request's current state, and works once (B6).
//
// A Console shows all runs, agents, requests and decisions, and starts runs, with one script that keeps its pages up to
// date.
package web

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/policy"
)

// Codes sends the codes that approvals on a page behind a link may take; *people.Notifier implements it.
type Codes interface {
	// SecondChannel returns the name of a channel that reaches the person, other than first; "" = there is none.
	SecondChannel(p people.Person, first string) string
	SendCode(ctx context.Context, a approval.Approval, to people.Person, channel, code string) error
}

// Remark is a question or an answer about a request. Pages do not say which: Reply is not set.
type Remark = approval.RemarkInput

// Pages serves approval pages. Fields are required unless they say otherwise. Safe for concurrent use.
type Pages struct {
	Links  *approval.Links
	Get    func(ctx context.Context, tenant, id string) (approval.Approval, error) // or approval.ErrNotFound
	Desk   Desk
	People people.Directory
	// View returns what people are shown of a request besides what is stored with it; see people.Viewer.
	View  func(ctx context.Context, a approval.Approval) (people.DocumentView, error)
	Clock clock.Clock
	// Remark records a question or an answer about a request; nil = not offered.
	Remark func(ctx context.Context, r Remark) error
	Codes  Codes        // nil = no code can be sent
	SignIn *OIDC        // nil = nobody can sign in
	Log    *slog.Logger // of internal errors, without content; nil = none

	changeShown func(a approval.Approval, d *people.Document) // of tests; nil = none
}

// The bounds of use, in each process: of one link, and of wrong tokens by where they come from. A right token is never
// refused for what wrong ones did.
const (
	linkRate, linkBurst   = 1, 30
	wrongRate, wrongBurst = 0.2, 20
)

// pageServer is the handler of Pages.
type pageServer struct {
	*Pages
	cross                  *http.CrossOriginProtection
	linkLimit, wrongTokens *Limit

	policy string // content policy
	pages  *pageSet
	frame  frame // of pages that show no request
}

// The pages that show no request.
var (
	entrancePage = plainPage{Heading: "Countersign", Text: "People decide here what agents may do. To open a request, " +
		"use the link in the message that you were sent about it, by mail or in Slack: it is yours alone. Who has no link " +
		"lists and decides requests by the API."}
	missingPage = plainPage{Heading: "There is no such page", Text: "The address is not one of ours, or its time is " +
		"over. If you copied it, look whether all of it is there; if it is in a message, open the request's newest one."}
	tooManyPage = plainPage{Heading: "Too many requests",
		Text: "Wait a moment and open the page again. Nothing was changed."}
	foreignPage = plainPage{Heading: "This was sent by another site",
		Text: "Nothing was changed. Open the page by the address you were sent, and answer there."}
	failedPage = plainPage{Heading: "That did not work", Text: "The page could not be made, or your answer could not be " +
		"recorded for certain. Open the page again: it says how the request stands."}
)

// Handler serves the paths below approval.LinkPath, and explains at / how to open a request. Any other path gets the
// answer of an invalid link.
func (p *Pages) Handler() http.Handler { return p.newServer(linkPages(), pagePolicy) }

func (p *Pages) newServer(pages *pageSet, policy string) *pageServer {
	return &pageServer{
		Pages: p, cross: http.NewCrossOriginProtection(), pages: pages, policy: policy,
		linkLimit:   &Limit{Rate: linkRate, Burst: linkBurst, Clock: p.Clock},
		wrongTokens: &Limit{Rate: wrongRate, Burst: wrongBurst, Clock: p.Clock},
	}
}

// ServeHTTP implements http.Handler.
func (s *pageServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
	default: // OPTIONS too, for every address
		w.Header().Set("Allow", "GET, HEAD, POST")
		s.writePlain(w, http.StatusMethodNotAllowed, missingPage)
		return
	}
	if s.cross.Check(r) != nil {
		s.writePlain(w, http.StatusForbidden, foreignPage)
		return
	}
	if r.URL.Path == "/" && r.Method != http.MethodPost {
		s.writePlain(w, http.StatusOK, entrancePage)
		return
	}
	token, _ := strings.CutPrefix(r.URL.Path, approval.LinkPath)
	id, err := s.Links.Verify(token)
	var v visit
	switch {
	case errors.Is(err, approval.ErrNoLink) && !s.wrongTokens.Allow(clientAddress(r)),
		err == nil && r.URL.RawQuery == "" && !s.linkLimit.Allow(id):
		w.Header().Set("Retry-After", "5")
		s.writePlain(w, http.StatusTooManyRequests, tooManyPage)
		return
	case err == nil && r.URL.RawQuery != "": // no page has a query
		err = approval.ErrNoLink
	case err == nil:
		v, err = s.loadVisit(r.Context(), id)
	}
	switch {
	case errors.Is(err, approval.ErrNoLink): // or an expired link
		s.writePlain(w, http.StatusNotFound, missingPage)
	case err != nil:
		s.writeFailure(w, r, err)
	default:
		v.path, v.session = r.URL.Path, s.SignIn.Session(r)
		s.serveVisit(w, r, v)
	}
}

// writeFailure logs an internal error and writes the error page.
func (s *pageServer) writeFailure(w http.ResponseWriter, r *http.Request, err error) {
	if s.Log != nil {
		s.Log.ErrorContext(r.Context(), "a page failed", "method", r.Method, "error", err)
	}
	s.writePlain(w, http.StatusServiceUnavailable, failedPage)
}

// visit is a person at the page of a request.
type visit struct {
	link approval.Link
	a    approval.Approval
	who  people.Person
	by   policy.Principal
	via  approval.Via

	path    string   // of the page
	session *Session // nil = the visitor has not signed in

	// Of the console's page:
	frame frame
	fine  string // text below the answer

	uncovered bool // show nothing masked
	// checkProof checks the proof in a form; "" = valid. Nil = no proof is needed.
	checkProof func(form map[string]string) (problem string)
}

// loadVisit loads the person and the request of a verified link. It returns approval.ErrNoLink if the directory no
// longer has the person or the request does not exist.
func (s *pageServer) loadVisit(ctx context.Context, id string) (visit, error) {
	l, err := s.Links.Read(ctx, id)
	if err != nil {
		return visit{}, err
	}
	who, known, err := s.People.Person(ctx, l.Tenant, l.To)
	switch {
	case err != nil:
		return visit{}, err
	case !known:
		return visit{}, approval.ErrNoLink
	}
	a, err := s.Get(ctx, l.Tenant, l.Approval)
	switch {
	case errors.Is(err, approval.ErrNotFound):
		return visit{}, approval.ErrNoLink
	case err != nil:
		return visit{}, err
	}
	return visit{link: l, a: a, who: who, by: policy.Principal{ID: who.ID, Groups: who.Groups}, via: agent.ViaPage}, nil
}

// Limit is a rate limit for each key: Burst at once, then Rate a second. It counts in this process only; the gateway
// has its own limits. Zero values of Rate and Burst allow nothing. Safe for concurrent use.
type Limit struct {
	Rate  float64
	Burst float64
	Clock clock.Clock

	mu   sync.Mutex
	used map[string]bucket
}

// bucket is the used part of a key's limit at a time.
type bucket struct {
	level float64
	at    time.Time
}

// maxBuckets is the number of keys kept. All are dropped beyond that, which only loosens the limit.
const maxBuckets = 10_000

// Allow counts one use; false = over the limit and not counted.
func (l *Limit) Allow(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, now := l.used[key], l.Clock.Now()
	if !b.at.IsZero() {
		b.level = max(0, b.level-now.Sub(b.at).Seconds()*l.Rate)
	}
	b.at = now
	if b.level+1 > l.Burst {
		return false
	}
	b.level++
	if l.used == nil || len(l.used) >= maxBuckets {
		l.used = map[string]bucket{}
	}
	l.used[key] = b
	return true
}

// clientAddress returns the address of a client without its port. Of an IPv6 address it keeps 64 bits, the prefix of
// one subscriber.
func clientAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil { // a gateway gives no port
		host = r.RemoteAddr
	}
	at, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if at = at.Unmap().WithZone(""); at.Is4() {
		return at.String()
	}
	return netip.PrefixFrom(at, 64).Masked().String()
}
