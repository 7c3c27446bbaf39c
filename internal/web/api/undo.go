package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/runtime"
)

// CallUndo is what would take a call back, or why nothing does.
type CallUndo struct {
	Tool   string          `json:"tool,omitempty"`   // of the call that would, by its original name
	Input  json.RawMessage `json:"input,omitempty"`  // and its arguments
	Reason string          `json:"reason,omitempty"` // why nothing does
	Run    string          `json:"run,omitempty"`    // that takes it back, once somebody has asked for it
	Status agent.RunStatus `json:"status,omitempty"` // of that run
	Ended  agent.Reason    `json:"ended,omitempty"`  // why that run has ended
}

// Undone is the answer to POST /v1/runs/{id}/calls/{call}/undo: the run that takes the call back.
type Undone struct {
	ID      string           `json:"id"`
	Status  agent.RunStatus  `json:"status"`
	Links   *Links           `json:"links"`
	Reason  agent.Reason     `json:"reason,omitempty"` // of that run
	Error   *agent.RunError  `json:"error,omitempty"`
	Call    string           `json:"call"` // that it makes
	Tool    string           `json:"tool"`
	State   agent.CallStatus `json:"callStatus"`
	Already bool             `json:"already"` // somebody had asked for it before
}

func (s *server) undo(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if _, err := query(r); err != nil {
		return 0, nil, err
	}
	var nothing struct{}
	if err := body(w, r, &nothing, true); err != nil { // so that nobody takes what they said for heard
		return 0, nil, err
	}
	id := r.PathValue("id")
	if !runPattern.MatchString(id) {
		return 0, nil, problem(RunNotFound, "undo a call of run %.64q: no such run", id)
	}
	run, again, err := s.Starter.Undo(r.Context(), runtime.Undo{Tenant: c.Tenant, Run: id, Call: r.PathValue("call"), By: c.Principal.ID})
	if err = s.unlessUnstarted(r, "undo", err); err != nil { // who asks again gets the same run
		return 0, nil, err
	}
	u := Undone{ID: run.Run, Status: run.Status, Links: accepted(run).Links, Reason: run.Reason, Error: run.Error, Already: again}
	if call, ok := run.Undoing(); ok {
		u.Call, u.Tool, u.State = call.ID, call.Tool, call.Status
	}
	w.Header().Set("Location", "/v1/runs/"+run.Run)
	if again {
		return http.StatusOK, u, nil
	}
	return http.StatusAccepted, u, nil
}

// withUndos adds to shown calls of a run what would take them back. That it cannot be said is no reason not to show the run.
func (s *server) withUndos(ctx context.Context, run *agent.AgentState, shown []Call) {
	if err := s.addUndos(ctx, run, shown); err != nil && s.Log != nil {
		s.Log.Warn("the undo of a run's calls is not shown", "run", run.Run, "error", err)
	}
}

func (s *server) addUndos(ctx context.Context, run *agent.AgentState, shown []Call) error {
	if len(shown) == 0 {
		return nil
	}
	def, err := s.Definitions(ctx, run.Tenant, run.Definition)
	if err != nil {
		return err
	}
	undos := s.Starter.Undos(run, def)
	for i := range shown {
		c, ok := run.Call(shown[i].ID)
		if !ok {
			continue
		}
		known, ok, err := undos.Of(ctx, c)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		shown[i].Undo = &CallUndo{known.Use.Tool, known.Use.Input, known.Reason, known.Run, known.Status, known.Ended}
	}
	return nil
}

// Undo asks for a call of a finished run to be taken back, as often as it takes: there is one run that does.
func (c *Client) Undo(ctx context.Context, run, call string) (Undone, error) {
	return post[Undone](ctx, c, "/v1/runs/"+url.PathEscape(run)+"/calls/"+url.PathEscape(call)+"/undo", struct{}{}, "")
}
