package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/audit"
	"github.com/countersign/countersign/internal/policy"
)

// Auditors are who may read a tenant's audit chain: it tells of everybody's decisions.
var Auditors = []string{"group:auditors", "group:operators"}

// AuditPage is a part of the tenant's audit chain, in its order.
type AuditPage struct {
	Entries []audit.Line `json:"entries"`
	Head    audit.Head   `json:"head"`           // the newest entry of the chain, read before the entries; zero = there is none
	Next    int64        `json:"next,omitempty"` // the after of the next page; 0 = there is none yet
}

// auditHead is the header in which an answer of lines says the newest entry of the chain, read before them: its sequence and its hash.
const auditHead = "Audit-Head"

// linesType is the media type of JSON lines.
const linesType = "application/x-ndjson"

// audit reads the chain: as JSON, or as the very lines that are hashed.
func (s *server) audit(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if !policy.MayDecide(Auditors, c.Principal) {
		return 0, nil, problem(NotAllowed, "read the audit chain as %s: want a member of %s", c.Principal.ID, strings.Join(Auditors, " or "))
	}
	q, err := query(r, "after", "limit")
	if err != nil {
		return 0, nil, err
	}
	n, err := limit(q)
	if err != nil {
		return 0, nil, err
	}
	after := int64(0)
	if q.Has("after") {
		var ok bool
		if after, ok = whole(q.Get("after")); !ok || after < 0 || after > maxAfter {
			return 0, nil, invalid("after: got %.64q, want the sequence of an entry, or 0", q.Get("after"))
		}
	}
	if s.Audited != nil {
		if err := s.Audited(r.Context()); err != nil {
			return 0, nil, err
		}
	}
	head, lines, err := s.chain(r.Context(), c.Tenant, after, n)
	if err != nil {
		return 0, nil, err
	}
	if wantsLines(r) {
		writeLines(w, head, lines)
		return 0, nil, nil
	}
	p, err := auditPage(head, lines, n)
	return http.StatusOK, p, err
}

// maxAfter is beyond the place of every entry.
const maxAfter = 999_999_999_998

func (s *server) chain(ctx context.Context, tenant string, after int64, n int) (audit.Head, [][]byte, error) {
	log := audit.Log{Table: s.Table, Clock: s.Clock}
	head, err := log.Head(ctx, tenant)
	if err != nil {
		return head, nil, err
	}
	lines, err := log.Lines(ctx, tenant, after, n)
	return head, lines, err
}

func auditPage(head audit.Head, lines [][]byte, n int) (AuditPage, error) {
	p := AuditPage{Entries: []audit.Line{}, Head: head}
	for _, text := range lines {
		l, err := audit.ParseLine(text)
		if err != nil { // ask for lines, and verify them
			return p, problem(Internal, "an entry of the audit chain cannot be read: %v", err)
		}
		p.Entries = append(p.Entries, l)
		if len(p.Entries) == n {
			p.Next = l.Seq
		}
	}
	return p, nil
}

func wantsLines(r *http.Request) bool {
	for _, accepted := range strings.Split(r.Header.Get("Accept"), ",") {
		if t, _, err := mime.ParseMediaType(accepted); err == nil && t == linesType {
			return true
		}
	}
	return false
}

func writeLines(w http.ResponseWriter, head audit.Head, lines [][]byte) {
	w.Header().Set("Content-Type", linesType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set(auditHead, strings.TrimSpace(strconv.FormatInt(head.Seq, 10)+" "+head.Hash))
	w.WriteHeader(http.StatusOK)
	for _, l := range lines {
		_, _ = w.Write(append(bytes.Clone(l), '\n')) // the caller is gone; nobody is left to be told
	}
}

// Audit reads up to limit entries of the tenant's audit chain behind one.
func (c *Client) Audit(ctx context.Context, after int64, limit int) (AuditPage, error) {
	return get[AuditPage](ctx, c, "/v1/audit", values("after", number(int(after)), "limit", number(limit)))
}

// AuditLines reads up to limit lines of the tenant's audit chain behind an entry, each as it is hashed, and the newest entry of the chain as of before.
func (c *Client) AuditLines(ctx context.Context, after int64, limit int) (lines [][]byte, head audit.Head, err error) {
	resp, err := c.do(ctx, request{
		method: http.MethodGet, path: "/v1/audit", query: values("after", number(int(after)), "limit", number(limit)), accept: linesType,
	})
	if err != nil {
		return nil, head, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, head, unreachable(ctx, err)
	}
	seq, hash, _ := strings.Cut(resp.Header.Get(auditHead), " ")
	if head.Seq, err = strconv.ParseInt(seq, 10, 64); err != nil {
		return nil, head, fmt.Errorf("read the answer to GET /v1/audit: header %s: want a sequence and a hash", auditHead)
	}
	head.Hash = hash
	for line := range bytes.Lines(data) {
		lines = append(lines, bytes.TrimSuffix(line, []byte("\n")))
	}
	return lines, head, nil
}
