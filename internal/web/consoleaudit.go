package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/store"
)

// Bounds of the audit.
const (
	maxAudited   = 2000 // requests of each status that are looked through; the page names the number
	auditLimit   = 100  // decisions on a page
	maxJournaled = 100  // runs that one page verifies
)

// auditPage is the view of audit.html: decisions, the newest first.
type auditPage struct {
	frame
	Decisions        []decisionRecord
	Statuses, Agents []filterOption
	Chosen           map[string]string
	Next, Export     string // addresses; Next "" = there are no more
	Verify           string // the address that verifies the journals
	Verified         []verifiedRun
	Partial          string // what is missing; "" = all requests were looked through
}

// decisionRecord is what one person decided about a request, as it is exported.
type decisionRecord struct {
	At       time.Time       `json:"at"`
	By       string          `json:"by"`
	Via      approval.Via    `json:"via,omitempty"`
	Action   approval.Action `json:"action"`
	Note     string          `json:"note,omitempty"`
	Digest   string          `json:"digest,omitempty"`
	Approval string          `json:"approval"`
	Status   approval.Status `json:"status"`
	Agent    string          `json:"agent"`
	Tools    []string        `json:"tools"`
	Run      string          `json:"run"`
}

// Label is the action in words.
func (d decisionRecord) Label() string { return strings.ReplaceAll(string(d.Action), "_", " ") }

// ToolNames are the tools in a list.
func (d decisionRecord) ToolNames() string { return strings.Join(d.Tools, ", ") }

// verifiedRun is a run whose journal was read anew.
type verifiedRun struct {
	Run string
	store.Chain
	Problem string // "" = every entry holds the hash of the one before it
}

func (c *console) newAuditPage(r *http.Request) (page auditPage, err error) {
	q, err := readQuery(r, "status", "agent", "by", "page", "verify")
	if err != nil {
		return page, err
	}
	all, partial, err := c.loadDecisions(r.Context(), q)
	if err != nil {
		return page, err
	}
	at := 0
	if q["page"] != "" {
		if at, err = strconv.Atoi(q["page"]); err != nil || at < 1 || at > (len(all)-1)/auditLimit {
			return page, errNoPage
		}
	}
	here := all[at*auditLimit : min((at+1)*auditLimit, len(all))]
	address := func(path string, more ...string) string {
		return filterAddress(path, q, []string{"status", "agent", "by"}, more...)
	}
	page = auditPage{frame: c.newFrame("Audit", navAudit), Chosen: q, Agents: c.agentOptions(q["agent"]), Partial: partial,
		Decisions: here,
		Export:    address("/audit.jsonl"), Verify: address("/audit", "verify", "1"),
		Statuses: newOptions(q["status"], "", "any", "approved", "approved", "denied", "denied", "pending", "pending",
			"expired", "expired", "cancelled", "cancelled", "voided", "voided")}
	if (at+1)*auditLimit < len(all) {
		page.Next = address("/audit", "page", strconv.Itoa(at+1))
	}
	if q["verify"] != "" {
		page.Verified, err = c.verifyRuns(r.Context(), here)
	}
	return page, err
}

// loadDecisions returns the decisions that the filters admit, the newest first, and what is missing among them.
func (c *console) loadDecisions(ctx context.Context, q map[string]string) (
	all []decisionRecord, partial string, err error,
) {
	statuses := approval.Statuses()
	if q["status"] != "" {
		if statuses = []approval.Status{approval.Status(q["status"])}; !statuses[0].Valid() {
			return nil, "", errNoPage
		}
	}
	for _, status := range statuses {
		found, more, err := c.findApprovals(ctx, approval.Query{Status: status, Newest: true}, maxAudited)
		if err != nil {
			return nil, "", err
		}
		if more {
			partial = "Of each status the newest 2,000 requests were looked through. countersign export writes all."
		}
		for _, a := range found {
			for _, d := range a.Decisions {
				if (q["agent"] == "" || a.Agent == q["agent"]) && (q["by"] == "" || d.By == q["by"]) {
					all = append(all, decisionRecord{d.At, d.By, d.Via, d.Action, d.Note, cmp.Or(d.Digest, a.Digest), a.ID, a.Status,
						a.Agent, a.Tools, a.Run})
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b decisionRecord) int { return b.At.Compare(a.At) })
	return all, partial, nil
}

// serveDecisions answers with the decisions that the filters admit, as JSON lines. Where not all requests were looked
// through, the last line says so.
func (c *console) serveDecisions(w http.ResponseWriter, r *http.Request) {
	q, err := readQuery(r, "status", "agent", "by")
	var all []decisionRecord
	var partial string
	if err == nil {
		all, partial, err = c.loadDecisions(r.Context(), q)
	}
	if err != nil {
		c.renderPage(w, r, 0, "", nil, err)
		return
	}
	setSecurityHeaders(w.Header(), c.policy)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Content-Disposition", `attachment; filename="decisions.jsonl"`)
	out := json.NewEncoder(w)
	for _, d := range all {
		if out.Encode(d) != nil { // the client is gone
			return
		}
	}
	if partial != "" {
		_ = out.Encode(map[string]string{"partial": partial}) // the client may be gone
	}
}

// verifyRuns recomputes the hashes of the journals that the decisions are in.
func (c *console) verifyRuns(ctx context.Context, decisions []decisionRecord) (all []verifiedRun, err error) {
	for _, d := range decisions {
		if len(all) >= maxJournaled || slices.ContainsFunc(all, func(v verifiedRun) bool { return v.Run == d.Run }) {
			continue
		}
		v := verifiedRun{Run: d.Run}
		for cursor := ""; v.Problem == ""; cursor = strconv.FormatInt(v.Entries-1, 10) {
			entries, err := c.Read.Journal(ctx, d.Run, cursor, maxPageMessages)
			if refused, ok := errors.AsType[*Problem](err); ok { // as of a visitor who is no auditor
				v.Problem = refused.Detail
				break
			}
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				if wrong := v.Add(e); wrong != nil && v.Problem == "" {
					v.Problem = wrong.Error()
				}
			}
			if len(entries) == 0 {
				break
			}
		}
		all = append(all, v)
	}
	return all, nil
}
