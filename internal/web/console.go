package web

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Reader reads what the console shows, on behalf of the visitor; *Client implements it. Errors are *Problem
// if the API refuses.
type Reader interface {
	Runs(ctx context.Context, q RunQuery) (Page[RunHead], error)
	Run(ctx context.Context, run string) (Run, error)
	RunWithoutMessages(ctx context.Context, run string) (Run, error)
	Events(ctx context.Context, run, after string, limit int) (Page[Event], error)
	Journal(ctx context.Context, run, cursor string, limit int) ([][]byte, error)
	Approval(ctx context.Context, id string) (approval.Approval, error)
	FindApprovals(ctx context.Context, q approval.Query) (Page[approval.Approval], error)
	Grants(ctx context.Context, agent, cursor string, limit int) (Page[Grant], error)
}

// Console serves the runs, agents and requests of a tenant to one person. The handler in front of it must authenticate
// that person. GET changes nothing. Whatever changes something is a POST of a form, which must contain Key or Token: a
// cookie is no proof, since a browser sends the cookies of this machine to every port. Fields from Broken on are
// optional. Safe for concurrent use.
type Console struct {
	Pages  *Pages // without Links and People
	Tenant string
	As     policy.Principal // the visitor, who decides
	Read   Reader
	// Conversation returns all messages of a run, oldest first.
	Conversation func(ctx context.Context, run string) ([]policy.SeenMessage, error)
	// Blob reads the content of a file that a message names. store.ErrNoBlob where there is none, or it is larger than
	// MaxPicture.
	Blob func(ctx context.Context, digest string) ([]byte, error)
	// Arguments returns the lines of a call's arguments, or of the run's output (tool ""), with secrets masked. The tool
	// has the name that the model knows.
	Arguments func(ctx context.Context, run, tool string, raw []byte) ([]people.Row, error)
	Start     string // id of this server process, in a-z and 2-7; not secret
	Key       string // proves forms while this process runs; KeyFragment transports it
	Token     string // proves forms as well; typed where no script runs
	// Session says that the visitor has signed in: Key is that session's, and every form holds it.
	Session bool
	IDs     interface{ Key() string } // new idempotency keys

	Agents     func() []string
	Definition func(name string) (*agent.Definition, bool) // of an agent, as runs start with it
	// Act does what the visitor asks for in forms, on the visitor's behalf.
	Act *Client
	// Broken returns what is wrong with the agents whose files cannot be loaded, by agent; nil = all of them can.
	Broken func() map[string][]AgentProblem
	// WithModel returns an agent with another model, given as Models are; its error is for the visitor. Nil = runs start
	// with the model of their agent.
	WithModel func(name, model string) (*agent.Definition, error)
	Models    []string // suggestions
	// API answers requests of the API as the visitor. The console passes on what reads one run: its JSON and its stream.
	API   http.Handler
	Cache *Cache // shared by consoles; nil = its own
}

// AgentProblem is something that is wrong with the file of an agent.
type AgentProblem struct {
	File   string
	Line   int    // from 1; 0 = the file as a whole
	Key    string // "" = the file as a whole
	Text   string // what was got and what is wanted
	Source string // the line
}

// Cache keeps what consoles have read of runs, of any tenant. Safe for concurrent use.
type Cache struct {
	mu        sync.Mutex
	summaries map[string]runSummary // by tenant and run
	stories   map[string]*story     // by tenant and run
}

// NewCache returns an empty cache.
func NewCache() *Cache {
	return &Cache{summaries: map[string]runSummary{}, stories: map[string]*story{}}
}

// KeyFragment is the fragment (#) of the address that first opens the console. Browsers do not send fragments.
func (c *Console) KeyFragment() string { return "key=" + c.Start + "." + c.Key }

// The paths of the console. A path below a prefix names one run, request or agent.
const (
	runsPath      = "/runs/"
	approvalsPath = "/approvals/"
	agentsPath    = "/agents/"
	togetherPath  = "/approvals/together"
	startPath     = "/start"
	chatPath      = "/chat"
	scriptPath    = "/console.js"
)

var (
	runID      = regexp.MustCompile(`^r[a-z2-7]{25}$`)
	approvalID = regexp.MustCompile(`^a[a-z2-7]{25}$`)
	shortIDs   = regexp.MustCompile(`^[ra][a-z2-7]{3,24}$`)
)

// IsRequestForm reports whether a request is one of the console's forms, which contain a proof beside the cookie.
func IsRequestForm(r *http.Request) bool {
	return r.Method == http.MethodPost && formOf(r.URL.Path) != ""
}

// formOf returns what a form that is sent to the path does: decide, together, start, revoke, message, continue, cancel
// or fork; "" = the path takes no form.
func formOf(path string) string {
	if id, below := strings.CutPrefix(path, approvalsPath); below && approvalID.MatchString(id) {
		return "decide"
	}
	if rest, below := strings.CutPrefix(path, runsPath); below {
		id, action, _ := strings.Cut(rest, "/")
		if runID.MatchString(id) && slices.Contains([]string{"message", "continue", "cancel", "fork"}, action) {
			return action
		}
	}
	if name, below := strings.CutPrefix(path, agentsPath); below && agent.ValidAgentName(name) {
		return "revoke"
	}
	return map[string]string{togetherPath: "together", startPath: "start"}[path]
}

