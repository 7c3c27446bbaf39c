package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/runtime"
)

// Fork is the body of POST /v1/runs/{id}/fork.
type Fork struct {
	At    *int64     `json:"at"`              // the last entry that both runs share
	Key   string     `json:"key,omitempty"`   // idempotency key; or the header Idempotency-Key
	Model *ForkModel `json:"model,omitempty"` // in place of the run's model; only where the backend is Local
}

// ForkModel names a model. The other settings of the run's model stay.
type ForkModel struct {
	Provider string `json:"provider"`
	ID       string `json:"id,omitempty"`
	BaseURL  string `json:"baseURL,omitempty"`
	File     string `json:"file,omitempty"`
}

func (s *server) forkRun(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	var b Fork
	if err := readBody(w, r, &b, false); err != nil {
		return 0, nil, err
	}
	switch {
	case b.At == nil:
		return 0, nil, invalidProblem("at: got nothing, want an entry's sequence")
	case b.Model != nil && !s.Local: // a model may name a file or an address of this machine
		return 0, nil, problem(NotAllowed, "model: only taken where the caller owns the machine")
	}
	key, err := idempotencyKey(r, b.Key)
	if err != nil {
		return 0, nil, err
	}
	f := runtime.Fork{Tenant: c.Tenant, Run: r.PathValue("id"), At: *b.At, Key: key, By: c.Principal.ID}
	if m := b.Model; m != nil {
		f.Model = &agent.ModelSpec{Provider: m.Provider, ID: m.ID, BaseURL: m.BaseURL, File: m.File}
	}
	run, err := s.Starter.Fork(r.Context(), f)
	if err = s.ignoreUnstarted(r, key, err); err != nil {
		return 0, nil, err
	}
	w.Header().Set("Location", "/v1/runs/"+run.Run)
	return http.StatusAccepted, newAccepted(run), nil
}

// Fork starts a run from another run's state after one of its entries, once for its key.
func (c *Client) Fork(ctx context.Context, run string, f Fork) (Accepted, error) {
	return post[Accepted](ctx, c, "/v1/runs/"+url.PathEscape(run)+"/fork", f, "")
}
