package api

import (
	"context"
	"net/http"

	"github.com/countersign/countersign/internal/runtime"
)

// listRepairs lists the repairs of the tenant's runs.
func (s *server) listRepairs(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	return readPage(r, func(limit int, cursor string) ([]runtime.Repaired, string, error) {
		return runtime.ListRepaired(r.Context(), s.Table, c.Tenant, limit, cursor)
	})
}

// Repairs lists a page of repairs, newest first.
func (c *Client) Repairs(ctx context.Context, cursor string, limit int) (Page[runtime.Repaired], error) {
	return get[Page[runtime.Repaired]](ctx, c, "/v1/repairs", values("cursor", cursor, "limit", number(limit)))
}
