package web

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/link"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/web/api"
)

// Reader reads what the console shows, on behalf of the visitor; *api.Client implements it. Errors are *api.Problem
// if the API refuses.
type Reader interface {
	Runs(ctx context.Context, q api.RunQuery) (api.Page[api.RunHead], error)
	Run(ctx context.Context, run string) (api.Run, error)
	Events(ctx context.Context, run, after string, limit int) (api.Page[api.Event], error)
	FindApprovals(ctx context.Context, q approval.Query) (api.Page[approval.Approval], error)
}

// Console serves the runs and requests of a tenant to one person. The handler in front of it must authenticate that
// person. GET changes nothing. A decision is a POST of a request page's form. The form must contain Key or Token: a
// cookie is no proof, since a browser sends the cookies of this machine to every port. All fields but Agents are
// required. Safe for concurrent use.
type Console struct {
	Pages  *Pages // without Links and People
	Tenant string
	As     policy.Principal // the visitor, who decides
	Read   Reader
	// Conversation returns all messages of a run, oldest first.
	Conversation func(ctx context.Context, run string) ([]policy.Spoken, error)
	// Arguments returns the lines of a call's arguments, or of the run's output (tool ""), with secrets masked.
	Arguments func(ctx context.Context, run, tool string, raw []byte) ([]show.Row, error)
	Agents    func() []string
	Start     string // id of this server process, in a-z and 2-7; not secret
	Key       string // proves decisions while this process runs; KeyFragment transports it
	Token     string // proves decisions as well; typed where no script runs
	// Session says that the visitor has signed in: Key is that session's, and every form holds it.
	Session bool
}

// KeyFragment is the fragment (#) of the address that first opens the console. Browsers do not send fragments.
func (c *Console) KeyFragment() string { return "key=" + c.Start + "." + c.Key }

// The paths of the console.
const (
	runsPath      = "/runs/"
	approvalsPath = "/approvals/"
	scriptPath    = "/console.js"
)

var (
	runID      = regexp.MustCompile(`^r[a-z2-7]{25}$`)
	approvalID = regexp.MustCompile(`^a[a-z2-7]{25}$`)
)

// ConsolePaths returns the patterns that a Console serves, for an http.ServeMux.
func ConsolePaths() []string { return []string{"/{$}", runsPath, approvalsPath, scriptPath} }

// IsRequestForm reports whether a request is one of the console's forms, which contain a proof beside the cookie.
func IsRequestForm(r *http.Request) bool {
	id, below := strings.CutPrefix(r.URL.Path, approvalsPath)
	return r.Method == http.MethodPost && below && approvalID.MatchString(id)
}

// console is the handler of a Console.
type console struct {
	*Console
	*server
	mu       sync.Mutex
	previews map[string]show.Text // by run
}

// Handler serves ConsolePaths. Any other path is not found.
func (c *Console) Handler() http.Handler {
	s := c.Pages.newServer(consolePages)
	s.policy = strings.Replace(pagePolicy, "default-src 'none';",
		"default-src 'none'; script-src 'self'; connect-src 'self';", 1)
	return &console{Console: c, server: s, previews: map[string]show.Text{}}
}

// ServeHTTP implements http.Handler.
func (c *console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, isApproval := strings.CutPrefix(r.URL.Path, approvalsPath)
	switch {
	case r.Method == http.MethodPost && isApproval && approvalID.MatchString(id): // even if there is no such request
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		c.writePage(w, http.StatusMethodNotAllowed, c.missing)
		return
	}
	if c.cross.Check(r) != nil {
		c.writePage(w, http.StatusForbidden, c.foreign)
		return
	}
	run, isRun := strings.CutPrefix(r.URL.Path, runsPath)
	switch {
	case r.URL.Path == "/":
		page, err := c.newHomePage(r)
		c.renderPage(w, r, "home.html", page, err)
	case r.URL.Path == scriptPath && r.URL.RawQuery == "":
		c.setSecurityHeaders(w.Header())
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		_, _ = w.Write([]byte(readFile("console/console.js"))) // the client is gone if this fails
	case isRun && runID.MatchString(run):
		page, err := c.newRunPage(r, run)
		c.renderPage(w, r, "run.html", page, err)
	case isApproval && approvalID.MatchString(id) && r.URL.RawQuery == "":
		c.serveApproval(w, r, id)
	default:
		c.writePage(w, http.StatusNotFound, c.missing)
	}
}

