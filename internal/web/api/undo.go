package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// Undone is the response to POST /v1/runs/{id}/calls/{call}/undo: the run that undoes the call.
type Undone struct {
	ID      string         `json:"id"`
	Status  run.RunStatus  `json:"status"`
	Links   *Links         `json:"links"`
	Reason  run.Reason     `json:"reason,omitempty"` // of that run
	Error   *run.RunError  `json:"error,omitempty"`
	Call    string         `json:"call"` // that it makes
	Tool    string         `json:"tool"`
	State   run.CallStatus `json:"callStatus"`
	Already bool           `json:"already"` // somebody had asked for it before
}

func (s *server) undoCall(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	var nothing struct{}
	if err := readBody(w, r, &nothing, true); err != nil { // refuse unknown content
		return 0, nil, err
	}
	by := runtime.Undo{Tenant: c.Tenant, Run: r.PathValue("id"), Call: r.PathValue("call"), By: c.Principal.ID}
	run, again, err := s.Starter.Undo(r.Context(), by)
	if err = s.ignoreUnstarted(r, "undo", err); err != nil { // a retry returns the same run
		return 0, nil, err
	}
	call, _ := run.Undoing() // always set in a run of Undo
	w.Header().Set("Location", "/v1/runs/"+run.Run)
	status := http.StatusAccepted
	if again {
		status = http.StatusOK
	}
	return status, Undone{
		ID: run.Run, Status: run.Status, Links: newAccepted(run).Links, Reason: run.Reason, Error: run.Error,
		Call: call.ID, Tool: call.Tool, State: call.Status, Already: again,
	}, nil
}

// addUndos adds to calls what would undo them. An error is logged only.
func (s *server) addUndos(ctx context.Context, run *run.AgentState, shown []Call) {
	if len(shown) == 0 {
		return
	}
	ids := make([]string, len(shown))
	for i, c := range shown {
		ids[i] = c.ID
	}
	var undos map[string]*policy.CallUndo
	def, err := s.Definitions(ctx, run.Tenant, run.Definition)
	if err == nil {
		undos, err = s.Starter.Undos(ctx, run, def, ids)
	}
	if err != nil && s.Log != nil {
		s.Log.Warn("the undo of a run's calls is not shown", "run", run.Run, "error", err)
	}
	for i := range shown {
		shown[i].Undo = undos[shown[i].ID]
	}
}

// Undo starts the run that undoes a call of a finished run. Repeated calls return the same run.
func (c *Client) Undo(ctx context.Context, run, call string) (Undone, error) {
	return post[Undone](ctx, c, "/v1/runs/"+url.PathEscape(run)+"/calls/"+url.PathEscape(call)+"/undo", struct{}{}, "")
}
