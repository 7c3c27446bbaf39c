package api

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
)

// Verdict is the body of POST /v1/approvals/{id}/decision.
type Verdict struct {
	Action approval.Action `json:"action"`           // approve, deny or edit; or Ask or Reply, which decide nothing
	Args   json.RawMessage `json:"args,omitempty"`   // edit: the arguments to run with
	Result json.RawMessage `json:"result,omitempty"` // approve: the answer to what a tool asks; none and null are true
	Note   string          `json:"note,omitempty"`   // of Ask and Reply, what is said
	Digest string          `json:"digest,omitempty"` // of the approval as it was shown: refused where it is about another action since; "" = as it was asked, so that an approval of what somebody has edited is refused
	Tool   string          `json:"tool,omitempty"`   // of a request about tools: the one it decides; "" = all that nobody has decided about

	Grant *agent.GrantBounds `json:"grant,omitempty"` // approve, edit: how far a standing grant goes that it gives; none = as far as the policy lets it
}

// What a person may do with a request beside deciding it: ask for information, and answer.
const (
	Ask   approval.Action = "ask"
	Reply approval.Action = "reply"
)

var approvalPattern = regexp.MustCompile(`^a[a-z2-7]{25}$`)

func approvalID(r *http.Request) (string, error) {
	id := r.PathValue("id")
	if !approvalPattern.MatchString(id) {
		return "", problem(ApprovalNotFound, "read approval %.64q: no such approval", id)
	}
	return id, nil
}

// listApprovals lists the pending requests where no status is given. Of those of a run it looks at up to maxLooks pages of the store.
func (s *server) listApprovals(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	q, err := query(r, "status", "run", "root", "cursor", "limit")
	if err != nil {
		return 0, nil, err
	}
	n, err := limit(q)
	if err != nil {
		return 0, nil, err
	}
	status := approval.Pending
	if q.Has("status") {
		status = approval.Status(q.Get("status"))
	}
	if !status.Valid() {
		return 0, nil, invalid("status: got %.64q, want pending, approved, denied, expired, cancelled or voided", status)
	}
	find := approval.Query{Status: status, Run: q.Get("run"), Root: q.Get("root"), Cursor: q.Get("cursor")}
	for _, name := range []string{"run", "root"} {
		if find.Since, err = s.since(r, c, q, name, find.Since); err != nil {
			return 0, nil, err
		}
	}
	p, err := s.findApprovals(r, c, find, n)
	return http.StatusOK, p, err
}

// findApprovals makes a page of the requests that fit.
func (s *server) findApprovals(r *http.Request, c Caller, find approval.Query, n int) (ApprovalPage, error) {
	p := ApprovalPage{Approvals: []approval.Approval{}}
	for looks := 0; len(p.Approvals) < n && looks < maxLooks; looks++ {
		find.Limit = n - len(p.Approvals)
		list, next, err := approval.Find(r.Context(), s.Table, c.Tenant, find)
		if err != nil {
			return p, badCursor(find.Cursor, err)
		}
		p.Approvals, p.Cursor, find.Cursor = append(p.Approvals, list...), next, next
		if next == "" {
			break
		}
	}
	return p, nil
}

// skew is how far the clocks of the machines that carry out a run and those below it may differ.
const skew = time.Minute

// since is the time before which nothing can be of the run that a query's parameter names, or at, where that is later or no run is named.
// A run that the tenant does not have is no such run, whether another has it or not.
func (s *server) since(r *http.Request, c Caller, q url.Values, name string, at time.Time) (time.Time, error) {
	if !q.Has(name) {
		return at, nil
	}
	id := q.Get(name)
	if !runPattern.MatchString(id) {
		return at, problem(RunNotFound, "%s: read run %.64q: no such run", name, id)
	}
	h, err := s.Journal.Head(r.Context(), c.Tenant, id)
	if err != nil {
		return at, err
	}
	if started := h.StartedAt.Add(-skew); started.After(at) {
		return started, nil
	}
	return at, nil
}

func (s *server) showApproval(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if _, err := query(r); err != nil {
		return 0, nil, err
	}
	id, err := approvalID(r)
	if err != nil {
		return 0, nil, err
	}
	a, err := approval.Get(r.Context(), s.Table, c.Tenant, id)
	return http.StatusOK, a, err
}

// via is the way by which what callers say comes in.
func (s *server) via() approval.Via { return cmp.Or(s.Via, approval.ViaAPI) }

func (s *server) decide(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if _, err := query(r); err != nil {
		return 0, nil, err
	}
	id, err := approvalID(r)
	if err != nil {
		return 0, nil, err
	}
	var b Verdict
	if err := body(w, r, &b, false); err != nil {
		return 0, nil, err
	}
	switch b.Action {
	case approval.Approve, approval.Deny, approval.Edit:
	case Ask, Reply:
		return s.talk(r, c, id, b)
	default:
		return 0, nil, invalid("action: got %.64q, want approve, deny, edit, ask or reply", b.Action)
	}
	if (b.Action == approval.Edit) != (b.Args != nil) {
		return 0, nil, invalid("args: they go with an edit and with nothing else")
	}
	if b.Result != nil && b.Action != approval.Approve {
		return 0, nil, invalid("result: it goes with approve and with nothing else")
	}
	if b.Action == approval.Edit && b.Tool != "" {
		return 0, nil, invalid("tool: it goes with approve and deny")
	}
	if b.Grant != nil && b.Action == approval.Deny {
		return 0, nil, invalid("grant: it goes with approve and edit")
	}
	a, err := s.Desk.Decide(r.Context(), approval.DecisionInput{
		Tenant: c.Tenant, ID: id, Action: b.Action, Args: b.Args, Result: b.Result, Note: b.Note, Tool: b.Tool, Digest: b.Digest, By: c.Principal, Via: s.via(),
		Grant: b.Grant,
	})
	return http.StatusOK, a, err
}

// talk says something of a request and decides nothing.
func (s *server) talk(r *http.Request, c Caller, id string, b Verdict) (int, any, error) {
	if b.Args != nil || b.Result != nil || b.Tool != "" {
		return 0, nil, invalid("action: %s goes with a note and with nothing else", b.Action)
	}
	w := approval.RemarkInput{Tenant: c.Tenant, ID: id, Text: b.Note, By: c.Principal, Via: s.via()}
	say := s.Desk.AskQuestion
	if b.Action == Reply {
		say = s.Desk.ReplyToQuestion
	}
	a, err := say(r.Context(), w)
	return http.StatusOK, a, err
}
