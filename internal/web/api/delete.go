package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// deleters may delete runs.
var deleters = []string{"group:operators"}

// deleteRun deletes a run that has ended, with all that belongs to it. It may be repeated.
func (s *server) deleteRun(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if !policy.MayDecide(deleters, c.Principal) {
		return 0, nil, problem(NotAllowed, "delete a run as %s: want a member of %s", c.Principal.ID, deleters[0])
	}
	out, err := s.Deleter.Delete(r.Context(), c.Tenant, r.PathValue("id"), c.Principal.ID)
	if err == nil && s.Log != nil { // the head tells a deletion from a journal that was taken out
		s.Log.Info("run deleted", "tenant", c.Tenant, "run", out.Run, "head", out.Hash, "by", c.Principal.ID)
	}
	return http.StatusOK, out, err
}

// listDeletions lists the tenant's deleted runs.
func (s *server) listDeletions(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	return readPage(r, func(limit int, cursor string) ([]store.Deletion, string, error) {
		return s.Journal.Deletions(r.Context(), c.Tenant, false, limit, cursor)
	})
}

// Delete deletes a run that has ended. It may be repeated.
func (c *Client) Delete(ctx context.Context, run string) (runtime.Deleted, error) {
	return send[runtime.Deleted](ctx, c, request{method: http.MethodDelete, path: "/v1/runs/" + url.PathEscape(run)})
}

// Deletions lists a page of deleted runs, the newest deletion first.
func (c *Client) Deletions(ctx context.Context, cursor string, limit int) (Page[store.Deletion], error) {
	return get[Page[store.Deletion]](ctx, c, "/v1/deletions", values("cursor", cursor, "limit", number(limit)))
}