// errNoPage is the error of an address that the console does not have.
var errNoPage = errors.New("there is no such page")

// renderPage writes a page from its view, or an error page.
func (c *console) renderPage(w http.ResponseWriter, r *http.Request, name string, view any, err error) {
	var html []byte
	if err == nil {
		html, err = c.pages.render(name, view)
	}
	if isNotFound(err) {
		c.writePage(w, http.StatusNotFound, c.missing)
		return
	}
	if err != nil {
		c.writeFailure(w, r, err)
		return
	}
	c.writePage(w, http.StatusOK, html)
}

// isNotFound reports whether something does not exist, as far as the visitor may know.
func isNotFound(err error) bool {
	var p *api.Problem
	return errors.Is(err, errNoPage) || errors.Is(err, approval.ErrNotFound) ||
		errors.As(err, &p) && (p.Status == http.StatusNotFound || p.Status == http.StatusBadRequest)
}

// serveApproval shows a request and accepts its form, like the page of a link.
func (c *console) serveApproval(w http.ResponseWriter, r *http.Request, id string) {
	a, err := c.Get(r.Context(), c.Tenant, id)
	switch {
	case errors.Is(err, approval.ErrNotFound):
		c.writePage(w, http.StatusNotFound, c.missing)
		return
	case err != nil:
		c.writeFailure(w, r, err)
		return
	}
	v := visit{
		link: link.Link{ID: "console", Tenant: c.Tenant, Approval: a.ID, To: c.As.ID, Nonce: c.formNonce()}, a: a, by: c.As,
		via: approval.ViaConsole,
		who: person.Person{ID: c.As.ID, Groups: c.As.Groups}, checkProof: c.checkProof,
		start: c.Start, proof: c.formProof(), runTrail: runTrail(a.Root, a.Run),
		fine: "Your answer counts as " + c.As.ID + "'s. It is recorded as given in the console.",
	}
	if r.Method == http.MethodPost {
		c.handlePost(w, r, v)
		return
	}
	c.writeRequestPage(w, r, v, http.StatusOK, formResult{})
}

// newFrame returns the fields that all console pages have.
func (c *console) newFrame(title string, way []crumb) frame {
	return frame{Title: title, Who: c.Show.Text(c.As.ID), Start: c.Start, Proof: c.formProof(), Trail: way}
}

// formProof returns the proof that forms hold; "" = whoever decides shows one.
func (c *Console) formProof() string {
	if !c.Session {
		return ""
	}
	return c.Key
}

// runTrail returns the breadcrumbs of runs, root first. It leaves out empty and repeated ids.
func runTrail(runs ...string) (way []crumb) {
	for i, id := range runs {
		if id != "" && !slices.Contains(runs[:i], id) {
			way = append(way, crumb{id, "Run " + shortID(id)})
		}
	}
	return way
}

// formNonce returns the nonce that signs the forms of this server process.
func (c *Console) formNonce() string {
	mac := hmac.New(sha256.New, []byte(c.Key))
	mac.Write([]byte("countersign console forms"))
	return hex.EncodeToString(mac.Sum(nil))
}

// checkProof removes the proof from a form and checks it; "" = valid.
func (c *Console) checkProof(form map[string]string) string {
	shown := strings.TrimSpace(form[proofField])
	delete(form, proofField)
	for _, secret := range []string{c.Key, c.Token} {
		if secret != "" && subtle.ConstantTimeCompare([]byte(shown), []byte(secret)) == 1 {
			return ""
		}
	}
	if c.Session {
		return "The form was not one of your session. Answer anew."
	}
	return "That you may look does not say that you may decide. Type the token, or open the address once more that was " +
		"printed at the start."
}

// readQuery reads the query strictly: only the named parameters, each at most once.
func readQuery(r *http.Request, names ...string) (map[string]string, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, errNoPage
	}
	got := map[string]string{}
	for name, all := range values {
		if !slices.Contains(names, name) || len(all) != 1 {
			return nil, errNoPage
		}
		got[name] = all[0]
	}
	return got, nil
}

// shortID returns the beginning of an id, for people who compare two of them.
func shortID(id string) string { return id[:min(len(id), 7)] }
