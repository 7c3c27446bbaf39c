package api

import (
	"net/http"
	"net/url"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/run"
)

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
		g.When, agent.ConditionWords(g.When), g.Uses, g.RemainingUses(),
	}
}

// listGrants lists the tenant's valid standing grants; expired ones are left out.
func (s *server) listGrants(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	of, err := readAgent(r.URL.Query())
	if err != nil {
		return 0, nil, err
	}
	return readPage(r, func(limit int, cursor string) (shown []Grant, next string, err error) {
		q := approval.StandingQuery{Agent: of, Limit: limit, Cursor: cursor}
		list, next, err := approval.ListStanding(r.Context(), s.Table, c.Tenant, q, s.Clock.Now())
		for _, g := range list {
			shown = append(shown, newGrant(g))
		}
		return shown, next, err
	})
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
func (s *server) revokeGrant(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	q := r.URL.Query()
	if q.Has("digest") && q.Get("digest") == "" { // an empty digest would mean all grants
		return 0, nil, invalidProblem("digest: got nothing, want that of a grant")
	}
	of, tool := r.PathValue("agent"), r.PathValue("tool")
	if !agent.ValidAgentName(of) || !agent.ValidToolName(tool) {
		return 0, nil, problem(GrantNotFound, "revoke standing grant of %.64q for %.64q: no such standing grant",
			tool, of)
	}
	if err := s.Desk.Revoke(r.Context(), approval.Revocation{Tenant: c.Tenant, Agent: of, Tool: tool,
		Digest: q.Get("digest"), By: c.Principal}); err != nil {
		return 0, nil, err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
	return 0, nil, nil
}