// console is the handler of a Console.
type console struct {
	*Console
	*pageServer
	*Cache
}

// Handler serves every page of the console. Any other path is not found.
func (c *Console) Handler() http.Handler {
	policy := strings.Replace(pagePolicy, "default-src 'none';",
		"default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self';", 1)
	own := *c
	if own.Cache == nil {
		own.Cache = NewCache()
	}
	if own.Broken == nil {
		own.Broken = func() map[string][]AgentProblem { return nil }
	}
	all := &console{Console: &own, pageServer: c.Pages.newServer(consolePages(), policy), Cache: own.Cache}
	all.pageServer.frame = all.newFrame("", "")
	return all
}

// ServeHTTP implements http.Handler.
func (c *console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	form := IsRequestForm(r)
	if !form && r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		c.writePlain(w, http.StatusMethodNotAllowed, missingPage)
		return
	}
	if c.cross.Check(r) != nil {
		c.writePlain(w, http.StatusForbidden, foreignPage)
		return
	}
	id, isApproval := strings.CutPrefix(r.URL.Path, approvalsPath)
	switch {
	case isApproval && approvalID.MatchString(id) && r.URL.RawQuery == "": // even if there is no such request
		c.serveApproval(w, r, id)
	case form:
		c.serveForm(w, r)
	case r.URL.Path == scriptPath && r.URL.RawQuery == "":
		c.write(w, http.StatusOK, "text/javascript; charset=utf-8", []byte(readFile("console/console.js")))
	case r.URL.Path == "/favicon.ico": // browsers ask for it where pages may have pictures
		c.write(w, http.StatusOK, "image/svg+xml", []byte(icon))
	case r.URL.Path == "/audit.jsonl":
		c.serveDecisions(w, r)
	case c.API != nil && passedOn.MatchString(r.URL.Path):
		in := r.Clone(r.Context())
		in.URL.Path, in.URL.RawPath = APIPath+strings.TrimSuffix(r.URL.Path[1:], "/json"), ""
		setSecurityHeaders(w.Header(), c.policy)
		c.API.ServeHTTP(w, in)
	case pictures.MatchString(r.URL.Path):
		c.servePicture(w, r)
	default:
		name, view, err := c.newPage(r)
		c.renderPage(w, r, http.StatusOK, name, view, err)
	}
}

// icon is the seal of the pages' header.
const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">` +
	`<circle cx="16" cy="16" r="14" fill="#1d4ed8"/>` +
	`<path d="m9 16 5 5 9-10" fill="none" stroke="#fff" stroke-width="3"/></svg>`

// passedOn are the paths that answer as the API does: a run's JSON, and the stream of its events. They are the
// console's own, since a session opens no path of the API.
var passedOn = regexp.MustCompile(`^/runs/r[a-z2-7]{25}/(json|events)$`)

// newPage returns the view of the page at a path, and the name of its template.
func (c *console) newPage(r *http.Request) (name string, view any, err error) {
	page := func(template string) func(any, error) (string, any, error) {
		return func(view any, err error) (string, any, error) { return template, view, err }
	}
	first, id, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch path := r.URL.Path; {
	case path == navApprovals:
		return page("queue.html")(c.newQueuePage(r))
	case path == togetherPath:
		return page("together.html")(c.newTogetherPage(r))
	case path == navRuns:
		return page("runs.html")(c.newRunsPage(r))
	case path == startPath:
		return page("start.html")(c.newStartPage(r, nil, nil))
	case path == navChat, first == "chat" && runID.MatchString(id):
		return page("chat.html")(c.newChatPage(r, id))
	case path == navAgents:
		return page("agents.html")(c.newAgentsPage(r))
	case path == navAudit:
		return page("audit.html")(c.newAuditPage(r))
	case first == "runs" && runID.MatchString(id):
		return page("run.html")(c.newRunPage(r, id))
	case first == "agents" && agent.ValidAgentName(id):
		return page("agent.html")(c.newAgentPage(r, id))
	case (first == "runs" || first == "approvals") && shortIDs.MatchString(id) && id[0] == first[0]:
		if id, err = c.completeID(r.Context(), id); err == nil {
			err = movedPage("/" + first + "/" + id)
		}
		return "", nil, err
	}
	return "", nil, errNoPage
}

// movedPage is the error of a page that is at another address.
type movedPage string

func (to movedPage) Error() string { return "the page is at " + string(to) }

// completeID returns the only id that begins with a short one.
func (c *console) completeID(ctx context.Context, short string) (string, error) {
	if short[0] == 'a' {
		a, err := c.Read.Approval(ctx, short)
		return a.ID, err
	}
	r, err := c.Read.RunWithoutMessages(ctx, short)
	return r.ID, err
}

