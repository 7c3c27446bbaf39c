package api

import (
	"context"
	"net/http"

	"github.com/countersign/countersign/internal/runtime"
)

// RepairPage is a page of repairs, newest first.
type RepairPage struct {
	Repairs []runtime.Repaired `json:"repairs"`
	Cursor  string             `json:"cursor,omitempty"`
}

// listRepairs lists the repairs of the tenant's runs.
func (s *server) listRepairs(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	q, err := readQuery(r, "cursor", "limit")
	if err != nil {
		return 0, nil, err
	}
	n, err := readLimit(q)
	if err != nil {
		return 0, nil, err
	}
	at := q.Get("cursor")
	list, next, err := runtime.ListRepaired(r.Context(), s.Table, c.Tenant, n, at)
	if err != nil {
		return 0, nil, badCursor(at, err)
	}
	return http.StatusOK, RepairPage{append([]runtime.Repaired{}, list...), next}, nil
}

// Repairs lists a page of repairs.
func (c *Client) Repairs(ctx context.Context, cursor string, limit int) (RepairPage, error) {
	return get[RepairPage](ctx, c, "/v1/repairs", values("cursor", cursor, "limit", number(limit)))
}
