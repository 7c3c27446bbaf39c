package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Verdict is the body of POST /v1/approvals/{id}/decision.
type Verdict struct {
	Action approval.Action `json:"action"`           // approve, deny or edit; or Ask or Reply, which decide nothing
	Args   json.RawMessage `json:"args,omitempty"`   // edit: the new arguments
	Result json.RawMessage `json:"result,omitempty"` // approve: the answer to what a tool asks; none and null are true
	Note   string          `json:"note,omitempty"`   // of Ask and Reply: the message
	// of the action as it was shown; a changed action is refused; "" = the original action
	Digest string `json:"digest,omitempty"`
	Tool   string `json:"tool,omitempty"` // of a request for tools: the tool; "" = all undecided ones

	// approve, edit: bounds of the standing grant; nil = as the policy allows
	Grant *agent.GrantBounds `json:"grant,omitempty"`
}

// Actions on a request that decide nothing: ask a question, and answer one.
const (
	Ask   approval.Action = "ask"
	Reply approval.Action = "reply"
)

// listApprovals lists requests, by default pending ones.
func (s *apiServer) listApprovals(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	q := r.URL.Query()
	find := approval.Query{Status: approval.Pending, Run: q.Get("run"), Root: q.Get("root")}
	if q.Has("status") {
		find.Status = approval.Status(q.Get("status"))
	}
	if !find.Status.Valid() {
		return 0, nil, invalidProblem("status: got %.64q, want pending, approved, denied, expired, cancelled or voided",
			find.Status)
	}
	newest, err := zeroOrOne(q, "newest", "0")
	if err != nil {
		return 0, nil, err
	}
	find.Newest = newest == "1"
	for _, name := range []string{"run", "root"} {
		if find.Since, err = s.earliestStart(r, c, q, name, find.Since); err != nil {
			return 0, nil, err
		}
	}
	return readPage(r, func(limit int, cursor string) ([]approval.Approval, string, error) {
		find.Limit, find.Cursor = limit, cursor
		list, next, err := approval.List(r.Context(), s.Table, c.Tenant, find)
		for i := range list {
			if err == nil {
				err = s.addSentence(r.Context(), &list[i])
			}
		}
		return list, next, err
	})
}

// clockSkew is the largest expected difference between the clocks of machines.
const clockSkew = time.Minute

// earliestStart returns the time before which the run in a query parameter had not started, or at if that is later or
// no run is named. A run of another tenant is not found.
func (s *apiServer) earliestStart(
	r *http.Request, c Caller, q url.Values, name string, at time.Time,
) (time.Time, error) {
	if !q.Has(name) {
		return at, nil
	}
	id := q.Get(name)
	if err := checkRunID(name+":", id); err != nil {
		return at, err
	}
	h, err := s.Journal.Head(r.Context(), c.Tenant, id)
	if err != nil {
		return at, err
	}
	if started := h.StartedAt.Add(-clockSkew); started.After(at) {
		return started, nil
	}
	return at, nil
}

func (s *apiServer) showApproval(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	a, err := approval.Get(r.Context(), s.Table, c.Tenant, r.PathValue("id"))
	return s.answerApproval(r.Context(), a, err)
}

// answerApproval answers with a request and its sentence, or with the error.
func (s *apiServer) answerApproval(ctx context.Context, a approval.Approval, err error) (int, any, error) {
	if err == nil {
		err = s.addSentence(ctx, &a)
	}
	return http.StatusOK, a, err
}

// addSentence adds what would happen, as people are shown it, from the definition that the request's run is pinned to.
func (s *apiServer) addSentence(ctx context.Context, a *approval.Approval) (err error) {
	var v people.DocumentView
	if a.Definition != "" {
		v.Definition, err = s.Definitions(ctx, a.Tenant, a.Definition)
	}
	if errors.Is(err, store.ErrNoBlob) { // what marks secrets is lost: the request has no sentence
		return nil
	}
	a.Sentence = people.RequestSentence(*a, v)
	return err
}