// errNoPage is the error of an address that the console does not have.
var errNoPage = errors.New("there is no such page")

// renderPage is that of the server, and says where a page is, or that there is none.
func (c *console) renderPage(w http.ResponseWriter, r *http.Request, status int, name string, view any, err error) {
	var to movedPage
	switch {
	case errors.As(err, &to):
		redirect(w, pagePolicy, string(to))
	case isNotFound(err):
		c.writePlain(w, http.StatusNotFound, missingPage)
	default:
		c.pageServer.renderPage(w, r, status, name, view, err)
	}
}

// isNotFound reports whether something does not exist, as far as the visitor may know.
func isNotFound(err error) bool {
	var p *Problem
	return errors.Is(err, errNoPage) || errors.Is(err, approval.ErrNotFound) ||
		errors.As(err, &p) && (p.Status == http.StatusNotFound || p.Status == http.StatusBadRequest)
}

// serveApproval shows a request and accepts its form, like the page of a link.
func (c *console) serveApproval(w http.ResponseWriter, r *http.Request, id string) {
	a, err := c.Get(r.Context(), c.Tenant, id)
	if err != nil {
		c.renderPage(w, r, 0, "", nil, err)
		return
	}
	c.serveVisit(w, r, c.newVisit(a))
}

func (c *console) newVisit(a approval.Approval) visit {
	nonce := hmac.New(sha256.New, []byte(c.Key)) // signs the forms of this server process
	nonce.Write([]byte("countersign console forms"))
	return visit{
		link: approval.Link{ID: "console", Tenant: c.Tenant, Approval: a.ID, To: c.As.ID,
			Nonce: hex.EncodeToString(nonce.Sum(nil))},
		a: a, by: c.As, via: agent.ViaConsole, who: people.Person{ID: c.As.ID, Groups: c.As.Groups}, checkProof: c.checkProof,
		frame: c.newFrame("", navApprovals, runTrail(a.Root, a.Run)...),
		fine:  "Your answer counts as " + c.As.ID + "'s. It is recorded as given in the console.",
	}
}

// The places of the navigation.
const (
	navApprovals = "/"
	navChat      = chatPath
	navRuns      = "/runs"
	navAgents    = "/agents"
	navAudit     = "/audit"
)

type place struct{ Path, Label string }

var places = []place{{navApprovals, "Approvals"}, {navRuns, "Runs"}, {navAgents, "Agents"}, {navAudit, "Audit"},
	{navChat, "Chat"}}

// newFrame returns the fields that all console pages have. nav is the place of the navigation.
func (c *console) newFrame(title, nav string, way ...string) frame {
	f := frame{Title: title + " · Countersign", Who: c.As.ID, Start: c.Start, Nav: nav, Trail: way, Once: c.IDs.Key()}
	if c.Session {
		f.Proof = c.Key
	}
	if c.WithModel != nil {
		f.Models = c.Models
	}
	return f
}

// runTrail returns the breadcrumbs of runs, root first. It leaves out empty and repeated ids.
func runTrail(runs ...string) (way []string) {
	for _, id := range runs {
		if id != "" && !slices.Contains(way, id) {
			way = append(way, id)
		}
	}
	return way
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
		return "The page was made before you signed in last. Open it again, and send the form once more."
	}
	return "The token is missing or wrong. Type the one that the server printed when it started, or open the address " +
		"that it printed, and send the form once more."
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

// pictureTypes are the types of files that are shown as pictures. SVG is a document, with links and scripts.
var pictureTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// MaxPicture is the size in bytes of a picture that is shown: a function's answer has 6 MB, in base64.
const MaxPicture = 4 << 20

// pictures are the paths of pictures: a run, and the number of the message.
var pictures = regexp.MustCompile(`^/runs/(r[a-z2-7]{25})/pictures/([1-9][0-9]{0,8})$`)

// servePicture writes the picture of a message, if its bytes are one of pictureTypes.
func (c *console) servePicture(w http.ResponseWriter, r *http.Request) {
	of := pictures.FindStringSubmatch(r.URL.Path)
	all, err := c.Conversation(r.Context(), of[1])
	var data []byte
	if n, _ := strconv.Atoi(of[2]); err == nil && n <= len(all) {
		switch m, _ := all[n-1].Block.(run.Media); {
		case m.Data != "":
			data, err = base64.StdEncoding.DecodeString(m.Data)
		case m.Blob != "":
			data, err = c.Blob(r.Context(), m.Blob)
		}
	}
	kind := http.DetectContentType(data)
	if errors.Is(err, store.ErrNoBlob) || err == nil && (!slices.Contains(pictureTypes, kind) || len(data) > MaxPicture) {
		err = errNoPage
	}
	if err != nil {
		c.renderPage(w, r, 0, "", nil, err)
		return
	}
	c.write(w, http.StatusOK, kind, data)
}
