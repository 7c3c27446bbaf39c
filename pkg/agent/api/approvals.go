package api

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"

	"github.com/countersign/countersign/pkg/agent/approval"
)

// Verdict is the body of POST /v1/approvals/{id}/decision.
type Verdict struct {
	Action approval.Action `json:"action"`           // approve, deny or edit
	Args   json.RawMessage `json:"args,omitempty"`   // edit: the arguments to run with
	Result json.RawMessage `json:"result,omitempty"` // approve: the answer to what a tool asks; none and null are true
	Note   string          `json:"note,omitempty"`
	Tool   string          `json:"tool,omitempty"` // of a request about tools: the one it decides; "" = all that nobody has decided about
}

var approvalPattern = regexp.MustCompile(`^a[a-z2-7]{25}$`)

func approvalID(r *http.Request) (string, error) {
	id := r.PathValue("id")
	if !approvalPattern.MatchString(id) {
		return "", problem(ApprovalNotFound, "read approval %q: no such approval", id)
	}
	return id, nil
}

// listApprovals lists the pending requests where no status is given.
func (s *server) listApprovals(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	q, err := query(r, "status", "cursor", "limit")
	if err != nil {
		return 0, nil, err
	}
	n, err := limit(q)
	if err != nil {
		return 0, nil, err
	}
	status := cmp.Or(approval.Status(q.Get("status")), approval.Pending)
	if !status.Valid() {
		return 0, nil, invalid("status: got %q, want pending, approved, denied, expired, cancelled or voided", status)
	}
	p := ApprovalPage{}
	if p.Approvals, p.Cursor, err = approval.List(r.Context(), s.Table, c.Tenant, status, n, q.Get("cursor")); err != nil {
		return 0, nil, badCursor(q.Get("cursor"), err)
	}
	if p.Approvals == nil {
		p.Approvals = []approval.Approval{}
	}
	return http.StatusOK, p, nil
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
	case "ask":
		return 0, nil, later("action ask")
	default:
		return 0, nil, invalid("action: got %q, want approve, deny or edit", b.Action)
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
	a, err := s.Desk.Decide(r.Context(), approval.Request{
		Tenant: c.Tenant, ID: id, Action: b.Action, Args: b.Args, Result: b.Result, Note: b.Note, Tool: b.Tool, By: c.Principal,
	})
	return http.StatusOK, a, err
}
