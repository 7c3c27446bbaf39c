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
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// Reader reads what the console shows, on behalf of who looks; *api.Client does. Its errors are *api.Problem where the API refuses.
type Reader interface {
	Runs(ctx context.Context, q api.RunQuery) (api.RunPage, error)
	Run(ctx context.Context, run string) (api.Run, error)
	Events(ctx context.Context, run, after string, limit int) (api.EventPage, error)
	FindApprovals(ctx context.Context, q approval.Query) (api.ApprovalPage, error)
}

// Console serves the runs and the requests of a tenant to one person, whom what stands before it has let in: it must show nobody else these pages. GET
// changes nothing. What decides is the form of a request's page, by POST, which proves itself by Key or Token: that who sends it may look is not enough,
// since a browser shows a cookie of this machine to whatever listens on any of its ports. All fields but Agents are required. Safe for concurrent use.
type Console struct {
	Pages  *Pages // without Links and People
	Tenant string
	As     policy.Principal // who looks, and decides
	Read   Reader
	// Conversation is all of a run's messages, oldest first.
	Conversation func(ctx context.Context, run string) ([]run.Spoken, error)
	// Arguments are the lines of a JSON value that a call of the tool was given, or that the run gave (tool ""), what is secret in it masked.
	Arguments func(ctx context.Context, run, tool string, raw []byte) ([]show.Argument, error)
	Agents    func() []string
	Start     string // names this start of the server, in a-z and 2-7; no secret
	Key       string // proves decisions, for as long as this server runs. What opens the pages for the first time brings it (Fragment)
	Token     string // proves them as well; people type it where no script does
}

// Fragment is what stands behind # in the address that opens the console for the first time: a browser keeps it to itself.
func (c *Console) Fragment() string { return "key=" + c.Start + "." + c.Key }

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

// ConsolePaths are the patterns that a Console answers, for an http.ServeMux.
func ConsolePaths() []string { return []string{"/{$}", runsPath, approvalsPath, scriptPath} }

// ProvesItself reports whether a request is one of the console's forms, which shows beside a cookie what proves it.
func ProvesItself(r *http.Request) bool {
	id, below := strings.CutPrefix(r.URL.Path, approvalsPath)
	return r.Method == http.MethodPost && below && approvalID.MatchString(id)
}

// console is a Console at work.
type console struct {
	*Console
	*server
	mu       sync.Mutex
	previews map[string]show.Text // by run
}

// Handler serves ConsolePaths, and refuses everything else as it refuses what is not there.
func (c *Console) Handler() http.Handler {
	s := c.Pages.server(consolePages)
	s.policy = strings.Replace(pagePolicy, "default-src 'none';",
		"default-src 'none'; script-src 'self'; connect-src 'self';", 1)
	return &console{Console: c, server: s, previews: map[string]show.Text{}}
}

// ServeHTTP implements http.Handler.
func (c *console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, isApproval := strings.CutPrefix(r.URL.Path, approvalsPath)
	switch {
	case r.Method == http.MethodPost && isApproval && approvalID.MatchString(id): // whether there is such a request or not
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		c.write(w, http.StatusMethodNotAllowed, c.missing)
		return
	}
	if c.cross.Check(r) != nil {
		c.write(w, http.StatusForbidden, c.foreign)
		return
	}
	run, isRun := strings.CutPrefix(r.URL.Path, runsPath)
	switch {
	case r.URL.Path == "/":
		page, err := c.homePage(r)
		c.answer(w, r, "home.html", page, err)
	case r.URL.Path == scriptPath && r.URL.RawQuery == "":
		c.harden(w.Header())
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		_, _ = w.Write([]byte(read("console/console.js"))) // the client is gone if this fails
	case isRun && runID.MatchString(run):
		page, err := c.runPage(r, run)
		c.answer(w, r, "run.html", page, err)
	case isApproval && approvalID.MatchString(id) && r.URL.RawQuery == "":
		c.approval(w, r, id)
	default:
		c.write(w, http.StatusNotFound, c.missing)
	}
}

// errNoPage refuses an address that is none of the console's.
var errNoPage = errors.New("there is no such page")

// answer sends a page over its view, or says why there is none.
func (c *console) answer(w http.ResponseWriter, r *http.Request, name string, view any, err error) {
	var html []byte
	if err == nil {
		html, err = c.pages.html(name, view)
	}
	if absent(err) {
		c.write(w, http.StatusNotFound, c.missing)
		return
	}
	if err != nil {
		c.fails(w, r, err)
		return
	}
	c.write(w, http.StatusOK, html)
}

// absent reports whether what was asked for is not there, as far as the one who asks may know.
func absent(err error) bool {
	var p *api.Problem
	return errors.Is(err, errNoPage) || errors.Is(err, approval.ErrNotFound) ||
		errors.As(err, &p) && (p.Status == http.StatusNotFound || p.Status == http.StatusBadRequest)
}

// approval shows a request and takes the answer to it, as the page of a link does.
func (c *console) approval(w http.ResponseWriter, r *http.Request, id string) {
	a, err := c.Get(r.Context(), c.Tenant, id)
	switch {
	case errors.Is(err, approval.ErrNotFound):
		c.write(w, http.StatusNotFound, c.missing)
		return
	case err != nil:
		c.fails(w, r, err)
		return
	}
	v := visit{
		link: link.Link{ID: "console", Tenant: c.Tenant, Approval: a.ID, To: c.As.ID, Nonce: c.nonce()}, a: a, by: c.As, via: approval.ViaConsole,
		who: person.Person{ID: c.As.ID, Groups: c.As.Groups}, proof: c.prove,
		start: c.Start, trail: trail(a.Root, a.Run),
		fine: "Your answer counts as " + c.As.ID + "'s. It is recorded as given in the console.",
	}
	if r.Method == http.MethodPost {
		c.post(w, r, v)
		return
	}
	c.page(w, r, v, http.StatusOK, said{})
}

// frame is what all of the console's pages have.
func (c *console) frame(title string, way []crumb) frame {
	return frame{Title: title, Who: c.Show.Text(c.As.ID), Start: c.Start, Trail: way}
}

// trail is the way along runs: the one that nobody delegated comes first. It leaves out empty ids and what is there
// already.
func trail(runs ...string) (way []crumb) {
	for i, id := range runs {
		if id != "" && !slices.Contains(runs[:i], id) {
			way = append(way, crumb{id, "Run " + short(id)})
		}
	}
	return way
}

// nonce makes the forms of this start of the server.
func (c *Console) nonce() string {
	mac := hmac.New(sha256.New, []byte(c.Key))
	mac.Write([]byte("countersign console forms"))
	return hex.EncodeToString(mac.Sum(nil))
}

// prove judges what a form proves.
func (c *Console) prove(form map[string]string) string {
	shown := strings.TrimSpace(form[proofField])
	delete(form, proofField)
	for _, secret := range []string{c.Key, c.Token} {
		if secret != "" && subtle.ConstantTimeCompare([]byte(shown), []byte(secret)) == 1 {
			return ""
		}
	}
	return "That you may look does not say that you may decide. Type the token, or open the address once more that was printed at the start."
}

// query reads the parameters of an address strictly: each at most once, and no other.
func query(r *http.Request, names ...string) (map[string]string, error) {
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

// short is a run's or a request's id for people who compare two of them.
func short(id string) string { return id[:min(len(id), 7)] }