func (s *apiServer) decideApproval(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	id := r.PathValue("id")
	b, err := readBody[Verdict](w, r, false)
	if err != nil {
		return 0, nil, err
	}
	b.Args, b.Result = unlessNull(b.Args), unlessNull(b.Result)
	switch b.Action {
	case approval.Approve, approval.Deny, approval.Edit:
	case Ask, Reply:
		if b.Args != nil || b.Result != nil || b.Tool != "" {
			return 0, nil, invalidProblem("action: %s goes with a note and with nothing else", b.Action)
		}
		a, err := s.Desk.AddRemark(r.Context(), approval.RemarkInput{
			Tenant: c.Tenant, ID: id, Text: b.Note, Reply: b.Action == Reply, By: c.Principal, Via: s.Via,
		})
		return s.answerApproval(r.Context(), a, err)
	default:
		return 0, nil, invalidProblem("action: got %.64q, want approve, deny, edit, ask or reply", b.Action)
	}
	switch {
	case (b.Action == approval.Edit) != (b.Args != nil):
		return 0, nil, invalidProblem("args: they go with an edit and with nothing else")
	case b.Result != nil && b.Action != approval.Approve:
		return 0, nil, invalidProblem("result: it goes with approve and with nothing else")
	case b.Action == approval.Edit && b.Tool != "":
		return 0, nil, invalidProblem("tool: it goes with approve and deny")
	case b.Grant != nil && b.Action == approval.Deny:
		return 0, nil, invalidProblem("grant: it goes with approve and edit")
	}
	a, err := s.Desk.Decide(r.Context(), approval.DecisionInput{
		Tenant: c.Tenant, ID: id, Action: b.Action, Args: b.Args, Result: b.Result, Note: b.Note, Tool: b.Tool,
		Digest: b.Digest, By: c.Principal, Via: s.Via, Grant: b.Grant,
	})
	return s.answerApproval(r.Context(), a, err)
}

// Grant is a standing grant: an agent may call a tool in every run until the grant expires or is revoked. Scope call
// limits it to exactly these arguments, scope pattern to arguments that match its conditions.
type Grant struct {
	Agent    string      `json:"agent"`
	Tool     string      `json:"tool"` // original name
	Scope    agent.Scope `json:"scope"`
	ArgsHash string      `json:"argsHash,omitempty"` // of scope call: of the arguments, keys in order
	Args     string      `json:"args,omitempty"`     // of scope call: their JSON as text, the first 2000 characters
	// of the tool's definition, the policy with its approvers, and the arguments
	Digest    string     `json:"digest"`
	Approval  string     `json:"approval"` // the request on which it was granted
	Run       string     `json:"run"`      // and its run
	By        string     `json:"by"`
	With      []string   `json:"with,omitempty"` // further approvers
	Note      string     `json:"note,omitempty"`
	At        time.Time  `json:"at"`
	Expires   time.Time  `json:"expiresAt"`
	Approvers []string   `json:"approvers"`       // who may revoke it
	Above     [][]string `json:"above,omitempty"` // who must also be in each of these sets

	When    []run.Condition `json:"when,omitempty"`    // of scope pattern: conditions on the arguments
	Pattern string          `json:"pattern,omitempty"` // the conditions as text
	Uses    int             `json:"uses,omitempty"`    // total number of calls; 0 = unlimited
	Left    int             `json:"left,omitempty"`    // remaining calls
}

// ScopePattern is the scope of a grant for arguments that match its conditions.
const ScopePattern agent.Scope = "pattern"

func newGrant(g approval.StandingGrant) Grant {
	scope := agent.ScopeTool
	switch {
	case len(g.When) > 0:
		scope = ScopePattern
	case g.ArgsHash != "":
		scope = agent.ScopeCall
	}
	return Grant{
		g.Agent, g.Tool, scope, g.ArgsHash, g.Args, g.Digest, g.Approval, g.Run, g.By, g.With, g.Note, g.At, g.Expires,
		g.Approvers, g.Above,
		g.When, agent.ConditionWords(g.When), g.Uses, max(0, g.Uses-g.Used),
	}
}

// listGrants lists the tenant's valid standing grants; expired ones are left out.
func (s *apiServer) listGrants(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	of, err := readAgent(r.URL.Query())
	if err != nil {
		return 0, nil, err
	}
	return readPage(r, convert(func(limit int, cursor string) ([]approval.StandingGrant, string, error) {
		q := approval.StandingQuery{Agent: of, Limit: limit, Cursor: cursor}
		return approval.ListStanding(r.Context(), s.Table, c.Tenant, q, s.Clock.Now())
	}, newGrant))
}

// readAgent reads the filter by agent; "" = all agents.
func readAgent(q url.Values) (string, error) {
	of := q.Get("agent")
	if q.Has("agent") && !agent.ValidAgentName(of) {
		return "", invalidProblem("agent: got %.64q, want an agent's name", of)
	}
	return of, nil
}

// revokeGrant revokes the standing grants of a tool, or the one in the query.
func (s *apiServer) revokeGrant(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	q := r.URL.Query()
	if q.Has("digest") && q.Get("digest") == "" { // an empty digest would mean all grants
		return 0, nil, invalidProblem("digest: got nothing, want that of a grant")
	}
	of, tool := r.PathValue("agent"), r.PathValue("tool")
	if !agent.ValidAgentName(of) || !agent.ValidToolName(tool) {
		return 0, nil, problem(GrantNotFound, "revoke standing grant of %.64q for %.64q: no such standing grant",
			tool, of)
	}
	return http.StatusNoContent, nil, s.Desk.Revoke(r.Context(), approval.Revocation{Tenant: c.Tenant, Agent: of,
		Tool: tool, Digest: q.Get("digest"), By: c.Principal})
}
